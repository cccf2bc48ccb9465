"""Algorithms as lists of phases: the contract between methods (here) and the engine (which owns memory and loops)."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from topofl._check import check_choice, shown
from topofl._text import printable
from topofl.algorithms.parts import Part, everything
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

__all__ = [
    "Algorithm",
    "LocalSGD",
    "Mixture",
    "Models",
    "Neighbors",
    "Phase",
    "Proximal",
    "Round",
    "State",
    "Trial",
    "chain",
    "check_fine_tune",
    "check_key",
]

State = dict[str, Tensor]
"""What one phase carries to the next round: tensors whose first axis is the node, or of length 1 for all of them."""

Rule = Callable[[Topology], MixingMatrix]
"""A weight rule, for example :func:`topofl.mixing.metropolis_hastings`."""

T = TypeVar("T")

Trial = Generator[Tensor, Tensor, T]
"""What one node finds out by trying models on its examples: it yields models (m, d), is sent their mean losses there,
(m,) float64 on the CPU, as often as it likes, and returns what it found."""


class Models(Protocol):
    """All nodes' models; phases change them in place through the round."""

    @property
    def flat(self) -> Tensor:
        """(n, d): row i holds the parameters of node i's model, as it predicts (push-sum: de-biased)."""
        ...

    @property
    def mass(self) -> Tensor:
        """(n,) float64: the nodes' push-sum weights, 1 unless an exchange has changed them in place."""
        ...

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """The shapes of a model's parameters by name, in the order of their columns."""
        ...

    def columns(self, share: Part) -> list[slice]:
        """Return the columns of `flat` that hold a part of the models, neighbors in one slice."""
        ...

    def like(self, flat: Tensor) -> "Models":
        """Return other models (n, d) of the same structure, with push-sum weights 1, sharing memory with `flat`."""
        ...


class Proximal(NamedTuple):
    """What draws models to others while they train: ``strength * (theta - anchor)`` is added to gradients.

    Attributes
    ----------
    anchor
        (n, d), the same memory as no model that trains; None: the models as they are before the first step.
    strength
        At least 0.
    """

    anchor: Tensor | None
    strength: float


class Mixture(NamedTuple):
    """What models are mixed with while they train: gradients are those of ``share * theta + (1 - share) * common``.

    Attributes
    ----------
    common
        Trained too, by the same steps on the same minibatches, each along its own gradient.
    share
        (n,) between 0 and 1, of the models' dtype.
    adaptive
        Whether the first step also takes one of `share`, in place, along its own gradient.
    """

    common: Models
    share: Tensor
    adaptive: bool


@dataclass(frozen=True)
class LocalSGD:
    """How nodes descend on their own data; see :func:`topofl.algorithms.sgd`.

    Parameters
    ----------
    lr, batch_size, momentum, weight_decay, clip
        See there.
    steps
        Minibatches a round, where `epochs` is None.
    epochs
        Passes over a node's data a round, one number for all or one a node.
    train
        What is trained; the rest stays as it is.
    gradient
        Weight rule that mixes gradients before each step.
    inner_lr
        Gradients are those one step of this size ahead, on a minibatch of its own; None: where the models are.
    """

    lr: float
    batch_size: int
    steps: int = 1
    epochs: int | tuple[int, ...] | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    train: Part = everything
    gradient: Rule | None = None
    inner_lr: float | None = None

    @property
    def minibatches(self) -> int:
        """Minibatches that a step takes."""
        return 1 if self.inner_lr is None else 2

    def counts(self, sizes: np.ndarray) -> np.ndarray:
        """Return each node's steps a round, (n,), from its number of examples; ValueError if `epochs` has another n."""
        if self.epochs is None:
            return np.full(len(sizes), self.steps)
        if isinstance(self.epochs, tuple) and len(self.epochs) != len(sizes):
            raise ValueError(
                f"`epochs` must be one number or one a node, n={len(sizes)}, got {len(self.epochs)} numbers"
            )
        return -(-np.asarray(self.epochs) * -(-sizes // self.batch_size) // self.minibatches)


class Round(Protocol):
    """What a phase may see of the world, and the only doors to training and mixing."""

    @property
    def t(self) -> int:
        """Number of the round, from 0."""
        ...

    @property
    def topology(self) -> Topology:
        """The graph of the round."""
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

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the round's stream of random numbers for a purpose, the same at every call."""
        ...

    def local_sgd(
        self,
        models: Models,
        how: LocalSGD,
        *,
        velocity: Tensor | None = None,
        proximal: Proximal | None = None,
        mask: Tensor | None = None,
        toward: Tensor | None = None,
        who: np.ndarray | None = None,
        mixture: Mixture | None = None,
    ) -> None:
        """Train models in place, each on its node's data.

        Parameters
        ----------
        models
            Whose push-sum weights divide the learning rate.
        how
            The steps.
        velocity
            (n, d) that lasts from round to round; with momentum but without it, each round starts from zero.
        proximal
            Adds a gradient.
        mask
            (n, d), 1 where a parameter is trained; gradients are multiplied by it.
        toward
            (n, d): adds the gradient of ``-<toward_i, theta_i> / ||theta_i||``, over what is trained.
        who
            (n,) booleans: who trains; None: all.
        mixture
            What the models are mixed with where gradients are taken.
        """
        ...

    def ask(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """Let nodes try models on their own examples, and return what each found.

        Parameters
        ----------
        trials
            By node: a generator that yields models, (k, d) tensors such as ``models.flat[[2, 5]]``, is sent their
            mean losses on the node's examples, (k,) in float64, as often as it likes, and returns anything.
        on
            Which examples: ``"train"`` or ``"val"``. The phase must say so too, by :attr:`Phase.asks` (a policy by
            :attr:`Policy.asks`), so that nodes without any are found before the run starts.

        Examples
        --------
        Every node looks which of two models it likes better::

            def better(i):
                losses = yield models.flat[[i, (i + 1) % n]]
                return int(losses.argmin())

            liked = round.ask({i: better(i) for i in range(n)}, "val")
        """
        ...

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """Return the gradients of all nodes, (n, d), each on one minibatch.

        They lie in memory that the next call with the same key uses again, and for ``""`` training too. A phase that
        calls it declares ``Phase(..., gradients=True)``. In rounds without local steps, ``train_loss`` is the mean loss
        of the models themselves at these minibatches, over the calls of the last phase that makes some.

        Parameters
        ----------
        models
            Where the gradients are taken.
        batch_size
            Examples per minibatch.
        key
            Which minibatches, as the purpose of :meth:`rng`: those of one key are the same at every call of a round,
            and others in every round; those of different keys, and of different phases, are independent. With ``""``
            they are what :meth:`local_sgd` draws in the same phase for step `t`.

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
        """Replace columns of `values` (n, d) by ``weights @ values`` in place, and count the messages.

        Parameters
        ----------
        weights, values, columns
            One exchange, whatever the number of slices.
        scalars
            Numbers that each message holds besides.
        server
            A server does it for the nodes of non-zero columns: each sends one message and gets one.
        counted
            Whether messages are counted; False where :meth:`send` says what travels.
        """
        ...

    def send(self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False) -> None:
        """Count a message along every off-diagonal entry of `weights`, of so many bytes: one number, or (n,) by sender.

        For what is not sent as whole columns, such as sparse models. By a server, each node of non-zero columns sends
        one message and gets one, of so many bytes on average, one number.
        """
        ...


EXCHANGES = ("", "models", "gradients")
"""What nodes can send each other in a phase."""

OVER = ("graph", "push", "server", "peers")
"""By what they can send it."""


class Phase(NamedTuple):
    """One part of a round.

    Attributes
    ----------
    init
        ``init(models) -> state`` before the first round.
    apply
        ``apply(models, state, round) -> state``; changes the models in place.
    settings
        What it was built with; kept with the results.
    exchanges
        What nodes send each other in it: ``"models"``, ``"gradients"``, or nothing, ``""``. A phase that declares
        nothing must not use ``round.weights``, ``mix`` or ``send``; a run refuses it. Where a run has no topology, such
        a phase is therefore applied once before training to models that have shapes but no numbers (meta tensors).
    over
        By what: the ``"graph"`` of the round, rows of whose weights sum to 1; the same pushing, ``"push"``, columns
        sum to 1; a ``"server"``; or ``"peers"`` that nodes choose by their models, among those that the graph allows.
    share
        What they send of their models.
    uses
        Name of an earlier phase whose state it works on, in place of one of its own.
    gradients
        Whether it asks for the gradients of all nodes at once, by ``round.gradients``; a run refuses a phase that does
        so without declaring it, since memory is planned by what phases declare.
    asks
        On which of their own examples nodes try models, ``"train"`` or ``"val"``; ``""``: on none.
    common_start
        Whether it needs nodes that all start from the same model.
    mixes
        The weight rule by which it mixes gradients, if it does.
    """

    init: Callable[[Models], State]
    apply: Callable[[Models, State, Round], State]
    settings: Mapping[str, Any]
    exchanges: str = ""
    over: str = "graph"
    share: Part = everything
    uses: str = ""
    gradients: bool = False
    asks: str = ""
    common_start: bool = False
    mixes: Rule | None = None


@dataclass(frozen=True)
class Neighbors:
    """How the nearest of a node's own training examples vote beside its model; see :func:`topofl.algorithms.knn_per`.

    Parameters
    ----------
    k
        How many of them, or all that there are.
    weight
        Of their votes, between 0 and 1; the model has the rest.
    scale
        The larger, the less nearness counts.
    head
        The layer whose inputs are compared.
    """

    k: int
    weight: float
    scale: float
    head: Part

    @property
    def settings(self) -> dict[str, Any]:
        """Its numbers and names, to be kept with results."""
        return {"k": self.k, "weight": self.weight, "scale": self.scale, "head": str(self.head)}


@dataclass(frozen=True)
class Algorithm:
    """A named list of phases, run in order every round.

    Parameters
    ----------
    name
        The method's name.
    phases
        Phases by name; the name of a phase also names its stream of minibatches.
    pooled
        Whether it trains one model on all nodes' data together (a reference, not a decentralized method).
    fine_tune
        What copies of the models go through before they are evaluated a further time, such as
        ``sgd(lr=0.1, epochs=5)``; the models themselves stay as they are.
    neighbors
        What votes beside the models where they are evaluated a further time.
    """

    name: str
    phases: Mapping[str, Phase]
    pooled: bool = field(default=False, kw_only=True)
    fine_tune: Phase | None = field(default=None, kw_only=True)
    neighbors: Neighbors | None = field(default=None, kw_only=True)

    @property
    def exchanges(self) -> bool:
        """Whether nodes talk to each other, directly or by a server."""
        return any(phase.exchanges != "" for phase in self.phases.values())

    @property
    def needs_topology(self) -> bool:
        """Whether nodes talk to neighbors that a graph must say."""
        return any(phase.exchanges != "" and phase.over in ("graph", "push") for phase in self.phases.values())

    @property
    def chooses(self) -> bool:
        """Whether nodes choose by their models whom they hear; a graph may limit whom they can."""
        return any(phase.over == "peers" for phase in self.phases.values())

    @property
    def common_start(self) -> bool:
        """Whether all nodes must start from the same model."""
        return any(phase.common_start for phase in self.phases.values())

    @property
    def pushes(self) -> bool:
        """Whether models are pushed, and have push-sum weights."""
        return any(phase.over == "push" for phase in self.phases.values())

    @property
    def pushed(self) -> Part:
        """What is pushed of the models, and has push-sum weights; everything if nothing is."""
        return next((phase.share for phase in self.phases.values() if phase.over == "push"), everything)

    @property
    def share(self) -> Part:
        """What travels of the models, by the first phase that exchanges some; everything if there is none."""
        return next((phase.share for phase in self.phases.values() if phase.exchanges == "models"), everything)

    @property
    def states(self) -> dict[str, Callable[[Models], State]]:
        """What makes the states that phases carry from round to round, by phase."""
        return {name: phase.init for name, phase in self.phases.items() if not phase.uses}

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What each phase was built with, ``fine_tune`` and ``neighbors`` too if there are some."""
        return {name: dict(part.settings) for name, part in (*self.phases.items(), *self._evaluated.items())}

    @property
    def _evaluated(self) -> dict[str, Phase | Neighbors]:
        """What models are evaluated with, besides as they are."""
        parts = {"fine_tune": self.fine_tune, "neighbors": self.neighbors}
        return {name: part for name, part in parts.items() if part is not None}

    def __repr__(self) -> str:
        parts = [f"{name}({_listed(phase)})" for name, phase in self.phases.items()]
        besides = [f"; {name}({_listed(part)})" for name, part in self._evaluated.items()]
        return printable(f"{self.name}: {' -> '.join(parts)}{''.join(besides)}")


def _listed(part: Phase | Neighbors) -> str:
    return ", ".join(f"{key}={value}" for key, value in part.settings.items())


def check_key(key: object) -> str:
    """Return the key of a stream of minibatches, or raise ``TypeError``."""
    if not isinstance(key, str):
        raise TypeError(f"`key` must be text that tells a round's minibatches apart, such as 'first', got {shown(key)}")
    return key


def _check_phase(key: str, phase: object) -> None:
    """Raise unless a phase has functions, settings and words that a run knows."""
    if not isinstance(phase, Phase):
        raise TypeError(f"`{key}` must be a Phase such as sgd(lr=0.1) or gossip(), got {type(phase).__name__}")
    for part in ("init", "apply"):
        if not callable(getattr(phase, part)):
            raise TypeError(f"`{part}` of the phase {key!r} must be a function, got {shown(getattr(phase, part))}")
    if not isinstance(phase.settings, Mapping):
        raise TypeError(f"`settings` of the phase {key!r} must be a dictionary, got {shown(phase.settings)}")
    for word, known in {"exchanges": EXCHANGES, "over": OVER, "asks": ("", "train", "val")}.items():
        try:
            check_choice(word, getattr(phase, word), known)
        except ValueError as error:
            raise ValueError(f"{error} (of the phase {key!r})") from None


def check_fine_tune(phase: object) -> Phase:
    """Return a phase that a model can go through by itself, or raise ``TypeError`` or ``ValueError``."""
    if not isinstance(phase, Phase):
        raise TypeError(f"`fine_tune` must be a Phase such as sgd(lr=0.1, epochs=5), got {shown(phase)}")
    if phase.exchanges or phase.uses:
        why = f"uses the state of {phase.uses!r}" if phase.uses else f"exchanges {phase.exchanges}"
        raise ValueError(
            f"`fine_tune` must be a phase of each node alone such as sgd(lr=0.1, epochs=5), got one that {why}"
        )
    return phase


def chain(
    name: str,
    /,
    *,
    pooled: bool = False,
    fine_tune: Phase | None = None,
    neighbors: Neighbors | None = None,
    **phases: Phase,
) -> Algorithm:
    """Return the algorithm that runs these phases in order, every round.

    Parameters
    ----------
    name, phases
        Of the method, and what it does.
    pooled, fine_tune, neighbors
        As in :class:`Algorithm`.

    Raises
    ------
    ValueError
        If there is no phase, one uses the state of none before it or a word that is not known, or nodes exchange
        something in `fine_tune`.
    TypeError
        If one of them is not a :class:`Phase`, or a part of it is of another kind.

    Examples
    --------
    >>> from topofl.algorithms import gossip, sgd
    >>> chain("dsgd", local=sgd(lr=0.1, batch_size=32), exchange=gossip())
    dsgd: local(lr=0.1, batch_size=32, steps=1, momentum=0.0, gradient=own) -> exchange(weights=round)
    """
    if not phases:
        raise ValueError("`phases` must have at least one phase, e.g. chain('mine', local=sgd(lr=0.1))")
    for key, phase in phases.items():
        if isinstance(phase, Phase) and phase.uses and phase.uses not in list(phases)[: list(phases).index(key)]:
            raise ValueError(f"`{key}` must come after the phase whose state it uses, {phase.uses!r}")
        _check_phase(key, phase)
    if sum(phase.over == "push" for phase in phases.values()) > 1:
        raise ValueError(
            "`phases` must push models once a round, a node has one push-sum weight; share both parts in one"
        )
    tuned = None if fine_tune is None else check_fine_tune(fine_tune)
    return Algorithm(name, phases, pooled=pooled, fine_tune=tuned, neighbors=neighbors)
