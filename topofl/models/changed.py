"""Networks that are made of others: other normalization, adapters, and several kinds of nodes."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize

from topofl._support.check import check_int, check_positive, check_sequence, did_you_mean, shown
from topofl._support.public import public
from topofl.models.networks import built_from_seed_0


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
    for name, layer in _normalizing(module).items():
        _check_replaceable(name, layer)
    try:
        twin = copy.deepcopy(module)
    except Exception as error:  # modules may hold anything
        raise TypeError(
            f"`module` must be a module that can be copied, copy.deepcopy raised {shown(error)}"
        ) from error
    new = {id(layer): _as_group_norm(layer, groups) for layer in _normalizing(twin).values()}
    return _replaced(twin, new)


def _replaced(module: nn.Module, new: Mapping[int, nn.Module]) -> nn.Module:
    """Return a module whose layers are replaced by `new` ones, by their identities."""
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in new:  # a layer that is used twice stays shared
                parent.register_module(name, new[id(child)])
    return new.get(id(module), module)


_REPLACEABLE = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


def _normalizing(module: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that normalize by batch or running statistics, by name."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm)
        or (isinstance(layer, _InstanceNorm) and layer.track_running_stats)
    }


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


@public
def lora(
    module: nn.Module,
    *,
    rank: int = 8,
    alpha: float | None = None,
    layers: str | Sequence[str] = "*",
    also: str | Sequence[str] = (),
) -> nn.Module:
    """Return a copy of a network of which low-rank adapters are trained, and nothing else.

    The weight W of an adapted layer, (out, in), becomes ``W + alpha / rank * B A`` with trained A,
    (rank, in), and B, (out, rank). A run stores and sends only what is trained: W exists once, not
    once per node. B starts at 0, so that the network computes what it did before.

    Parameters
    ----------
    module
        The network, for example a trained one; it is not modified.
    rank
        Rank of the adapters, at most the smaller side of each weight.
    alpha
        The scale of the adapters times their rank; None: `rank`.
    layers
        Names of the adapted layers, with the wildcards of file names. Of those that match, every
        ``nn.Linear`` and ``nn.MultiheadAttention`` is adapted; the latter in the weights of its
        queries, keys, values and outputs.
    also
        Names of layers that are trained as a whole, such as ``"head"``.

    Raises
    ------
    TypeError
        If `module` is no network, or cannot be copied.
    ValueError
        If a name matches no layer, or `layers` none that can be adapted; if `rank` or `alpha` is
        out of range.

    References
    ----------
    Hu et al., "LoRA: Low-rank adaptation of large language models" (2021), Section 4.1; Ghiasvand
    et al., "Decentralized low-rank fine-tuning of large language models" (2025), in which nodes
    average A and B over a graph.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    >>> adapted = lora(net, rank=2)
    >>> {name: tuple(p.shape) for name, p in adapted.named_parameters() if p.requires_grad}
    {'0.adapter.a': (2, 64), '0.adapter.b': (32, 2), '2.adapter.a': (2, 32), '2.adapter.b': (10, 2)}
    >>> x = torch.ones(1, 64)
    >>> torch.equal(adapted(x), net(x))
    True
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"`module` must be a torch.nn.Module, got {shown(module)}")
    rank = check_int("rank", rank, minimum=1)
    scale = 1.0 if alpha is None else check_positive("alpha", alpha) / rank
    twin = copy.deepcopy(module).requires_grad_(False)
    for name in _layers_named("also", also, twin):
        twin.get_submodule(name).requires_grad_(True)
    chosen = dict.fromkeys(map(twin.get_submodule, _layers_named("layers", layers, twin)))
    frozen = [own for own in chosen if not any(p.requires_grad for p in own.parameters())]
    attentions = [layer for layer in frozen if isinstance(layer, nn.MultiheadAttention)]
    linear = [layer for layer in frozen if type(layer) is nn.Linear]
    if not attentions and not linear:
        raise ValueError(
            "`layers` must match an nn.Linear or nn.MultiheadAttention that is not trained as a "
            f"whole, got {shown(layers)}"
        )
    with built_from_seed_0():
        for layer in attentions:
            _adapt_attention(layer, rank, scale)
        adapted = {id(layer): _LowRank(layer, rank, scale) for layer in linear}
    return _replaced(twin, adapted)


def _layers_named(argument: str, patterns: str | Sequence[str], module: nn.Module) -> list[str]:
    """Return the names of the layers that match some patterns; raise if one matches none."""
    names = [name for name, _ in module.named_modules()]
    found = list[str]()
    for pattern in [patterns] if isinstance(patterns, str) else check_sequence(argument, patterns):
        own = [name for name in names if fnmatchcase(name, str(pattern))]
        if not own:
            raise ValueError(
                f"`{argument}` must be names of layers, {shown(pattern)} matches none"
                f"{did_you_mean(str(pattern), names)}; they are {', '.join(names[1:])}"
            )
        found += own
    return found


class _Adapter(nn.Module):
    """The product ``scale * B A`` that is added to a weight (out, in)."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        out, inside = weight.shape
        check_int("rank", rank, minimum=1, maximum=min(out, inside), maximum_name="a weight's side")
        self.scale = scale
        self.a = nn.Parameter(torch.empty(rank, inside, dtype=weight.dtype, device=weight.device))
        self.b = nn.Parameter(torch.empty(out, rank, dtype=weight.dtype, device=weight.device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw A as the weight of a linear layer, and set B to 0."""
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        nn.init.zeros_(self.b)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the adapted weight."""
        return weight + self.scale * (self.b @ self.a)


class _LowRank(nn.Module):
    """A frozen linear layer and its adapter, whose product is only formed if it is read."""

    def __init__(self, frozen: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.frozen, self.adapter = frozen, _Adapter(frozen.weight, rank, scale)

    @property
    def weight(self) -> Tensor:
        """The adapted weight, which torch's transformer layers read in evaluation."""
        return self.adapter(self.frozen.weight)

    @property
    def bias(self) -> Tensor | None:
        """The bias, which is frozen."""
        return self.frozen.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return ``W x + b + scale * B (A x)``."""
        low = nn.functional.linear(x, self.adapter.a)
        return self.frozen(x) + self.adapter.scale * nn.functional.linear(low, self.adapter.b)


def _adapt_attention(layer: nn.MultiheadAttention, rank: int, scale: float) -> None:
    """Adapt the weights of a layer of attention, which reads them in one function, in place."""
    for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        if (weight := getattr(layer, name)) is not None:
            parametrize.register_parametrization(layer, name, _Adapter(weight, rank, scale))
    adapter = _Adapter(layer.out_proj.weight, rank, scale)
    parametrize.register_parametrization(layer.out_proj, "weight", adapter)


@public
def of_kinds(networks: Sequence[nn.Module], kinds: Sequence[int]) -> nn.Module:
    """Return the model of a run whose nodes have networks of different architectures.

    Layers that have the same name, type, arguments and shapes in all networks are one layer, of
    which every node has its own parameters, as of any model: these can be exchanged, as by
    ``algorithms.fedper(lr=0.1, head=algorithms.part("head").rest)``. They keep their names, and
    start from the values of the first network. All others are called ``networks.0.conv.weight``
    and so on. Only nodes of one kind use them, so that a method that averages them is refused.

    Nodes are trained one after another. A row of the models holds the parameters of all kinds.

    Parameters
    ----------
    networks
        The networks. They take the same examples (b, ...) and return outputs of the same shape, for
        example logits (b, classes); none is modified.
    kinds
        (n,) the index of each node's network.

    Returns
    -------
    torch.nn.Module
        Its ``networks`` are the copies, of which it applies the one of its buffer ``kind``, ().
        In a run, this starts from the node's entry in ``node_buffers``.

    Raises
    ------
    TypeError
        If a network is none, or cannot be copied.
    ValueError
        If there are fewer than two networks, if a kind is not an index of `networks`, if a network
        is of no node, or has a layer called ``kind``, ``kinds`` or ``networks``.

    Examples
    --------
    Two kinds of nodes with their own first layers, which average their last:

    >>> from collections import OrderedDict
    >>> import topofl
    >>> from topofl import algorithms, data
    >>> def network(width):
    ...     layers = {"flat": nn.Flatten(), "first": nn.Linear(64, width), "relu": nn.ReLU(),
    ...               "second": nn.Linear(width, 16), "head": nn.Linear(16, 10)}
    ...     return nn.Sequential(OrderedDict(layers))
    >>> model = of_kinds([network(8), network(32)], kinds=[0, 0, 1, 1])
    >>> [name for name, _ in model.named_parameters()][:2]
    ['head.weight', 'head.bias']
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> own = algorithms.part("head").rest
    >>> history = topofl.run(algorithms.fedper(lr=0.1, epochs=1, head=own), model=model,
    ...                      clients=clients, rounds=2, seed=0)
    >>> bool((history.models.flat[:, :170] == history.models.flat[0, :170]).all())
    True
    """
    nets = [copy.deepcopy(net) for net in check_sequence("networks", networks)]
    for net in nets:
        if not isinstance(net, nn.Module):
            raise TypeError(f"`networks` must be torch.nn.Modules, got {shown(net)}")
    if len(nets) < 2:
        raise ValueError(
            f"`networks` must be at least two, got {len(nets)}; give a run one network as it is"
        )
    of_nodes = [
        check_int("kinds", kind, minimum=0, maximum=len(nets) - 1, maximum_name="len(networks) - 1")
        for kind in check_sequence("kinds", kinds)
    ]
    if unused := sorted(set(range(len(nets))) - set(of_nodes)):
        raise ValueError(
            f"`kinds` must contain every index of `networks`, {unused[0]} is of no node; leave out "
            "that network"
        )
    if taken := {"kind", "kinds", "networks"} & {
        name for net in nets for name, _ in net.named_children()
    }:
        raise ValueError(
            f"`networks` must not have layers called {min(taken)!r}, which the model of all kinds "
            "has; rename them"
        )
    return _OfKinds(nets, of_nodes)


class _OfKinds(nn.Module):
    """One of several networks, by the buffer ``kind``, of which each node has its own."""

    kind: Tensor
    kinds: Tensor

    def __init__(self, networks: Sequence[nn.Module], kinds: Sequence[int]) -> None:
        super().__init__()
        for name in list(_equal_layers(networks)):
            above, _, own = name.rpartition(".")
            layer = networks[0].get_submodule(name)
            for network in networks[1:]:
                network.get_submodule(above).register_module(own, layer)
            place: nn.Module = self
            for part in above.split(".") if above else ():
                if part not in place._modules:
                    place.register_module(part, nn.Module())
                place = place.get_submodule(part)
            place.register_module(own, layer)
        self.networks = nn.ModuleList(networks)
        self.register_buffer("kind", torch.zeros((), dtype=torch.int64, device="cpu"))
        self.register_buffer("kinds", torch.tensor(kinds, dtype=torch.int64, device="cpu"))

    @property
    def node_buffers(self) -> dict[str, Tensor]:
        """The values from which each node's own buffers start, (n, ...) by name."""
        return {"kind": self.kinds}

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the network of one kind."""
        return self.networks[int(self.kind)](x)


def _equal_layers(layers: Sequence[nn.Module], above: str = "") -> Iterator[str]:
    """Yield the names of the largest layers inside that are the same in all networks."""
    first, *others = layers
    for own, child in first.named_children():
        children = [child, *(other._modules.get(own) for other in others)]
        if not all(isinstance(one, nn.Module) for one in children):
            continue
        if any(True for _ in child.parameters()) and all(
            _are_equal(child, one) for one in children[1:]
        ):
            yield above + own
        else:
            yield from _equal_layers(children, f"{above}{own}.")


def _are_equal(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two layers differ in the values of trained parameters at most."""
    parts = [list(layer.named_modules()) for layer in (one, other)]
    names = [[(name, type(m)) for name, m in part] for part in parts]
    if names[0] != names[1]:
        return False
    pairs = zip(*(map(_facts, (m for _, m in part)) for part in parts), strict=True)
    return all(
        a.keys() == b.keys() and all(_is_same(x, b[name]) for name, x in a.items())
        for a, b in pairs
    )


def _facts(layer: nn.Module) -> dict[str, Any]:
    """Return what determines a layer, but for its children: of trained parameters their shapes."""
    own = {k: v for k, v in vars(layer).items() if k not in ("_parameters", "_buffers", "_modules")}
    for name, p in layer.named_parameters(recurse=False):
        own[f"{name} "] = p.shape if p.requires_grad else p.detach()
    return own | dict(layer.named_buffers(recurse=False))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    try:
        return one is other or bool(one == other)
    except (RuntimeError, ValueError):  # of arrays, for example
        return False
