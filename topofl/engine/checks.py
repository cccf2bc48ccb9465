"""What a run refuses before any work is done."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor, nn

from topofl._check import check_choice, check_int, check_int_or_auto, check_switch, shown
from topofl._seeding import NoGeneratorError, seeded_torch, stream
from topofl.algorithms.phase import Algorithm, check_fine_tune
from topofl.data import Augmentation, Partition
from topofl.engine.evaluate import Evaluated
from topofl.engine.forward import is_linear, stacked_forward
from topofl.topology import Topology, TopologyError, TopologySequence, graph_of

__all__ = ["check_asked", "check_augment", "check_batched", "check_common", "check_device", "check_executor",
           "check_options", "check_output", "check_start", "check_topology", "evaluated_by", "sets_named",
           "with_fine_tuning"]  # fmt: skip

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EVALUATION_SETS = ("test", "val", "own_test", "own_val")


def sets_named(evaluate_on: Any) -> tuple[str, ...]:
    """Return the names of the sets that are evaluated, or raise unless they are known ones, each once."""
    if isinstance(evaluate_on, str) or not isinstance(evaluate_on, Sequence) or not len(evaluate_on):
        return (check_choice("evaluate_on", evaluate_on, EVALUATION_SETS),)
    names = tuple(check_choice("evaluate_on", name, EVALUATION_SETS) for name in evaluate_on)
    if len(set(names)) != len(names):
        raise ValueError(f"`evaluate_on` must name each set once, got {', '.join(names)}; leave the others out")
    return names


def with_fine_tuning(algorithm: Algorithm, fine_tune: Any) -> Algorithm:
    """Return the algorithm that a run has, whose fine-tuning another phase replaces (None: it stays; False: none)."""
    if fine_tune is None:
        return algorithm if algorithm.fine_tune is None else _checked(algorithm, algorithm.fine_tune)
    return replace(algorithm, fine_tune=None) if fine_tune is False else _checked(algorithm, fine_tune)


def _checked(algorithm: Algorithm, fine_tune: Any) -> Algorithm:
    return replace(algorithm, fine_tune=check_fine_tune(fine_tune))


def _check_fine_tuning(algorithm: Algorithm, options: Mapping[str, Any]) -> None:
    """Check when models are fine-tuned, and by how many passes, before the rounds that come first."""
    every, eval_every = options["fine_tune_every"], options["eval_every"]
    if every is not None:
        check_int("fine_tune_every", every, minimum=1)
        if algorithm.fine_tune is None:
            raise ValueError(
                f"`fine_tune_every` must be None where nothing is fine-tuned, got {every}; say how by `fine_tune`, "
                "e.g. fine_tune=sgd(lr=0.1, epochs=5)"
            )
        if every % eval_every and every < options["rounds"]:
            raise ValueError(
                f"`fine_tune_every` must be a multiple of eval_every={eval_every}, since it is part of an evaluation, "
                f"got {every}; None fine-tunes after the last round"
            )
    n = 1 if algorithm.pooled else options["clients"].n
    passes = None if algorithm.fine_tune is None else algorithm.fine_tune.settings.get("epochs")
    if isinstance(passes, list) and len(passes) != n:
        raise ValueError(f"`fine_tune` must have one number of `epochs` or one a node, n={n}, got {len(passes)}")


def check_common(options: Mapping[str, Any]) -> None:
    """Check those arguments that :func:`topofl.run` and :func:`topofl.estimate` share, and that can be one by one."""
    if not isinstance(options["algorithm"], Algorithm):
        kind = type(options["algorithm"]).__name__
        raise TypeError(f"`algorithm` must be an Algorithm such as algorithms.dsgd(lr=0.1), got {kind}")
    if not isinstance(options["clients"], Partition):
        kind = type(options["clients"]).__name__
        raise TypeError(f"`clients` must be a Partition such as data.shards(data.digits(), n=10, seed=0), got {kind}")
    check_executor(options["executor"], options["chunk"])
    check_choice("precision", options["precision"], ["fp32", "bf16"])
    if options["precision"] == "bf16" and options["dtype"] != torch.float32:
        raise ValueError(
            f"`dtype` must be torch.float32 with precision='bf16', got {shown(options['dtype'])}; leave it out"
        )
    if not isinstance(options["dtype"], torch.dtype):
        raise TypeError(f"`dtype` must be a torch dtype such as torch.float32, got {shown(options['dtype'])}")
    if options["dtype"] not in DTYPES:
        known = ", ".join(str(dtype) for dtype in DTYPES)
        raise ValueError(f"`dtype` must be a floating point type to train with, {known}, got {options['dtype']}")
    check_device(options["device"])
    check_augment(options["augment"], options["clients"])
    _check_evaluated(options)


def check_options(options: Mapping[str, Any]) -> None:
    """Check those arguments of :func:`topofl.run` that can be checked one by one."""
    check_common(options)
    for name, minimum in (("rounds", 1), ("seed", 0), ("eval_every", 1)):
        check_int(name, options[name], minimum=minimum)
    check_choice("on_divergence", options["on_divergence"], ["raise", "freeze", "record"])
    check_switch("channels_last", options["channels_last"])
    check_switch("compile", options["compile"], auto=False)
    check_switch("progress", options["progress"])
    check_choice("moments", options["moments"], ["after", "both"])
    check_choice("on_disconnected", options["on_disconnected"], ["raise", "allow"])
    algorithm = with_fine_tuning(options["algorithm"], options["fine_tune"])
    _check_fine_tuning(algorithm, options)
    _check_learning_rates(algorithm, options["dtype"])
    if (on_round := options.get("on_round")) is not None and not callable(on_round):
        raise TypeError(f"`on_round` must be a function of (rounds done, models), got {shown(on_round)}")


def _check_learning_rates(algorithm: Algorithm, dtype: torch.dtype) -> None:
    """Refuse learning rates that the type of the models cannot hold."""
    most = torch.finfo(dtype).max
    for name, settings in algorithm.settings.items():
        if isinstance(lr := settings.get("lr"), float) and lr > most:
            raise ValueError(f"`lr` must be at most {most:g} for {dtype}, got {lr:g} in the phase {name!r}; lower it")


def _check_evaluated(options: Mapping[str, Any]) -> None:
    """Check what is evaluated: that there are examples, and as many of them and of nodes as are asked for."""
    clients = options["clients"].pooled() if options["algorithm"].pooled else options["clients"]
    names = sets_named(options["evaluate_on"])
    able = _able(clients, names)
    if options["eval_nodes"] is not None:
        named = "the number of nodes with such examples" if any(map(_is_own, names)) else "n"
        check_int(
            "eval_nodes", options["eval_nodes"], minimum=1, maximum=len(able), maximum_name=named,
            remedy="None takes all",
        )  # fmt: skip
    if options["eval_examples"] is not None:
        for name in names:
            _check_examples(clients, name, options["eval_examples"])


def _check_examples(clients: Partition, where: str, examples: Any) -> None:
    """Check that so many examples of a set can be drawn."""
    if _is_own(where):
        raise ValueError(
            f"`eval_examples` must be None with evaluate_on={where!r}, whose sets are small, got {shown(examples)}; "
            "leave it out, or evaluate fewer nodes by eval_nodes"
        )
    there = len(getattr(clients.dataset, where))
    check_int(
        "eval_examples", examples, minimum=1, maximum=there, maximum_name=f"len(dataset.{where})",
        remedy="None takes all",
    )  # fmt: skip


def check_executor(executor: Any, chunk: Any) -> None:
    """Check an executor, and the nodes per call that it is asked for."""
    check_choice("executor", executor, ["auto", "batched", "looped"])
    nodes = check_int_or_auto("chunk", chunk, minimum=1)
    if executor == "looped" and nodes not in ("auto", 1):
        raise ValueError(
            f'`chunk` must be "auto" or 1 with executor="looped", which takes one node a call, got {chunk}; '
            'leave it out, or set it to "auto"'
        )


def check_augment(augment: Any, clients: Partition) -> None:
    """Check that the images of the data, if they are images, can be augmented so; None is fine."""
    if augment is None:
        return
    if not isinstance(augment, Augmentation):
        raise TypeError(f"`augment` must be such as data.crop_and_flip(padding=4), or None, got {shown(augment)}")
    augment.check_on(clients.dataset.inputs)


def check_device(device: Any) -> None:
    """Check that torch knows the device, has it, and can compute there; None is fine."""
    try:
        kind = "cpu" if device is None or isinstance(device, bool) else torch.device(device).type
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"`device` must be such as 'cpu' or 'cuda:0', got {shown(device)}") from error
    if isinstance(device, bool) or kind == "meta":
        raise ValueError(f"`device` must be such as 'cpu' or 'cuda:0', got {shown(device)}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"`device` must be one that is there, got {shown(device)} without CUDA; leave it out or use 'cpu'"
        )
    try:
        torch.zeros(1, dtype=torch.float32, device=device or "cpu").sum()
    except Exception as error:  # each backend has its own
        raise ValueError(
            f"`device` must be one that is there, got {shown(device)}: {_first_line(error)}; leave it out or use 'cpu'"
        ) from error


def check_output(module: nn.Module, inputs: Tensor, n_classes: int | None) -> None:
    """Apply the model to one example and to two, so that a misfit is told before training.

    Raises
    ------
    ValueError
        If it cannot take them or returns something else than logits of so many classes (None: than a tensor); if a
        parameter is not used; if its output is random, or depends on other examples of the minibatch; if it changes its
        buffers.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with seeded_torch(0) as drawn, torch.enable_grad():
            logits = _logits(module, inputs, n_classes)
            _check_used(module, logits)
            _check_buffers(module, buffers)
            with torch.no_grad():
                again, among = module(inputs[:1]), module(inputs[:2])[:1]
    except NoGeneratorError as error:
        raise ValueError(_RANDOM) from error
    if drawn or not _close(logits, again):
        raise ValueError(_RANDOM)
    if not _close(logits, among):
        raise ValueError(
            "`model` must treat the examples of a minibatch one by one, its output for one depends on the others (as "
            "batch normalization makes it); use nn.GroupNorm"
        )


_RANDOM = (
    "`model` must return the same for the same input, it draws random numbers of its own (as dropout does), so runs "
    "could not be repeated; remove what draws them"
)


def _logits(module: nn.Module, inputs: Tensor, n_classes: int | None) -> Tensor:
    """Return what the model returns for the first example, if these are logits (None: any numbers of it)."""
    try:
        logits = module(inputs[:1])
    except (torch.OutOfMemoryError, MemoryError, NoGeneratorError):
        raise
    except Exception as error:  # whatever the user's forward raises
        raise ValueError(
            f"`model` cannot take examples of shape {tuple(inputs.shape[1:])}: {error!r}; {_remedy(module, inputs)}"
        ) from error
    if not isinstance(logits, Tensor):
        raise ValueError(f"`model` must return a tensor of logits, got {type(logits).__name__}; return these alone")
    shape = tuple(logits.shape)
    if n_classes is None and shape[:1] != (1,):
        raise ValueError(
            f"`model` must return outputs of shape (b, ...) for b examples, got shape {shape} for one example; keep "
            "the first axis as it is"
        )
    if n_classes is not None and (len(shape) != 2 or shape[0] != 1 or shape[1] < n_classes):
        raise ValueError(
            f"`model` must return at least n_classes={n_classes} logits an example, got shape {shape} for one example"
            + (f"; put nn.Flatten() before its linear layers, of {inputs[0].numel()} features" * (len(shape) > 2))
        )
    if not logits.is_floating_point() or not logits.requires_grad:
        raise ValueError(
            f"`model` must return real {'logits' if n_classes else 'outputs'} that can be differentiated, got "
            f"{logits.dtype} with requires_grad={logits.requires_grad}; return them neither rounded nor detached"
        )
    return logits


def _remedy(module: nn.Module, inputs: Tensor) -> str:
    """Return what to do with a model that cannot take the examples."""
    if any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules()):
        return f"examples are {inputs.dtype}: give token ids as int64, below the number of embeddings"
    if not inputs.is_floating_point():
        return f"examples are {inputs.dtype} and stay so: give pixels as uint8, and other numbers as float32"
    try:
        module(inputs[:1].flatten(1))
    except Exception:  # whatever the user's forward raises
        return f"build it for that shape, e.g. models.logistic_regression({inputs[0].numel()})"
    return "put nn.Flatten() before its first layer"


def _check_used(module: nn.Module, logits: Tensor) -> None:
    named = dict(module.named_parameters())
    gradients = torch.autograd.grad(logits.sum(), list(named.values()), allow_unused=True)
    unused = [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]
    if unused:
        raise ValueError(f"`model` must use all its parameters, {unused[0]!r} does not change its output; remove it")


def _check_buffers(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, buffer in module.named_buffers():
        old = before.get(name)
        if old is None or old.shape != buffer.shape or not bool(((old == buffer) | (old != old)).all()):
            raise ValueError(
                f"`model` must not change its buffers, {name!r} is another after it was applied: such statistics would "
                "be neither averaged nor personal; keep it as it is, or use nn.GroupNorm"
            )


def _close(logits: Tensor, others: Tensor) -> bool:
    """Whether logits differ by rounding only; what is not finite yet, in a model without its first draw, says nothing.

    Sums in another order differ by less than 1 % even in the least precise of types, what is looked for by far more.
    """
    tolerance = max(0.01, 10 * torch.finfo(logits.dtype).eps) * float(logits.detach().abs().max())
    difference = float((logits.detach() - others).abs().max())
    return not np.isfinite(difference) or difference <= tolerance


def check_batched(module: nn.Module, inputs: Tensor) -> None:
    """Raise ``ValueError`` if torch cannot apply two models of this structure in one call."""
    if is_linear(module):
        return
    twice = [p.detach().expand(2, *p.shape) for p in module.parameters()]
    try:
        stacked_forward(module).each(twice, inputs[:1].expand(2, *inputs[:1].shape))
    except RuntimeError as error:
        raise ValueError(
            f"`executor` must be 'looped' or 'auto' for this model, torch.func cannot batch it: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def check_topology(algorithm: Algorithm, topology: Any, n: int, on_disconnected: str) -> Topology | TopologySequence:
    """Return the graphs of a run of `algorithm` on n nodes, or raise if they do not fit."""
    if algorithm.chooses and topology is None:
        return Topology(sparse.csr_array(~np.eye(n, dtype=bool)), name="everybody")
    served = algorithm.exchanges and not (algorithm.needs_topology or algorithm.chooses)
    if algorithm.pooled or served or (topology is None and not algorithm.needs_topology):
        return Topology(sparse.csr_array((n, n)), name="a server" if served else "no edges")
    if topology is None:
        name = algorithm.name
        raise TypeError(f"`topology` must be given, since {name} exchanges models: e.g. topologies.ring({n})")
    graphs = _once(graph_of("topology", topology))
    if graphs.n != n:
        sizes = f"{graphs.name} has n={graphs.n}, `clients` has n={n}"
        raise ValueError(f"`topology` must have one node a client: {sizes}")
    if algorithm.needs_topology and on_disconnected == "raise" and graphs.period is not None:
        _check_connected(graphs)
    return graphs


def check_asked(algorithm: Algorithm, clients: Partition) -> None:
    """Raise ``ValueError`` if nodes try models on examples that some of them do not have."""
    for where in {phase.asks for phase in algorithm.phases.values()} - {""}:
        lacking = [i for i, examples in enumerate(getattr(clients, where)) if not len(examples)]
        if lacking:
            remedy = "partition with val_fraction" if where == "val" else "leave such clients out"
            raise ValueError(
                f"`clients` must give every node {where} examples, on which {algorithm.name} tries models, node "
                f"{lacking[0]} has none ({len(lacking)} of {clients.n}); {remedy}"
            )


def check_start(algorithm: Algorithm, init: str) -> None:
    """Raise ``ValueError`` if nodes start apart that must not."""
    if algorithm.common_start and init == "independent":
        raise ValueError(
            f"`init` must be 'common' or 'given' for {algorithm.name}, which compares where models moved from one "
            "start, got 'independent'"
        )


def _once(graphs: Topology | TopologySequence) -> Topology | TopologySequence:
    """Return periodic sequences with their graphs made, so that each has its weights computed once."""
    if isinstance(graphs, Topology) or graphs.period is None:
        return graphs
    members = [graphs.at(t) for t in range(graphs.period)]
    return replace(graphs, generate=members.__getitem__)


def _check_connected(graphs: Topology | TopologySequence) -> None:
    """Refuse graphs whose union over a period is not strongly connected."""
    members = [graphs.at(t).adjacency for t in range(graphs.period or 1)]
    if not Topology(sum(members[1:], members[0])).is_connected:
        raise TopologyError(
            f"`topology` must be connected for nodes to agree, {graphs.name} is not; connect it, or train its parts on "
            "their own with on_disconnected='allow'"
        )


def _is_own(where: str) -> bool:
    return where.startswith("own_")


_MAKES = {"test": "match_test", "val": "with_validation"}


def _evaluation_indices(clients: Partition, where: str) -> Any:
    """Return the indices of the shared set, or of each node's own, or raise if there are none."""
    own = _is_own(where)
    indices = getattr(clients if own else clients.dataset, where.removeprefix("own_"))
    if sum(map(len, indices)) == 0 if own else len(indices) == 0:
        kind = where.removeprefix("own_")
        remedy = (
            f"partition with {kind}_fraction, or see data.{_MAKES[kind]}"
            if own
            else f"load the data with {kind}=, or choose another set"
        )
        raise ValueError(f"`evaluate_on` must name a set with examples, {where!r} is empty; {remedy}")
    return indices


def _able(clients: Partition, names: Sequence[str]) -> np.ndarray:
    """Return the nodes that have examples in all the sets, ascending, or raise if a set is empty."""
    able = np.ones(clients.n, dtype=bool)
    for name, indices in [(name, _evaluation_indices(clients, name)) for name in names]:
        if _is_own(name):
            able &= np.array([len(i) > 0 for i in indices])
    return np.flatnonzero(able)


def evaluated_by(
    clients: Partition,
    evaluate_on: str | Sequence[str],
    examples: int | None,
    nodes: int | None,
    seed: int,
    device: torch.device,
) -> dict[str, Evaluated]:
    """Return what a run evaluates, by the sets' names; `examples` and `nodes` are numbers of those drawn, None: all.

    They are drawn from the run's seed; more examples or nodes include fewer. Of nodes those are drawn that have
    examples in all sets, the same for all of them.
    """
    names = sets_named(evaluate_on)
    able, rng = _able(clients, names), stream(seed, "evaluated nodes")
    chosen = range(clients.n) if nodes is None else _some(able, nodes, rng).tolist()
    return {name: Evaluated(_examples(clients, name, examples, seed, device), chosen) for name in names}


def _examples(
    clients: Partition, where: str, size: int | None, seed: int, device: torch.device
) -> Tensor | list[Tensor]:
    """Return the examples of a set, `size` of them if it is shared, or each node's own."""
    indices = _evaluation_indices(clients, where)
    if _is_own(where):
        return [torch.tensor(np.asarray(i), device=device) for i in indices]
    return torch.tensor(_some(np.asarray(indices), size, stream(seed, "evaluated examples")), device=device)


def _some(values: np.ndarray, size: int | None, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the values at random, in the order they have; None: all."""
    return values if size is None else values[np.sort(rng.permutation(len(values))[:size])]
