"""Random streams as functions of seed, purpose and keys; contexts without torch's global state."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from topofl._support.check import check_int

Seed: TypeAlias = int | np.random.Generator
"""A seed, or a random generator from which numbers are drawn."""


def stream(seed: Seed, purpose: str, *keys: int) -> np.random.Generator:
    """Return a random generator that depends on seed, purpose and keys only.

    Parameters
    ----------
    seed
        Non-negative integer; a generator is returned unchanged, and `purpose` and `keys` are
        ignored.
    purpose
        Name of the purpose; streams for different purposes are independent.
    keys
        Further non-negative integers, for example round and node.

    Examples
    --------
    >>> int(stream(0, "graph").integers(1000)) == int(stream(0, "graph").integers(1000))
    True
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.Generator(np.random.Philox(_seed_sequence(seed, purpose, *keys)))


def seed_of(rng: np.random.Generator, purpose: str) -> int | None:
    """Return the seed of a :func:`stream` for a purpose; None for any other generator.

    Examples
    --------
    >>> seed_of(stream(7, "graph"), "graph"), seed_of(np.random.default_rng(7), "graph")
    (7, None)
    """
    sequence = rng.bit_generator.seed_seq
    if not isinstance(sequence, np.random.SeedSequence) or not isinstance(sequence.entropy, int):
        return None
    return sequence.entropy if sequence.spawn_key == _spawn_key(purpose) else None


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """Return a 63-bit seed for a ``torch.Generator``, a pure function of its arguments."""
    return int(_seed_sequence(seed, purpose, *keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _seed_sequence(seed: int, purpose: str, *keys: int) -> np.random.SeedSequence:
    seed = check_int("seed", seed, minimum=0)
    # The number of keys is part of the key: SeedSequence pads with zeros, and (purpose,) is not
    # (purpose, 0).
    return np.random.SeedSequence(seed, spawn_key=_spawn_key(purpose, *keys))


def _spawn_key(purpose: str, *keys: int) -> tuple[int, ...]:
    return (zlib.crc32(purpose.encode()), len(keys), *keys)


def random_keys(seed: int | np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return 64 random bits for each pair (row key, column key), by a counter-based hash.

    Unlike a generator it has no state, so that node i's numbers do not depend on which other nodes
    are computed with it. The hash is the finalizer of SplitMix64 (Steele, Lea and Flood 2014)
    applied in two rounds.

    Parameters
    ----------
    seed
        64-bit seed, for example from :func:`torch_seed`; or (r,) uint64, one for each row.
    rows, columns
        Integer vectors of lengths r and c.

    Returns
    -------
    numpy.ndarray
        Shape (r, c), uint64.
    """
    with np.errstate(over="ignore"):
        row_state = _splitmix(np.asarray(rows, np.uint64) + np.asarray(seed, np.uint64))
        return _splitmix(row_state[:, None] ^ (np.asarray(columns, np.uint64) * _GOLDEN)[None, :])


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _splitmix(state: np.ndarray) -> np.ndarray:
    z = state + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class NoGeneratorError(RuntimeError):
    """Raised if an operation of torch draws random numbers but accepts no generator."""


@contextmanager
def seeded_torch(seed: int) -> Iterator[list[str]]:
    """Seed torch's random operations in a ``with`` block, without its global generators.

    In this thread, operations draw the numbers that they would draw right after
    ``torch.manual_seed(seed)``. Torch's global generators are neither read nor advanced: other
    threads may use them, or enter such a block, at the same time. Operations that are given a
    generator use that one. The global generators of numpy and Python are not affected.

    Parameters
    ----------
    seed
        Seed of the block's generators, one per device.

    Yields
    ------
    list of str
        Torch's names of the operations that have drawn from these generators so far.

    Raises
    ------
    NoGeneratorError
        If an operation inside the block draws random numbers but accepts no generator, for example
        dropout on a GPU.

    Examples
    --------
    >>> with seeded_torch(0) as drawn:
    ...     numbers = torch.rand(3)
    >>> drawn, torch.equal(numbers, torch.rand(3, generator=torch.Generator().manual_seed(0)))
    (['aten.rand.default'], True)
    """
    with _SeededGenerators(seed) as mode:
        yield mode.drawn


class _SeededGenerators(TorchDispatchMode):
    """Dispatch mode that passes generators to random operations; torch's modes are per thread."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn: list[str] = []
        self._seed = seed
        self._generators = dict[torch.device, torch.Generator]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch loads its compiler, which takes two seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation, passing a generator if it would use a global one."""
        del types
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        device = _device_of(given)
        if device.type == "meta" or not _draws(func, given):
            return func(*args, **kwargs)
        with self:  # in inference mode, compound operations are not decomposed yet
            if (result := func.decompose(*args, **kwargs)) is not NotImplemented:
                return result
        self.drawn.append(str(func))
        return _draw_from(self._generator(device), func, given)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def _device_of(given: Mapping[str, Any]) -> torch.device:
    """Return the device on which an operation with these arguments draws random numbers."""
    found = next((x.device for x in given.values() if isinstance(x, torch.Tensor)), None)
    return torch.device(given.get("device") or found or "cpu")


def _draws(func: Any, given: Mapping[str, Any]) -> bool:
    """Return whether an operation uses a global generator if called with these arguments."""
    values = {one.name: given.get(one.name, one.default_value) for one in func._schema.arguments}
    is_off = values.get("dropout_p", 1) == 0 or values.get("dropout", 1) == 0
    is_off |= values.get("train", True) is False or values.get("training", True) is False
    return values.get("generator") is None and not is_off


_WITH_GENERATOR = {
    "default": "generator",
    "out": "generator_out",
    "low": "low_generator",
    "low_out": "low_generator_out",
    "low_dtype": "low_generator_dtype",
    "Tensor": "Tensor_generator",
}
"""For each overload without a generator, the overload that accepts one."""

_FILL_METHODS = {"aten.rand_like.default": "uniform_", "aten.randn_like.default": "normal_"}
"""Operations that accept no generator in torch 2.6, and the in-place method that replaces each."""


def _draw_from(generator: torch.Generator, func: Any, given: dict[str, Any]) -> Any:
    """Return the result of an operation that draws its random numbers from `generator`."""
    if any(argument.name == "generator" for argument in func._schema.arguments):
        return func(**given | {"generator": generator})
    if (fill := _FILL_METHODS.get(str(func))) is not None:
        empty = torch.empty_like(given.pop("self"), **given)
        return getattr(empty, fill)(generator=generator)
    overload = _WITH_GENERATOR.get(func._overloadname, "")
    if overload in func.overloadpacket.overloads():
        return getattr(func.overloadpacket, overload)(**given, generator=generator)
    raise NoGeneratorError(f"{func} draws random numbers but takes no generator")


P = ParamSpec("P")
R = TypeVar("R")


def plain_torch(device: Any = None) -> ExitStack:
    """Return a context with torch's default modes in the calling thread, and `device` as default.

    Inference mode, ``torch.no_grad`` and autocast are off, and tensors created without a device are
    created on `device`. Only modes that differ from their defaults are reset, so that the context
    is free if none does. The default dtype is shared by all threads and is not changed.

    Parameters
    ----------
    device
        A device, such as ``"cuda:0"``; the CPU if it is None or not a valid device.

    Examples
    --------
    >>> with torch.device("meta"), torch.inference_mode(), plain_torch():
    ...     torch.zeros(2).device, torch.is_inference_mode_enabled()
    (device(type='cpu'), False)
    """
    stack = ExitStack()
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    if not torch.is_grad_enabled():
        stack.enter_context(torch.enable_grad())
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            stack.enter_context(torch.autocast(kind, enabled=False))
    try:
        default = torch.get_default_device()
    except (AssertionError, RuntimeError):  # it does not exist on this machine
        default = None
    if default != torch.device("cpu"):
        stack.enter_context(_device_or_cpu(device))
    return stack


def in_plain_torch(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function to run in :func:`plain_torch` on the device of its keyword `compute`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        compute: Any = kwargs.get("compute")
        with plain_torch(getattr(compute, "device", compute)):
            return function(*args, **kwargs)

    return call


def _device_or_cpu(device: Any) -> torch.device:
    try:
        return torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):  # the wrapped function raises its own error
        return torch.device("cpu")
