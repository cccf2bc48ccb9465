"""Interfaces of the engine to phases: parts of models, models, and rounds with their methods."""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.check import check_kind, did_you_mean, shown
from topofl._support.public import public
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

if TYPE_CHECKING:
    from topofl.algorithms.contract.local import Training

__all__ = ["Models", "Part", "Round", "body", "everything", "head", "part"]


@dataclass(frozen=True)
class Part:
    """A selection of a model's parameters by name; see :func:`part`.

    Parameters
    ----------
    patterns
        Names of parameters or of layers, with the wildcards ``*``, ``?`` and ``[...]`` of file
        names. With parentheses they are types of layers: ``"*Norm*()"`` are all normalizations.
    complement
        Whether the part consists of all other parameters instead.
    argument
        The argument by which the part was given, which error messages name.

    Examples
    --------
    >>> bias = Part(("*.bias",))
    >>> bias.places(["conv.weight", "conv.bias", "head.weight", "head.bias"])
    [1, 3]
    >>> bias.rest
    part('*.bias').rest
    """

    patterns: tuple[str, ...] = ("*",)
    complement: bool = False
    argument: str = field(default="", compare=False)

    @property
    def rest(self) -> "Part":
        """The complement: all parameters that do not belong to this part."""
        return replace(self, complement=not self.complement)

    @property
    def is_everything(self) -> bool:
        """Whether the part contains every parameter, whatever the model."""
        return self.patterns == ("*",) and not self.complement

    def places(self, names: Sequence[str], kinds: Sequence[Sequence[str]] = ()) -> list[int]:
        """Return the indices of the parameters that belong to the part.

        `kinds` are the types of each parameter's layer, its class and those above it.

        Raises
        ------
        ValueError
            If a pattern matches no name, or if the part is empty.
        """
        every = list(zip(names, kinds or [()] * len(names), strict=True))
        what = f"`{self.argument}`" if self.argument else "a part of the model"
        for pattern in self.patterns:
            if not any(_matches(name, of, pattern) for name, of in every):
                layers = [name.rpartition(".")[0] or name for name in names]
                types = [f"{of[0]}()" for of in kinds]
                hint = did_you_mean(pattern, list(dict.fromkeys([*layers, *names, *types])))
                found, remedy = layers, ""
                if pattern.endswith("()"):
                    found, remedy = types, "; name some of these, or use a method for whole models"
                elif any(re.match(r"networks\.\d", name) for name in names):
                    remedy = (
                        "; if they are of several kinds, by models.of_kinds, give the layer one "
                        "name, and the same arguments and shapes in all networks"
                    )
                raise ValueError(
                    f"{what} must name parameters of the model, {pattern!r} matches none{hint}; "
                    f"the model's layers with parameters are {', '.join(dict.fromkeys(found))}"
                    f"{remedy}"
                )
        chosen = [any(_matches(*one, pattern) for pattern in self.patterns) for one in every]
        found = [k for k, inside in enumerate(chosen) if inside != self.complement]
        if not found:
            raise ValueError(
                f"{what} must leave some parameters, {', '.join(map(repr, self.patterns))} "
                f"matches all {len(names)} of the model; name only its last layer, or use a model "
                "with a body"
            )
        return found

    def __repr__(self) -> str:
        if self.is_everything:
            return "everything"
        return f"part({', '.join(map(repr, self.patterns))}){'.rest' * self.complement}"

    def __str__(self) -> str:
        if self.is_everything:
            return "everything"
        return "all but " * self.complement + ", ".join(self.patterns)


everything = Part()
"""All parameters."""

head = Part(("head",))
"""The last layer of the networks in :mod:`topofl.models`; personalized methods do not send it."""

body = head.rest
"""All parameters but the :data:`head`."""


@public
def part(*patterns: str | type[nn.Module]) -> Part:
    """Return the part of a model that matches one of some patterns.

    Parameters
    ----------
    patterns
        Names of parameters or layers, with the wildcards of file names; or types of layers, also
        as text with parentheses, such as ``"*Norm*()"`` or ``"BatchNorm2d()"``. They are matched
        when a run starts.

    Raises
    ------
    TypeError
        If there is no pattern, or one is neither text nor a type of layers.

    Examples
    --------
    >>> part("classifier", "encoder.*.bias")
    part('classifier', 'encoder.*.bias')
    >>> part(nn.LayerNorm, "head")
    part('LayerNorm()', 'head')
    >>> head.places(["conv.weight", "conv.bias", "head.weight", "head.bias"])
    [2, 3]
    >>> head.rest == body
    True
    """
    texts = tuple(f"{p.__name__}()" if isinstance(p, type) else p for p in patterns)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise TypeError(
            "`patterns` must be names such as 'head', or types of layers such as nn.LayerNorm, got "
            f"{shown(patterns)}"
        )
    return Part(texts)


def _matches(name: str, kinds: Sequence[str], pattern: str) -> bool:
    """Return whether a parameter, in a layer of some types, matches a pattern."""
    if pattern.endswith("()"):
        return any(fnmatchcase(kind, pattern.removesuffix("()")) for kind in kinds)
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def as_part(name: str, value: object) -> Part:
    """Return a part of a model, given as a Part or as the name of a layer, or raise."""
    value = part(value) if isinstance(value, str) and value else value
    wanted = "a part of the model such as algorithms.head or a layer's name"
    found = check_kind(name, value, Part, wanted)
    return found if found.argument else replace(found, argument=name)


State = dict[str, Tensor]
"""The state that a phase carries to the next round: tensors by name.

Their first axis is the node, or an edge of the run's only graph, in any order, or has length 1 for
what all nodes share. Terms of local steps access the rows of their nodes in tensors of the first
kind.
"""

Rule = Callable[[Topology], MixingMatrix]
"""A weight rule, for example :func:`topofl.mixing.metropolis_hastings`."""

T = TypeVar("T")
Rows = TypeVar("Rows", Tensor, np.ndarray)

Trial = Generator[Tensor, Tensor, T]
"""The evaluation of models on one node's examples, as a generator: it yields models (m, d), any
number of times, is sent their mean losses, (m,) float64 on the CPU, and returns its result.
"""


class Models(Protocol):
    """The models of all nodes, which phases change in place.

    In a distributed run, a phase of this library sees the models of the nodes of its process only:
    `flat` has a row for each of `nodes`. What such a phase needs of other nodes, it gets from the
    methods of :class:`Round`.

    Examples
    --------
    A phase that limits the norm of every model to 10, after each round's exchange:

    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> def limit(models, state, round):
    ...     models.flat.renorm_(p=2, dim=0, maxnorm=10.0)
    ...     return state
    >>> phases = {"local": algorithms.sgd(lr=0.5), "exchange": algorithms.gossip()}
    >>> phases["limit"] = algorithms.Phase(lambda models: {}, limit)
    >>> bounded = algorithms.chain("bounded D-SGD", **phases)
    >>> history = topofl.run(bounded, model=models.logistic_regression(64), clients=clients,
    ...                      topology=topologies.ring(4), rounds=2, seed=0)
    >>> bool((history.models.flat.norm(dim=1) <= 10.001).all())
    True
    """

    @property
    def flat(self) -> Tensor:
        """(n, d): row i holds the parameters of node i's model (with push-sum, de-biased)."""
        ...

    @property
    def n(self) -> int:
        """Number of nodes of the run."""
        ...

    @property
    def d(self) -> int:
        """Number of parameters of one model, the columns of `flat`."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the models."""
        ...

    @property
    def nodes(self) -> np.ndarray:
        """(k,) nodes whose models are the rows of `flat`: all, unless the run is distributed."""
        ...

    @property
    def statistics(self) -> Sequence[str]:
        """Names of the real buffers of which each node has its own, such as running statistics."""
        ...

    @property
    def push_sum_weights(self) -> Tensor:
        """(n,) float64: push-sum weights, 1 unless an exchange has changed them in place."""
        ...

    @property
    def start(self) -> Tensor:
        """(1, d): a copy of the initial model of all nodes; available in `init` only.

        A run whose nodes start from different models raises an error for a phase that reads it.
        """
        ...

    @property
    def topology(self) -> Topology:
        """The only graph of a run, for state with a row per edge, (number of edges, ...).

        A run without a graph, or with a time-varying one, raises an error for a phase that reads
        it.
        """
        ...

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """The shapes of a model's parameters by name, in the order of their columns."""
        ...

    def columns(self, share: Part) -> list[slice]:
        """Return the columns of `flat` that hold a part of the models, in few slices."""
        ...

    def bytes_of(self, share: Part) -> int:
        """Return the bytes of a message with a part of a model, and the statistics that travel."""
        ...

    def like(self, flat: Tensor) -> "Models":
        """Return models that share memory with `flat`, (n, d), with push-sum weights 1."""
        ...

    def of_all_nodes(self) -> "Models":
        """Return the models of all nodes: these, or in a distributed run a gathered copy."""
        ...


class Round(Protocol):
    """The interface through which phases train, exchange and evaluate in a round.

    Before a run the engine plays the first rounds on tensors without values (device 'meta') and
    records which methods the phases call. From these calls it derives what nodes exchange, how much
    memory training takes, and whether a graph is required. A phase whose calls depend on values
    checks ``models.flat.is_meta``, and then makes all calls that it may make in any round.

    Examples
    --------
    A phase that mixes twice per round:

    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> def mix_twice(models, state, round):
    ...     for _ in range(2):
    ...         round.mix(round.weights, models.flat)
    ...     return state
    >>> twice = algorithms.Phase(lambda models: {}, mix_twice)
    >>> algorithm = algorithms.chain("mine", local=algorithms.sgd(lr=0.5), exchange=twice)
    >>> history = topofl.run(algorithm, model=models.logistic_regression(64), clients=clients,
    ...                      topology=topologies.ring(4), rounds=2, seed=0)
    >>> history["messages"].tolist()  # 4 nodes send to 2 neighbors, twice
    [16, 16]
    """

    @property
    def t(self) -> int:
        """Index of the round, from 0."""
        ...

    @property
    def n(self) -> int:
        """Number of nodes."""
        ...

    @property
    def topology(self) -> Topology:
        """The graph of the round; a run without one raises an error for a phase that reads it."""
        ...

    @property
    def peers(self) -> Topology:
        """The graph of the peers that nodes may choose; complete if the run has no graph."""
        ...

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round."""
        ...

    @property
    def push_weights(self) -> MixingMatrix:
        """The column-stochastic matrix of the round, for push-sum."""
        ...

    @property
    def sizes(self) -> np.ndarray:
        """(n,) numbers of training examples."""
        ...

    def state(self, owner: str) -> State:
        """Return the state of an earlier phase of the chain; changes are made in place."""
        ...

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the numpy random generator of the round for a purpose, the same at every call.

        Examples
        --------
        Noise on the models::

            noise = round.rng("noise").standard_normal(models.flat.shape)
            models.flat.add_(torch.from_numpy(noise).to(models.flat), alpha=0.01)
        """
        ...

    def train(
        self,
        models: Models,
        training: "Training",
        state: State,
        *,
        participants: np.ndarray | None = None,
    ) -> np.ndarray:
        """Train models in place on their nodes' data, and return the steps of each node, (n,).

        Parameters
        ----------
        models
            The models to train. Their push-sum weights divide the learning rate.
        training
            The local steps; see :class:`topofl.algorithms.Training`.
        state
            The state of the terms of `training`, changed in place: usually the state of the phase.
            Terms access its (n, ...) tensors by name.
        participants
            (n,) booleans: the nodes that train; None: all.

        Notes
        -----
        Minibatches depend on the phase; a second call in the same phase and round draws different
        ones. Nodes that are frozen because they diverged take no steps.
        """
        ...

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """Evaluate models on the examples of other nodes, and return each node's result.

        Parameters
        ----------
        trials
            By node: a generator that yields models, (k, d) tensors such as ``models.flat[[2, 5]]``,
            and is sent their mean losses on the node's examples, (k,) in float64, any number of
            times. It may return anything.
        on
            The examples: ``"train"`` or ``"val"``.

        Examples
        --------
        Every node determines which of two models has the lower loss on its examples::

            def better(i):
                losses = yield models.flat[[i, (i + 1) % n]]
                return int(losses.argmin())

            best = round.cross_evaluate({i: better(i) for i in range(n)}, "val")
        """
        ...

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """Return the gradients of all nodes, (n, d), each on one minibatch.

        The next call with the same key overwrites them, and so does training for the key ``""``;
        those that a phase returns in its state are copied, and keep their values. In rounds without
        local steps, ``train_loss`` is the mean loss of the models on these minibatches, over the
        calls of the last phase that computes gradients.

        Parameters
        ----------
        models
            The models at which gradients are taken.
        batch_size
            Examples per minibatch.
        key
            Name of the minibatches, like the purpose of :meth:`rng`: those of one key are the same
            at every call in a round and different in every round; those of different keys, and of
            different phases, are independent. With ``""`` they are those that :meth:`train` draws
            in the same phase for step `t`.

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

    def feature_sums(
        self, models: Models, layer: Part, function: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return sums of a function of features over each node's training examples, (n, ...).

        Parameters
        ----------
        models
            The models, in evaluation mode.
        layer
            The layer whose inputs are the features, such as :data:`topofl.algorithms.head`.
        function
            ``function(features, targets) -> sums``: from features (b, m) and targets (b, ...) of
            some examples to a tensor, of the same shape for every b. It runs once before a run.

        Examples
        --------
        The mean feature of each node's examples::

            def total(features, targets):
                return torch.cat([features.sum(0), features.new_full((1,), len(features))])

            sums = round.feature_sums(models, head, total)  # (n, m + 1)
            means = sums[:, :-1] / sums[:, -1:]
        """
        ...

    def mix(
        self,
        weights: MixingMatrix,
        values: "Tensor | Models",
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """Replace columns of `values` (n, d) by ``weights @ values``, and count the messages.

        Given the models themselves instead of ``models.flat``, which stores each of them apart, an
        average of whole models by a server is stored once for all nodes: memory and time do not
        grow with the nodes that do not take part.

        Parameters
        ----------
        weights, values, columns
            One exchange, whatever the number of slices. Running statistics travel with the
            parameters of their layer among the columns of the models, ``models.flat`` or a slice.
        scalars
            Additional numbers in each message.
        server
            Whether a server averages: each node with a non-zero column sends one message and
            receives one.
        counted
            Whether messages are counted; False if :meth:`send` counts them. Running statistics then
            travel with the models themselves, but not with a tensor, which may hold anything.
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
        """Replace each row of `values` (n, d) by a function of the row and of the rows received.

        Parameters
        ----------
        weights, values
            One exchange: node i receives from every other node j for which ``weights[i, j]`` is not
            0. All rows are read before any is replaced.
        rule
            ``rule(own, received, weights)`` -> (d,): from a node's own row (d,), the rows (k, d)
            that it received, in ascending order of senders, and their weights (k,). Nodes without
            neighbors receive k = 0 rows. The first rounds are played on tensors without values
            (device 'meta'), so a rule must not branch on values.
        scalars, counted
            As in :meth:`mix`.

        Examples
        --------
        The coordinate-wise median over a node and its in-neighbors::

            def median(own, received, weights):
                return torch.cat([own[None], received]).median(0).values

            round.aggregate(round.weights, models.flat, median)
        """
        ...

    def published(self, values: Tensor, message: int = 0, *, own: bool = False) -> Tensor:
        """Return (n, d) values as other nodes receive them: rows of attackers are forged.

        For phases in which nodes inspect the models of others before they choose their peers, and
        for asynchronous methods, which number the messages of a phase in a round, since attackers
        draw their random numbers anew for each: calls with the same number, before the same
        exchange, see the same forged rows. The result has the rows of all nodes, also in a
        distributed run, or with `own` those of ``models.nodes``: then rows are gathered only if
        there are attackers.
        """
        ...

    def sum_of_ranks(self, values: Tensor) -> Tensor:
        """Return the sum over processes of values that each computes from its own rows.

        These are the values themselves, unless the run is distributed: then they are added in
        place, with the same result in all processes, in which they must have one shape.

        Examples
        --------
        The mean model of all nodes, (d,)::

            mean = round.sum_of_ranks(models.flat.sum(0)) / round.n
        """
        ...

    def all_rows(self, values: Tensor) -> Tensor:
        """Return the rows of all nodes, (n, ...), of values that have a row per node.

        These are the values themselves, unless the run is distributed: then the rows are gathered
        from all processes.
        """
        ...

    def own_rows(self, values: Rows) -> Rows:
        """Return the rows of ``models.nodes`` of a tensor or array (n, ...), as in :meth:`train`.

        These are the values themselves, unless the run is distributed.
        """
        ...

    def on_all_models(
        self, function: Callable[[Models, State], State], models: Models, state: State
    ) -> State:
        """Call ``function(models, state)`` with the models of all nodes, and return its state.

        In a distributed run the models are gathered from all processes, which all compute the
        same; then each process takes the rows of its nodes. See
        :func:`topofl.algorithms.on_all_models`.
        """
        ...

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """Count messages along the edges of `weights`, without exchanging values.

        For messages that are not whole columns, such as sparse models.

        Parameters
        ----------
        weights
            The matrix along whose off-diagonal entries messages are sent.
        nbytes
            Bytes per message: one number, or (n,) by sender; with a server one number.
        server
            Whether messages pass through a server: each node with a non-zero column sends one
            message and receives one, of `nbytes` on average.
        """
        ...

    def note(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """Note a number of the round, or one per node, in the column ``history[name]``.

        The column has the numbers of all rounds, (rounds,). Values per node are kept at
        evaluations, like scores: the column has shape (evaluations, n), and NaN before training.

        Parameters
        ----------
        name
            Name of the column, such as ``"simulated_seconds"``, other than those of the columns
            that all histories have. A phase must note it in the first rounds already; rounds
            without a value hold NaN.
        value
            A number, or a tensor that holds one; or a tensor or an array of shape (n,) with a value
            per node. A phase with ``rowwise=True`` notes those of ``models.nodes``, which are
            gathered from all processes. The last value noted in a round counts.

        Examples
        --------
        How far the models moved::

            round.note("moved", (models.flat - state["before"]).norm())
            round.note("moved_by", (models.flat - state["before"]).norm(dim=1))  # of each node
        """
        ...


def no_state(models: Models) -> State:
    """Return an empty state: the default `init` of phases, terms and policies."""
    return {}


def check_key(key: object) -> str:
    """Return the key of a stream of minibatches, or raise ``TypeError``."""
    wanted = "text that names the minibatches of a round, such as 'first'"
    return check_kind("key", key, str, wanted)
