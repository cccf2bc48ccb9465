"""A network as runs train it: the buffers that a forward changes, and the numbers that it draws.

Each node has its own rows of such buffers, and each node and step its own random numbers, which
depend on neither executor, chunk, nor number of ranks.
"""

import copy
import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from topofl._support.public import warn_caller
from topofl._support.seeding import NoGeneratorError, seeded_torch

Drawing = Callable[[Tensor], AbstractContextManager[object]]
"""Key of a node and step, an int64 -> context in which its model draws random numbers from it.

Keys are batched where models are, by ``torch.func.vmap``.
"""


class Network(NamedTuple):
    """A network, and what a forward of it does in training.

    Attributes
    ----------
    module
        The network in evaluation mode, on the device and in the dtype of the run.
    buffers
        Names of the buffers that a forward in training changes, such as running statistics.
    drawing
        How it draws random numbers in training; None: it draws none.
    smallest
        Fewest examples of a minibatch on which it can be trained.
    coupled
        Whether its outputs for an example depend on the others in training.
    starts
        By name, (n, *shape): the values from which each node's own buffer starts, where they
        differ between nodes; see :func:`starts_of`.
    partial
        Names of the parameters that only some of the nodes use, by what their buffers start from.
    smallest_of_nodes
        For each node, `smallest` of its kind; empty if no buffers start apart.
    """

    module: nn.Module
    buffers: tuple[str, ...] = ()
    drawing: Drawing | None = None
    smallest: int = 1
    coupled: bool = False
    starts: Mapping[str, Tensor] = MappingProxyType({})
    partial: tuple[str, ...] = ()
    smallest_of_nodes: tuple[int, ...] = ()

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the buffers that a forward in training changes."""
        return tuple(name for name in self.buffers if name not in self.starts)

    @property
    def unpadded(self) -> bool:
        """Whether outputs in training may depend on padding, so that minibatches have none."""
        return bool(self.statistics) or self.drawing is not None or self.coupled


def copy_of_trained(module: nn.Module) -> nn.Module:
    """Return a copy of a network that shares its frozen parameters, which nothing changes."""
    return copy.deepcopy(module, {id(p): p for p in module.parameters() if not p.requires_grad})


def starts_of(module: nn.Module, n: int) -> dict[str, Tensor]:
    """Return the values (n, *shape) from which a network wants its nodes' buffers to start.

    A network names them in an attribute ``node_buffers``, as :func:`topofl.models.of_kinds` does.
    Such a buffer stays its node's own, and is neither sent nor averaged.

    Raises
    ------
    ValueError
        If they are not one row of the buffer's shape for each node.

    Examples
    --------
    >>> net = nn.BatchNorm1d(3)
    >>> net.node_buffers = {"running_mean": torch.arange(6.0).view(2, 3)}
    >>> starts_of(net, n=2)["running_mean"].tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    starts, buffers = dict(getattr(module, "node_buffers", {})), dict(module.named_buffers())
    for name, rows in starts.items():
        if name not in buffers or not isinstance(rows, Tensor):
            raise ValueError(
                f"`model` must name its buffers in `node_buffers`, with tensors, got {name!r}; "
                f"they are {', '.join(buffers) or 'none'}"
            )
        shape = (n, *buffers[name].shape)
        if tuple(rows.shape) != shape:
            raise ValueError(
                f"`model` must have one value of {name!r} for each of n={n} nodes, shape {shape}, "
                f"got {tuple(rows.shape)}; give one kind per node, or one network to a method "
                "that pools the clients"
            )
    return starts


def one_of_each_kind(starts: Mapping[str, Tensor]) -> list[int]:
    """Return the first node of each kind: nodes whose buffers start alike are of one kind."""
    kinds = kinds_of_nodes(starts) or [0]
    return [kinds.index(kind) for kind in range(max(kinds) + 1)]


def kinds_of_nodes(starts: Mapping[str, Tensor]) -> list[int]:
    """Return the kind of each node, numbered by their first nodes; empty if all are of one kind."""
    rows = zip(*(x.reshape(len(x), -1).tolist() for x in starts.values()), strict=True)
    numbers = dict[str, int]()
    return [numbers.setdefault(str(row), len(numbers)) for row in rows]


def as_node(module: nn.Module, starts: Mapping[str, Tensor], node: int) -> nn.Module:
    """Return a network whose buffers are set, in place, to those from which a node starts."""
    for name, x in starts.items():
        module.get_buffer(name).copy_(x[node])
    return module


def joined(
    kinds: Sequence[Network], starts: Mapping[str, Tensor], partial: Sequence[str]
) -> Network:
    """Return one network from what it does for each kind of nodes."""
    buffers = dict.fromkeys([*starts, *(name for kind in kinds for name in kind.buffers)])
    drawings = [kind.drawing for kind in kinds if kind.drawing is not None]
    return Network(
        kinds[0].module,
        tuple(buffers),
        seeded if seeded in drawings else next(iter(drawings), None),
        max(kind.smallest for kind in kinds),
        any(kind.coupled for kind in kinds),
        starts,
        tuple(partial),
        tuple(kinds[kind].smallest for kind in kinds_of_nodes(starts)),
    )


class _Forward(NamedTuple):
    """A forward in training: its output, what changed in layers, and what was drawn.

    What layers are given and return are digests, since adapters return whole weights. Draws of
    generators other than torch's are the names of these by layer.
    """

    output: object
    passed: Mapping[str, bytes]
    buffers: tuple[str, ...]
    attributes: list[str]
    drawn: list[str]
    others: Mapping[str, str]
    masks: int


def network_of(module: nn.Module, inputs: Tensor) -> Network:
    """Return a network, with what a forward of it in training changes and draws.

    Warns of attributes that it changes, since these are neither buffers nor kept per node.

    Parameters
    ----------
    module
        The network, in evaluation mode.
    inputs
        One or two examples.

    Raises
    ------
    ValueError
        If it cannot take the examples in training; if it replaces a buffer instead of changing it
        in place; if it draws random numbers that torch's seed does not determine.
    """
    smallest = 1
    try:
        found = _forward(module, inputs[:1])
    except _ForwardError:
        smallest = 2
        found = _forward(module, inputs)
    again = _forward(module, inputs[:smallest])
    others = dict(found.others)
    for name, digest in found.passed.items():
        if again.passed.get(name, digest) != digest:
            others.setdefault(name.partition(_CALLS)[0], "numpy")  # which gives others inputs
    for name, whose in others.items():
        raise ValueError(
            "`model` must draw random numbers by torch's functions, so that runs can be "
            f"repeated, but {name or type(module).__name__!r} draws others, as of {whose}; use "
            "torch.nn.functional.dropout, or torch.rand"
        )
    if found.attributes:
        name = found.attributes[0].rpartition(".")[2]
        warn_caller(
            f"`model` changes the attribute {found.attributes[0]!r} in a forward pass, which is "
            "neither kept per node nor saved; make it a buffer by "
            f"self.register_buffer({name!r}, ...), and change that in place"
        )
    drawing = seeded if found.drawn else Masks if found.masks else None
    coupled = False
    if smallest == 1 and drawing is None and len(inputs) > 1:
        together, alone = _forward(module, inputs[:2]).output, found.output
        if isinstance(alone, Tensor) and isinstance(together, Tensor):
            coupled = not torch.allclose(alone, together[:1], rtol=1e-2, atol=1e-3, equal_nan=True)
    return Network(module, found.buffers, drawing, smallest, coupled)


_CALLS = " calls "
"""Stands between the names of a layer and of one that it calls, in the name of what it gives it."""


class _ForwardError(ValueError):
    """Raised if a network cannot take examples in training."""


def _forward(module: nn.Module, inputs: Tensor) -> _Forward:
    """Return what a forward of a copy in training does, with masks from one key."""
    own = copy_of_trained(module).train()
    before = dict(own.named_buffers())
    values = {name: (buffer._version, buffer.clone()) for name, buffer in before.items()}
    attributes = _attributes(own)
    passed, inside = dict[str, bytes](), list[str]()

    names = {layer: name for name, layer in own.named_modules()}

    def enter(layer: nn.Module, given: tuple[object, ...]) -> None:
        caller = inside[-1] if inside else ""
        inside.append(names[layer])
        if given and isinstance(given[0], Tensor):
            passed[f"{caller}{_CALLS}{names[layer]}"] = _digest(given[0])

    def leave(_layer: nn.Module, _inputs: object, output: object) -> None:
        name = inside.pop()
        if isinstance(output, Tensor):
            passed[name] = _digest(output)

    for layer in names:
        layer.register_forward_pre_hook(enter)
        layer.register_forward_hook(leave)
    masks = Masks(torch.zeros((), dtype=torch.int64, device=inputs.device))
    try:
        with seeded_torch(0) as drawn, masks, torch.no_grad(), _other_draws(own, inside) as others:
            output = own(inputs)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except NoGeneratorError as error:
        raise ValueError(
            f"`model` must draw random numbers by operations that can be seeded, but {error} on "
            f"{inputs.device.type}; set its dropout to 0, or train on another device"
        ) from error
    except Exception as error:  # whatever the user's forward raises
        raise _ForwardError(
            f"`model` must take examples of shape {tuple(inputs.shape[1:])} in training mode, too, "
            f"got {error!r}"
        ) from error
    after = dict(own.named_buffers())
    for name, buffer in before.items():
        if after.get(name) is not buffer:
            raise ValueError(
                f"`model` must change its buffers in place, {name!r} is replaced in a forward "
                "pass; write self.buffer.copy_(values)"
            )
    layers = {  # a kernel may change values without noting it, or not change them by chance
        name.rpartition(".")[0]
        for name, (version, old) in values.items()
        if after[name]._version > version or not _same(old, after[name])
    }
    changed = tuple(name for name in values if name.rpartition(".")[0] in layers)
    now = _attributes(own)
    other = [name for name, old in attributes.items() if not _equal(old, now.get(name, old))]
    return _Forward(output, passed, changed, other, list(drawn), others, masks.calls)


def _digest(x: Tensor) -> bytes:
    """Return a hash of the numbers of a tensor, all NaN being one number."""
    numbers = x.detach().nan_to_num().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(numbers.numpy().tobytes()).digest()


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one != one)).all())


_SCALARS = (bool, int, float, str, bytes, type(None))
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return copies of attributes of layers that are neither parameters, buffers nor objects."""
    found = {}
    for prefix, layer in module.named_modules():
        for name, value in vars(layer).items():
            items = value if isinstance(value, list | tuple | set) else [value]
            items = [*value, *value.values()] if isinstance(value, dict) else items
            plain = all(isinstance(item, _SCALARS) for item in items)
            if name not in _OF_EVERY_MODULE and (plain or isinstance(value, Tensor | np.ndarray)):
                found[f"{prefix}.{name}" if prefix else name] = copy.deepcopy(value)
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and _same(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other or one != one)


def _states(module: nn.Module) -> dict[str, Any]:
    """Return the states of generators that layers hold, by layer, with whose they are."""
    found = {}
    for name, layer in module.named_modules():
        for value in vars(layer).values():
            if isinstance(value, random.Random):
                found[name] = ("Python's random", repr(value.getstate()))
            elif isinstance(value, np.random.RandomState):
                found[name] = ("numpy", repr(value.get_state()))
            elif isinstance(value, np.random.Generator):
                found[name] = ("numpy", repr(value.bit_generator.state))
    return found


@contextmanager
def _other_draws(module: nn.Module, inside: Sequence[str]) -> Iterator[dict[str, str]]:
    """Note layers that draw from generators which they hold, or from Python's in this thread.

    The last of those that are `inside` of their forward draws from Python's.
    """
    found, before = dict[str, str](), _states(module)

    def note(_frame: object, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__self__", None) is random.random.__self__:
            found.setdefault(inside[-1] if inside else "", "Python's random")

    watched = sys.getprofile() is None  # not while the caller profiles
    if watched:
        sys.setprofile(note)
    try:
        yield found
    finally:
        if watched:
            sys.setprofile(None)
    after = _states(module)
    found |= {name: whose for name, (whose, old) in before.items() if after[name][1] != old}


def seeded(key: Tensor) -> AbstractContextManager[object]:
    """Return a context in which torch draws from one key; models that enter it are not batched."""
    return seeded_torch(int(key) & (2**63 - 1))


_FACTORS = (0x2545F4914F6CDD1D, 0x369DEA0F31A53F85)
"""Odd numbers by which the bits of a mask are mixed."""

_SATURATED = -1.7580993408473766
"""What alpha dropout puts in the place of a dropped value: the limit of SELU."""

_BY_CHANNEL = {
    functional.dropout1d: (3,),
    functional.dropout2d: (4,),
    functional.dropout3d: (5,),
    functional.feature_alpha_dropout: (2, 3, 4, 5),
}
"""Functions that drop whole channels, and the numbers of axes of their inputs."""

_DROPOUTS = (functional.dropout, functional.alpha_dropout, *_BY_CHANNEL)

# Within a mode, the function itself would be looked up again, and what it calls would not be.
_attention_forward = FunctionType(
    functional.multi_head_attention_forward.__code__,
    {**functional.multi_head_attention_forward.__globals__, "has_torch_function": lambda _: False},
    argdefs=functional.multi_head_attention_forward.__defaults__,
)


class Masks(TorchFunctionMode):
    """Answers dropout by masks hashed from a key, the number of the call, and the position.

    The same key gives the same bits to models that are batched or looped. Other functions, and
    dropout of inputs of other shapes, draw from torch's generators.

    Examples
    --------
    >>> ones = torch.ones(8)
    >>> with Masks(torch.tensor(3)):
    ...     functional.dropout(ones), functional.dropout(ones)
    (tensor([2., 0., 2., 2., 2., 0., 0., 0.]), tensor([0., 0., 0., 2., 0., 2., 2., 0.]))
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key, self.calls = key, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, or answer dropout."""
        del types
        kwargs = kwargs or {}
        if func in _DROPOUTS and (args[0] if args else kwargs["input"]).dim() in _BY_CHANNEL.get(
            func, range(99)
        ):
            return self._dropped(func, *args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            return self._attended(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            with self:
                return _attention_forward(*args, **kwargs)
        return func(*args, **kwargs)

    def _kept(self, shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
        """Return a mask of the values that are kept with probability 1 - p, to 20 bits."""
        self.calls += 1
        count = torch.Size(shape).numel()
        bits = (self.key ^ (self.calls << 40)) + torch.arange(
            count, dtype=torch.int64, device=device
        )
        for factor in _FACTORS:
            bits = (bits ^ ((bits >> 31) & 0x1FFFFFFFF)) * factor
        return (((bits >> 20) & 0xFFFFF) >= round(p * 2**20)).view(shape)

    def _dropped(
        self, func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return input
        shape = tuple(input.shape)
        if func in _BY_CHANNEL:
            shape = (*shape[:2], *(1 for _ in shape[2:]))
        kept = self._kept(shape, p, input.device)
        if func in (functional.alpha_dropout, functional.feature_alpha_dropout):
            scale = ((1 - p) * (1 + p * _SATURATED**2)) ** -0.5 if p < 1 else 0.0
            found = scale * (torch.where(kept, input, _SATURATED) - _SATURATED * p)
        else:
            found = input * kept / (1 - p) if p < 1 else torch.zeros_like(input)
        return input.copy_(found) if inplace else found

    def _attended(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p == 0 or enable_gqa:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                enable_gqa=enable_gqa,
            )  # fmt: skip
        scores = (
            query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        )
        if is_causal:
            ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
            scores = scores.masked_fill(~ones.tril(), -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        hidden = scores.isneginf().all(-1, keepdim=True)  # rows of padding, which see nothing
        weights = scores.softmax(-1).masked_fill(hidden, 0)
        return self._dropped(functional.dropout, weights, dropout_p) @ value
