"""FedAsync and FedBuff: a server that takes in updates as they arrive, on a simulated clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from torch import Tensor

from topofl._support.calls import evaluate_call
from topofl._support.check import (
    TOLERANCE,
    check_int,
    check_kind,
    check_nonnegative,
    check_positive,
    check_share,
    check_takes,
    shown,
)
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import (
    Epochs,
    Steps,
    Training,
    check_amount,
    check_work,
    epochs_or_steps,
)
from topofl.algorithms.contract.phase import Algorithm, Phase, chain, on_all_models
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import proximal
from topofl.algorithms.exchanges.events import groups_without_repeats, model_bytes, zero_times
from topofl.clocks import AnyClock, Clock, as_clock
from topofl.mixing import average_of

__all__ = ["Discount", "fedasync", "fedbuff", "hinge_discount", "polynomial_discount"]


@dataclass(frozen=True)
class Discount:
    """The weight of an update by its staleness; see :func:`fedasync`.

    Parameters
    ----------
    name
        Its name in settings.
    weight
        ``weight(staleness)``: from the number of versions of the server's model between the one
        that was trained and the one that it is added to, 0 for none, to a number of at least 0.
    settings
        Its arguments, saved with results.

    Examples
    --------
    Updates that are staler than 5 are dropped:

    >>> fresh = Discount("fresh", lambda staleness: float(staleness <= 5))
    >>> fedasync(lr=0.1, discount=fresh).settings["events"]["discount"]
    'fresh()'
    """

    name: str
    weight: Callable[[int], float]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_takes(f"`weight` of the discount {self.name!r}", self.weight, "staleness")

    def at(self, staleness: int) -> float:
        """Return the weight of a staleness; raise if it is not a finite number of at least 0."""
        found, call = self.weight(staleness), f"`weight({staleness})` of the discount {self.name!r}"
        if isinstance(found, bool) or not isinstance(found, int | float | np.number):
            raise TypeError(f"{call} must return a number, got {shown(found)}")
        if not 0 <= found < float("inf"):
            raise ValueError(f"{call} must return a finite number of at least 0, got {found:g}")
        return float(found)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={x:g}' for key, x in self.settings.items())})"


@public
def polynomial_discount(a: float = 0.5) -> Discount:
    """Return the weight ``(staleness + 1)^-a`` of stale updates; FedBuff has ``a = 0.5``.

    Examples
    --------
    >>> [polynomial_discount(0.5).weight(staleness) for staleness in (0, 3, 99)]
    [1.0, 0.5, 0.1]
    """
    power = check_nonnegative("a", a)
    return Discount("polynomial_discount", lambda stale: float((stale + 1) ** -power), {"a": power})


@public
def hinge_discount(a: float = 10.0, b: float = 4.0) -> Discount:
    """Return the weight 1 up to a staleness of b, and ``1 / (a * (staleness - b) + 1)`` above it.

    Examples
    --------
    >>> [hinge_discount(a=1.0, b=4).weight(staleness) for staleness in (0, 4, 5, 7)]
    [1.0, 1.0, 0.5, 0.25]
    """
    slope, bend = check_nonnegative("a", a), check_nonnegative("b", b)

    def weight(stale: int) -> float:
        return 1 / (slope * max(stale - bend, 0.0) + 1)

    return Discount("hinge_discount", weight, {"a": slope, "b": bend})


AnyDiscount: TypeAlias = Discount | str | None
"""A discount, text such as "polynomial_discount(0.5)", or None for equal weights."""


@public
def fedasync(
    lr: Rate,
    *,
    alpha: float = 0.9,
    discount: AnyDiscount = None,
    strength: float = 0.0,
    concurrency: int | None = None,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    clock: AnyClock = None,
) -> Algorithm:
    """Return FedAsync: a server mixes each model into its own when it arrives, by its staleness.

    A node i that begins at time ``s`` gets the server's model ``x_i = x`` and its version
    ``v_i = v``, trains, and sends the result::

        y_i = y_i - lr * (grad F_i(y_i) + strength * (y_i - x_i))  (`epochs` passes from y_i = x_i)

    which takes as long as a message from the server, the local steps, and a message to the server.
    When it arrives, the server, which may have had other versions in the meantime, sets::

        k = v - v_i,   a = alpha * discount(k),   x = (1 - a) * x + a * y_i,   v = v + 1

    and the node begins again; with `concurrency`, a random one of all nodes that do not train
    begins instead. A round consists of the next n arrivals in order of time, with ties broken by
    node number: as many updates as a round of FedAvg. In the history, ``simulated_seconds`` is the
    time of the round's last arrival, and ``staleness`` the largest ``k`` of the round. All nodes
    then hold ``x``, so the server's model is evaluated. All nodes must start from one model. An
    arrival sends two messages, one model each way; the mixing matrix in the history weights nodes
    by their arrivals. No topology is needed; one that is given is ignored. An arrival from a node
    that is frozen because it diverged leaves ``x`` unchanged.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`, of the
        round in which the update arrives.
    alpha
        Weight of a fresh model, above 0 and at most 1.
    discount
        How the weight decreases with the staleness: :func:`polynomial_discount` or
        :func:`hinge_discount`, also as text, or a :class:`Discount`. None: not at all.
    strength
        Strength of the proximal term, the paper's rho, at least 0.
    concurrency
        Number of nodes that train at a time, from 1 to n. They are drawn at random. None: all.
    batch_size, epochs, steps
        As in :func:`topofl.algorithms.fedavg`, and at least one step.
    clock
        A :class:`topofl.clocks.Clock`, or a dictionary of its arguments; `delay` is one number, or
        random times with one mean. None: steps take one second, and messages no time.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or if a table of the clock has another
        number of nodes or is for links; if nodes start from different models; if `alpha` times the
        discount is above 1, for a staleness of 0 at once, for others when one occurs.

    Notes
    -----
    The authors' code draws the staleness uniformly, up to a maximum, instead of simulating a clock,
    and halves `alpha` after 400 rounds. There, `alpha` is 0.9.

    References
    ----------
    Xie, Koyejo and Gupta, "Asynchronous federated optimization" (2019), Algorithm 1, and the
    authors' code xcgoner/async_fl, train_cifar10_mxnet_fedasync_singlethread_impl.py.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> slow = {"compute": [1.0] * 9 + [10.0], "delay": 0.5}  # one straggler
    >>> method = fedasync(lr=0.1, alpha=0.2, discount=polynomial_discount(0.5), steps=5, clock=slow)
    >>> history = topofl.run(method, model=models.logistic_regression(64), clients=clients,
    ...                      rounds=30, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8), bool(history["staleness"].max() > 60)
    (True, True)
    """
    share, weight = check_share("alpha", alpha), _as_discount(discount)

    def mix(x: Tensor, state: State, sent: Tensor, pulled: Tensor, stale: int, place: int) -> None:
        x.lerp_(sent, _part(share, weight, stale))

    _part(share, weight, 0)  # mistakes show before a run
    rule = _Rule("fedasync", mix, 1, {"alpha": share, "discount": str(weight)})
    terms = [proximal(strength)] if check_nonnegative("strength", strength) else []
    work = check_work(**epochs_or_steps(epochs, steps), least=1)
    size = check_amount("batch_size", batch_size, least=1)
    training = Training(descend(*terms, lr=lr), size, *work)
    return _served(rule, training, concurrency, as_clock(clock))


@public
def fedbuff(
    lr: Rate,
    *,
    buffer: int = 10,
    server_lr: float = 1.0,
    discount: AnyDiscount = "polynomial_discount(0.5)",
    concurrency: int | None = None,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    clock: AnyClock = None,
) -> Algorithm:
    """Return FedBuff: a server adds the mean of the last `buffer` updates, by their staleness.

    Nodes pull, train and send as in :func:`fedasync`, without a proximal term. When the result
    ``y_i`` of node i arrives, which began from ``x_i`` of version ``v_i``::

        Delta = Delta + discount(v - v_i) * (y_i - x_i)
        x = x + server_lr * Delta / K,   v = v + 1,   Delta = 0   (after every K-th arrival)

    with K the `buffer`. Updates that are in the buffer at the end of a round stay in it. With
    ``buffer=1`` every update is added as it arrives.

    Parameters
    ----------
    lr, concurrency, batch_size, epochs, steps, clock
        As in :func:`fedasync`.
    buffer
        Number of updates that the server waits for, at least 1.
    server_lr
        Step size of the server, above 0.
    discount
        As in :func:`fedasync`. By default, ``1 / sqrt(1 + staleness)``.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or if a table of the clock has another
        number of nodes or is for links; if nodes start from different models.

    Notes
    -----
    In the authors' library FLSim, weights are divided by that of a staleness of 1, and the server
    adds the sum over the buffer instead of the mean; both only scale `server_lr`.

    References
    ----------
    Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek and Huba, "Federated learning with buffered
    asynchronous aggregation" (2022), Algorithm 1, and the authors' library facebookresearch/FLSim,
    flsim/optimizers/async_aggregators.py (``FedBuffAggregator``).

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> slow = {"compute": [1.0] * 9 + [10.0], "delay": 0.5}  # one straggler
    >>> history = topofl.run(fedbuff(lr=0.1, buffer=3, steps=5, clock=slow), rounds=30, seed=0,
    ...                      model=models.logistic_regression(64), clients=clients)
    >>> bool(history.last("accuracy").mean() > 0.8), bool(history["staleness"].max() > 20)
    (True, True)
    """
    size, rate = check_int("buffer", buffer, minimum=1), check_positive("server_lr", server_lr)
    weight = _as_discount(discount)

    def add(x: Tensor, state: State, sent: Tensor, pulled: Tensor, stale: int, place: int) -> None:
        waiting = state["waiting"][0]
        waiting.add_(sent - pulled, alpha=weight.at(stale))
        if (place + 1) % size == 0:
            x.add_(waiting, alpha=rate / size)
            waiting.zero_()

    told = {"buffer": size, "server_lr": rate, "discount": str(weight)}
    work = check_work(**epochs_or_steps(epochs, steps), least=1)
    batch = check_amount("batch_size", batch_size, least=1)
    training = Training(descend(lr=lr), batch, *work)
    return _served(_Rule("fedbuff", add, size, told), training, concurrency, as_clock(clock))


def _part(alpha: float, discount: Discount, staleness: int) -> float:
    """Return the weight of an arriving model in the server's; raise if it is above 1."""
    part = alpha * discount.at(staleness)
    if part > 1 + TOLERANCE:
        weight = f"`weight({staleness})` of the discount {discount.name!r}"
        raise ValueError(
            f"`alpha` times {weight} must be at most 1, got {part:g}: the server's model would go "
            "beyond the one that arrives; use a smaller alpha, or a discount of at most 1"
        )
    return part


def _as_discount(discount: AnyDiscount) -> Discount:
    """Return a discount from itself, text or None."""
    functions = {one.__name__: one for one in (polynomial_discount, hinge_discount)}
    example = "polynomial_discount(0.5)"
    if isinstance(discount, str):
        discount = evaluate_call("discount", discount, functions, example)
    if discount is None:
        return Discount("no_discount", lambda stale: 1.0)
    return check_kind("discount", discount, Discount, f"a Discount such as {example}")


@dataclass(frozen=True)
class _Rule:
    """What a server does with what arrives.

    Attributes
    ----------
    name, settings
        Of the method.
    receive
        ``receive(x, state, sent, pulled, stale, place)`` changes the server's model x (d,) in
        place, by what a node sent (d,), the model that it had pulled (d,), its staleness, and the
        number of earlier arrivals.
    arrivals
        Number of arrivals per version of the server's model.
    """

    name: str
    receive: Callable[[Tensor, State, Tensor, Tensor, int, int], None]
    arrivals: int
    settings: Mapping[str, Any]


def _served(rule: _Rule, training: Training, concurrency: int | None, clock: Clock) -> Algorithm:
    """Return the method whose server receives models by a rule."""
    active = None if concurrency is None else check_int("concurrency", concurrency, minimum=1)

    def init(models: Models) -> State:
        n = len(models.flat)
        _check_clock(clock, n)
        check_int("concurrency", active or n, minimum=1, maximum=n, maximum_name="n")
        server = {"server": models.start, "waiting": models.flat.new_zeros(1, models.d)}
        times = zero_times(due=(n,), begun=(n,), seconds=(1,))
        return server | {"pulled": models.flat.clone()} | times

    def apply(models: Models, state: State, round: Round) -> State:
        counts = training.counts(round.sizes)
        events = _arrivals(models, state, round, clock, counts, active or round.n, rule.arrivals)
        pulled, x = models.like(state["pulled"]), state["server"][0]
        place = round.t * round.n
        groups = groups_without_repeats(events, lambda event: event[:2])
        for message, group in enumerate(groups):
            before = pulled.flat.clone()
            here = np.isin(np.arange(round.n), [i for i, _, _ in group])
            taken = round.train(pulled, training, training.init(models), participants=here)
            sent = round.published(pulled.flat, message)
            for i, j, stale in group:
                received = sent[i] if taken[i] else x.clone()  # frozen nodes take no steps
                old = before[i] if taken[i] else received
                rule.receive(x, state, received, old, stale, place)
                pulled.flat[j] = x
                place += 1
        _count_messages(models, round, events)
        models.flat.copy_(x.expand_as(models.flat))
        return state

    settings = training.settings | dict(rule.settings) | {"clock": clock.settings}
    settings |= {} if active is None else {"concurrency": active}
    return chain(rule.name, events=on_all_models(Phase(init, apply, settings)))


def _check_clock(clock: Clock, n: int) -> None:
    """Raise ``ValueError`` unless a clock has a number for each node, and one for all messages."""
    clock.check(n)
    mean = cast(Any, clock.delay).mean
    if mean.ndim:
        raise ValueError(
            "`clock.delay` must be one number with a server, which has no row, got a table of "
            f"shape {mean.shape}"
        )


def _arrivals(
    models: Models,
    state: State,
    round: Round,
    clock: Clock,
    counts: np.ndarray,
    active: int,
    per_version: int,
) -> list[tuple[int, int, int]]:
    """Simulate a round; return (node, next node, staleness) of its arrivals in order of time."""
    due, begun, seconds = (state[name].numpy() for name in ("due", "begun", "seconds"))
    rng, n, nbytes = round.rng("events"), round.n, model_bytes(models)

    def begin(i: int, now: float, version: int) -> None:
        links = clock.messages(rng, [i, i], [i, i], nbytes)
        due[i] = now + links.sum() + clock.steps(rng, np.full(counts[i], i)).sum()
        begun[i] = version

    if round.t == 0:
        due[:] = np.inf
        for i in range(n) if active == n else rng.permutation(n)[:active].tolist():
            begin(i, 0.0, 0)
    events = []
    for done in range(round.t * n, (round.t + 1) * n):
        i = int(due.argmin())
        seconds[0], due[i] = due[i], np.inf
        idle = np.flatnonzero(np.isinf(due))
        j = i if active == n else int(idle[rng.integers(len(idle))])
        events.append((i, j, done // per_version - int(begun[i])))
        begin(j, float(seconds[0]), (done + 1) // per_version)
    round.note("simulated_seconds", float(seconds[0]))
    round.note("staleness", max(stale for _, _, stale in events))
    return events


def _count_messages(models: Models, round: Round, events: list[tuple[int, int, int]]) -> None:
    """Count a message to the server and one from it for each arrival."""
    left = np.bincount([i for i, _, _ in events], minlength=round.n)
    while left.any():
        round.send(average_of(left.astype(float)), model_bytes(models), server=True)
        left = np.maximum(left - 1, 0)
