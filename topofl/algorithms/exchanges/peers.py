"""Exchanges in which nodes choose by models from which peers they receive."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._support.check import check_int, shown
from topofl.algorithms.contract.parts import Part, as_part, everything
from topofl.algorithms.contract.phase import Phase
from topofl.algorithms.contract.round import Models, Round, State, no_state
from topofl.mixing import MixingMatrix, average_of_chosen, check_pulls, from_weights
from topofl.topology import Topology, TopologyError

__all__ = ["Choice", "Policy", "average_over_peers", "can_receive"]


class Choice(NamedTuple):
    """From which peers nodes receive in a round.

    Attributes
    ----------
    weights
        (n, n), rows sum to 1: row i holds the weights with which node i averages models.
    downloads
        Matrices along whose off-diagonal entries whole messages travel, to choose and to average;
        None: along those of `weights`.
    besides
        Further messages that the choice takes: matrices, and the bytes of a message along each of
        their off-diagonal entries.
    server
        How many messages' worth a server sends down to each node, in one message, for the message
        that each sends up. 0: there is no server. With a server, `downloads` are None.

    See Also
    --------
    topofl.mixing.average_of_chosen, topofl.mixing.from_weights
    """

    weights: MixingMatrix
    downloads: Sequence[MixingMatrix] | None = None
    besides: Sequence[tuple[MixingMatrix, int]] = ()
    server: int = 0


class Policy(NamedTuple):
    """How nodes choose the peers from which they receive.

    Attributes
    ----------
    choose
        ``choose(models, state, round)`` -> :class:`Choice`; it may change the state, not the
        models. Peers are restricted to the edges of ``round.peers``: along (j, i), i receives from
        j. Random numbers come from ``round.rng``, losses on nodes' own examples from
        ``round.cross_evaluate``; see :class:`topofl.algorithms.Round`.
    init
        ``init(models)`` -> its state, tensors by name that last from round to round.
    settings
        Its arguments, kept with results.
    """

    choose: Callable[[Models, State, Round], Choice]
    init: Callable[[Models], State] = no_state
    settings: Mapping[str, Any] = MappingProxyType({})


def average_over_peers(policy: Policy, share: Part = everything) -> Phase:
    """Return the phase in which nodes average with peers that a policy chooses.

    All models are read before any is replaced (synchronous). The history keeps the matrix of every
    round, a graph like any other: ``history.mixings``. Nodes receive only along edges of the run's
    topology; without one, from all nodes.

    Parameters
    ----------
    policy
        Such as :func:`greedy_peers`, or your own.
    share
        The part of the models that is averaged; the rest stays at its node.

    Raises
    ------
    TypeError
        If `policy` is no Policy, or its functions are none; in a run, if it returns no Choice with
        a MixingMatrix.
    ValueError
        If it evaluates on other examples than ``"train"`` or ``"val"``; in a run, with the round
        named, if it changes models or returns impossible costs.

    Examples
    --------
    Every node averages with the node whose model is nearest to its own:

    >>> def nearest(models, state, round):
    ...     distances = torch.cdist(models.flat, models.flat).fill_diagonal_(torch.inf)
    ...     chosen = torch.zeros_like(distances).scatter_(1, distances.argmin(1)[:, None], 1)
    ...     return Choice(average_of_chosen(chosen))
    >>> average_over_peers(Policy(nearest, settings={"weights": "nearest"})).settings
    {'weights': 'nearest'}
    """
    share, policy = as_part("share", share), _check_policy(policy)

    def init(models: Models) -> State:
        models.columns(share)  # raises before any work
        return (
            _init_on_meta(policy.init, models)
            if models.flat.is_meta
            else _check_state(policy.init(models))
        )

    def apply(models: Models, state: State, round: Round) -> State:
        with _naming_round(round.t):
            others = round.shown(models.flat)
            seen = models if others is models.flat else models.like(others)
            choice, columns = _choose(policy, seen, state, round), models.columns(share)
            weights = check_pulls(choice.weights).check_on(round.peers)
        round.mix(
            weights, models.flat, columns, counted=choice.downloads is None and not choice.server
        )
        size = sum(models.flat[:, part].shape[1] for part in columns) * models.flat.element_size()
        if choice.server:
            round.send(_server_columns(weights.n), size * (1 + choice.server) // 2, server=True)
        for sent, nbytes in [*((whole, size) for whole in choice.downloads or ()), *choice.besides]:
            round.send(sent.check_on(round.peers), nbytes)
        return state

    return Phase(
        init, apply, dict(policy.settings) | ({} if share.is_everything else {"share": str(share)})
    )


def _check_policy(policy: Any) -> Policy:
    """Return the policy, or raise."""
    if not isinstance(policy, Policy) or not callable(policy.choose) or not callable(policy.init):
        raise TypeError(
            f"`policy` must be a Policy of functions, as Policy(choose), got {shown(policy)}"
        )
    return policy


@contextmanager
def _naming_round(t: int) -> Iterator[None]:
    """Put the round, counted from 1, in front of error messages."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = next(
            kind for kind in (TopologyError, TypeError, ValueError) if isinstance(error, kind)
        )
        raise kind(f"round {t + 1}, where nodes choose their peers: {error}") from error


def _init_on_meta(init: Callable[[Models], State], models: Models) -> State:
    """Return a policy's state on meta tensors; nothing if it needs values."""
    try:
        return _check_state(init(models))
    except (RuntimeError, TypeError):
        return {}


def _needs_numbers(error: BaseException | None) -> bool:
    """Return whether an error, or a cause of it, is that a tensor has no values."""
    while error is not None:
        if "meta" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _choice_on_meta(policy: Policy, models: Models, state: State, round: Round) -> Choice:
    """Return a policy's choice on meta tensors; if it needs values, all allowed peers."""
    try:
        return _check_choice(policy.choose(models, dict(state), round))
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        unmade = isinstance(error, KeyError) and not state  # what `init` makes needs numbers, too
        if not unmade and not _needs_numbers(error):
            raise
        return Choice(average_of_chosen(can_receive(round.peers)))


def _choose(policy: Policy, models: Models, state: State, round: Round) -> Choice:
    """Return what a policy chooses, or raise if it may not."""
    if models.flat.is_meta:
        return _choice_on_meta(policy, models, state, round)
    before = models.flat._version  # torch counts changes in place
    choice = _check_choice(policy.choose(models, state, round))
    _check_state(state)
    if models.flat._version != before:
        raise ValueError(
            "a policy must not change models, got some that it changed; work on models.flat.clone()"
        )
    return choice


def _check_state(state: Any) -> State:
    """Return what a policy carries, or raise if a checkpoint could not."""
    if not isinstance(state, dict):
        raise TypeError(f"a policy's state must be a dict of tensors, got {type(state).__name__}")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"a policy's state must hold tensors, got {type(value).__name__} as "
                f"state[{name!r}]; torch.tensor(...)"
            )
    return state


def _check_choice(choice: Any) -> Choice:
    """Return what a policy chose, or raise."""
    if not isinstance(choice, Choice) or not isinstance(choice.weights, MixingMatrix):
        what = type(choice.weights if isinstance(choice, Choice) else choice).__name__
        raise TypeError(
            f"a policy must return Choice(weights) with a MixingMatrix, got {what}; "
            "mixing.average_of_chosen(hears) or mixing.from_weights(weights) makes one"
        )
    check_int("server", choice.server, minimum=0)
    if not isinstance(choice.downloads, Sequence | None) or not isinstance(
        choice.besides, Sequence
    ):
        raise TypeError(
            "`downloads` and `besides` of a Choice must be lists, such as [matrix] and [(matrix, "
            "4)]"
        )
    for one in (*(choice.downloads or ()), *(matrix for matrix, _ in choice.besides)):
        if not isinstance(one, MixingMatrix):
            raise TypeError(
                "`downloads` and `besides` of a Choice must hold MixingMatrix, got "
                f"{type(one).__name__}"
            )
    for _, nbytes in choice.besides:
        check_int("besides", nbytes, minimum=0)
    _check_covered(choice)
    return choice


def _check_covered(choice: Choice) -> None:
    """Raise ``ValueError`` if models are averaged that did not travel."""
    if choice.downloads is None:
        return
    used = choice.weights.support().adjacency
    for one in choice.downloads:
        used = used - used.multiply(one.support().adjacency)
    if used.count_nonzero():
        i, j = min(zip(*used.T.nonzero(), strict=True))
        raise ValueError(
            "`downloads` of a Choice must hold all edges along which models are averaged, node "
            f"{i} takes of node {j} without a download; None means those of `weights`"
        )


def _server_columns(n: int) -> MixingMatrix:
    """Return a matrix with columns of all nodes, whatever they give each other."""
    return from_weights(sparse.eye_array(n, format="csr"), name="everybody")


def can_receive(topology: Topology) -> Tensor:
    """Return from which nodes each can receive on a graph, (n, n) booleans, row i for node i."""
    return torch.from_numpy(topology.adjacency.T.toarray() != 0)
