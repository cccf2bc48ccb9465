"""Greedy collaboration graphs (GGC and its batched variant BGGC): choices by rewards of groups."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from topofl._support.check import as_array, check_finite, check_int, check_switch, shown
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.topologies._generator import generator
from topofl.topology import Topology, from_edges, need_topology

__all__ = ["averaged_reward", "bggc", "ggc", "greedy_collaboration"]


Reward = Callable[[int, tuple[int, ...]], float]
Loss = Callable[[int, np.ndarray], float]
Models = np.ndarray | Callable[[np.ndarray], np.ndarray]
Group = TypeVar("Group")
Question = TypeVar("Question")
Answer = TypeVar("Answer")
OtherQuestion = TypeVar("OtherQuestion")
OtherAnswer = TypeVar("OtherAnswer")
T = TypeVar("T")

WORST = -float(np.finfo(np.float32).max)
"""Reward of a group whose loss is not finite; candidates that lead to it are not added."""

_ROUNDING = 1e-12
"""Rounding: a gain must exceed this fraction of the rewards whose difference it is."""


@public
def ggc(
    reward: Reward,
    k: int,
    candidates: Iterable[int],
    budget: int | None = None,
    *,
    count_self: bool = False,
    seed: Seed,
) -> tuple[int, ...]:
    """Return the nodes that node `k` chooses by Greedy Graph Construction, in ascending order.

    X starts as {k}, and Y as k with all candidates. Candidates j are visited once in random order.
    With the gain of adding, ``a = max(R(X + j) - R(X), 0)``, and that of removing, ``b = max(R(Y -
    j) - R(Y), 0)``, j is added to X with probability ``a / (a + b)`` (1 if both are 0), else
    removed from Y. The loop ends when X reaches the budget. Candidates are thus judged by their
    contribution to a small and a large group, and need not help or hurt on their own.

    Without a budget, and if the reward is submodular and non-negative, the expected reward is at
    least half of the optimum (Buchbinder et al. 2015). In general it may be lower than that of
    choosing no node, since a candidate is added if both gains are 0.

    Parameters
    ----------
    reward
        As in :func:`greedy_collaboration`; called at most ``2 |candidates| + 2`` times.
    k
        The node.
    candidates
        Distinct nodes other than `k`.
    budget
        Maximum number of nodes to choose, at least 0; None: no limit.
    count_self
        Whether `k` counts toward the budget, which must then be at least 1, as in the paper's
        listing; in its text the budget is the number of collaborators.
    seed
        Integer or generator. The order and one number per candidate are drawn first, independently
        of the decisions.

    Raises
    ------
    TypeError
        If `reward` is not a function or does not return a number.
    ValueError
        If a reward is not finite (the message names node and group); if `candidates` contain `k`,
        or a node twice; if `budget` is out of range.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), Algorithm 2, with the probability for a = b = 0 from
    the text. Buchbinder, Feldman, Naor and Schwartz, "A tight linear time (1/2)-approximation for
    unconstrained submodular maximization" (2015): the randomized double greedy.

    Examples
    --------
    >>> value = {(0,): 0, (0, 1): -11, (0, 2): -11, (0, 1, 2): 6}  # only both together help
    >>> ggc(lambda k, members: value[members], 0, [1, 2], seed=0)
    (1, 2)
    """
    _check_function("reward", reward, "(node, members)")
    pool, limit = _checked(k, candidates, budget, count_self)
    order, coins = shuffled(k, pool, seed)

    def value(members: frozenset[int]) -> float:
        return _finite("reward", reward(k, tuple(sorted(members))), k, members)

    alone = frozenset({k})
    everyone = frozenset({k, *pool.tolist()})
    steps = double_greedy(
        alone, everyone, order, coins, limit, lambda x, j: x | {j}, lambda y, j: y - {j}
    )
    return tuple(answer_queries(steps, lambda groups: [value(group) for group in groups]))


def double_greedy(
    taken: Group,
    left: Group,
    order: Sequence[int],
    coins: Sequence[float],
    limit: int,
    plus: Callable[[Group, int], Group],
    minus: Callable[[Group, int], Group],
    rounding: float = _ROUNDING,
) -> Generator[tuple[Group, Group], Sequence[float], list[int]]:
    """Return the candidates that randomized double greedy adds; groups may have any type.

    Parameters
    ----------
    taken, left
        The group of the node alone, and that of the node and all candidates.
    order, coins
        The candidates in the order of decisions, and a number in [0, 1) for each.
    limit
        Number of added candidates at which the loop ends.
    plus, minus
        Functions of a group and a candidate that return the group with the candidate and without
        it.
    rounding
        A gain must exceed this fraction of the rewards whose difference it is.

    Yields
    ------
    tuple
        Two groups; the generator must be sent their rewards.
    """
    chosen: list[int] = []
    if limit == 0:
        return chosen
    low, high = yield taken, left
    for j, coin in zip(order, coins, strict=True):
        more, less = plus(taken, j), minus(left, j)
        added, removed = yield more, less
        if _accepts(low, added, high, removed, coin, rounding):
            taken, low = more, added
            chosen.append(j)
        else:
            left, high = less, removed
        if len(chosen) == limit:
            break
    return sorted(chosen)


@public
def bggc(
    loss: Loss,
    k: int,
    candidates: Iterable[int],
    budget: int | None = None,
    *,
    models: Models,
    weights: Any,
    batch: int | None = None,
    count_self: bool = False,
    seed: Seed,
) -> tuple[int, ...]:
    """Return the choice of :func:`ggc` for averaged models, with one batch of models in memory.

    The models of the candidates are streamed twice: once to sum them, and once, in random order, to
    decide on each with two running sums, of the chosen models and of the models not rejected. The
    latter, from which models are subtracted, has twice the digits of float64. With the same seed
    the choice is that of `ggc` (Theorem 1) up to rounding.

    Parameters
    ----------
    loss
        Function of the node k and a model, a (d,) float64 vector.
    k, candidates, budget, count_self, seed
        As in :func:`ggc`.
    models
        (n, d) array with the model of every node, or a function that returns the (m, d) models of a
        vector of m nodes, if they do not all fit in memory.
    weights
        (n,) positive numbers, for example numbers of examples.
    batch
        Maximum number of models to fetch at once; default: the budget.

    Raises
    ------
    TypeError, ValueError
        As :func:`ggc`, with `loss` for `reward`; if `models`, `weights` or `batch` is out of range
        or has the wrong shape.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), Algorithm 3 and Theorem 1.

    Examples
    --------
    >>> models = np.array([[0.0], [1.0], [2.0], [9.0]])
    >>> loss = lambda k, model: abs(model[0] - 1)
    >>> bggc(loss, 0, [1, 2, 3], models=models, weights=np.ones(4), batch=1, seed=0)
    (1, 2)
    """
    _check_function("loss", loss, "(node, model)")
    pool, limit = _checked(k, candidates, budget, count_self)
    shares = _checked_weights(weights, max([k, *pool.tolist()]) + 1)
    size = check_int("batch", max(1, limit) if batch is None else batch, minimum=1)
    order, coins = shuffled(k, pool, seed)
    if limit == 0:
        return ()

    def value(total: np.ndarray, members: set[int]) -> float:
        return -_finite("loss", loss(k, total[1:] / total[0]), k, members)

    taken = {k}
    left = {k, *pool.tolist()}
    # Sums of the weights, followed by sums of the weighted models.
    sum_taken = shares[k] * np.append(1.0, _fetch(models, np.array([k]))[0])
    sum_left = sum_taken
    rest_left = np.zeros_like(sum_taken)
    for j, model in _streamed(models, pool, size):
        sum_left, rest_left = _plus(sum_left, rest_left, shares[j] * np.append(1.0, model))
    low = value(sum_taken, taken)
    high = value(sum_left + rest_left, left)
    for (j, model), coin in zip(_streamed(models, np.array(order), size), coins, strict=True):
        term = shares[j] * np.append(1.0, model)
        less, rest = _plus(sum_left, rest_left, -term)
        added = value(sum_taken + term, taken | {j})
        removed = low if left - {j} == taken else value(less + rest, left - {j})
        if _accepts(low, added, high, removed, coin):
            taken, sum_taken, low = taken | {j}, sum_taken + term, added
        else:
            left, sum_left, rest_left, high = left - {j}, less, rest, removed
        if len(taken) > limit:
            break
    return tuple(sorted(taken - {k}))


@public
def averaged_reward(loss: Loss, models: np.ndarray, weights: Any) -> Reward:
    """Return DPFL's reward: minus the loss, at node k, of the weighted mean of the group's models.

    Parameters
    ----------
    loss
        Function of a node and a model, a (d,) float64 vector; in DPFL the loss on the node's
        validation data.
    models
        (n, d) array with the model of every node.
    weights
        (n,) positive numbers, for example numbers of examples; only their ratios matter.

    Raises
    ------
    ValueError
        If `models` is not finite of shape (n, d), or `weights` are not n positive numbers.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL" (2025), equation 7.

    Examples
    --------
    >>> models = np.array([[1.0], [-3.0]])
    >>> reward = averaged_reward(lambda k, model: float(model[0] ** 2), models, [3, 1])
    >>> reward(0, (0, 1)), reward(0, (0,))
    (-0.0, -1.0)
    """
    vectors = _fetch(models, np.arange(len(models)))
    shares = _checked_weights(weights, len(vectors))

    def reward(k: int, members: tuple[int, ...]) -> float:
        group = list(members)
        return -loss(k, shares[group] @ vectors[group] / shares[group].sum())

    return reward


def _check_function(name: str, function: object, takes: str) -> None:
    if not callable(function):
        raise TypeError(f"`{name}` must be a function {takes} -> number, got {shown(function)}")


def _accepts(
    low: float, added: float, high: float, removed: float, coin: float, rounding: float = _ROUNDING
) -> bool:
    """Return whether to add j, given R(X), R(X + j), R(Y), R(Y - j) and a uniform number."""
    if added <= WORST:
        return False
    a, b = _gain(low, added, rounding), _gain(high, removed, rounding)
    return a == b == 0 or coin < a / (a + b)


def _plus(total: np.ndarray, rest: np.ndarray, term: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of `total` and `term`, and `rest` plus its rounding error (Knuth's TwoSum)."""
    after = total + term
    part = after - total
    return after, rest + ((total - (after - part)) + (term - part))


def _gain(before: float, after: float, rounding: float) -> float:
    """Return the increase of a reward, or 0 if it is a decrease or rounding."""
    return after - before if after - before > rounding * max(abs(before), abs(after)) else 0.0


def shuffled(k: int, pool: np.ndarray, seed: Seed) -> tuple[list[int], list[float]]:
    """Return the candidates in random order, and a uniform number for each of them."""
    rng = stream(seed, "collaboration", k)
    return rng.permutation(pool).tolist(), rng.random(len(pool)).tolist()


def _streamed(models: Models, nodes: np.ndarray, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each node and its model, fetched in batches."""
    for start in range(0, len(nodes), size):
        part = nodes[start : start + size]
        yield from zip(part.tolist(), _fetch(models, part), strict=True)


def _fetch(models: Models, nodes: np.ndarray) -> np.ndarray:
    """Return the (m, d) float64 models of m nodes, or raise."""
    array = as_array("models", models(nodes) if callable(models) else models)
    rows = len(nodes) if callable(models) else max([*array.shape[:1], nodes.max(initial=-1) + 1])
    if array.ndim != 2 or len(array) != rows:
        raise ValueError(
            f"`models` must have shape (n, d), here with n={rows}, got shape {array.shape}"
        )
    return check_finite("models", (array if callable(models) else array[nodes]).astype(np.float64))


def _finite(name: str, value: object, k: int, members: Iterable[int]) -> float:
    """Return the value of `reward` or `loss` as a finite float; errors name node and group."""
    where = f"for node {k} with the group {tuple(sorted(members))}"
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must return a number, got {shown(value)} {where}") from error
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must return a finite number, got {number} {where}")
    return number


def _checked(
    k: int, candidates: Iterable[int], budget: int | None, count_self: bool
) -> tuple[np.ndarray, int]:
    """Return the sorted candidates and the maximum number to choose, or raise."""
    k = check_int("k", k, minimum=0)
    count_self = bool(check_switch("count_self", count_self, auto=False))
    pool = sorted(check_int("candidates", j, minimum=0) for j in candidates)
    if k in pool:
        raise ValueError(
            f"`candidates` must not contain the node itself, k={k}, which is in every group"
        )
    if len(set(pool)) != len(pool):
        raise ValueError(f"`candidates` must be distinct, got {pool}")
    if budget is None:
        return np.array(pool, np.int64), len(pool)
    limit = check_int("budget", budget, minimum=int(count_self)) - int(count_self)
    return np.array(pool, np.int64), min(limit, len(pool))


def _checked_weights(weights: Any, n: int) -> np.ndarray:
    """Return the weights as a vector of positive numbers for at least n nodes, or raise."""
    shares = as_array("weights", weights, np.float64)
    if shares.ndim != 1 or len(shares) < n:
        raise ValueError(
            f"`weights` must be one number per node, for at least {n} nodes, "
            f"got shape {shares.shape}"
        )
    invalid = np.flatnonzero(~(np.isfinite(shares) & (shares > 0)))
    if len(invalid):
        raise ValueError(
            f"`weights` must be finite and above 0, got {shares[invalid[0]]:g} for node "
            f"{invalid[0]}"
        )
    return shares


def _closeness_on_a_line(node: int, members: tuple[int, ...]) -> float:
    """Return the reward of an example: close neighbors on a line help, distant ones hurt."""
    return sum(2.0 - abs(node - other) for other in members if other != node)


def _example() -> Topology:
    """Return the example graph of the gallery."""
    return greedy_collaboration(_closeness_on_a_line, 30, 3, seed=0)


@generator(family="learned from rewards", examples=[_example])
def greedy_collaboration(
    reward: Reward,
    n: int,
    budget: int | Sequence[int] | None = None,
    *,
    candidates: Topology | None = None,
    count_self: bool = False,
    seed: Seed,
) -> Topology:
    """Return DPFL's collaboration graph: each node receives from the nodes that it chooses.

    The graph has the edge i -> k if and only if :func:`ggc` chooses i for k. It need not be
    connected.

    Parameters
    ----------
    reward
        Function of a node k and a group, the ascending tuple of k and other nodes, that returns the
        benefit for k of averaging over the group; higher is better. See :func:`averaged_reward` for
        DPFL's reward.
    n
        Number of nodes, at least 1.
    budget
        Maximum number of nodes that a node may choose, or one such number per node; None: no limit.
    candidates
        Graph on n nodes; a node may choose only its in-neighbors there. Default: all other nodes,
        which takes up to 2 n rewards per node.
    count_self
        Whether a node counts towards its own budget.
    seed
        Integer or generator; with an integer, each node has an independent stream.

    Raises
    ------
    TypeError
        If `reward` is not a function or does not return a number, or `candidates` is not a
        Topology.
    ValueError
        If a reward is not finite (the message names node and group); if `n` or `budget` is out of
        range; if `candidates` or `budget` is for another number of nodes.

    References
    ----------
    Kharrat, Canini and Horvath, "DPFL: Decentralized personalized federated learning" (2025),
    Algorithms 1 and 2.

    Examples
    --------
    >>> def same_parity(k, members):
    ...     return -sum((k - i) % 2 for i in members)
    >>> greedy_collaboration(same_parity, 6, seed=0).in_neighbors(1).tolist()
    [3, 5]
    """
    budgets = _budgets(budget, n)
    chosen = [
        ggc(reward, k, pool, limit, count_self=count_self, seed=seed)
        for k, (pool, limit) in enumerate(zip(_pools(candidates, n), budgets, strict=True))
    ]
    edges = [(i, k) for k, nodes in enumerate(chosen) for i in nodes]
    return from_edges(edges, n, directed=True)


def _budgets(budget: int | Sequence[int] | None, n: int) -> list[int | None]:
    """Return a budget for each node."""
    if budget is None or (shape := as_array("budget", budget).shape) == ():
        return [budget] * n  # pyright: ignore[reportReturnType]
    if shape != (n,):
        raise ValueError(f"`budget` must be one number, or one per node (n={n}), got shape {shape}")
    return list(budget)  # pyright: ignore[reportArgumentType]


def _pools(candidates: Topology | None, n: int) -> list[list[int]]:
    """Return the candidates of each node."""
    if candidates is None:
        return [[*range(k), *range(k + 1, n)] for k in range(n)]
    need_topology("candidates", candidates, n)
    senders = candidates.adjacency.tocsc()
    return [nodes.tolist() for nodes in np.split(senders.indices, senders.indptr[1:-1])]


def answer_queries(
    steps: Generator[Question, Answer, T], answer: Callable[[Question], Answer]
) -> T:
    """Run a generator, sending it the answer to each query that it yields; return its result.

    Examples
    --------
    >>> def twice():
    ...     return (yield 1), (yield 2)
    >>> answer_queries(twice(), lambda question: 10 * question)
    (10, 20)
    """
    try:
        question = next(steps)
        while True:
            question = steps.send(answer(question))
    except StopIteration as end:
        return end.value


def translate_queries(
    steps: Generator[Question, Answer, T],
    question: Callable[[Question], OtherQuestion],
    answer: Callable[[OtherAnswer], Answer],
) -> Generator[OtherQuestion, OtherAnswer, T]:
    """Run a generator with its queries and their answers translated; return its result."""
    try:
        query = next(steps)
        while True:
            query = steps.send(answer((yield question(query))))
    except StopIteration as end:
        return end.value
