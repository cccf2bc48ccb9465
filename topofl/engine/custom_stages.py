"""Checks of user-defined stages and columns of evaluations."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import shown
from topofl.algorithms.contract.round import Models, State
from topofl.engine.population import Population

__all__ = ["check_returned_models", "check_returned_values", "versions_of"]


def versions_of(
    models: Population, push_sum_weights: Tensor, states: Mapping[str, State]
) -> list[tuple[Any, ...]]:
    """Return versions of the models, push-sum weights and states, to detect in-place changes."""
    tensors = [
        ("", "models", models.flat),
        ("", "push_sum_weights", push_sum_weights),
        *((phase, key, value) for phase, state in states.items() for key, value in state.items()),
    ]
    return [(phase, key, id(tensor), tensor._version) for phase, key, tensor in tensors]


def check_returned_models(name: str, returned: Models | Tensor, models: Population) -> Tensor:
    """Return the models (n, d) of a user-defined stage; raise unless they fit this run."""
    flat = returned if isinstance(returned, Tensor) else getattr(returned, "flat", None)
    wanted = (
        f"`evaluation.also[{name!r}]` must return models "
        f"or a tensor of shape (n, d)={tuple(models.flat.shape)}"
    )
    if not isinstance(flat, Tensor):
        raise TypeError(f"{wanted}, got {shown(returned)}; return models.like(flat)")
    if flat.shape != models.flat.shape:
        raise ValueError(
            f"{wanted}, got shape {tuple(flat.shape)}; for one model for all nodes, return "
            "flat.expand(n, -1)"
        )
    if (flat.dtype, flat.device) != (models.flat.dtype, models.flat.device):
        raise ValueError(
            f"{wanted} of {models.flat.dtype} on {models.flat.device}, got {flat.dtype} on "
            f"{flat.device}; return flat.to(models.flat)"
        )
    return flat.detach().contiguous()


def check_returned_values(name: str, returned: Tensor | np.ndarray, n: int) -> Tensor:
    """Return the values per node, (n,), of a user-defined column; raise unless they are such."""
    if not isinstance(returned, Tensor | np.ndarray) or tuple(returned.shape) != (n,):
        array = isinstance(returned, Tensor | np.ndarray)
        got = f"shape {tuple(returned.shape)}" if array else shown(returned)
        raise ValueError(
            f"`evaluation.per_node[{name!r}]` must return one number per node, a tensor or an "
            f"array of shape (n,)=({n},), got {got}; reduce the other axes, as by values.mean(1)"
        )
    real = (
        not returned.is_complex() if isinstance(returned, Tensor) else returned.dtype.kind in "biuf"
    )
    if not real:
        raise ValueError(
            f"`evaluation.per_node[{name!r}]` must return real numbers, got {returned.dtype}; "
            "convert them"
        )
    if isinstance(returned, Tensor):
        return returned.detach().clone()
    return torch.from_numpy(returned.copy())
