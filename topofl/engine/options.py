"""Options of a run: evaluations, computation, and checkpoints. Long, since all are documented."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from topofl._columns import OWN_COLUMNS, STAGES
from topofl._support.check import (
    check_choice,
    check_int,
    check_int_or_auto,
    check_path,
    check_positive,
    check_sequence,
    check_switch,
    check_takes,
    shown,
)
from topofl._support.public import public
from topofl.algorithms.contract.phase import Phase, check_fine_tune
from topofl.algorithms.contract.round import Models, Round

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SETS = ("test", "val", "triggered", "own_test", "own_val")
OPTIONAL_COLUMNS = ("consensus_distance", "gradient_diversity")

CustomStage = Callable[[Models, Round], Models | torch.Tensor]
"""User-defined stage of evaluations: (models, round) -> the models that are scored."""

NodeValues = Callable[[Models, Round], "torch.Tensor | np.ndarray"]
"""User-defined column of evaluations: (models, round) -> a value per node, (n,)."""


@public
@dataclass(frozen=True)
class Evaluation:
    """When models are evaluated, on which examples, and at which stages of a round.

    In :func:`topofl.run`, ``evaluation=4`` is short for ``Evaluation(every=4)``, and
    ``evaluation="own_test"`` for ``Evaluation(on="own_test")``.

    See the page :doc:`Evaluation stages </docs/concepts/evaluation-stages>`.

    Parameters
    ----------
    every
        Evaluate after every `every` rounds, and always before the first and after the last round.
    on
        ``"test"`` or ``"val"``: every node's model on the whole test or validation set of the
        dataset. ``"triggered"``: on the images with the trigger of :func:`topofl.data.backdoor`,
        whose accuracy is the success rate of the backdoor. ``"own_test"`` or ``"own_val"``: each
        node's model on its own held-out examples.
        Of several, such as ``("own_test", "own_val")``, the first gives the columns ``accuracy``
        and ``loss``, and the others columns with their name, such as ``accuracy_own_val``. Stored
        as a tuple. ``()``: no model is scored, so that the data need no test set; evaluations then
        record consensus distances and gradient diversity only, and an algorithm's own fine-tuning
        is left out.
    examples
        Evaluate on this many examples of each shared set, the same for all nodes and rounds, drawn
        from a separate stream of the run's seed. None: all of them. Not with ``"own_test"`` and
        ``"own_val"``.
    nodes
        Evaluate the models of this many nodes, the same in all rounds, drawn from another stream of
        the seed (with ``"own_test"`` and ``"own_val"``, among the nodes with examples in each of
        them). The other nodes have NaN for accuracy and loss, which means over nodes leave out.
        None: all of them.
    before_exchange
        Whether models are also evaluated right before the first phase of a round that exchanges
        models, in columns such as ``accuracy_before_exchange``.
    fine_tune
        Phase that is applied to copies of the models, such as ``sgd(lr=0.1, epochs=5)``, for
        another evaluation with the columns ``accuracy_fine_tuned`` and ``loss_fine_tuned``. It does
        not change training: the copies are dropped, and their minibatches are a separate stream.
        None: the fine-tuning of the algorithm, if any; False: none.
    fine_tune_every
        Fine-tune after every `fine_tune_every` rounds, a multiple of `every`, and after the last
        round; each time costs as much as the phase does for all evaluated nodes. Other evaluations
        have NaN. None: only after the last round.
    also
        User-defined stages, name -> function of ``(models, round)``. The models or the (n, d)
        tensor that it returns are scored too at every evaluation, in columns that end in the name,
        such as ``accuracy_ensemble``. `models` are the :class:`topofl.algorithms.Models` at the end
        of the round, which the function must not change. `round` is a
        :class:`topofl.algorithms.Round` with the graph of the training round and the states of the
        phases; random numbers, training (of copies) and exchanges there do not affect the run or
        its message counts. Before training it is round 0, with the initial states. Memory
        estimates do not include the function. Names and functions are part of the fingerprint
        of a run. None: no such stages.
    per_node
        User-defined columns, name -> function of ``(models, round)`` as in `also`. It returns a
        value per node, a tensor or an array of shape (n,), which the column of this name has at
        every evaluation: ``history[name]`` has shape (evaluations, n). None: no such columns.
    without
        Built-in columns that are not computed, which are NaN then: ``"consensus_distance"``,
        ``"gradient_diversity"`` or both. What they cost, :func:`topofl.estimate` measures with a
        probe. Stored as a tuple.

    Raises
    ------
    ValueError, TypeError
        If a number is not a positive integer, a set is unknown or named twice, an option that needs
        a set is given with ``on=()``, `fine_tune` is not a phase of each node alone, or `also` or
        `per_node` is not a dictionary of functions whose names are identifiers other than the
        built-in ones. :func:`topofl.run` checks what depends on the data or the algorithm, and the
        results of these functions.

    Examples
    --------
    >>> Evaluation(every=5, on="own_test").on
    ('own_test',)

    Score the average of all nodes' models too:

    >>> def mean(models, round):
    ...     return models.flat.mean(0).expand(round.n, -1)
    >>> list(Evaluation(also={"mean": mean}).custom)
    ['mean']

    Record how far each model is from the average:

    >>> def drift(models, round):
    ...     return (models.flat - models.flat.mean(0)).norm(dim=1)
    >>> list(Evaluation(per_node={"drift": drift}).per_node)
    ['drift']
    """

    every: int = 10
    on: str | Sequence[str] = "test"
    examples: int | None = None
    nodes: int | None = None
    before_exchange: bool = False
    fine_tune: Phase | Literal[False] | None = None
    fine_tune_every: int | None = None
    also: Mapping[str, CustomStage] | None = field(default=None, hash=False)
    per_node: Mapping[str, NodeValues] | None = field(default=None, hash=False)
    without: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("every", "examples", "nodes", "fine_tune_every"):
            if (value := getattr(self, name)) is not None or name == "every":
                object.__setattr__(self, name, check_int(name, value, minimum=1))
        object.__setattr__(self, "on", _names("on", self.on, SETS))
        object.__setattr__(self, "without", _names("without", self.without, OPTIONAL_COLUMNS))
        check_switch("before_exchange", self.before_exchange, auto=False)
        if self.fine_tune is not None and self.fine_tune is not False:
            check_fine_tune(self.fine_tune)
        for name in ("also", "per_node"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _check_functions(name, value))
        if taken := sorted(OWN_COLUMNS & set(self.per_node or ())):
            raise ValueError(
                "names in `per_node` must differ from all columns of the history, got "
                f"{taken[0]!r}; rename it"
            )
        if not self.on:
            _check_without_sets(self)

    @property
    def custom(self) -> Mapping[str, CustomStage]:
        """User-defined stages by name; empty if `also` is None."""
        return self.also or {}


def _check_without_sets(evaluation: Evaluation) -> None:
    """Raise ``ValueError`` if an option needs a set of examples, and none is evaluated."""
    for name in ("examples", "nodes", "before_exchange", "fine_tune", "fine_tune_every", "also"):
        value = getattr(evaluation, name)
        if value is not None and value is not False:
            default = False if name == "before_exchange" else None
            raise ValueError(
                f"`{name}` must be {default} with on=(), which scores no models, got "
                f"{shown(value)}; leave it out, or name a set, as in on='test'"
            )


def _check_functions(argument: str, functions: Any) -> dict[str, Any]:
    """Return user-defined stages or columns; raise unless they are functions with valid names."""
    if not isinstance(functions, Mapping):
        raise TypeError(
            f"`{argument}` must be a dictionary such as {{'ensemble': function}}, got "
            f"{shown(functions)}"
        )
    for name, function in functions.items():
        if not isinstance(name, str) or not name.isidentifier() or name in (*STAGES, *SETS):
            taken = ", ".join(filter(None, (*STAGES, *SETS)))
            raise ValueError(
                f"names in `{argument}` must be identifiers other than {taken}, got "
                f"{shown(name)}; rename it"
            )
        check_takes(f"`{argument}[{name!r}]`", function, "models", "round")
    return dict(functions)


def _names(argument: str, given: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple; raise unless each is known and named once."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    names = tuple(check_choice(argument, name, known) for name in (given if several else (given,)))
    if len(set(names)) != len(names):
        raise ValueError(
            f"`{argument}` must have each name once, got {', '.join(names)}; leave the others out"
        )
    return names


@public
@dataclass(frozen=True)
class Compute:
    """How a run is computed; results do not depend on it up to rounding.

    In :func:`topofl.run`, ``compute="cuda"`` is short for ``Compute(device="cuda")``.

    See the page :doc:`Memory and speed </docs/how-to/memory-and-speed>`.

    Parameters
    ----------
    device, dtype
        Device and dtype of models and data. Device None: CUDA if available, else CPU.
    precision
        ``"fp32"``, the reference, or ``"bf16"``: matrix products are computed in bfloat16
        (autocast), while everything else, including the models, keeps its dtype. Faster on
        processors with bfloat16 products (GPUs; CPUs with AMX or AVX-512 BF16). Others emulate
        them, which is far slower and warned about.
    executor
        ``"batched"``, ``"looped"`` or ``"auto"``, which times both on a few nodes. ``history.meta``
        has the executor that ran, and the requested one as ``"asked"``. Results agree up to the
        rounding of float32.
    chunk
        Nodes per call of the batched executor; smaller values need less memory. ``"auto"``: the
        fastest number that fits into free memory.
    channels_last
        Whether images use the channels-last memory format where models are applied one at a time.
        ``"auto"``: on CPUs, if the model supports it.
    compile
        Whether ``torch.compile`` compiles the model, which takes from seconds to a minute. Linear
        models are not compiled: their gradients are computed in closed form.
    on_divergence
        When the loss, gradient or model of a node becomes NaN or infinite: ``"raise"`` stops the
        run; ``"freeze"`` undoes the node's step and stops its training, while the node continues to
        exchange models, however large, and its gradient counts as zero where gradients are
        averaged; ``"record"`` continues, so that NaN and infinity spread, and means of losses leave
        out NaN. ``history.meta["diverged"]`` lists node, round (from 1) and learning rate, in order
        of occurrence.
    buffers
        What happens to buffers that the model changes in training, such as the running statistics
        of batch normalization: ``"average"``: they are averaged with the parameters of their layer,
        where these are averaged; ``"own"``: each node keeps its own.
    on_disconnected
        ``"raise"`` refuses graphs on which consensus is impossible, ``"allow"`` trains on them.
    distributed
        Whether the processes that torchrun started share the nodes of the run: each holds the
        models and data of its nodes, and they exchange models by torch.distributed.
    placement
        The number of the process that holds each node, for ``distributed=True``. None: chosen, so
        that few edges are between processes. Stored as a tuple.
    rank_timeout
        Seconds after which a process that does not respond has failed, which ends the run. It must
        be longer than the slowest process computes for a round and an evaluation.
    scratch
        Folder on a disk for a file that holds the models of all nodes, for runs whose models do not
        fit into memory; Linux and CPU only. Parts of the file are in memory while they are used.
        The file has no name, and is gone when the history is, or the process. The states of
        phases, such as momentum, stay in memory. None: the models are in memory.

    Raises
    ------
    ValueError, TypeError
        If a value is not one of these, the device is not available, or the dtype cannot be trained
        with.

    Examples
    --------
    >>> Compute(device="cpu", executor="looped").precision
    'fp32'
    """

    device: torch.device | str | None = None
    dtype: torch.dtype = torch.float32
    precision: str = "fp32"
    executor: str = "auto"
    chunk: int | str = "auto"
    channels_last: bool | str = "auto"
    compile: bool = False
    on_divergence: str = "raise"
    buffers: str = "average"
    on_disconnected: str = "raise"
    distributed: bool = False
    placement: Sequence[int] | None = None
    rank_timeout: float = 600.0
    scratch: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_device(self.device)
        check_choice("precision", self.precision, ["fp32", "bf16"])
        self._check_dtype()
        check_choice("executor", self.executor, ["auto", "batched", "looped"])
        object.__setattr__(self, "chunk", check_int_or_auto("chunk", self.chunk, minimum=1))
        if self.executor == "looped" and self.chunk not in ("auto", 1):
            raise ValueError(
                '`chunk` must be "auto" or 1 with executor="looped", which takes one node per '
                f'call, got {self.chunk}; leave it out, or set it to "auto"'
            )
        check_switch("channels_last", self.channels_last)
        check_switch("compile", self.compile, auto=False)
        check_choice("on_divergence", self.on_divergence, ["raise", "freeze", "record"])
        check_choice("buffers", self.buffers, ["average", "own"])
        check_choice("on_disconnected", self.on_disconnected, ["raise", "allow"])
        check_switch("distributed", self.distributed, auto=False)
        check_positive("rank_timeout", self.rank_timeout)
        if self.placement is not None:
            object.__setattr__(self, "placement", _check_placement(self))
        if self.scratch is not None:
            object.__setattr__(self, "scratch", _check_scratch(self))

    def _check_dtype(self) -> None:
        if self.precision == "bf16" and self.dtype != torch.float32:
            raise ValueError(
                f"`dtype` must be torch.float32 with precision='bf16', got {shown(self.dtype)}; "
                "leave it out"
            )
        if not isinstance(self.dtype, torch.dtype):
            raise TypeError(
                f"`dtype` must be a torch dtype such as torch.float32, got {shown(self.dtype)}"
            )
        if self.dtype not in DTYPES:
            known = ", ".join(str(dtype) for dtype in DTYPES)
            raise ValueError(
                f"`dtype` must be a floating-point type among {known}, got {self.dtype}"
            )


def _check_placement(compute: Compute) -> tuple[int, ...]:
    """Return a placement as a tuple; raise unless it is a list of ranks of a distributed run."""
    ranks = check_sequence("placement", compute.placement, "ranks, such as [0, 0, 1]")
    if not compute.distributed:
        raise ValueError(
            "`placement` must be None unless the run is distributed, got one with "
            "distributed=False; set distributed=True and start the run by torchrun"
        )
    return tuple(check_int("placement", rank, minimum=0) for rank in ranks)


def _check_scratch(compute: Compute) -> Path:
    """Return the folder for models on a disk; raise unless the run can use it."""
    folder = check_path("scratch", compute.scratch).absolute()
    if not folder.is_dir():
        remedy = "name its folder" if folder.exists() else "create it"
        raise ValueError(f"`scratch` must be a folder, got {shown(str(folder))}; {remedy}")
    device = device_of(compute)
    if device.type != "cpu" or compute.distributed or not sys.platform.startswith("linux"):
        raise ValueError(
            "`scratch` must be None unless one process of Linux trains on a CPU, got "
            f"{shown(str(folder))} with device={str(device)!r}, "
            f"distributed={compute.distributed} on {sys.platform}; leave it out"
        )
    return folder


def device_of(compute: Compute) -> torch.device:
    """Return the device of `compute`; None: CUDA if available, else the CPU.

    Examples
    --------
    >>> device_of(Compute("cpu"))
    device(type='cpu')
    """
    return torch.device(compute.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def check_device(device: Any) -> None:
    """Raise ``ValueError`` unless torch can compute on the device; None is valid.

    Examples
    --------
    >>> check_device("cpu")
    """
    try:
        kind = torch.device("cpu" if device is None else device).type
    except (RuntimeError, TypeError, ValueError, OverflowError):
        kind = ""
    if isinstance(device, bool) or kind in ("", "meta"):
        raise ValueError(f"`device` must be such as 'cpu' or 'cuda:0', got {shown(device)}")
    try:
        torch.zeros(1, dtype=torch.float32, device=device or "cpu").sum()
    except Exception as error:  # each backend has its own
        what = str(error).partition("\n")[0]
        raise ValueError(
            f"`device` must be available, got {shown(device)}: {what}; leave it out or use 'cpu'"
        ) from error


@public
@dataclass(frozen=True)
class Saving:
    """Where checkpoints are written, how often, and whether a run resumes from the newest one.

    In :func:`topofl.run`, ``saving="runs/a"`` is short for ``Saving("runs/a")``.

    See the page :doc:`Save and resume a run </docs/how-to/resume>`.

    Parameters
    ----------
    folder
        Folder for checkpoints, created if missing; the last two are retained. With it, Ctrl-C and
        SIGTERM finish the round, write a checkpoint and raise :class:`topofl.Interrupted`; a second
        signal stops at once. If a checkpoint cannot be written, for example on a full disk, a
        warning is issued and the next one is tried when it is due. While the run lasts, no other
        process can use the folder; a killed process releases it. None: nothing is saved.
    every
        Number of rounds between checkpoints; ``"auto"``: about 5 % of run time, but at least one
        every ten minutes. The last round writes one, too, unless `final` is False. Results do not
        depend on it.
    resume
        Continue from the newest valid checkpoint in the folder, if any; otherwise start anew. The
        result is bit for bit that of an uninterrupted run with the same executor and chunk. All
        arguments must be unchanged, except that ``compute.on_divergence`` may differ, that `rounds`
        may be larger (the evaluation after the former last round is then dropped, unless it is due
        by ``evaluation.every``), and that ``"auto"`` takes the executor and chunk chosen before. If
        the run is complete, its history is returned at once.
    models
        Whether the history has the models after the last round, as ``history.models``, which stay
        in CPU memory as long as the history. False saves that memory, for example in hundreds of
        runs in one process.
    final
        Whether the last round writes a checkpoint, which is needed only to train more rounds later.

    Raises
    ------
    ValueError, TypeError
        If `folder` is not a path, `every` is neither a positive integer nor ``"auto"``, `resume`,
        `models` or `final` is not True or False, or `resume` is True without a folder.

    Examples
    --------
    >>> Saving("runs/a", every=100).folder
    PosixPath('runs/a')
    """

    folder: str | os.PathLike[str] | None = None
    every: int | str = "auto"
    resume: bool = False
    models: bool = True
    final: bool = True

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", check_path("folder", self.folder))
        object.__setattr__(self, "every", check_int_or_auto("every", self.every, minimum=1))
        for name in ("resume", "models", "final"):
            check_switch(name, getattr(self, name), auto=False)
        if self.folder is None and self.resume:
            raise ValueError(
                "`resume` must be False without a folder to resume from; give one as `folder`"
            )


OPTIONS = {"evaluation": Evaluation, "compute": Compute, "saving": Saving}
"""The arguments of a run that group options, by name."""

Options = TypeVar("Options", Evaluation, Compute, Saving)

_SHORT: Mapping[type, tuple[Mapping[str, Any], str]] = {
    Evaluation: (
        {"every": Integral, "on": (str, tuple, list)},
        ", a number of rounds such as 4, or sets such as 'own_test'",
    ),
    Compute: ({"device": (str, torch.device)}, " or a device such as 'cuda'"),
    Saving: ({"folder": (str, os.PathLike)}, " or the path of a folder such as 'runs/a'"),
}
"""For each kind of options, types that are short for one of them, and a description of these."""


def as_options(kind: type[Options], value: Any) -> Options:
    """Return the options of a kind for an argument of :func:`topofl.run`.

    `value` is one of them, None, or short for one: a number of rounds or names of sets for an
    Evaluation, a device for a Compute, the path of a folder for a Saving.

    Raises
    ------
    ValueError, TypeError
        If `value` is none of these, or as `kind`.

    Examples
    --------
    >>> as_options(Evaluation, 4) == Evaluation(every=4), as_options(Compute, "cpu").device
    (True, 'cpu')
    >>> as_options(Evaluation, ["test", "val"]).on
    ('test', 'val')
    """
    if value is None or isinstance(value, kind):
        return value or kind()
    short, described = _SHORT[kind]
    for name, types in short.items():
        if isinstance(value, types) and not isinstance(value, bool):
            return kind(**{name: value})
    raise TypeError(
        f"`{kind.__name__.lower()}` must be a topofl.{kind.__name__}{described}, got {shown(value)}"
    )
