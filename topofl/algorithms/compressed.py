"""Methods whose messages are compressed: CHOCO-SGD, BEER, MoTEF and DeepSqueeze."""

from functools import lru_cache, partial

from scipy.sparse.csgraph import connected_components
from torch import Tensor

from topofl._linalg import spectral
from topofl._support.check import TOLERANCE, check_fraction, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Descend, Rate, descend
from topofl.algorithms.contract.local import dsgd_steps, train
from topofl.algorithms.contract.needs import Need, doubly_stochastic, needing, static, symmetric
from topofl.algorithms.contract.phase import Algorithm, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Step, Term, tracking, zeros
from topofl.algorithms.exchanges.compressors import (
    TOP_TENTH,
    Compressor,
    check_compressor,
    compressed,
    compressed_exchange,
    disagreement,
    message_bytes,
)
from topofl.mixing import MixingMatrix

__all__ = ["beer", "choco_sgd", "deepsqueeze", "motef"]


_consensus_step = partial(check_share, "gamma", remedy="1 is full averaging")


def _no_gap(weights: MixingMatrix) -> str:
    """Return why the spectral gap is 0, or an empty text if it is not."""
    if weights.spectral_gap > TOLERANCE:
        return ""
    parts, _ = connected_components(weights.weights, directed=False)
    if parts > 1:
        return f"the gap is 0, since the graph of W has {parts} components"
    return "the gap is 0, since W has the eigenvalue -1; mixing.lazy(W) does not have it"


_GAP = Need(
    "a spectral gap above 0",
    "which the theorem for `gamma` needs",
    "give a `gamma` above 0 and at most 1, such as 0.1",
    weights=_no_gap,
    verb="have",
)


@public
@needing(static, symmetric)
@needing(_GAP, when={"gamma": None})
def choco_sgd(
    lr: Rate,
    *,
    compressor: Compressor | str = TOP_TENTH,
    gamma: float | None = None,
    batch_size: int = 128,
    momentum: float = 0.0,
    local_steps: int = 1,
) -> Algorithm:
    """Return CHOCO-SGD: D-SGD with compressed differences as messages.

    Per round, for every node i, with an estimate ``h_i`` of its model that all its neighbors also
    store, starting at 0::

        theta_i = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        q_i     = Q(theta_i - h_i)  (this is sent)
        h_j     = h_j + q_j  (for j = i and neighbors j)
        theta_i = theta_i + gamma * sum_j W[i, j] (h_j - h_i)

    Only the local steps move the mean of the models over nodes. Without local steps and with a
    small enough `gamma`, all models converge to it linearly; without compression and with
    ``gamma=1``, the method is D-SGD. The graph must be static, since estimates are sums of all past
    messages, and the weights ``W`` symmetric.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    compressor
        Q: :func:`topofl.algorithms.top_k`, :func:`topofl.algorithms.random_k`,
        :func:`topofl.algorithms.sign`, :func:`topofl.algorithms.quantized` or a custom one.
    gamma
        Consensus step size, in (0, 1]. None: the step size of the theorem, ``rho^2 delta / (16 rho
        + rho^2 + 4 beta^2 + 2 rho beta^2 - 8 rho delta)``, with the spectral gap ``rho`` of W, its
        distance from the identity ``beta = ||I - W||_2``, and the contraction ``delta`` of Q. With
        it averaging always converges, but it is far smaller than the best values, which the authors
        tuned: on a ring of 9 nodes 0.34 with 16 levels of quantization, 0.04 with the top 1 % and
        0.01 with a random 1 %.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum, local_steps
        As in :func:`topofl.algorithms.dsgd`; 0 and 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger, or if `gamma` is None and the spectral gap of ``W`` is 0.

    Notes
    -----
    Algorithm 1 of the 2020 paper and the authors' code average before they compress, and compute
    the gradient after averaging; without local steps, they produce the same models one round later.

    References
    ----------
    Koloskova, Stich and Jaggi, "Decentralized stochastic optimization and gossip algorithms with
    compressed communication" (ICML 2019); Koloskova, Lin, Stich and Jaggi, "Decentralized deep
    learning with arbitrary communication compression" (ICLR 2020), Theorem 4.1 for `gamma`.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 40, "seed": 0}
    >>> sparse = choco_sgd(lr=0.5, compressor=algorithms.top_k(0.05), gamma=0.2)
    >>> compressed, plain = (topofl.run(one, **how) for one in (sparse, algorithms.dsgd(lr=0.5)))
    >>> bool(compressed.last("accuracy").mean() > plain.last("accuracy").mean() - 0.03)
    True
    >>> round(float(plain["bytes"][-1] / compressed["bytes"][-1]), 1)
    14.9
    """
    compressor = check_compressor(compressor)
    gamma = None if gamma is None else _consensus_step(gamma)
    local = dsgd_steps(lr, batch_size, momentum, local_steps)
    proven = lru_cache(maxsize=1)(_proven_gamma)

    def apply(models: Models, state: State, round: Round) -> State:
        estimate = state["estimate"]
        delta = compressor.contraction(models.flat.shape[1])
        rng = round.rng("compression")
        estimate.add_(compressed(compressor, models, models.flat - estimate, rng))
        round.send(round.weights, message_bytes(compressor, models.flat))
        step = proven(round.weights, delta) if gamma is None else gamma
        models.flat.add_(disagreement(round, estimate), alpha=step)
        return state

    told = "proven" if gamma is None else gamma
    exchange = compressed_exchange(compressor, told, ("estimate",), apply)
    return chain("choco_sgd", local=local, exchange=exchange)


def _proven_gamma(weights: MixingMatrix, delta: float) -> float:
    """Return the consensus step size of the theorem, or 0 if the spectral gap is 0."""
    rho = weights.spectral_gap
    beta = 1 - spectral.smallest(weights.weights)
    if rho <= TOLERANCE:
        return 0.0
    bound = 16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta
    return rho**2 * delta / bound


@public
@needing(static, doubly_stochastic)
def beer(
    lr: Rate, *, gamma: float, compressor: Compressor | str = TOP_TENTH, batch_size: int = 128
) -> Algorithm:
    """Return BEER: gradient tracking with compressed messages.

    Per round, for every node i, with gradients ``g_i`` of this round and ``g_i'`` of the previous
    one, and estimates ``h_i`` of its model and ``u_i`` of its tracked gradient, which all its
    neighbors also store; all start at 0::

        y_i     = y_i + g_i - g_i',   g_i = grad F(theta_i; S_i)
        theta_i = theta_i - lr * y_i + gamma * sum_j W[i, j] (h_j - h_i)
        h_j     = h_j + Q(theta_j - h_j), u_j = u_j + Q(y_j - u_j) (both Q are sent; also for j = i)
        y_i     = y_i + gamma * sum_j W[i, j] (u_j - u_i)

    The mean of ``y`` over nodes always equals the mean of their latest gradients. With full batches
    and small enough constant `lr` and `gamma`, all models converge to a stationary point of the
    mean loss, however different the data of nodes are and however strong the compression is.
    Without compression, with ``gamma=1`` and equal initial models, it is gradient tracking in the
    form ``theta = W theta - lr * y``, ``y = W y + g - g'`` (DIGing). The graph must be static,
    since estimates are sums of all past messages, and the weights ``W`` doubly stochastic; the
    theorem assumes undirected graphs.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    gamma
        Consensus step size, in (0, 1]; in the theorem, of the order of the contraction of Q times
        the spectral gap of W.
    compressor
        Q: :func:`topofl.algorithms.top_k`, :func:`topofl.algorithms.random_k`,
        :func:`topofl.algorithms.sign`, :func:`topofl.algorithms.quantized` or a custom one.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger.

    Notes
    -----
    In the paper and in the authors' experiments, ``u`` is still 0 after the first round; here the
    first message updates it too, so that all messages have the same form.

    References
    ----------
    Zhao, Li, Li, Richtarik and Chi, "BEER: fast O(1/T) rate for decentralized nonconvex
    optimization with communication compression" (NeurIPS 2022), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 30, "seed": 0}
    >>> tracked = beer(lr=0.1, gamma=0.5, compressor=algorithms.quantized(levels=7))
    >>> compressed, plain = (topofl.run(one, **how) for one in (tracked, algorithms.dsgd(lr=0.1)))
    >>> bool(compressed.last("loss").mean() < plain.last("loss").mean())
    True
    >>> round(float(plain["bytes"][-1] / compressed["bytes"][-1]), 1)
    4.0
    """
    return _tracked("beer", descend(tracking(), lr=lr), gamma, compressor, batch_size)


def _tracked(
    name: str, steps: Descend, gamma: float, compressor: Compressor | str, batch_size: int
) -> Algorithm:
    """Return local steps along what is tracked, and the exchange of BEER."""
    compressor, gamma = check_compressor(compressor), _consensus_step(gamma)

    def apply(models: Models, state: State, round: Round) -> State:
        tracked = round.state("local")["tracked"]
        models.flat.add_(disagreement(round, state["models"]), alpha=gamma)
        for name, values in (("models", models.flat), ("tracked", tracked)):
            rng = round.rng(f"compression/{name}")
            state[name].add_(compressed(compressor, models, values - state[name], rng))
        tracked.add_(disagreement(round, state["tracked"]), alpha=gamma)
        round.send(round.weights, 2 * message_bytes(compressor, models.flat))
        return state

    exchange = compressed_exchange(compressor, gamma, ("models", "tracked"), apply)
    return chain(name, local=train(steps, batch_size=batch_size), exchange=exchange)


@public
@needing(static, doubly_stochastic)
def motef(
    lr: Rate,
    *,
    gamma: float,
    momentum: float = 0.9,
    compressor: Compressor | str = TOP_TENTH,
    batch_size: int = 128,
) -> Algorithm:
    """Return MoTEF: momentum tracking with compressed messages.

    Per round, for every node i with an average ``m_i`` of its gradients, and estimates ``h_i`` of
    its model and ``u_i`` of its tracked average, which all its neighbors also store; all start at
    0::

        m_i'    = momentum * m_i + (1 - momentum) * grad F(theta_i; S_i)
            (in round 0 the gradient)
        y_i     = y_i + m_i' - m_i,   m_i = m_i'
        theta_i = theta_i - lr * y_i + gamma * sum_j W[i, j] (h_j - h_i)
        h_j     = h_j + Q(theta_j - h_j), u_j = u_j + Q(y_j - u_j) (both Q are sent; also for j = i)
        y_i     = y_i + gamma * sum_j W[i, j] (u_j - u_i)

    The mean of ``y`` over nodes always equals the mean of their averages. With a momentum of 0, the
    method is :func:`topofl.algorithms.beer`, with the same requirements on the graph and the same
    messages; a momentum reduces the noise of minibatches, which in BEER only larger batches do.
    With full batches and small enough constant `lr` and `gamma`, all models converge to a
    stationary point of the mean loss, however different the data of nodes are and however strong
    the compression is.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    gamma
        Consensus step size, in (0, 1].
    momentum
        In [0, 1): 1 minus lambda of the paper. Averages are as large as gradients: a momentum does
        not lengthen steps.
    compressor
        Q: :func:`topofl.algorithms.top_k`, :func:`topofl.algorithms.random_k`,
        :func:`topofl.algorithms.sign`, :func:`topofl.algorithms.quantized` or a custom one.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger.

    Notes
    -----
    In the authors' code, ``u`` is still 0 after the first round, as in BEER; here the first message
    updates it too.

    References
    ----------
    Islamov, Gao and Stich, "Towards faster decentralized stochastic optimization with communication
    compression" (2024), as in the authors' repository mlolab/MoTEF, ``MoTEF.py`` and
    ``synthetic/solvers.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 40, "seed": 0}
    >>> rates = {"lr": 0.1, "gamma": 0.5, "compressor": algorithms.quantized(7), "batch_size": 4}
    >>> averaged, noisy = (topofl.run(one(**rates), **how) for one in (motef, algorithms.beer))
    >>> bool(averaged.last("loss").mean() < noisy.last("loss").mean())
    True
    """
    term = _tracked_average(check_fraction("momentum", momentum))
    return _tracked("motef", descend(term, lr=lr), gamma, compressor, batch_size)


def _tracked_average(momentum: float) -> Term:
    """Return the term that tracks running averages of gradients, which start at the first one."""

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        share = 1 - momentum if step.round else 1.0
        tracked = own["tracked"].sub_(own["average"])
        return tracked.add_(own["average"].lerp_(g, share))

    settings = {"momentum": momentum}
    init = zeros("tracked", "average")
    return Term("tracked_average", update, init, elementwise=True, settings=settings)


@public
@needing(doubly_stochastic)
def deepsqueeze(
    lr: Rate,
    *,
    gamma: float,
    compressor: Compressor | str = TOP_TENTH,
    batch_size: int = 128,
    momentum: float = 0.0,
    local_steps: int = 1,
) -> Algorithm:
    """Return DeepSqueeze: D-SGD whose messages are compressed models, with error feedback.

    Per round, for every node i, with the accumulated compression error ``e_i``, starting at 0::

        theta_i = theta_i - lr * v_i,   v_i = momentum * v_i + grad F(theta_i; S_i)
            (`local_steps` times)
        c_i     = Q(theta_i + e_i)  (this is sent)
        e_i     = theta_i + e_i - c_i
        theta_i = theta_i + gamma * sum_j W[i, j] (c_j - c_i)

    Only the local steps move the mean of the models over nodes; without compression and with
    ``gamma=1``, the method is D-SGD. Nodes store nothing about their neighbors, so the graph may
    change from round to round. Since models are compressed instead of differences, messages do not
    become more accurate as models converge: models keep a distance from each other, which is
    smaller for a smaller `gamma`. Strong compression needs a small `gamma`. The weights ``W`` must
    be doubly stochastic; the theorem assumes static, symmetric ones.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    gamma
        Consensus step size, in (0, 1]; eta in the paper.
    compressor
        Q: :func:`topofl.algorithms.top_k`, :func:`topofl.algorithms.random_k`,
        :func:`topofl.algorithms.sign`, :func:`topofl.algorithms.quantized` or a custom one.
    batch_size
        As in :func:`topofl.algorithms.train`.
    momentum, local_steps
        As in :func:`topofl.algorithms.dsgd`; 0 and 1 in the original method.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger.

    References
    ----------
    Tang, Lian, Qiu, Yuan, Zhang, Zhang and Liu, "DeepSqueeze: decentralization meets
    error-compensated compression" (2019).

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 40, "seed": 0}
    >>> signs = deepsqueeze(lr=0.5, gamma=0.1, compressor=algorithms.sign())
    >>> compressed, plain = (topofl.run(one, **how) for one in (signs, algorithms.dsgd(lr=0.5)))
    >>> bool(compressed.last("accuracy").mean() > plain.last("accuracy").mean() - 0.05)
    True
    >>> round(float(plain["bytes"][-1] / compressed["bytes"][-1]), 1)
    30.2
    """
    compressor, gamma = check_compressor(compressor), _consensus_step(gamma)
    local = dsgd_steps(lr, batch_size, momentum, local_steps)

    def apply(models: Models, state: State, round: Round) -> State:
        error = state["error"].add_(models.flat)
        sent = compressed(compressor, models, error, round.rng("compression"))
        error.sub_(sent)
        models.flat.add_(disagreement(round, sent), alpha=gamma)
        round.send(round.weights, message_bytes(compressor, models.flat))
        return state

    exchange = compressed_exchange(compressor, gamma, ("error",), apply)
    return chain("deepsqueeze", local=local, exchange=exchange)
