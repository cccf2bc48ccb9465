"""Checks that a model can be trained by the engine, and that task and targets fit its outputs."""

import copy
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from topofl._support.public import warn_caller
from topofl._support.seeding import NoGeneratorError, seeded_torch
from topofl.algorithms.contract.phase import Algorithm
from topofl.data import Dataset, Partition
from topofl.engine.evaluation import CLASSIFICATION, check_per_example
from topofl.engine.gradients import forward_of_each, is_linear, rows_of
from topofl.engine.network import (
    Network,
    as_node,
    copy_of_trained,
    joined,
    network_of,
    one_of_each_kind,
    seeded,
    starts_of,
)
from topofl.engine.options import Compute
from topofl.engine.population import trained_parameters
from topofl.tasks import Function, Task, cross_entropy


def checked_network(
    model: nn.Module, clients: Partition, compute: Compute, device: torch.device, task: Task
) -> tuple[Network, Tensor]:
    """Return a copy of the model and at most two examples, on the device; raise unless they fit."""
    dataset = clients.dataset
    module = check_model(model).to(device=device, dtype=compute.dtype).eval()
    sample = dataset.examples(range(min(2, len(dataset.labels))), compute.dtype).to(device)
    known = task.loss is cross_entropy and dataset.targets is None
    if hasattr(module, "set_clients"):  # of graphs, whose clients have subgraphs
        cast(Any, module).set_clients(clients.train)
    starts, used, kinds = starts_of(module, clients.n), list[set[str]](), list[Network]()
    nodes = one_of_each_kind(starts)
    for node in nodes:
        as_node(module, starts, node)
        used.append(check_output(module, sample, clients.n_classes if known else None))
        check_task(module, sample, dataset, task)
        kinds.append(network_of(module, sample))
    network = joined(kinds, starts, _used_by_some(module, used))
    sizes = [sum(module.get_parameter(name).numel() for name in names) for names in used]
    as_node(module, starts, nodes[int(np.argmax(sizes))])  # whose memory is predicted
    if compute.compile and (network.unpadded or starts):
        raise ValueError(
            "`compile` must be False for a model with running statistics, random layers or several "
            "kinds of nodes, whose functions torch does not compile; leave it out"
        )
    if compute.executor == "batched":
        _check_batched(network, sample)
    return network, sample


def check_model(model: object) -> nn.Module:
    """Return a copy of `model`, or raise if the engine cannot train it.

    Raises
    ------
    TypeError
        If it is not an ``nn.Module``, or cannot be copied.
    ValueError
        If it has no parameters to train, or some that are uninitialized, complex or of several
        dtypes; if it normalizes by the minibatch in evaluation, too, or wraps another model.

    Examples
    --------
    >>> check_model(nn.Linear(2, 3))
    Linear(in_features=2, out_features=3, bias=True)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            "`model` must be an nn.Module such as models.logistic_regression(), got "
            f"{type(model).__name__}{_instead_of(model)}"
        )
    for name, module in model.named_modules():
        if reason := _reason_against(module):
            raise ValueError(
                f"`model` must not contain {type(module).__name__} (layer {name!r}): it {reason}"
            )
    _check_parameters(dict(model.named_parameters()))
    try:
        return copy.deepcopy(model)
    except (TypeError, RuntimeError) as error:  # for example, a generator or a lock in the model
        raise TypeError(
            f"`model` must be a module that copy.deepcopy can copy, got {model!r:.50}: {error}"
        ) from error


def _instead_of(model: object) -> str:
    """Return how to give a network instead of something that makes one, or of several."""
    if isinstance(model, type) and issubclass(model, nn.Module):
        return f"; make one, {model.__name__}(...)"
    if isinstance(model, list | tuple | dict):
        return "; give nodes different networks by models.of_kinds(networks, kinds)"
    return "; give what it returns" if callable(model) else ""


def _check_parameters(parameters: dict[str, nn.Parameter]) -> None:
    trained = [p for p in parameters.values() if p.requires_grad]
    if not trained:
        frozen = f"; all {len(parameters)} have requires_grad=False" if parameters else ""
        raise ValueError(f"`model` must have parameters to train, got none{frozen}")
    for name, p in parameters.items():
        if nn.parameter.is_lazy(p) or p.is_meta:
            must = (
                f"have values in all its parameters, {name!r} has none yet; apply a lazy model to "
                "an example first, or move a model off the meta device by to_empty"
            )
        elif p.is_complex():
            must = (
                f"have real parameters, {name!r} is of {p.dtype}; store its real and imaginary "
                "parts as two parameters"
            )
        else:
            continue
        raise ValueError(f"`model` must {must}")
    if len(kinds := {str(p.dtype) for p in trained}) > 1:
        raise ValueError(
            f"`model` must have parameters of one dtype, got {', '.join(sorted(kinds))}; convert "
            "it, e.g. model.float()"
        )


def _reason_against(module: nn.Module) -> str:
    """Return why the engine cannot train a layer, or an empty string."""
    batch_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    if batch_norm and not getattr(module, "track_running_stats", True):
        return (
            "normalizes each example by the others in its minibatch in evaluation, too; let it "
            "track running statistics, or use models.with_group_norm(model)"
        )
    if isinstance(
        module, torch.jit.ScriptModule | nn.DataParallel | nn.parallel.DistributedDataParallel
    ):
        return "wraps another model; pass that one instead"
    if "_orig_mod" in module._modules:  # of torch.compile
        return "is compiled; pass the model before that, with Compute(compile=True)"
    for name, value in vars(module).items():
        if isinstance(value, Tensor) and value.grad_fn is not None:
            return (
                f"holds a computed tensor ({name!r}); "
                "use torch.nn.utils.parametrizations, not torch.nn.utils"
            )
    return ""


def check_output(module: nn.Module, inputs: Tensor, n_classes: int | None) -> set[str]:
    """Check a model in evaluation mode on one example and on two, before training.

    Returns
    -------
    used
        Names of the trained parameters on which its output depends.

    Raises
    ------
    ValueError
        If the model cannot take the examples or does not return logits of `n_classes` classes
        (None: a tensor); if its output is random or depends on other
        examples of the minibatch, or if it changes its buffers, all in evaluation.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with seeded_torch(0) as drawn, torch.enable_grad():
            logits = _logits(module, inputs, n_classes)
            used = _used(module, logits)
            _check_buffers(module, buffers)
            with torch.no_grad():
                again = module(inputs[:1])
                in_batch = module(inputs[:2])[:1]
    except NoGeneratorError as error:
        raise ValueError(_RANDOM_OUTPUT) from error
    if drawn or not _close(logits, again):
        raise ValueError(_RANDOM_OUTPUT)
    if not _close(logits, in_batch):
        raise ValueError(
            "`model` must treat the examples of a minibatch independently in evaluation, but its "
            "output for one depends on the others; use running statistics there, as nn.BatchNorm2d "
            "does"
        )
    return used


_RANDOM_OUTPUT = (
    "`model` must return the same output for the same input in evaluation, but it draws random "
    "numbers after model.eval(); draw them only if self.training, as nn.Dropout does"
)


def _logits(module: nn.Module, inputs: Tensor, n_classes: int | None) -> Tensor:
    """Return the model's output for the first example, or raise unless it has the right shape."""
    try:
        logits = module(inputs[:1])
    except (torch.OutOfMemoryError, MemoryError, NoGeneratorError):
        raise
    except Exception as error:  # whatever the user's forward raises
        raise ValueError(
            f"`model` cannot take examples of shape {tuple(inputs.shape[1:])}: {error!r}; "
            f"{_remedy(module, inputs, n_classes, error)}"
        ) from error
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
    if not isinstance(logits, Tensor):
        what = f"a tensor of logits, got {type(logits).__name__}; return only the logits"
    elif n_classes is None and shape[:1] != (1,):
        what = (
            f"outputs of shape (b, ...) for b examples, got shape {shape} for one example; do not "
            "change the first axis"
        )
    elif n_classes is not None and (len(shape) != 2 or shape[0] != 1 or shape[1] < n_classes):
        flatten = f"; put nn.Flatten() before its linear layers, with {inputs[0].numel()} features"
        what = (
            f"at least n_classes={n_classes} logits per example, got shape {shape} for one example"
            f"{flatten if len(shape) > 2 else ''}"
        )
    elif not logits.is_floating_point() or not logits.requires_grad:
        what = (
            f"real {'logits' if n_classes else 'outputs'} that can be differentiated, got "
            f"{logits.dtype} with requires_grad={logits.requires_grad}; do not round or detach them"
        )
    else:
        return logits
    raise ValueError(f"`model` must return {what}")


def _remedy(module: nn.Module, inputs: Tensor, n_classes: int | None, error: Exception) -> str:
    """Return the remedy for a model that cannot take the examples, by the error it raises."""
    if takes_edges(module):
        return OF_GRAPHS
    if len(_required(module)) > 1:
        return (
            f"runs call it with one tensor, not with {', '.join(_required(module))}; give these "
            "as one tensor, and let its forward take it apart"
        )
    if any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules()):
        ids = inputs.dtype == torch.int64
        if ids and not isinstance(error, IndexError):
            return "build it for sequences of that shape"
        most = f", such as {int(inputs[0].max())} here" if ids else ""
        return (
            f"examples are {inputs.dtype}: give token ids as int64, below the number of embeddings"
            f"{most}, and embed as many positions as a sequence has"
        )
    if not inputs.is_floating_point():
        return (
            f"examples are {inputs.dtype} and are not converted: "
            "give pixels as uint8, and other numbers as float32"
        )
    try:
        module(inputs[:1].flatten(1))
    except Exception:  # whatever the user's forward raises
        size = inputs[0].numel()
        if n_classes is None:
            return (
                f"build it for that shape, e.g. nn.Sequential(nn.Flatten(), nn.Linear({size}, 1))"
            )
        return f"build it for that shape, e.g. models.logistic_regression({size}, {n_classes})"
    return "put nn.Flatten() before its first layer"


def takes_edges(module: nn.Module) -> bool:
    """Whether a network is applied to the edges of a graph, as those of PyTorch Geometric are."""
    takes = ["edge_index" in _parameters(own) for own in module.modules()]
    return takes[0] or (any(takes) and len(_required(module)) > 1)


def _parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):  # of functions that are not written in Python
        return {}


def _required(module: nn.Module) -> list[str]:
    """Return the names of the inputs without which a network cannot be applied."""
    taken = _parameters(module).values()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in taken if one.kind in places and one.default is one.empty]


OF_GRAPHS = (
    "this network takes the edges of a graph, so let graphs = data.from_pyg(...) make the clients, "
    "and give graphs.network(model, clients), whose inputs are numbers of vertices"
)
"""The remedy for networks that are applied to edges."""


def _used(module: nn.Module, logits: Tensor) -> set[str]:
    """Return the names of the trained parameters on which logits depend."""
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(logits.sum(), list(named.values()), allow_unused=True)
    return {name for name, g in zip(named, gradients, strict=True) if g is not None}


def _used_by_some(module: nn.Module, used: Sequence[set[str]]) -> list[str]:
    """Return the parameters that some kinds of nodes use and others do not; raise if none does."""
    found = []
    for name, p in module.named_parameters():
        kinds = sum(name in names for names in used)
        if p.requires_grad and not kinds:
            raise ValueError(
                f"`model` must use all its parameters, {name!r} does not change its output; "
                "remove it, or freeze it by requires_grad_(False)"
            )
        if p.requires_grad and kinds < len(used):
            found.append(name)
    return found


def _check_buffers(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, buffer in module.named_buffers():
        old = before.get(name)
        same = old is not None and old.shape == buffer.shape
        if not same or not bool(((old == buffer) | (old != old)).all()):
            raise ValueError(
                f"`model` must not change its buffers in evaluation, {name!r} changed in a forward "
                "pass after model.eval(); change it only if self.training"
            )


def _close(logits: Tensor, others: Tensor) -> bool:
    """Whether logits differ by rounding only; True if they are not finite.

    Sums in another order differ by less than 1 % even in the least precise dtype, while randomness
    and dependence on other examples cause far larger differences.
    """
    tolerance = max(0.01, 10 * torch.finfo(logits.dtype).eps) * float(logits.detach().abs().max())
    difference = float((logits.detach() - others).abs().max())
    return not np.isfinite(difference) or difference <= tolerance


def _check_batched(network: Network, inputs: Tensor) -> None:
    """Raise ``ValueError`` if torch cannot apply two models of this structure in one call."""
    module = copy_of_trained(network.module).train()
    if is_linear(module):
        return
    examples = inputs[: network.smallest]
    wanted = "`executor` must be 'looped' or 'auto' for this model, since"
    if network.drawing is seeded:
        raise ValueError(f"{wanted} it draws random numbers in other ways than by dropout")
    try:
        forward_of_each(module, network.buffers, network.drawing)(
            rows_of(network, 2), examples.expand(2, *examples.shape)
        )
    except RuntimeError as error:
        raise ValueError(
            f"{wanted} torch.func cannot batch it: {str(error).strip().partition(chr(10))[0]}"
        ) from error


class Layer(NamedTuple):
    """What a run does with a layer of a network, or with the whole network.

    Attributes
    ----------
    layer, type
        Its name and the name of its class.
    executor
        ``"batched"``: several nodes in one call, or one after another; ``"looped"``: one after
        another only; ``"refused"``: runs cannot train it.
    why
        What a run keeps, draws or cannot do, in words.
    """

    layer: str
    type: str
    executor: str
    why: str


_FUNCTORCH = cast(Any, torch._C)._functorch  # whose types are not known

_WORSE = ("batched", "looped", "refused")


def layers_of(model: nn.Module, inputs: Tensor) -> list[Layer]:
    """Return what a run does with each layer of a network, and last with all of it.

    Layers are the modules that apply no others, in the order in which a forward in training
    applies them. Other modules are left out, unless their own forward is treated worse than what
    they apply.

    Parameters
    ----------
    model
        The network, which is not changed. If it has `node_buffers`, as one of
        :func:`topofl.models.of_kinds`, every kind of nodes is tried.
    inputs
        (2, ...) two examples, in the dtype of the network or, as token ids, in their own.

    Returns
    -------
    layers
        One for each layer, and one for the whole network. An error of the network itself is the
        reason why it is refused.

    Raises
    ------
    ValueError
        If its `node_buffers` are not one row for each node.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.RReLU(), nn.Linear(3, 2))
    >>> [(layer.layer, layer.executor) for layer in layers_of(net, torch.rand(2, 2))]
    [('0', 'batched'), ('1', 'looped'), ('2', 'batched'), ('the whole network', 'looped')]
    """
    starts, calls = _starts(model), dict[str, tuple[Any, Any]]()
    model = copy.deepcopy(model) if starts else model
    for node in one_of_each_kind(starts):
        calls |= _calls(as_node(model, starts, node), inputs)
    found = dict[str, Layer]()
    for name in reversed(calls):  # layers come after what applies them
        layer = model.get_submodule(name)
        inside = [found[other].executor for other in found if other.startswith(f"{name}.")]
        alone = _Alone(layer, *calls[name])
        reason = _reason_against(layer)
        how = ("refused", f"it {reason}") if reason else _treatment(alone, alone.given)
        if not inside or max(map(_WORSE.index, inside)) < _WORSE.index(how[0]):
            why = how[1].replace("'layer'", repr(name)).replace("'layer.", f"'{name}.")
            found[name] = Layer(name, type(layer).__name__, how[0], why)
    whole = _treatment(model, inputs, whole=True)
    return [*reversed(found.values()), Layer("the whole network", type(model).__name__, *whole)]


def _starts(model: nn.Module) -> dict[str, Tensor]:
    """Return the values from which the buffers of a network's nodes start, of all its nodes."""
    rows: Mapping[str, Tensor] = getattr(model, "node_buffers", {})
    return starts_of(model, len(next(iter(rows.values())))) if rows else {}


class _Alone(nn.Module):
    """A layer, applied to what a network gives it; `given` (1, ...) is its first tensor."""

    def __init__(self, layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        like = next(layer.parameters(), torch.zeros((), dtype=torch.float32, device="cpu"))
        self.layer, self.own = layer, nn.Parameter(like.new_zeros(()))
        first = next((x for x in tree_leaves([args, kwargs]) if isinstance(x, Tensor)), self.own)
        self.first, self.given = first, first.detach()[None]
        self.args, self.kwargs = args, kwargs

    def forward(self, given: Tensor) -> list[Tensor]:
        """Return the tensors in the outputs of the layer."""
        args, kwargs = tree_map(
            lambda x: given[0].clone() if x is self.first else x, [self.args, self.kwargs]
        )
        leaves = tree_leaves(self.layer(*args, **kwargs))
        return [x for x in leaves if isinstance(x, Tensor)] or [self.own]


def _calls(model: nn.Module, inputs: Tensor) -> dict[str, tuple[Any, Any]]:
    """Return the first arguments of each module in a forward in training, as far as it gets."""
    found: dict[str, tuple[Any, Any]] = {}
    try:
        own = copy.deepcopy(model).train()
        names = {layer: name for name, layer in own.named_modules() if name}

        def note(layer: nn.Module, args: Any, kwargs: Any) -> None:
            copies = dict[int, Tensor]()  # one for each tensor, before it is changed in place

            def copied(x: Any) -> Any:
                return copies.setdefault(id(x), x.detach().clone()) if isinstance(x, Tensor) else x

            found.setdefault(names[layer], tree_map(copied, (args, kwargs)))

        for layer in names:
            layer.register_forward_pre_hook(note, with_kwargs=True)
        with seeded_torch(0), torch.no_grad():
            own(inputs)
    except Exception:  # the treatment of the whole network says it
        pass
    return found


def _treatment(module: nn.Module, inputs: Tensor, *, whole: bool = False) -> tuple[str, str]:
    """Return how a module is trained, and why; examples of the `whole` network are rows."""
    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            module = check_model(module).eval()
            starts, used, kinds = _starts(module), list[set[str]](), list[Network]()
            for node in one_of_each_kind(starts):
                as_node(module, starts, node)
                if whole:
                    used.append(check_output(module, inputs, None))
                else:
                    _check_evaluated(module, inputs)
                kinds.append(network_of(module, inputs))
            partial = _used_by_some(module, used) if whole else ()
            network = joined(kinds, starts, partial)
    except (TypeError, ValueError) as error:
        return "refused", " ".join(str(error).split())
    except RuntimeError as error:  # of a layer that cannot take what the network gives it
        return "refused", f"it cannot take its inputs: {' '.join(str(error).split())}"
    trained = trained_parameters(module)
    frozen = sum(p.numel() for p in module.parameters() if not p.requires_grad)
    own = [name.removeprefix("layer.") for name in network.buffers]
    about = [
        f"{sum(p.numel() for p in trained):,} trained parameters per node" if whole else "",
        f"{frozen:,} frozen parameters, which all nodes share" if frozen else "",
        f"a row per node of {', '.join(own)}" if own and not whole else "",
        f"{len(own)} buffers per node" if own and whole else "",
        "draws for each node and step" if network.drawing is not None else "",
        f"minibatches of at least {network.smallest} examples" if network.smallest > 1 else "",
        *(" ".join(str(one.message).split()) for one in noted),
    ]
    before = _FUNCTORCH._is_vmap_fallback_enabled()
    _FUNCTORCH._set_vmap_fallback_enabled(False)  # which applies one model after another
    try:
        _check_batched(network, inputs)
        how = "batched"
    except ValueError as error:
        how = "looped"
        why = str(error).partition("for this model, since ")[2]
        about.insert(0, "nodes have several kinds of networks" if network.partial else why)
    finally:
        _FUNCTORCH._set_vmap_fallback_enabled(before)
    return how, "; ".join(filter(None, about))


def _check_evaluated(module: nn.Module, inputs: Tensor) -> None:
    """Raise ``ValueError`` if a layer draws random numbers or changes buffers in evaluation."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with seeded_torch(0) as drawn, torch.no_grad():
            module(inputs)
    except NoGeneratorError as error:
        raise ValueError(_RANDOM_OUTPUT) from error
    _check_buffers(module, before)
    if drawn:
        raise ValueError(_RANDOM_OUTPUT)


def as_task(task: Any) -> Task:
    """Return the task of a run, classification for None; raise ``TypeError`` for other types.

    Examples
    --------
    >>> as_task(None).name
    'classification'
    """
    if task is not None and not isinstance(task, Task):
        raise TypeError(
            f"`task` must be a Task such as topofl.tasks.regression(), got {type(task).__name__}"
        )
    return CLASSIFICATION if task is None else task


def check_voters(algorithm: Algorithm, task: Task) -> None:
    """Raise ``ValueError`` if nearest neighbors vote for classes and the task has none."""
    if algorithm.neighbors is not None and task.loss is not cross_entropy:
        raise ValueError(
            f"`task` must be classification for {algorithm.name}, in whose evaluation nearest "
            f"neighbors vote for classes, got {task.name}; choose another algorithm"
        )


def check_task(module: nn.Module, inputs: Tensor, dataset: Dataset, task: Task) -> None:
    """Check a task on the outputs of the model for a few examples.

    Parameters
    ----------
    module, inputs
        The model, and at most two examples as its inputs.
    dataset
        The dataset of the run.
    task
        The task of the run.

    Raises
    ------
    ValueError
        If the targets do not fit the outputs; if the loss is not one number per example, depends on
        other examples, is not finite or cannot be differentiated; if a score per example does not
        return as many numbers.
    """
    _check_ids(module, inputs, dataset)
    outputs = module(inputs)
    targets = dataset.learned(next(module.parameters()).dtype)
    if is_linear(module) and outputs.dim() != 2:
        raise ValueError(
            "`model` must be more than one nn.Linear for examples of shape "
            f"{tuple(inputs.shape[1:])}, to which it is applied position by position; use "
            "nn.Sequential(linear, nn.Identity())"
        )
    if task.misfit is not None and (why := task.misfit(outputs.detach().cpu(), targets)):
        raise ValueError(
            f"`targets` must be {why}, in the task {task.name}; change the targets or the model's "
            f"last layer, or give run another task{_fitting(outputs, targets, task)}"
        )
    # cloned, since the targets may have been created in inference mode
    sample = targets[: len(inputs)].to(outputs.device).clone()
    losses = _numbers("a loss", task.loss, outputs, sample)
    _check_differentiable(module, losses)
    if bool(torch.isfinite(outputs).all()) and not bool(torch.isfinite(losses).all()):
        raise ValueError(
            f"`task` must have a finite loss for finite outputs, got {losses.tolist()}; check its "
            "logarithms"
        )
    losses = losses.detach()
    alone = _numbers("a loss", task.loss, outputs[:1], sample[:1]).detach()
    if not torch.allclose(alone, losses[:1], rtol=1e-2, atol=1e-3, equal_nan=True):
        raise ValueError(
            "`task` must have a loss that does not depend on other examples, got "
            f"{float(alone[0]):g} for an example alone and {float(losses[0]):g} for it in a batch "
            "of two; remove terms that compare examples"
        )
    for name, score in task.reported.items():
        if not score.whole:
            _numbers(f"{name!r}", score.function, outputs.detach(), sample)
    _warn_of_probabilities(outputs.detach(), task)


def _fitting(outputs: Tensor, targets: Tensor, task: Task) -> str:
    """Return another task for targets that are a token for each position, or numbers."""
    tokens = targets.dtype == torch.int64 and targets.dim() == 2 and outputs.dim() == 3
    tokens = tokens and targets.shape[1] in outputs.shape[1:]  # of which the last are logits
    name = "next_token" if tokens else "regression"
    return "" if name == task.name else f", e.g. task=topofl.tasks.{name}()"


def _check_ids(module: nn.Module, inputs: Tensor, dataset: Dataset) -> None:
    """Raise ``ValueError`` if a model cannot take the largest integer input of the dataset."""
    if inputs.is_floating_point():
        return
    row = int(dataset.inputs.flatten(1).amax(1).argmax())
    try:
        with torch.no_grad():
            module(dataset.inputs[row : row + 1].to(inputs.device))
    except (IndexError, RuntimeError) as error:
        raise ValueError(
            f"`model` cannot take example {row}, which holds the largest id, "
            f"{int(dataset.inputs[row].max())}: {error}; enlarge its embedding to one more than "
            "that"
        ) from error


def _numbers(what: str, function: Function, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the values (b,) of a loss or score per example; raise ``ValueError`` if wrong."""
    try:
        found = function(outputs, targets)
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"`task` must have {what} for outputs of shape {tuple(outputs.shape)} and targets of "
            f"shape {tuple(targets.shape)} and {targets.dtype}, got {type(error).__name__}: "
            f"{error}; check its arguments"
        ) from error
    check_per_example(what, found, len(outputs))
    return found


def _check_differentiable(module: nn.Module, losses: Tensor) -> None:
    why = f"got {losses.dtype} with requires_grad={losses.requires_grad}"
    if losses.is_floating_point() and losses.requires_grad:
        try:
            torch.autograd.grad(losses.sum(), trained_parameters(module), allow_unused=True)
            return
        except RuntimeError as error:
            why = f"got {str(error).partition(chr(10))[0]}"
    raise ValueError(
        f"`task` must have a loss that can be differentiated, {why}; compute it by torch functions "
        "of the outputs, neither rounded nor detached"
    )


def _warn_of_probabilities(outputs: Tensor, task: Task) -> None:
    """Warn if the task takes a softmax of probabilities, which makes training slow."""
    if not task.logits or outputs.shape[-1] < 2:
        return
    tolerance = 100 * torch.finfo(outputs.dtype).eps
    ones = torch.allclose(
        outputs.sum(-1), torch.ones_like(outputs.sum(-1)), rtol=tolerance, atol=tolerance
    )
    if bool((outputs >= 0).all()) and ones:
        warn_caller(
            f"`model` returns probabilities, as by a final nn.Softmax, but the task {task.name} "
            "applies a softmax itself, so that training is slow; remove that layer, so that the "
            "model returns logits"
        )
