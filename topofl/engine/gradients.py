"""Outputs, losses and gradients of many models of one structure: batched, looped or closed form."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from topofl._support.threads import Buffers
from topofl.algorithms.contract.local import Objective
from topofl.algorithms.contract.round import Part, State
from topofl.engine.network import Drawing, Network
from topofl.engine.options import Compute
from topofl.engine.population import Layout, trained_parameters
from topofl.tasks import Function, Task, cross_entropy

Order = Callable[[Tensor], Tensor]
"""Function that converts a tensor to the preferred memory format of a model."""

Forward = Callable[[Sequence[Tensor], bool], Callable[[Tensor], Tensor]]
"""(parameters, shared) -> (inputs -> outputs (n, batch, ...)) of n models.

Parameters are one (n, *shape) tensor each, followed by such tensors of the buffers of which each
node has its own. Inputs are (batch, ...) of all models if `shared`, else (n, batch, ...).
"""


def _same(x: Tensor) -> Tensor:
    return x


def stacked_forward(model: nn.Module, order: Order = _same, buffers: Sequence[str] = ()) -> Forward:
    """Return the function that applies n models of this structure in one call.

    Linear models become one (stacked) matrix product; all others go through ``torch.func.vmap``.
    `order` converts inputs and parameters where a single model is applied to shared inputs.
    """
    each, linear = forward_of_each(model, buffers), is_linear(model)
    apply_one = applied(model, buffers)

    def forward(parameters: Sequence[Tensor], shared: bool) -> Callable[[Tensor], Tensor]:
        if not shared:
            return partial(each, parameters)
        if linear:
            return _linear_on_shared(parameters)
        if len(parameters[0]) == 1:
            own = [order(p[0]) for p in parameters]
            return lambda inputs: apply_one(own, order(inputs))[None]
        return partial(vmap(apply_one, in_dims=(0, None)), list(parameters))

    return forward


def forward_of_each(
    model: nn.Module, buffers: Sequence[str] = (), drawing: Drawing | None = None
) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """Return (parameters, inputs (n, batch, ...)) -> outputs: every model on its own inputs.

    If models draw, the parameters and buffers are followed by keys (n,).
    """
    if is_linear(model):
        return _linear_on_own
    apply = vmap(applied(model, buffers, drawing))
    return lambda parameters, inputs: apply(list(parameters), inputs)


def rows_of(network: Network, k: int) -> list[Tensor]:
    """Return k rows of a network's own numbers, as models in training take them: all equal.

    They are (k, *shape) of each trained parameter and changing buffer, and keys (k,) if it draws.
    """
    module = network.module
    values = [*trained_parameters(module), *map(module.get_buffer, network.buffers)]
    rows = [x.detach().repeat(k, *(1 for _ in x.shape)) for x in values]
    if network.drawing is not None:
        rows.append(torch.arange(k, dtype=torch.int64, device=values[0].device))
    return rows


def applied(
    model: nn.Module, buffers: Sequence[str] = (), drawing: Drawing | None = None
) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """Return the function (parameters, inputs) -> outputs that applies a model functionally.

    A parameter is replaced in all of its places: a layer may have two names, and two layers may
    share a parameter. Frozen ones stay. The parameters are followed by the values of the `buffers`,
    which the model may change in place, and by a key for `drawing`.
    """
    trained = trained_parameters(model)
    index_of = {id(p): k for k, p in enumerate(trained)}
    places = {
        f"{prefix}.{name}" if prefix else name: index_of[id(p)]
        # Each place once: in the end, torch would restore the value that it put in first.
        for prefix, module in model.named_modules()
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False)
        if p.requires_grad
    }
    places |= {name: len(trained) + k for k, name in enumerate(buffers)}

    def apply(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        given = {name: parameters[k] for name, k in places.items()}
        with nullcontext() if drawing is None else drawing(parameters[-1]):
            return functional_call(model, given, (inputs,), tie_weights=False)

    return apply


def one_forward(
    model: nn.Module, order: Order, buffers: Sequence[str] = ()
) -> Callable[..., Callable[[Tensor], Tensor]]:
    """Return a function from models (d,) of this structure to (inputs -> outputs (1, b, ...)).

    It may be given the values of the network's `buffers`, too.

    It computes the same as :func:`stacked_forward` for a single model, but faster for many small
    models in succession: each is copied into the parameters of a copy of `model`, of
    which only kernels in another memory format are copied again. Only the most recent function of
    a model may be used.
    """
    own, converted = sharing_copy(model, buffers), []
    parameters = trained_parameters(own)
    flat = nn.utils.parameters_to_vector(parameters).detach()
    parts = flat.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        view = part.view(parameter.shape)
        parameter.data = order(view)
        if parameter.data_ptr() != view.data_ptr():
            converted.append((parameter.data, view))

    def applied_to(values: Tensor, statistics: Sequence[Tensor] = ()) -> Callable[[Tensor], Tensor]:
        flat.copy_(values)
        for name, value in zip(buffers, statistics, strict=True):
            own.get_buffer(name).copy_(value)
        for parameter, view in converted:
            parameter.copy_(view)
        return lambda inputs: own(order(inputs))[None]

    return applied_to


def image_order(model: nn.Module, inputs: Tensor, channels_last: bool | str = "auto") -> Order:
    """Return the conversion of images and kernels to a memory format; "auto": as is fastest.

    With "auto" this is channels last for convolutional models on CPU, unless they cannot take this
    format, for example because they use ``view`` instead of ``flatten``; other tensors stay
    unchanged. The logits are the same up to the order of summation.

    Raises
    ------
    ValueError
        If `channels_last` is True and the model cannot take this format.
    """
    convolves = any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    wins = convolves and inputs.dim() == 4 and inputs.device.type == "cpu"
    if not (wins if channels_last == "auto" else channels_last):
        return _same
    try:
        with torch.no_grad():
            own = [_channels_last(p) for p in trained_parameters(model)]
            applied(model)(own, _channels_last(inputs[:2]))
    except RuntimeError as error:
        if channels_last == "auto":
            return _same
        raise ValueError(
            f"`channels_last` must be False for a model that cannot take images in this format: "
            f"{error}; or replace view by flatten in the model"
        ) from error
    return _channels_last


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def is_linear(model: nn.Module) -> bool:
    """Return whether the model is one linear layer with bias, optionally after flattening."""
    return hidden_widths(model) == []


def hidden_widths(model: nn.Module) -> list[int] | None:
    """Return the widths of the hidden layers of a perceptron with ReLU; None for other models.

    Its layers are linear and have biases; it may flatten its inputs.

    Examples
    --------
    >>> hidden_widths(nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 2)))
    [4]
    """
    parts = [module for _, module in model.named_modules(remove_duplicate=False)]
    changed = any(
        part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts
    )
    if changed or not all(p.requires_grad for p in model.parameters()):
        return None
    layers = [part for part in parts if type(part) is not nn.Sequential] or [model]
    while layers and type(layers[0]) is nn.Flatten:
        if (layers[0].start_dim, layers[0].end_dim) != (1, -1):
            return None
        layers = layers[1:]
    dense = [part for part in layers[::2] if type(part) is nn.Linear]
    if len(layers) != 2 * len(dense) - 1 or any(type(part) is not nn.ReLU for part in layers[1::2]):
        return None
    # weights that layers share, or that follow their bias, are not found where they are looked for
    expected = [p for part in dense for p in (part.weight, part.bias)]
    if [*map(id, expected)] != [*map(id, model.parameters())]:
        return None
    return [part.out_features for part in dense[:-1]]


def _linear_on_own(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    weight, bias = parameters  # (n, classes, features), (n, classes)
    # Weight first: its gradient is then a product of row-major matrices, 3x faster than that of
    # inputs @ weight^T.
    return (weight @ inputs.flatten(2).transpose(1, 2) + bias.unsqueeze(2)).transpose(1, 2)


def _linear_on_shared(parameters: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    weight, bias = parameters
    n, classes, features = weight.shape
    stacked = weight.reshape(n * classes, features)  # one product for all models

    def apply(inputs: Tensor) -> Tensor:
        logits = (stacked @ inputs.flatten(1).T).unflatten(0, (n, classes)).add_(bias.unsqueeze(2))
        # Consecutive examples are adjacent in memory: sums over classes add whole rows.
        return logits.transpose(1, 2)

    return apply


Batch = tuple[Tensor, Tensor, Tensor | None]
"""Inputs (k, b, ...), targets (k, b, ...), and weights (k, b) or None, of examples of k nodes."""

Trained = Sequence[int] | None
"""Indices of the parameters that are trained; None: all."""

Found = tuple[Tensor, Sequence[Tensor]]
"""Losses (k,) of k nodes, and gradients (k, *shape) of each trained parameter."""

Gradients = Callable[..., Found]
"""(parameters, batch, trained=None) -> losses and gradients of some nodes.

Parameters are (k, *shape) each, followed by buffers and keys as in :class:`Forward`. Gradients may
be modified; the next call reuses their memory.
"""

WIDE = 32
"""Minibatch size from which weight @ x^T is faster than x @ weight^T.

With 128 examples it takes a third to a half of the time, with 13 it takes 1.7 times as long.
"""

Autocast = Callable[[], AbstractContextManager[object]]


def autocast(device: torch.device, low: torch.dtype | None) -> Autocast:
    """Return a factory of contexts that multiply in `low` precision; None: no change."""
    if low is None:
        return nullcontext

    @contextmanager
    def lowered() -> Iterator[None]:
        try:
            with torch.autocast(device.type, dtype=low), _LowConvolutions(low):
                yield
        finally:
            # Within another autocast, the cache would keep parameters that have since changed.
            torch.clear_autocast_cache()

    return lowered


class _LowConvolutions(TorchFunctionMode):
    """Lowers convolutions under ``torch.func.vmap``, which ``torch.autocast`` does not."""

    def __init__(self, low: torch.dtype) -> None:
        super().__init__()
        self._low = low

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function; arguments of convolutions are converted to low precision."""
        del types
        if func in _CONVOLUTIONS:
            args = [
                x.to(self._low) if isinstance(x, Tensor) and x.is_floating_point() else x
                for x in args
            ]
        return func(*args, **(kwargs or {}))


_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)


def autograd_gradients(
    network: Network,
    executor: str,
    order: Order = _same,
    lower: Autocast = nullcontext,
    compile: bool = False,
    loss: Function = cross_entropy,
) -> Gradients:
    """Return the function that differentiates models in training by autograd, batched or looped.

    It is ``"batched"`` for several nodes, or ``"looped"`` for one node, whose model gets views into
    the population; `order` then converts images alone, since torch converts kernels itself where
    that is faster. The network is copied: torch puts parameters into it during a call, so every
    thread needs its own copy.
    """
    buffers, drawing = network.buffers, network.drawing
    own, looped = sharing_copy(network.module, buffers).train(), executor == "looped"
    places = [*trained_parameters(own), *map(own.get_buffer, buffers)]
    count, given = len(places) - len(buffers), [place.data for place in places]
    forward: Any = own if looped else forward_of_each(own, buffers, drawing)
    forward = torch.compile(forward) if compile else forward

    def outputs(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        if not looped:
            return forward(parameters, inputs)
        with nullcontext() if drawing is None else drawing(parameters[-1][0]):
            return forward(order(inputs[0]))[None]

    def gradients(parameters: Sequence[Tensor], batch: Batch, trained: Trained = None) -> Found:
        inputs, targets, weights = batch
        if looped:
            for place, view in zip(places, parameters, strict=False):
                place.data = view[0]
            leaves = places[:count]
        else:  # not detach(): autograd would notice that other threads change other rows meanwhile
            leaves = [p.data for p in parameters[:count]]
        for k, leaf in enumerate(leaves):
            leaf.requires_grad_(trained is None or k in trained)
        with torch.enable_grad():
            with lower():
                found = outputs([*leaves, *parameters[count:]], inputs)
            losses = _mean_loss(loss, found, targets, weights)
            chosen = [leaf for leaf in leaves if leaf.requires_grad]
            parts = _mutable(torch.autograd.grad(losses.sum(), chosen, materialize_grads=True))
        if not looped:
            return losses.detach(), parts
        for place, values in zip(places, given, strict=True):
            place.data = values  # models that are no longer stored are not kept alive
        return losses.detach(), [g[None] for g in parts]

    return gradients


def _mutable(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return gradients that share no memory, so that each can be changed in place."""
    found, seen = [], set()
    for g in gradients:
        memory, axes = g.untyped_storage()._cdata, zip(g.stride(), g.shape, strict=True)
        repeats = any(stride == 0 and size > 1 for stride, size in axes) or memory in seen
        found.append(g.clone(memory_format=torch.contiguous_format) if repeats else g)
        seen.add(memory)
    return found


def sharing_copy(model: nn.Module, apart: Sequence[str] = ()) -> nn.Module:
    """Return a copy of a model that shares its numbers, but for the buffers named in `apart`."""
    shared: dict[int, Any] = {id(b): b for name, b in model.named_buffers() if name not in apart}
    for p in model.parameters():
        shared[id(p)] = nn.Parameter(p.detach(), p.requires_grad)
    return copy.deepcopy(model, shared)


def _mean_loss(loss: Function, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the loss of each node's minibatch, (k,), in at least float32."""
    outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
    if loss is cross_entropy:
        losses = functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    else:
        losses = loss(outputs.flatten(0, 1), targets.flatten(0, 1)).view(targets.shape[:2])
    return losses.mean(1) if weights is None else (losses * weights).sum(1)


_of_relu = torch.ops.aten.threshold_backward.grad_input


def dense_gradients(buffers: Buffers, low: torch.dtype | None = None) -> Gradients:
    """Return the function for perceptrons with ReLU, in closed form, for any number of layers.

    Of the last layer they are ``(softmax(W x + b) - onehot) x^T``. It writes batched products into
    reused memory, while autograd allocates new tensors in every step.
    """

    def gradients(parameters: Sequence[Tensor], batch: Batch, trained: Trained = None) -> Found:
        inputs, targets, weights = batch
        *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        layers = [inputs.flatten(2)]  # the inputs of each layer, (k, b, features)
        for place, (w, b) in enumerate(hidden):
            sums = _product(f"layer {place}", layers[-1], w.transpose(1, 2))
            layers.append(sums.add_(b.unsqueeze(1)).relu_())
        x = layers[-1]
        labels = targets.unsqueeze(1)  # (k, 1, b)
        if x.shape[1] < WIDE:
            logits = _product("logits", x, weight.transpose(1, 2)).transpose(1, 2)
        else:
            logits = _product("logits", weight, x.transpose(1, 2))
        logs = torch.log_softmax(logits.add_(bias.unsqueeze(2)), 1)  # (k, classes, b)
        share = 1 / targets.shape[1] if weights is None else weights.unsqueeze(1)
        losses = (logs.gather(1, labels) * -share).sum((1, 2))
        errors = logs.exp_().scatter_(1, labels, -1, reduce="add").mul_(share)
        found = [_product("gradient", errors, x), errors.sum(2)]
        above, errors = weight, errors.transpose(1, 2)  # (k, b, classes)
        for place in reversed(range(len(hidden))):
            errors = _product(f"errors {place}", errors, above)
            # not times zero, which is NaN where errors are infinite
            _of_relu(errors, layers[place + 1], 0, grad_input=errors)
            own = _product(f"gradient {place}", errors.transpose(1, 2), layers[place])
            found[:0] = [own, errors.sum(1)]
            above = hidden[place][0]
        return losses, found if trained is None else [found[k] for k in trained]

    def _product(name: str, a: Tensor, b: Tensor) -> Tensor:
        out = buffers.take(name, (a.shape[0], a.shape[1], b.shape[2]), a.dtype)
        if low is None:
            return torch.bmm(a, b, out=out)
        return out.copy_(torch.bmm(a.to(low), b.to(low)))

    return gradients


def in_closed_form(model: nn.Module, task: Task) -> bool:
    """Return whether gradients have a closed form: perceptrons with ReLU under cross-entropy."""
    return task.loss is cross_entropy and hidden_widths(model) is not None


Bound = tuple[Objective, State]
"""An objective of local steps, and the rows (k, ...) of the state that it reads."""


def objective_gradients(
    network: Network, order: Order, lower: Autocast, loss: Function
) -> Callable[[Sequence[Tensor], Batch, Trained, Bound], Found]:
    """Return the function that differentiates objectives: of several nodes by vmap, else of one."""
    layout, buffers = Layout.of(network.module), network.buffers
    count, known = len(layout.names), dict[int, tuple[Objective, Callable[..., Tensor]]]()

    def losses_of(objective: Objective) -> Callable[..., Tensor]:
        own = sharing_copy(network.module, buffers).train()
        outputs_of = with_features(own, objective.features, buffers, network.drawing)

        def losses(
            ordered: Order,
            parameters: Sequence[Tensor],
            inputs: Tensor,
            targets: Tensor,
            rows: State,
        ) -> Tensor:
            def apply(x: Tensor, model: Tensor | None = None) -> tuple[Tensor, Any]:
                given = list(parameters)
                if model is not None:  # which does not change the node's statistics
                    given[:count] = [view[0] for view in layout.views(model[None])]
                    own_buffers = slice(count, count + len(buffers))
                    given[own_buffers] = [x.clone() for x in given[own_buffers]]
                features, outputs = outputs_of(given, ordered(x))
                return outputs, features

            try:
                found: Any = objective.losses(apply, inputs, targets, rows, loss)
            except torch.OutOfMemoryError:
                raise
            except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
                what = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.120}"
                raise ValueError(
                    f"`losses` of the objective {objective.name!r} must return the losses of a "
                    f"minibatch of shape {tuple(inputs.shape)} without branching on values, but it "
                    f"raised {what}"
                ) from error
            if getattr(found, "shape", None) != inputs.shape[:1]:
                got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else found
                raise ValueError(
                    f"`losses` of the objective {objective.name!r} must return one loss per "
                    f"example, ({len(inputs)},), got {got}; take no mean over examples"
                )
            return found

        return losses

    def gradients(
        parameters: Sequence[Tensor], batch: Batch, trained: Trained, bound: Bound
    ) -> Found:
        (inputs, targets, weights), (objective, state) = batch, bound
        if id(objective) not in known:
            known[id(objective)] = objective, losses_of(objective)
        k, one = len(inputs), known[id(objective)][1]
        rows = {
            name: x.expand(k, *x.shape[1:])
            for name, x in state.items()
            if x.dim() and len(x) in (1, k)
        }
        leaves = [p.data for p in parameters[:count]]
        for place, leaf in enumerate(leaves):
            leaf.requires_grad_(trained is None or place in trained)
        with torch.enable_grad():
            given = ([*leaves, *parameters[count:]], inputs, targets, rows)
            with lower():
                if k > 1:
                    each = vmap(partial(one, _same))(*given)
                else:
                    each = one(order, *tree_map(lambda x: x[0], given))[None]
            losses = each.mean(1) if weights is None else (each * weights).sum(1)
            chosen = [leaf for leaf in leaves if leaf.requires_grad]
            found = torch.autograd.grad(losses.sum(), chosen, materialize_grads=True)
        return losses.detach(), _mutable(found)

    return gradients


def with_features(
    module: nn.Module,
    layer_of: Part | None,
    buffers: Sequence[str] = (),
    drawing: Drawing | None = None,
) -> Callable[[Sequence[Tensor], Tensor], tuple[Any, Tensor]]:
    """Return (parameters, inputs) -> features (b, m), the inputs of a layer, and outputs (b, ...).

    Without a layer, features are None. The module is changed, and so belongs to this function.
    Raises ``ValueError`` if the part is not one layer, which the model calls once.
    """
    if layer_of is None:
        whole = applied(module, buffers, drawing)
        return lambda parameters, inputs: (None, whole(parameters, inputs))
    layout = Layout.of(module)
    places = layout.places(layer_of)
    layer, *others = dict.fromkeys(layout.names[k].rpartition(".")[0] for k in places)
    if others:
        raise ValueError(
            f"`head` must be one layer, whose inputs are compared, got "
            f"{', '.join([layer, *others])}; name the last of them, or if they are of several "
            "networks, let these have a last layer of the same name and shapes"
        )
    taken = list[Any]()
    module.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: taken.append(inputs))
    apply = applied(module, buffers, drawing)

    def outputs_of(parameters: Sequence[Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
        taken.clear()
        outputs = apply(parameters, inputs)
        if len(taken) != 1 or not taken[0] or len(taken[0][0]) != len(inputs):
            raise ValueError(
                "`head` must be a layer that the model calls once, on features of each example, "
                f"{layer!r} is not; name its last layer"
            )
        features = taken[0][0].flatten(1)
        low = features.dtype in (torch.float16, torch.bfloat16)
        return features.float() if low else features, outputs

    return outputs_of


def new_gradients(
    network: Network, executor: str, order: Order, compute: Compute, task: Task, memory: Buffers
) -> Gradients:
    """Return the gradient function of one thread: batched, looped, or in closed form."""
    low = torch.bfloat16 if compute.precision == "bf16" else None
    lower = autocast(memory.device, low)
    if in_closed_form(network.module, task):
        of_task = dense_gradients(memory, low)
    else:
        of_task = autograd_gradients(network, executor, order, lower, compute.compile, task.loss)
    build = cache(partial(objective_gradients, network, order, lower, task.loss))

    def gradients(
        parameters: Sequence[Tensor],
        batch: Batch,
        trained: Trained = None,
        bound: Bound | None = None,
    ) -> Found:
        if bound is None:
            return of_task(parameters, batch, trained)
        return build()(parameters, batch, trained, bound)

    return gradients
