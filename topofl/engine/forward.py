"""Running all nodes' models at once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.func import functional_call, vmap

from topofl.engine.population import Layout

__all__ = ["Forward", "is_linear", "stacked_forward"]


class Forward(NamedTuple):
    """Ways to apply n models, whose parameters are given as one (n, *shape) tensor each.

    Attributes
    ----------
    each
        (parameters, inputs (n, batch, ...)) -> logits (n, batch, classes): every model on its own inputs.
    shared
        (parameters, inputs (batch, ...)) -> logits (batch, n, classes): every model on the same inputs.
    """

    each: Callable[[Sequence[Tensor], Tensor], Tensor]
    shared: Callable[[Sequence[Tensor], Tensor], Tensor]


def stacked_forward(model: nn.Module) -> Forward:
    """Return the functions that apply n models of this structure in one call.

    Linear models become one (stacked) matrix product; all others go through ``torch.func.vmap``.
    """
    if is_linear(model):
        return Forward(_linear_each, _linear_shared)
    names = Layout.of(model).names

    def one(parameters: list[Tensor], inputs: Tensor) -> Tensor:
        return functional_call(model, dict(zip(names, parameters, strict=True)), (inputs,))

    def each(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        return vmap(one)(list(parameters), inputs)

    def shared(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        if len(parameters[0]) == 1:
            return one([p[0] for p in parameters], inputs).unsqueeze(1)
        return vmap(one, in_dims=(0, None), out_dims=1)(list(parameters), inputs)

    return Forward(each, shared)


def is_linear(model: nn.Module) -> bool:
    """Whether the model is one linear layer with bias, with or without flattening before it."""
    layers = [module for module in model.modules() if not isinstance(module, nn.Sequential)]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    flat = [layer for layer in layers if type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1]
    if len(linear) != 1 or layers[-1] is not linear[0] or linear[0].bias is None:
        return False
    return len(linear) + len(flat) == len(layers)


def _linear_each(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    weight, bias = parameters  # (n, classes, features), (n, classes)
    # Weight first: its gradient is then a product of row-major matrices, 3x faster than that of inputs @ weight^T.
    return (weight @ inputs.flatten(2).transpose(1, 2) + bias.unsqueeze(2)).transpose(1, 2)


def _linear_shared(parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    weight, bias = parameters
    n, classes, features = weight.shape
    logits = inputs.flatten(1) @ weight.reshape(n * classes, features).T  # (batch, n * classes): one product for all
    return logits.unflatten(1, (n, classes)).add_(bias)
