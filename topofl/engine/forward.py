"""Running all nodes' models at once."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.func import functional_call, vmap

from topofl.engine.population import Layout

__all__ = ["Forward", "is_linear", "stacked_forward"]

Forward = Callable[[Sequence[Tensor], Tensor, bool], Tensor]
"""(parameters (n, *shape) each, inputs, shared) -> logits (n, batch, classes); see :func:`stacked_forward`."""


def stacked_forward(model: nn.Module) -> Forward:
    """Return the function that applies n models to n minibatches, or to one shared batch.

    The function takes the parameters, each (n, *shape), inputs (n, batch, ...) or, if `shared`, (batch, ...), and that
    flag. Linear models become one (stacked) matrix product; all others go through ``torch.func.vmap``.
    """
    if is_linear(model):
        return _linear_forward
    layout = Layout.of(model)

    def one(parameters: list[Tensor], inputs: Tensor) -> Tensor:
        return functional_call(model, dict(zip(layout.names, parameters, strict=True)), (inputs,))

    def forward(parameters: Sequence[Tensor], inputs: Tensor, shared: bool) -> Tensor:
        return vmap(one, in_dims=(0, None if shared else 0))(list(parameters), inputs)

    return forward


def is_linear(model: nn.Module) -> bool:
    """Whether the model is one linear layer with bias, with or without flattening before it."""
    layers = [module for module in model.modules() if not isinstance(module, nn.Sequential)]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    flat = [layer for layer in layers if type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1]
    last = layers[-1] if layers else None
    if len(linear) != 1 or last is not linear[0] or linear[0].bias is None:
        return False
    return len(linear) + len(flat) == len(layers)


def _linear_forward(parameters: Sequence[Tensor], inputs: Tensor, shared: bool) -> Tensor:
    weight, bias = parameters  # (n, classes, features), (n, classes)
    if not shared:
        return inputs.flatten(2) @ weight.transpose(1, 2) + bias.unsqueeze(1)
    n, classes, features = weight.shape
    logits = inputs.flatten(1) @ weight.reshape(n * classes, features).T  # (batch, n * classes): one product for all
    return logits.unflatten(1, (n, classes)).add_(bias).transpose(0, 1)
