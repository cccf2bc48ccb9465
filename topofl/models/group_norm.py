"""Replacement of BatchNorm and similar layers by GroupNorm."""

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from topofl._support.check import check_int, shown
from topofl._support.public import public

__all__ = ["with_group_norm"]


@public
def with_group_norm(module: nn.Module, *, groups: int = 32) -> nn.Module:
    """Return a copy of a network with GroupNorm in place of BatchNorm and similar layers.

    The layers that are replaced are BatchNorm, SyncBatchNorm, and InstanceNorm with running
    statistics. Every new layer has the same number of channels, ``eps``, weight and bias (or none),
    dtype and device. Running statistics are dropped, which changes the outputs of a trained
    network: train it again, at least for a few rounds. All other parameters and the names of layers
    stay unchanged.

    Parameters
    ----------
    module
        The network, which is not modified; it may itself be a layer to replace.
    groups
        Number of groups in each layer. If it does not divide the number of channels C, the nearest
        divisor of C is used, and the smaller one of a tie. A group has at least 2 channels (unless
        C is 1), since a single value has no variance.

    Returns
    -------
    torch.nn.Module
        The copy; no random numbers are drawn.

    Raises
    ------
    TypeError
        If `module` is not an ``nn.Module``, is compiled by TorchScript, or cannot be copied.
    ValueError
        If `groups` is below 1; or if a layer has no channels yet because it is lazy, has one
        channel and no other dimension to normalize over, or is of a subclass, which may compute
        something else.

    References
    ----------
    Wu and He, "Group normalization" (2018); Hsieh et al., "The non-IID data quagmire of
    decentralized machine learning" (2020), on why BatchNorm fails where nodes hold different
    classes.

    Examples
    --------
    >>> net = nn.Sequential(nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48), nn.ReLU())
    >>> twin = with_group_norm(net)
    >>> type(twin[1]).__name__, twin[1].num_groups, type(net[1]).__name__
    ('GroupNorm', 24, 'BatchNorm2d')
    """
    groups = check_int("groups", groups, minimum=1)
    if not isinstance(module, nn.Module) or isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            "`module` must be a torch.nn.Module that is not compiled by TorchScript, got "
            f"{shown(module)}"
        )
    for name, layer in module.named_modules():
        if _has_statistics(layer):
            _check_replaceable(name, layer)
    try:
        twin = copy.deepcopy(module)
    except Exception as error:  # modules may hold anything
        raise TypeError(
            f"`module` must be a module that can be copied, copy.deepcopy raised {shown(error)}"
        ) from error
    new = {
        id(layer): _as_group_norm(layer, groups)
        for layer in twin.modules()
        if _has_statistics(layer)
    }
    for parent in list(twin.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in new:  # a layer that is used twice stays shared
                parent.register_module(name, new[id(child)])
    return new.get(id(twin), twin)


_REPLACEABLE = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


def _has_statistics(module: nn.Module) -> bool:
    """Return whether a layer normalizes by batch or running statistics."""
    return isinstance(module, _BatchNorm) or (
        isinstance(module, _InstanceNorm) and module.track_running_stats
    )


def _check_replaceable(name: str, norm: Any) -> None:
    """Raise ``ValueError`` if a layer cannot be replaced by GroupNorm."""
    layer = f"layer {name!r} of `module`" if name else "`module`"
    if norm.num_features == 0:
        raise ValueError(
            f"{layer} must have a known number of channels, got a {type(norm).__name__}; pass "
            "a batch through it first"
        )
    if type(norm) not in _REPLACEABLE:
        raise ValueError(
            f"{layer} must be one of torch's own layers, got {type(norm).__name__}, which may "
            "compute something else; replace it with a torch.nn.GroupNorm yourself"
        )
    if norm.num_features == 1 and isinstance(norm, nn.BatchNorm1d):
        raise ValueError(
            f"{layer} must have at least 2 channels to be normalized in groups, got 1; remove it"
        )


def _as_group_norm(norm: Any, groups: int) -> nn.GroupNorm:
    """Return a GroupNorm with the channels and the affine parameters of another layer."""
    channels = norm.num_features
    fitting = [g for g in range(1, max(channels // 2, 1) + 1) if channels % g == 0]
    near = min(fitting, key=lambda g: (abs(g - groups), g))
    made = nn.GroupNorm(near, channels, eps=norm.eps, affine=norm.affine).train(norm.training)
    if norm.affine:
        made.weight, made.bias = norm.weight, norm.bias
    return made
