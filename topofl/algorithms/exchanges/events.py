"""Parts of asynchronous methods: groups of events, clocks, and messages along single links."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.terms import Step, Term, zeros
from topofl.mixing import MixingMatrix

T = TypeVar("T")


def groups_without_repeats(
    events: Sequence[T], participants_of: Callable[[T], Sequence[object]]
) -> Iterator[list[T]]:
    """Yield consecutive events in the fewest groups without repeated participants.

    The gradient of an event is taken at the model of its node, or of its walk, after the previous
    event of that participant. In a group, all these models precede its first event: the gradients
    of a group can be computed together, with the same result as one after the other.

    Parameters
    ----------
    events
        Events in order of time.
    participants_of
        ``participants_of(event)``: the participants of an event, such as its node.

    Examples
    --------
    >>> list(groups_without_repeats([0, 1, 2, 1, 0, 0], lambda node: [node]))
    [[0, 1, 2], [1, 0], [0]]
    """
    group: list[T] = []
    seen: set[object] = set()
    for event in events:
        own = set(participants_of(event))
        if own & seen:
            yield group
            group, seen = [], set()
        group.append(event)
        seen |= own
    if group:
        yield group


def kept_gradient() -> Term:
    """Return the term that copies the gradient to ``gradient``, (n, d), in the phase's state."""

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        own["gradient"].copy_(g)
        return g

    return Term("kept_gradient", update, zeros("gradient"), elementwise=True)


def zero_times(**shapes: tuple[int, ...]) -> State:
    """Return a state of zeros in float64 on the CPU, so that dry runs have values of times."""
    return {
        name: torch.zeros(shape, dtype=torch.float64, device="cpu")
        for name, shape in shapes.items()
    }


def model_bytes(models: Models) -> int:
    """Return the size of a message that holds one model, in bytes."""
    return models.flat.shape[1] * models.flat.element_size()


def next_node(node: int, weights: MixingMatrix, rng: np.random.Generator) -> int:
    """Return the next node of a random walk: node j with probability ``W[node, j]``."""
    row = slice(*weights.weights.indptr[node : node + 2])
    shares = np.cumsum(weights.weights.data[row])
    place = np.searchsorted(shares, rng.random() * shares[-1], side="right")
    return int(weights.weights.indices[row][min(place, len(shares) - 1)])


def send_along(round: Round, links: Sequence[tuple[int, int]], nbytes: int, name: str) -> None:
    """Count one message per link (sender, receiver); repeated links count repeatedly.

    Parameters
    ----------
    round, nbytes
        As in :meth:`topofl.algorithms.Round.send`.
    links
        The links in any order.
    name
        Name of the matrix in the history: the mean, over links, of the matrix that replaces the
        receiver's row by the sender's.
    """
    if not links:
        return
    senders, receivers = np.array(links).T
    used = sparse.coo_array(
        (np.ones(len(links)), (receivers, senders)), shape=(round.n, round.n)
    ).tocsr()
    while used.nnz:
        weights = used / used.sum()
        weights.setdiag(1 - weights.sum(axis=1))
        round.send(MixingMatrix(weights, name), nbytes)
        used.data -= 1
        used.eliminate_zeros()
