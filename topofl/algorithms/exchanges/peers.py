"""Exchanges in which nodes choose their peers by models: policies, and that of pFedGraph."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._linalg.distributions import simplex_projection
from topofl._support.check import check_int, check_positive, check_probability, shown
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import (
    Models,
    Part,
    Round,
    State,
    as_part,
    everything,
    no_state,
)
from topofl.algorithms.exchanges.average import share_setting
from topofl.mixing import MixingMatrix, average_of_chosen, check_pulls, from_weights
from topofl.topology import Topology, TopologyError

__all__ = ["Choice", "Policy", "average_over_peers", "similar_peers"]


class Choice(NamedTuple):
    """The peers from which nodes receive in a round, with the messages that the choice takes.

    Attributes
    ----------
    weights
        (n, n), rows sum to 1: row i holds the weights with which node i averages models.
    downloads
        Matrices along whose off-diagonal entries whole models are sent, to choose and to average;
        None: along those of `weights`.
    extra_messages
        Additional messages that the choice takes: pairs of a matrix and the bytes of the message
        along each of its off-diagonal entries.
    server
        Number of models in the one message that a server sends to each node in return for the
        model that the node sends. 0: there is no server. With a server, `downloads` must be None.

    See Also
    --------
    topofl.mixing.average_of_chosen, topofl.mixing.from_weights

    Examples
    --------
    Each of 3 nodes averages with the next one:

    >>> chosen = torch.eye(3).roll(1, dims=1)
    >>> Choice(average_of_chosen(chosen)).weights.weights.toarray()
    array([[0.5, 0.5, 0. ],
           [0. , 0.5, 0.5],
           [0.5, 0. , 0.5]])
    """

    weights: MixingMatrix
    downloads: Sequence[MixingMatrix] | None = None
    extra_messages: Sequence[tuple[MixingMatrix, int]] = ()
    server: int = 0


class Policy(NamedTuple):
    """A rule by which nodes choose the peers from which they receive.

    See the page :doc:`Write a policy </docs/how-to/write-a-policy>`.

    Attributes
    ----------
    choose
        ``choose(models, state, round)`` -> :class:`Choice`; it may change the state, but not the
        models. Peers are restricted to the edges of ``round.peers``: along (j, i), i receives from
        j. Random numbers come from ``round.rng``, losses on nodes' own examples from
        ``round.cross_evaluate``; see :class:`topofl.algorithms.Round`.
    init
        ``init(models)`` -> the state: tensors by name that last from round to round.
    settings
        Its arguments, saved with results.
    rowwise
        Whether `choose` can do with the rows of one process in ``round.state(...)``, for example by
        ``round.all_rows``, in a distributed run; `models` has all nodes in any case.

    Examples
    --------
    Every node averages over all nodes from which it can receive:

    >>> policy = Policy(lambda models, state, round: Choice(round.weights))
    >>> average_over_peers(policy).settings
    {}
    """

    choose: Callable[[Models, State, Round], Choice]
    init: Callable[[Models], State] = no_state
    settings: Mapping[str, Any] = MappingProxyType({})
    rowwise: bool = False


@public
def average_over_peers(policy: Policy, share: Part = everything) -> Phase:
    """Return the phase in which nodes average with peers that a policy chooses.

    All models are read before any is replaced (synchronous). The history stores the matrix of every
    round in ``history.mixings``. Nodes receive only along edges of the run's topology; without one,
    from any node.

    Parameters
    ----------
    policy
        The rule by which nodes choose, such as :func:`topofl.algorithms.greedy_peers`, or a custom
        one.
    share
        The part of the models that is averaged; the rest stays at its node.

    Raises
    ------
    TypeError
        If `policy` is not a :class:`Policy` of functions; in a run, if it does not return a
        :class:`Choice` with a MixingMatrix.
    ValueError
        In a run, naming the round: if the policy evaluates on examples other than ``"train"`` or
        ``"val"``, changes models or returns impossible costs.

    Examples
    --------
    Every node averages with the node whose model is closest to its own:

    >>> def nearest(models, state, round):
    ...     distances = torch.cdist(models.flat, models.flat).fill_diagonal_(torch.inf)
    ...     chosen = torch.zeros_like(distances).scatter_(1, distances.argmin(1)[:, None], 1)
    ...     return Choice(average_of_chosen(chosen))
    >>> average_over_peers(Policy(nearest, settings={"weights": "nearest"})).settings
    {'weights': 'nearest'}
    """
    share = as_part("share", share)
    if not isinstance(policy, Policy) or not callable(policy.choose) or not callable(policy.init):
        raise TypeError(
            f"`policy` must be a Policy of functions, such as Policy(choose), got {shown(policy)}"
        )

    def init(models: Models) -> State:
        models.columns(share)  # raises before any work
        everyone = models.of_all_nodes()
        try:
            return _check_state(policy.init(everyone))
        except (RuntimeError, TypeError):
            if not everyone.flat.is_meta:
                raise
            return {}  # since `init` needs values

    def apply(models: Models, state: State, round: Round) -> State:
        with _naming_round(round.t):
            others = round.published(models.flat)
            visible = models if others is models.flat else models.like(others)
            choice = _choose(policy, visible, state, round)
            columns = models.columns(share)
            weights = check_pulls(choice.weights).check_on(round.peers)
        round.mix(weights, models, columns, counted=choice.downloads is None and not choice.server)
        size, width = models.bytes_of(share), sum(len(range(models.d)[part]) for part in columns)
        if choice.server:
            everybody = from_weights(sparse.eye_array(weights.n, format="csr"), name="everybody")
            others = (choice.server - 1) * width * models.dtype.itemsize  # without statistics
            round.send(everybody, (2 * size + others) // 2, server=True)
        downloads = [(matrix, size) for matrix in choice.downloads or ()]
        for matrix, nbytes in [*downloads, *choice.extra_messages]:
            round.send(matrix.check_on(round.peers), nbytes)
        return state

    settings = dict(policy.settings) | share_setting(share)
    return Phase(init, apply, settings, rowwise=policy.rowwise)


@contextmanager
def _naming_round(t: int) -> Iterator[None]:
    """Prefix error messages with the round, counted from 1."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = next(
            kind for kind in (TopologyError, TypeError, ValueError) if isinstance(error, kind)
        )
        raise kind(f"round {t + 1}, where nodes choose their peers: {error}") from error


def _needs_numbers(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is that a tensor has no values."""
    while error is not None:
        if "meta" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _choose(policy: Policy, models: Models, state: State, round: Round) -> Choice:
    """Return a policy's choice, or raise; without values that it needs, all allowed peers."""
    if models.flat.is_meta:
        try:
            return _check_choice(policy.choose(models, dict(state), round))
        except (TypeError, ValueError, RuntimeError, KeyError) as error:
            missing = isinstance(error, KeyError) and not state  # since `init` needs values, too
            if not missing and not _needs_numbers(error):
                raise
            return Choice(average_of_chosen(can_receive(round.peers)))
    before = models.flat._version  # torch counts changes in place
    choice = _check_choice(policy.choose(models, state, round))
    _check_state(state)
    if models.flat._version != before:
        raise ValueError("a policy must not change models, but it did; work on models.flat.clone()")
    return choice


def _check_state(state: Any) -> State:
    """Return the state of a policy, or raise ``TypeError`` if a checkpoint cannot store it."""
    if not isinstance(state, dict):
        raise TypeError(f"a policy's state must be a dict of tensors, got {type(state).__name__}")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"a policy's state must hold tensors, got {type(value).__name__} as "
                f"state[{name!r}]; convert it by torch.tensor(...)"
            )
    return state


def _check_choice(choice: Any) -> Choice:
    """Return the choice of a policy, or raise if it is not a valid :class:`Choice`."""
    if not isinstance(choice, Choice) or not isinstance(choice.weights, MixingMatrix):
        what = type(choice.weights if isinstance(choice, Choice) else choice).__name__
        raise TypeError(
            f"a policy must return Choice(weights) with a MixingMatrix, got {what}; "
            "mixing.average_of_chosen(chosen) or mixing.from_weights(weights) returns one"
        )
    check_int("server", choice.server, minimum=0)
    what = "`downloads` and `extra_messages` of a Choice must"
    downloads, extra = choice.downloads, choice.extra_messages
    if not isinstance(downloads, Sequence | None) or not isinstance(extra, Sequence):
        raise TypeError(f"{what} be lists, such as [matrix] and [(matrix, 4)]")
    for one in (*(downloads or ()), *(matrix for matrix, _ in extra)):
        if not isinstance(one, MixingMatrix):
            raise TypeError(f"{what} hold MixingMatrix, got {type(one).__name__}")
    for _, nbytes in extra:
        check_int("extra_messages", nbytes, minimum=0)
    _check_covered(choice)
    return choice


def _check_covered(choice: Choice) -> None:
    """Raise ``ValueError`` if models are averaged that are not downloaded."""
    if choice.downloads is None:
        return
    used = choice.weights.support().adjacency
    for one in choice.downloads:
        used = used - used.multiply(one.support().adjacency)
    if used.count_nonzero():
        first = min(zip(*used.T.nonzero(), strict=True))
        i, j = (node_name(choice.weights.nodes, int(node)) for node in first)
        raise ValueError(
            "`downloads` of a Choice must hold all edges along which models are averaged, but "
            f"node {i} averages with node {j} without a download; None means those of `weights`"
        )


def can_receive(topology: Topology) -> Tensor:
    """Return the in-neighbors of each node, (n, n) booleans: entry (i, j) if i receives from j."""
    return torch.from_numpy(topology.adjacency.T.toarray() != 0)


BLOCK = 2**20
"""Differences from the initial model that are in memory at a time, 4 MB in float32."""


@public
def similar_peers(
    strength: float = 0.8, *, threshold: float = 0.9, compare: Part | str = everything
) -> Policy:
    """Return pFedGraph's policy: weights by data size and by similarity of model changes.

    Changes are those since the common initial model ``theta_0``, not since the previous round::

        D_ij = -cos(theta_i - theta_0, theta_j - theta_0);      -1 where it is below -threshold
        x_i  = argmin of <D_i, x> + strength * ||x - p_i||^2  over x >= 0, sum x = 1
             = the nearest point to p_i - D_i / (2 strength) with entries >= 0 that sum to 1

    where ``p_ij`` is the share of node j in the training examples of node i and its in-neighbors.
    The cosines of a model that did not change are 0, even with itself.

    Parameters
    ----------
    strength
        Above 0. A large one brings the weights close to the shares of data, as in FedAvg; with a
        small one, a node gives more weight to itself and to nodes with the same direction.
    threshold
        Between 0 and 1: cosines above it count as 1.
    compare
        The part of the models that is compared, within the part that is sent.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or has the wrong type. Runs with ``init="independent"``
        raise, because changes from different initial models are not comparable.

    References
    ----------
    Ye, Ni, Wu, Chen and Wang, "Personalized federated learning with inferred collaboration graphs"
    (2023).

    Examples
    --------
    >>> similar_peers(0.5).settings
    {'weights': 'similar', 'strength': 0.5, 'threshold': 0.9}
    """
    return similar_peers_with_pull(strength, threshold, compare)


PULL_DIRECTIONS = "toward"
"""Name of the state that holds the directions toward which training pulls models, (n, d)."""


def similar_peers_with_pull(
    strength: float, threshold: float, compare: Part | str, pull: float = 0.0
) -> Policy:
    """Return the policy of :func:`similar_peers`; with `pull`, it sets the next cosine pull.

    Directions of the pull are the averages of models of length `pull`, by the chosen weights.
    """
    strength = check_positive("strength", strength)
    threshold = check_probability("threshold", threshold)
    compare = as_part("compare", compare)

    def init(models: Models) -> State:
        models.columns(compare)  # raises before any work
        return {"start": models.start}

    def choose(models: Models, state: State, round: Round) -> Choice:
        allowed = can_receive(round.peers).fill_diagonal_(True).numpy()  # each node itself, too
        cosines = _cosines(models.flat, state["start"], models.columns(compare))
        cosines[cosines > threshold] = 1
        shares = allowed * round.sizes
        wanted = shares / shares.sum(axis=1, keepdims=True) + cosines / (2 * strength)
        weights = from_weights(simplex_projection(wanted, allowed), name="similar")
        if pull:
            directions = round.state("local")[PULL_DIRECTIONS]
            flat = round.own_rows(models.flat)
            norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
            # models that are 0 stay 0
            torch.mul(flat, torch.where(norms > 0, pull / norms, 0), out=directions)
            round.mix(weights, directions, counted=False)
        return Choice(weights, server=2 if pull else 1)

    settings = {} if compare.is_everything else {"compare": str(compare)}
    settings = {"weights": "similar", "strength": strength, "threshold": threshold} | settings
    return Policy(choose, init, settings, rowwise=True)


def _cosines(flat: Tensor, start: Tensor, columns: Sequence[slice]) -> np.ndarray:
    """Return cosines between the changes of models since `start`, (n, n); 0 without a change."""
    n = len(flat)
    if flat.is_meta:
        return np.zeros((n, n))
    products = torch.zeros(n, n, dtype=torch.float64, device=flat.device)
    for part in columns:
        blocks = (values[:, part].split(max(1, BLOCK // n), dim=1) for values in (flat, start))
        for values, origin in zip(*blocks, strict=True):
            changes = values - origin
            products += changes @ changes.T
    norms = products.diagonal().sqrt()
    return (
        (products / norms / norms[:, None])
        .nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        .cpu()
        .numpy()
    )
