"""Simulated CUDA device, computed on CPU.

Inside ``with SimulatedDevice() as device:`` the device ``"cuda"`` exists: tensors created on it or
moved to it are CPU tensors with tagged storage. They report the device ``cuda:0``, as do results
computed from them, so that code takes the same branches as on a GPU.

Simulated
    Placement of tensors: ``.device``, ``.is_cuda``, ``device=``, ``.to``, ``.cpu``, ``.cuda``.
    Operations with operands on both devices are refused as in torch, except for 0-dimensional host
    tensors in elementwise operations, which CUDA accepts; so are ``.numpy()``, ``np.asarray`` and
    DLPack. Waits of the host for the device and copies to the device are recorded, each with the
    line of ``topofl`` that caused it. ``torch.cuda.is_available``, ``mem_get_info`` and
    ``synchronize`` are replaced.

Not simulated
    Kernels (results are bitwise those of the CPU), streams, memory limits, device generators,
    autocast, CUDA graphs and waits for memory allocation. Threads other than the one that entered
    the context see a machine without the device.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import topofl

__all__ = ["DEVICES", "DeviceError", "Event", "SimulatedDevice", "summary"]

PARSE = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue]
WRAPPED = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportAttributeAccessIssue]
UNWRAP = torch._C._functorch.get_unwrapped  # pyright: ignore[reportAttributeAccessIssue]
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
SOURCES = str(Path(topofl.__file__).parent)

WAITING = {
    "_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "bincount",
    "_unique", "_unique2", "unique_dim", "unique_consecutive", "histc", "allclose",
    "linalg_eig", "_linalg_eigh", "_linalg_svd", "linalg_qr", "linalg_lstsq", "linalg_cholesky",
    "linalg_inv", "_assert_async",
}  # fmt: skip
"""Operations whose result, or its size, the host must know."""

FROM_HOST = {
    "where",
    "masked_fill",
    "masked_fill_",
    "fill_",
    "index_put",
    "index_put_",
    "_index_put_impl_",
}
"""Operations that accept a 0-dimensional host tensor although they are not elementwise."""

CONVERTING = (
    torch.tensor,
    torch.as_tensor,
    torch.asarray,
    torch.sparse_csr_tensor,
    torch.sparse_coo_tensor,
)
"""Functions that create tensors from data, and copy it if it is on the other device."""

REFUSED = ("numpy", "__array__", "__dlpack__")
"""Methods of a tensor that only work on the host."""


class DeviceError(RuntimeError):
    """Error of an operation that a GPU cannot perform."""


class Event(NamedTuple):
    """A wait of the host for the device, or a copy to the device.

    Attributes
    ----------
    kind
        ``"upload"``, or the reason why the host waits.
    file, line, function
        Place in the package that caused it.
    """

    kind: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.file}:{self.line} in {self.function}"


class SimulatedDevice(TorchFunctionMode):
    """Context in which the device ``"cuda"`` exists.

    Attributes
    ----------
    events
        Waits for the device and copies to it, in order of occurrence.
    operands
        Operands of the function that is being computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.operands: tuple[Any, ...] = ()
        # weak references prevent the reuse of addresses
        self._storages: dict[int, StorageWeakRef] = {}
        self._operations = _Operations(self)
        self._stack = ExitStack()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch loads its compiler, which takes two seconds

    def __enter__(self) -> "SimulatedDevice":
        answers = {
            "is_available": lambda: True,
            "mem_get_info": lambda device=None: (2**40, 2**40),
            "synchronize": lambda device=None: self.wait("synchronize"),
            "is_bf16_supported": lambda including_emulation=True: True,
        }
        for name, answer in answers.items():
            self._stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        self._stack.enter_context(self._operations)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stack.close()

    @property
    def waits(self) -> list[Event]:
        """Waits of the host for the device."""
        return [event for event in self.events if event.kind != "upload"]

    @property
    def uploads(self) -> list[Event]:
        """Copies from the host to the device."""
        return [event for event in self.events if event.kind == "upload"]

    def holds(self, x: Tensor) -> bool:
        """Whether a tensor is on the device."""
        if x.layout == torch.strided and not WRAPPED(x):
            return _key(x.untyped_storage()) in self._storages
        return any(key in self._storages for key in map(_key, _storages(x)))

    def tag(self, result: Any, on_device: bool = True) -> Any:
        """Tag all tensors of a result as on the device, or as not on it."""
        for storage in (storage for x in _tensors((result,)) for storage in _storages(x)):
            if not on_device:
                self._storages.pop(_key(storage), None)
            elif _key(storage) not in self._storages:
                self._storages[_key(storage)] = StorageWeakRef(storage)
        if len(self._storages) > 20_000:
            self._storages = {key: ref for key, ref in self._storages.items() if not ref.expired()}
        return result

    def wait(self, kind: str) -> None:
        """Record a wait of the host for the device."""
        self.events.append(Event(kind, *_place()))

    def upload(self) -> None:
        """Record a copy to the device."""
        self.events.append(Event("upload", *_place()))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute a torch function as on the device, and note the device that it names."""
        del types
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        x = args[0] if args and isinstance(args[0], Tensor) else None
        if name == "__get__" and x is not None:
            found = _PROPERTIES.get(getattr(func.__self__, "__name__", ""))
            return found if found is not None and self.holds(x) else func(*args)
        if x is not None and name in ("to", "cpu", "cuda"):
            return self._to(x, name, args[1:], kwargs)
        if x is not None and self.holds(x):
            if name in REFUSED:
                raise TypeError(
                    f"can't convert a tensor on cuda:0 by {name}, in {_described_place()}; copy it "
                    "by .cpu() first"
                )
            if name in ("tolist", "__repr__", "__reduce_ex__"):
                self.wait(name)
            if name == "__deepcopy__":
                return self.tag(func(*args, **kwargs))
            if name == "get_device":
                return 0
            if name == "new_tensor":
                self.upload()
                return self.tag(func(*args, **kwargs))
        if kwargs.get("device") is None or func is PARSE:  # which only parses arguments
            return self._computed(func, name, args, kwargs)
        return self._created(func, args, kwargs)

    def _computed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Call a function whose intermediate tensors are on the device of its operands.

        Tensors that torch creates from indices are an exception.
        """
        before = self.operands
        self.operands = () if name in ("__getitem__", "__setitem__") else (*args, *kwargs.values())
        try:
            return func(*args, **kwargs)
        finally:
            self.operands = before

    def _created(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function that creates a tensor on the device named in its arguments."""
        on_device = torch.device(kwargs["device"]).type == "cuda"
        given = list(_tensors((*args, *kwargs.values())))
        held = any(map(self.holds, given))
        if func in CONVERTING:
            if on_device and not held:
                self.upload()
            elif held and not on_device:
                self.wait("copy to the host")
        made = func(*args, **kwargs | ({"device": CPU} if on_device else {}))
        return self.tag(made.clone() if any(made is x for x in given) else made, on_device)

    def _to(self, x: Tensor, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        """Convert a tensor as ``Tensor.to``, ``.cpu`` and ``.cuda`` do, and move it if needed."""
        was = self.holds(x)
        copied = bool(kwargs.pop("copy", False))
        if name == "to":
            like = next(
                (a for a in (*args[:1], kwargs.get("other")) if isinstance(a, Tensor)), None
            )
            kwargs = {("tensor" if key == "other" else key): value for key, value in kwargs.items()}
            target, dtype, _, order = PARSE(*args, **kwargs)
            if target is not None and target.type == "meta":
                return Tensor.to(x, target, dtype or x.dtype)
            if like is not None:
                becomes = self.holds(like)
            else:
                becomes = was if target is None else target.type == "cuda"
        else:
            dtype, order, becomes = None, kwargs.get("memory_format"), name == "cuda"
        options = {} if order is None else {"memory_format": order}
        moved = Tensor.to(x, dtype=dtype or x.dtype, copy=copied or was != becomes, **options)
        if was and not becomes:
            self.wait("copy to the host")
        elif becomes and not was:
            self.upload()
        return moved if was == becomes else self.tag(moved, becomes)


class _Operations(TorchDispatchMode):
    """Intercepts every operation, including those within other functions."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__()
        self._device = device

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse mixed operands, record waits, and tag results."""
        del types
        kwargs = kwargs or {}
        held = [self._device.holds(x) for x in _tensors((*args, *kwargs.values()))]
        if not any(held):
            made = func(*args, **kwargs)
            inside = not held and any(map(self._device.holds, _tensors(self._device.operands)))
            return self._device.tag(made) if inside else made
        name = func.overloadpacket.__name__
        if name in ("copy_", "_copy_from", "copy"):
            self._copied(*held[:2])
            return func(*args, **kwargs)
        if not all(held):
            self._check(func, name, args, kwargs)
        if waits := name if name in WAITING or _by_mask(name, args) else "":
            self._device.wait(waits)
        return self._device.tag(func(*args, **kwargs))

    def _copied(self, into: bool, source: bool) -> None:
        if source and not into:
            self._device.wait("copy to the host")
        elif into and not source:
            self._device.upload()

    def _check(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        """Refuse operands on both devices, except host scalars (0-dimensional) and indices."""
        named = [
            *zip((one.name for one in func._schema.arguments), args, strict=False),
            *kwargs.items(),
        ]
        written = {
            one.name for one in func._schema.arguments if one.alias_info and one.alias_info.is_write
        }
        takes = name in FROM_HOST or torch.Tag.pointwise in func.tags
        for argument, value in named:
            for x in _tensors((value,)):
                if self._device.holds(x):
                    continue
                if argument == "indices" and name in (
                    "index",
                    "index_put",
                    "index_put_",
                    "_index_put_impl_",
                ):
                    self._device.upload()
                elif argument in written or not takes or x.dim():
                    shape = tuple(x.shape)
                    raise DeviceError(
                        f"{name} got operands on cuda:0, and `{argument}` of shape {shape} on cpu, "
                        f"in {_described_place()}"
                    )


def _by_mask(name: str, args: Any) -> bool:
    """Whether an operation finds the true entries of a mask; filling with one number does not."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    masks = [x for x in args[1] if isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8)]
    fills = (
        name != "index"
        and args[2].numel() == 1
        and len(masks) == sum(x is not None for x in args[1])
    )
    return bool(masks) and not fills


_PROPERTIES = {"device": CUDA, "is_cuda": True, "is_cpu": False}


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values and in nested lists and tuples."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _key(storage: torch.UntypedStorage) -> int:
    return storage._cdata


def _storages(x: Tensor) -> Iterator[torch.UntypedStorage]:
    """Yield the storages of a tensor, which may be sparse or wrapped by vmap."""
    while WRAPPED(x):
        x = UNWRAP(x)
    if x.layout == torch.strided:
        yield x.untyped_storage()
    elif x.layout == torch.sparse_csr:
        for part in (x.crow_indices(), x.col_indices(), x.values()):
            yield part.untyped_storage()
    else:
        raise DeviceError(f"tensors of {x.layout} are not simulated")


def _place() -> tuple[str, int, str]:
    """Return file, line and function of the innermost call in the package."""
    frame = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(SOURCES):
        frame = frame.f_back
    if frame is None:
        return "elsewhere", 0, ""
    return (
        frame.f_code.co_filename.removeprefix(SOURCES + "/"),
        frame.f_lineno,
        frame.f_code.co_name,
    )


def _described_place() -> str:
    file, line, function = _place()
    return f"{file}:{line}, {function}"


def summary(events: Sequence[Event]) -> str:
    """Return a table of events and their counts, as text."""
    return "\n".join(f"{count:6d} x {event}" for event, count in sorted(Counter(events).items()))


DEVICES: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "simulated": SimulatedDevice
} | ({"real": nullcontext} if torch.cuda.is_available() else {})
"""Contexts with a device ``"cuda"``: the simulated one, and a GPU if the machine has one."""
