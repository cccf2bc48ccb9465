"""What phases see of a run: the models, and a round's methods to train, mix and evaluate."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import shown
from topofl.algorithms.contract.parts import Part
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

if TYPE_CHECKING:
    from topofl.algorithms.contract.local import Training

__all__ = ["Models", "Round", "Rule", "State", "Trial", "check_key", "no_state"]

State = dict[str, Tensor]
"""What a phase carries to the next round: tensors by name.

The first axis is the node, or an edge of the run's one graph in any order, or has length 1 for all
nodes. Terms of local steps get rows of tensors of the first kind.
"""

Rule = Callable[[Topology], MixingMatrix]
"""A weight rule, for example :func:`topofl.mixing.metropolis_hastings`."""

T = TypeVar("T")

Trial = Generator[Tensor, Tensor, T]
"""The evaluation of models on one node's examples.

It yields models (m, d), is sent their mean losses, (m,) float64 on the CPU, as often as it likes,
and returns what it found.
"""


class Models(Protocol):
    """All nodes' models; phases change them in place."""

    @property
    def flat(self) -> Tensor:
        """(n, d): row i holds the parameters of node i's model (with push-sum, de-biased)."""
        ...

    @property
    def push_sum_weights(self) -> Tensor:
        """(n,) float64: push-sum weights, 1 unless an exchange has changed them in place."""
        ...

    @property
    def start(self) -> Tensor:
        """(1, d): a copy of the model from which all nodes start; to be asked for in `init` only.

        A run whose nodes start apart refuses a phase that asks for it.
        """
        ...

    @property
    def topology(self) -> Topology:
        """The one graph of a run, for states with a row per edge, (number of edges, ...).

        A run without a graph, or over one that changes, refuses a phase that asks for it.
        """
        ...

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """The shapes of a model's parameters by name, in the order of their columns."""
        ...

    def columns(self, share: Part) -> list[slice]:
        """Return the columns of `flat` that hold a part of the models, neighbors in one slice."""
        ...

    def like(self, flat: Tensor) -> "Models":
        """Return models that share memory with `flat`, (n, d), with push-sum weights 1."""
        ...


class Round(Protocol):
    """A round as a phase sees it: the only access to training, mixing and evaluation.

    Before a run the engine plays the first rounds on tensors without values (device 'meta') and
    observes which methods the phases call: from these it knows what nodes exchange, how much memory
    training takes, and whether a graph must be given. A phase whose calls depend on values checks
    ``models.flat.is_meta``, and then makes all calls that it may make in any round.
    """

    @property
    def t(self) -> int:
        """Number of the round, from 0."""
        ...

    @property
    def n(self) -> int:
        """Number of nodes."""
        ...

    @property
    def topology(self) -> Topology:
        """The graph of the round; a run without one refuses a phase that asks for it."""
        ...

    @property
    def peers(self) -> Topology:
        """The graph along which nodes may choose peers; complete if the run has none."""
        ...

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round."""
        ...

    @property
    def push_weights(self) -> MixingMatrix:
        """The column stochastic matrix of the round, of nodes that push what they have."""
        ...

    @property
    def sizes(self) -> np.ndarray:
        """(n,) numbers of training examples."""
        ...

    def state(self, owner: str) -> State:
        """Return what an earlier phase of the chain keeps, to be changed in place."""
        ...

    def rng(self, purpose: str) -> np.random.Generator:
        """Return numpy's random generator of a round and a purpose, the same at every call.

        Examples
        --------
        Noise on the models::

            noise = round.rng("noise").standard_normal(models.flat.shape)
            models.flat.add_(torch.from_numpy(noise).to(models.flat), alpha=0.01)
        """
        ...

    def train(
        self, models: Models, how: "Training", own: State, *, participants: np.ndarray | None = None
    ) -> np.ndarray:
        """Train models in place on their nodes' data, and return the steps of each node, (n,).

        Parameters
        ----------
        models
            Whose push-sum weights divide the learning rate.
        how
            The steps; see :class:`topofl.algorithms.Training`.
        own
            What the terms of `how` keep from round to round, changed in place: as a rule the state
            of the phase, whose tensors of (n, ...) rows they get by name.
        who
            (n,) booleans: who trains; None: all.

        Notes
        -----
        Minibatches are those of the phase; a second call in the same phase and round draws others.
        Nodes that are frozen since they diverged take no step.
        """
        ...

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """Evaluate models on the examples of nodes, and return what each node found.

        Parameters
        ----------
        trials
            By node: a generator that yields models, (k, d) tensors such as ``models.flat[[2, 5]]``,
            is sent their mean losses on the node's examples, (k,) in float64, as often as it likes,
            and returns anything.
        on
            Which examples: ``"train"`` or ``"val"``.

        Examples
        --------
        Every node looks which of two models it likes better::

            def better(i):
                losses = yield models.flat[[i, (i + 1) % n]]
                return int(losses.argmin())

            liked = round.cross_evaluate({i: better(i) for i in range(n)}, "val")
        """
        ...

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """Return the gradients of all nodes, (n, d), each on one minibatch.

        They lie in memory that the next call with the same key uses again, and for ``""`` training
        too. In rounds without local steps, ``train_loss`` is the mean loss of the models themselves
        at these minibatches, over the calls of the last phase that makes some.

        Parameters
        ----------
        models
            Where the gradients are taken.
        batch_size
            Examples per minibatch.
        key
            Which minibatches, as the purpose of :meth:`rng`: those of one key are the same at every
            call of a round, and others in every round; those of different keys, and of different
            phases, are independent. With ``""`` they are what :meth:`train` draws in the same phase
            for step `t`.

        Examples
        --------
        Two steps in a round, on different minibatches::

            for key in ("first", "second"):
                models.flat.sub_(round.gradients(models, 32, key), alpha=0.1)

        One step along the mean of two independent gradients::

            first, second = (round.gradients(models, 32, key) for key in ("first", "second"))
            models.flat.sub_(first + second, alpha=0.05)
        """
        ...

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """Replace columns of `values` (n, d) by ``weights @ values``, and count the messages.

        Parameters
        ----------
        weights, values, columns
            One exchange, whatever the number of slices.
        scalars
            Further numbers in each message.
        server
            A server does it for the nodes of non-zero columns: each sends one message and receives
            one.
        counted
            Whether messages are counted; False where :meth:`send` says what travels.
        """
        ...

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: Callable[[Tensor, Tensor, Tensor], Tensor],
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """Replace each row of `values` (n, d) by a rule of it and of the rows received.

        Parameters
        ----------
        weights, values
            One exchange: node i receives from every other node j for which ``weights[i, j]`` is not
            0. All rows are read before any is replaced.
        rule
            ``rule(own, heard, shares)`` -> (d,): from a node's own row (d,), the rows (k, d) that
            it received, in the order of their senders, and its weights (k,) of these. Nodes without
            neighbors receive k = 0 rows. The first rounds are played on tensors without values
            (device 'meta'), so a rule must not branch on values.
        scalars, counted
            As in :meth:`mix`.

        Examples
        --------
        The median of every number, over a node and those from which it receives::

            def median(own, heard, shares):
                return torch.cat([own[None], heard]).median(0).values

            round.aggregate(round.weights, models.flat, median)
        """
        ...

    def shown(self, values: Tensor) -> Tensor:
        """Return (n, d) values as nodes present them to others: unchanged unless nodes attack.

        For phases in which nodes look at others' models before they choose their peers.
        """
        ...

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """Count messages of some bytes (one number, or (n,) per sender) along edges of `weights`.

        For what is not sent as whole columns, such as sparse models. By a server, each node of
        non-zero columns sends one message and receives one, of so many bytes on average, one
        number.
        """
        ...

    def note(self, name: str, value: float | Tensor) -> None:
        """Record a number of the round as ``history[name]``, NaN in rounds without one.

        Parameters
        ----------
        name
            Such as ``"simulated_seconds"``; not that of a column which all histories have. Phases
            note the same names in the first rounds as later.
        value
            A number, or a tensor that holds one. Noted again in a round, the last one counts.

        Examples
        --------
        How far models moved::

            round.note("moved", (models.flat - state["before"]).norm())
        """
        ...


def no_state(models: Models) -> State:
    """Return no tensors: the `init` of what keeps none."""
    del models
    return {}


def check_key(key: object) -> str:
    """Return the key of a stream of minibatches, or raise ``TypeError``."""
    if not isinstance(key, str):
        raise TypeError(
            "`key` must be text that tells a round's minibatches apart, such as 'first', got "
            f"{shown(key)}"
        )
    return key
