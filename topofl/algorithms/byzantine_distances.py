"""D-SGD with robust rules that compare whole models by their distances or directions."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int, check_positive
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.algorithms.byzantine_robust import beyond_half, beyond_number, exposure
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import dsgd_steps
from topofl.algorithms.contract.needs import Need, needing
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.mixing import MixingMatrix

__all__ = ["bulyan", "fltrust", "geometric_median", "krum"]


def _too_few(weights: MixingMatrix, *, attackers: int, bucket: int, times: int) -> str:
    """Return which node receives from others, but has too few buckets, or an empty text."""
    received, _, _ = exposure(weights, np.zeros(weights.n, dtype=bool))
    least = times * attackers + 3
    few = np.flatnonzero((received > 0) & (-(-(received + 1) // bucket) < least))
    if not len(few):
        return ""
    worst = int(few[received[few].argmin()])
    others = (least - 1) * bucket
    return (
        f"with attackers={attackers}, node {node_name(weights.nodes, worst)} must receive from "
        f"{others} others and receives from {received[worst]}; {len(few)} of {weights.n} nodes "
        "receive from too few"
    )


def _beyond(
    weights: MixingMatrix, bad: np.ndarray, *, attackers: int, bucket: int, times: int
) -> str:
    """Return which node receives from more than `attackers` attackers, or an empty text."""
    return beyond_number(
        weights,
        bad,
        f"attackers={attackers}",
        lambda more: not _too_few(weights, attackers=more, bucket=bucket, times=times),
        largest=(-(-weights.n // bucket) - 3) // times,
    )


def _enough(times: int) -> Need:
    """Return the need for so many neighbors that a rule tolerates its number of attackers."""
    return Need(
        f"at least {times} * attackers + 3 models at each node",
        f"the rule is defined for {times} * attackers + 3 models or buckets, a node's own included",
        "add edges, or give a smaller `attackers` or `bucket`",
        weights=lambda weights, **given: _too_few(weights, times=times, **given),
        attacked=lambda weights, bad, **given: _beyond(weights, bad, times=times, **given),
        verb="give",
        of=("attackers", "bucket"),
    )


_SCORED, _SELECTED = _enough(2), _enough(4)


@public
@needing(_SCORED)
def krum(
    lr: Rate, attackers: int, *, select: int = 1, bucket: int = 1, batch_size: int = 128,
    momentum: float = 0.0, local_steps: int = 1,
) -> Algorithm:  # fmt: skip
    """Return D-SGD with Krum or Multi-Krum in place of averages.

    Per round, for every node i, whose neighborhood of ``m`` models is its own and those received::

        x_i      = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        s_j      = sum of ||x_j - x_k||^2 over the m - attackers - 2 models k != j closest to x_j
        theta_i  = the model of the smallest score s_j, or the mean of the `select` smallest

    The weights of the graph do not matter, only its edges do. Models with NaN or infinite values
    are infinitely far from all others. Of equal scores, the node's own comes first, then the
    neighbors' in ascending order. On the fully connected graph, all nodes take the same model, as
    they would from a server, unless buckets differ or scores are equal: of 3 models with
    ``attackers=0``, the two that are closest to each other have the same score.

    **Tolerance.** If no honest node receives from more than `attackers` attackers, each of the
    models that are selected has at least ``m - 2 attackers - 2`` honest models among the
    ``m - attackers - 2`` closest to it, whatever attackers send. Data that differ between nodes
    bias the rule towards some of them even without attackers, which `bucket` reduces.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    attackers
        Number of attackers tolerated among the neighbors of a node, at least 0.
    select
        Number of models to average, at least 1: 1 is Krum, more is Multi-Krum. A neighborhood of
        fewer models, or buckets, is averaged.
    bucket
        Number of models that are averaged before the rule applies, at least 1 (bucketing). In every
        round, each node puts its models in a random order and replaces every `bucket` consecutive
        ones by their mean, the last ones by that of fewer. The rule then needs enough buckets, of
        which each attacker may spoil one.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum
        In [0, 1); local and never averaged.
    local_steps
        Minibatch steps between two exchanges; 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    topofl.TopologyError
        Before the run, if a node that receives from others has fewer than ``2 attackers + 3``
        models, or buckets.

    Notes
    -----
    The paper and most code apply the rule to gradients at a server. The code of epfml and of blades
    squares distances twice. LPD-EPFL/byzfl and LPD-EPFL/ByzantineMomentum sum over the
    ``m - attackers - 1`` closest models, one more than the paper, and ByzantineMomentum does not
    square the distances.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine learning with adversaries: Byzantine
    tolerant gradient descent" (2017), as in the code of Flower, ``aggregate_krum`` in
    flwr/server/strategy/aggregate.py. Buckets: Karimireddy, He and Jaggi, "Byzantine-robust
    learning on heterogeneous datasets via bucketing" (2022), as in the authors' code
    epfml/byzantine-robust-noniid-optimizer, ``bucketing_wrapper`` in utils.py.

    Examples
    --------
    >>> krum(0.1, attackers=1)  # doctest: +NORMALIZE_WHITESPACE
    krum: local(lr=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, rule=krum, attackers=1)
    """
    attackers = check_int("attackers", attackers, minimum=0)
    select = check_int("select", select, minimum=1)

    def rule(models: Tensor) -> Tensor:
        best = _scores(_distances(models), attackers).argsort(stable=True)[:select]
        return models[best].mean(0)

    told = {"rule": "krum", "attackers": attackers} | ({"select": select} if select > 1 else {})
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("krum", local=local, exchange=_in_buckets(rule, bucket, **told))


def _distances(models: Tensor) -> Tensor:
    """Return the squared distances (m, m) of models (m, d), infinite to those that are not finite.

    The diagonal is infinite, too, since no model counts among those closest to itself.
    """
    apart = torch.cdist(models, models, compute_mode="donot_use_mm_for_euclid_dist").square()
    own = torch.eye(len(models), dtype=torch.bool, device=models.device)
    return torch.where(apart.isfinite() & ~own, apart, float("inf"))


def _scores(apart: Tensor, attackers: int) -> Tensor:
    """Return the sums (m,) of the squared distances to the closest models, at least to one."""
    closest = max(1, len(apart) - attackers - 2)
    return apart.sort(dim=1).values[:, :closest].sum(1)


def _in_buckets(rule: Callable[[Tensor], Tensor], bucket: int, /, **settings: object) -> Phase:
    """Return the exchange in which a rule aggregates a node's models, or the means of buckets."""
    bucket = check_int("bucket", bucket, minimum=1)

    def apply(models: Models, state: State, round: Round) -> State:
        keys = round.rng("buckets").random(round.n) if bucket > 1 else np.empty(0)

        def at_node(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
            values = torch.cat([own[None], received])
            if bucket > 1:
                order = torch.from_numpy(keys[: len(values)].argsort()).to(values.device)
                values = torch.stack([part.mean(0) for part in values[order].split(bucket)])
            return rule(values)

        round.aggregate(round.weights, models.flat, at_node)
        return state

    settings |= {"bucket": bucket} if bucket > 1 else {}
    return Phase(no_state, apply, {"weights": "round"} | settings, rowwise=True)


@public
@needing(_SELECTED)
def bulyan(
    lr: Rate, attackers: int, *, bucket: int = 1, batch_size: int = 128, momentum: float = 0.0,
    local_steps: int = 1,
) -> Algorithm:  # fmt: skip
    """Return D-SGD with Bulyan of Krum in place of averages.

    Per round, for every node i, whose neighborhood of ``m`` models is its own and those received::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        S       = m - 2 attackers models: Krum's choice, and its choices among those left
        theta_i = the mean of the |S| - 2 attackers values of S closest to their median,
                  coordinate-wise

    Krum and its treatment of NaN and infinite values are those of :func:`krum`, with scores of at
    least one closest model. Of an even number of values, the median is the mean of the two in the
    middle; of equally close values, that of the model chosen first counts.

    **Tolerance.** If no honest node receives from more than `attackers` attackers, every parameter
    of its new model is close to honest ones in that coordinate: Krum alone may choose a model that
    is far off in one coordinate, since one coordinate changes distances little.

    Parameters
    ----------
    lr, attackers, bucket, batch_size, momentum, local_steps
        As in :func:`krum`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.
    topofl.TopologyError
        Before the run, if a node that receives from others has fewer than ``4 attackers + 3``
        models, or buckets.

    Notes
    -----
    The authors' later code, LPD-EPFL/ByzantineMomentum, averages the models that Multi-Krum chooses
    in each step, and takes two steps fewer.

    References
    ----------
    El Mhamdi, Guerraoui and Rouault, "The hidden vulnerability of distributed learning in
    Byzantium" (2018), as in the code of Flower, ``aggregate_bulyan`` in
    flwr/server/strategy/aggregate.py.

    Examples
    --------
    >>> bulyan(0.1, attackers=1)  # doctest: +NORMALIZE_WHITESPACE
    bulyan: local(lr=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, rule=bulyan, attackers=1)
    """
    attackers = check_int("attackers", attackers, minimum=0)

    def rule(models: Tensor) -> Tensor:
        apart, left = _distances(models), torch.arange(len(models), device=models.device)
        chosen = []
        for _ in range(max(1, len(models) - 2 * attackers)):
            best = _scores(apart, attackers).argmin(0, keepdim=True)
            chosen.append(left[best])
            others = torch.arange(len(left) - 1, device=models.device)
            others = others + (others >= best)
            apart, left = apart[others][:, others], left[others]
        return _closest_to_median(models[torch.cat(chosen)], attackers)

    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    exchange = _in_buckets(rule, bucket, rule="bulyan", attackers=attackers)
    return chain("bulyan", local=local, exchange=exchange)


def _closest_to_median(values: Tensor, attackers: int) -> Tensor:
    """Return the mean of each column's values (m, d) that are closest to the column's median."""
    ordered = values.sort(dim=0).values
    median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    nearest = (values - median).abs().argsort(dim=0, stable=True)
    return values.gather(0, nearest[: max(1, len(values) - 2 * attackers)]).mean(0)


_MAJORITY = Need(
    "an honest majority at each node",
    "fewer than half of the models or buckets at an honest node, its own included, may be those of "
    "attackers",
    "add edges",
    attacked=beyond_half,
    verb="have",
    of=("bucket",),
)


@public
@needing(_MAJORITY)
def geometric_median(
    lr: Rate, *, iterations: int = 16, smoothing: float = 1e-5, bucket: int = 1,
    batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1,
) -> Algorithm:  # fmt: skip
    """Return D-SGD with geometric medians in place of averages, the rule of RFA.

    Per round, for every node i, whose neighborhood of ``m`` models is its own and those received::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        z       = mean_j x_j
        z       = sum_j b_j x_j / sum_j b_j,   b_j = 1 / max(smoothing, ||z - x_j||)
            (`iterations` times)
        theta_i = z

    This is the smoothed Weiszfeld algorithm, which approaches the point of the smallest sum of
    distances to all models. The weights of the graph do not matter, only its edges do. On the fully
    connected graph, all nodes take the same model, as they would from a server, if ``bucket=1``;
    larger buckets differ between nodes. Models with NaN or infinite values are ignored.

    **Tolerance.** If fewer than half of the models at a node come from attackers, its geometric
    median is at a distance from the honest models that is bounded by theirs, whatever attackers
    send. Each iteration divides the distance of `z` from honest models by about ``(1 - a) / a``,
    where attackers send a share ``a`` of models that are far away.

    Parameters
    ----------
    lr, batch_size, momentum, local_steps
        As in :func:`krum`.
    iterations
        Number of Weiszfeld steps, at least 1. The authors' server takes up to 4, each of which
        costs it another exchange with all clients; here they cost no messages.
    smoothing
        Smallest distance by which a model is divided, above 0.
    bucket
        As in :func:`krum`; attackers must be fewer than half of the number of buckets.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    RFA weights clients by their numbers of examples; here, as in the code of Karimireddy, He and
    Jaggi, all models count equally. That code starts from 0, suited to gradients, while this starts
    from the mean, as does RFA's.

    References
    ----------
    Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning" (2022), as in the
    authors' code krishnap25/RFA, ``geometric_median_update`` in models/model.py.

    Examples
    --------
    >>> import topofl
    >>> from topofl import attacks, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.fully_connected(10), "rounds": 30, "seed": 0}
    >>> how |= {"attackers": attacks.sign_flip([0, 5], scale=3.0)}
    >>> methods = geometric_median(0.3), topofl.algorithms.dsgd(0.3)
    >>> robust, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(robust.last("accuracy")[1] > 0.8), bool(plain.last("accuracy")[1] > 0.8)
    (True, False)
    """
    iterations = check_int("iterations", iterations, minimum=1)
    smoothing = check_positive("smoothing", smoothing)

    def rule(models: Tensor) -> Tensor:
        finite = models.isfinite().all(1)
        models, shares = torch.where(finite[:, None], models, 0), finite.to(models)
        median = shares @ models / shares.sum()
        for _ in range(iterations):
            distances = torch.linalg.vector_norm(models - median, dim=1)
            shares = torch.where(finite, 1 / distances.clamp(min=smoothing), 0)
            median = shares @ models / shares.sum()
        return median

    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    told = {"rule": "geometric median", "iterations": iterations, "smoothing": smoothing}
    return chain("geometric_median", local=local, exchange=_in_buckets(rule, bucket, **told))


@public
def fltrust(
    lr: Rate, *, batch_size: int = 128, momentum: float = 0.0, local_steps: int = 1
) -> Algorithm:
    """Return D-SGD in which nodes trust others by the direction of their updates, as in FLTrust.

    Per round, for every node i, with its neighbors j::

        x_i     = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        g_j     = x_j - theta_i
        t_j     = max(0, cos(g_j, g_i)),   t_i = 1
        theta_i = theta_i + sum_j t_j (||g_i|| / ||g_j||) g_j / sum_j t_j

    FLTrust has a server with a few clean examples, whose update is the root of trust. On a graph,
    each node's own update is its root of trust, and the updates are the received models as seen
    from its own last one. The weights of the graph do not matter, only its edges do. Models with
    NaN or infinite values, and those at distance 0, are not trusted.

    **Tolerance.** Whatever attackers send, and however many they are, a node moves in a round by at
    most the norm of its own update, and by no part of an update at an angle of 90 degrees or more
    to its own. Where data differ between nodes, honest updates are distrusted, too, and models
    stay apart.

    Parameters
    ----------
    lr, batch_size, momentum, local_steps
        As in :func:`krum`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The decentralized form is not the paper's, and nodes count their own update, which the server of
    FLTrust does not: so there always is a trusted one. Trust and the norm of ``g_i`` are those of
    the node's own update, so nodes end a round with different models even on the fully connected
    graph.

    References
    ----------
    Cao, Fang, Liu and Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping"
    (2021), the rule at a server.

    Examples
    --------
    >>> fltrust(0.1)  # doctest: +NORMALIZE_WHITESPACE
    fltrust: local(lr=0.1, batch_size=128, steps=1)
    -> exchange(weights=round, rule=trust by direction)
    """

    def apply(models: Models, state: State, round: Round) -> State:
        both = torch.cat([models.flat, state["last"]], 1)
        round.aggregate(round.weights, both, _trusted, counted=False)
        round.send(round.weights, models.flat.shape[1] * models.flat.element_size())
        models.flat.copy_(both[:, : models.flat.shape[1]])
        state["last"].copy_(models.flat)
        return state

    def init(models: Models) -> State:
        return {"last": models.flat.clone()}

    told = {"weights": "round", "rule": "trust by direction"}
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    return chain("fltrust", local=local, exchange=Phase(init, apply, told, rowwise=True))


def _trusted(own: Tensor, received: Tensor, weights: Tensor) -> Tensor:
    """Return a node's new model, beside its last one, from rows of models beside last ones."""
    last = own.chunk(2)[1]
    updates = torch.cat([own[None], received]).chunk(2, 1)[0] - last
    norms = torch.linalg.vector_norm(updates, dim=1)
    usable = norms.isfinite() & (norms > 0)
    units = torch.where(usable[:, None], updates / norms[:, None], 0)
    trust = (units @ units[0]).clamp(min=0)
    trust = torch.cat([torch.ones_like(trust[:1]), trust[1:]])
    return torch.cat([last + norms[0] * (trust @ units) / trust.sum(), last])
