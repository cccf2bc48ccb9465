"""Forward passes of many models with the same structure in one call."""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

__all__ = [
    "Forward",
    "Order",
    "Shared",
    "applied",
    "image_order",
    "is_linear",
    "one_forward",
    "stacked_forward",
]

Order = Callable[[Tensor], Tensor]
"""Function that converts a tensor to the preferred memory format of a model."""


Shared = Callable[[Sequence[Tensor]], Callable[[Tensor], Tensor]]
"""Parameters -> (inputs (batch, ...) -> logits (batch, n, classes))."""


class Forward(NamedTuple):
    """Ways to apply n models, whose parameters are given as one (n, *shape) tensor each.

    Attributes
    ----------
    each
        (parameters, inputs (n, batch, ...)) -> logits (n, batch, classes): every model on its own
        inputs.
    shared
        parameters -> (inputs (batch, ...) -> logits (batch, n, classes)): every model on the same
        inputs.
    """

    each: Callable[[Sequence[Tensor], Tensor], Tensor]
    shared: Shared


def _unchanged(x: Tensor) -> Tensor:
    return x


def stacked_forward(model: nn.Module, order: Order = _unchanged) -> Forward:
    """Return the functions that apply n models of this structure in one call.

    Linear models become one (stacked) matrix product; all others go through ``torch.func.vmap``.
    `order` converts inputs and parameters where a single model is applied to shared inputs.
    """
    if is_linear(model):
        return Forward(_linear_each, _linear_shared)
    apply_one = applied(model)

    def each(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        return vmap(apply_one)(list(parameters), inputs)

    def shared(parameters: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        if len(parameters[0]) == 1:
            own = [order(p[0]) for p in parameters]
            return lambda inputs: apply_one(own, order(inputs)).unsqueeze(1)
        return lambda inputs: vmap(apply_one, in_dims=(0, None), out_dims=1)(
            list(parameters), inputs
        )

    return Forward(each, shared)


def applied(model: nn.Module) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """Return the function (parameters, inputs) -> outputs that applies a model functionally.

    A parameter is replaced in all of its places: a layer may have two names, and two layers may
    share a parameter.
    """
    index_of = {id(p): k for k, p in enumerate(model.parameters())}
    places = {
        f"{prefix}.{name}" if prefix else name: index_of[id(p)]
        # Each place once: in the end, torch would restore the value that it put in first.
        for prefix, module in model.named_modules()
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False)
    }

    def apply(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        given = {name: parameters[k] for name, k in places.items()}
        return functional_call(model, given, (inputs,), tie_weights=False)

    return apply


def one_forward(model: nn.Module, order: Order) -> Callable[[Tensor], Callable[[Tensor], Tensor]]:
    """Return a function from models (d,) of this structure to (inputs -> outputs).

    It computes the same as `shared` of :func:`stacked_forward` for a single model, but faster for
    many small models in succession: each is copied into the parameters of a copy of `model`, of
    which only kernels in another memory format are copied again. Only the most recent function of
    a model may be used.
    """
    own = copy.deepcopy(
        model, {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    )
    parameters = list(own.parameters())
    flat = nn.utils.parameters_to_vector(parameters)
    converted = []
    parts = flat.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        view = part.view(parameter.shape)
        parameter.data = order(view)
        if parameter.data_ptr() != view.data_ptr():
            converted.append((parameter.data, view))

    def applied_to(values: Tensor) -> Callable[[Tensor], Tensor]:
        flat.copy_(values)
        for parameter, view in converted:
            parameter.copy_(view)
        return lambda inputs: own(order(inputs))

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
    convolves = (
        any(isinstance(module, nn.Conv2d) for module in model.modules()) and inputs.dim() == 4
    )
    if not channels_last or (
        channels_last == "auto" and not (convolves and inputs.device.type == "cpu")
    ):
        return _unchanged
    try:
        with torch.no_grad():
            applied(model)(
                [_channels_last(p) for p in model.parameters()], _channels_last(inputs[:2])
            )
    except RuntimeError as error:
        if channels_last == "auto":
            return _unchanged
        raise ValueError(
            f"`channels_last` must be False for a model that cannot take images in this format: "
            f"{error}; or replace view by flatten in the model"
        ) from error
    return _channels_last


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def is_linear(model: nn.Module) -> bool:
    """Return whether the model is one linear layer with bias, optionally after flattening."""
    parts = [module for _, module in model.named_modules(remove_duplicate=False)]
    if any(part._forward_hooks or part._forward_pre_hooks for part in parts):
        return False
    layers = [part for part in parts if type(part) is not nn.Sequential]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    flat = [
        layer
        for layer in layers
        if type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1
    ]
    if (
        len(linear) != 1
        or layers[-1] is not linear[0]
        or linear[0].bias is None
        or "forward" in vars(linear[0])
    ):
        return False
    return len(linear) + len(flat) == len(layers)


def _linear_each(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    weight, bias = parameters  # (n, classes, features), (n, classes)
    # Weight first: its gradient is then a product of row-major matrices, 3x faster than that of
    # inputs @ weight^T.
    return (weight @ inputs.flatten(2).transpose(1, 2) + bias.unsqueeze(2)).transpose(1, 2)


def _linear_shared(parameters: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    weight, bias = parameters
    n, classes, features = weight.shape
    stacked = weight.reshape(n * classes, features)  # one product for all models

    def apply(inputs: Tensor) -> Tensor:
        logits = (stacked @ inputs.flatten(1).T).unflatten(0, (n, classes)).add_(bias.unsqueeze(2))
        # Consecutive examples are adjacent in memory: sums over classes add whole rows.
        return logits.permute(2, 0, 1)

    return apply
