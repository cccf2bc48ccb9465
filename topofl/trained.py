"""Models after the last round: parameters, network, and normalization of inputs."""

import copy
import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topofl._support.arrays import mapped, read_tensors, write_tensors
from topofl._support.check import as_array, check_int, shown

__all__ = ["Normalization", "Trained"]


@dataclass(frozen=True, eq=False)
class Normalization:
    """Normalization of inputs, as models receive them.

    Parameters
    ----------
    shape
        Shape of one example.
    dtype
        Dtype of the stored inputs: uint8 pixels, integers such as token ids, or floating-point
        numbers.
    scale, shift
        Normalization of uint8 pixels, ``pixels * scale + shift``; None for other inputs.

    Examples
    --------
    >>> inputs = Normalization(
    ...     (2,), torch.uint8, scale=torch.tensor(1 / 255), shift=torch.tensor(-0.5)
    ... )
    >>> inputs.apply(torch.tensor([[0, 255]], dtype=torch.uint8), torch.float32)
    tensor([[-0.5000,  0.5000]])
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    scale: Tensor | None = None
    shift: Tensor | None = None

    def apply(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return examples (b, ...) as inputs for models of a dtype."""
        if x.dtype == torch.uint8 and self.scale is not None and self.shift is not None:
            return x.to(dtype).mul_(self.scale).add_(self.shift)
        return x if self.dtype in (torch.int32, torch.int64) else x.to(dtype)


_BUFFER = "buffer "
"""How names of buffers begin in files."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The nodes' models after the last round; ``topofl.History.models``.

    Parameters
    ----------
    shapes
        Shapes of a model's parameters by name, in the order of their columns in `flat`.
    inputs
        Normalization of inputs.
    network
        A network of this structure, whose own parameters are not used. None in a loaded history:
        pass it to the methods that need it.
    flat
        (n, d) on the CPU: row i contains the parameters of node i's model. If loaded from a file,
        it is memory-mapped: read from disk on access.
    buffers
        Buffers of which each node has its own by name, ``(n, *shape)`` each, such as running
        statistics. Other buffers, and parameters with ``requires_grad=False``, are the network's.

    Examples
    --------
    Two nodes' linear models; a run returns such an object as ``history.models``:

    >>> network = nn.Linear(2, 1, bias=False)
    >>> flat = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> trained = Trained({"weight": (1, 2)}, Normalization((2,), torch.float32), network, flat)
    >>> trained
    Trained(n=2, parameters=2)
    >>> trained.state_dict(1)
    {'weight': tensor([[3., 4.]])}
    >>> trained.predict([[1.0, 1.0]], node=1)
    tensor([[7.]])
    """

    shapes: Mapping[str, tuple[int, ...]]
    inputs: Normalization
    network: nn.Module | None
    flat: Tensor
    buffers: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.flat)

    def __repr__(self) -> str:
        n, d = self.flat.shape
        return f"Trained(n={n}, parameters={d})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without a network that cannot be pickled."""
        network, _ = self.network, self.flat  # read, since a mapped file cannot be pickled
        try:
            pickle.dumps(network)
        except Exception:  # modules raise errors of any type
            network = None
        return {**self.__dict__, "network": network}

    def state_dict(self, node: int) -> dict[str, Tensor]:
        """Return a copy of a node's parameters and own buffers by name, for ``load_state_dict``.

        If some parameters of the network are not trained, load with ``strict=False``.

        Raises
        ------
        ValueError, TypeError
            If there is no such node.
        """
        row = self.flat[check_int("node", node, minimum=0, maximum=self.n - 1)].detach()
        sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), row.split(sizes), strict=True)
        found = {name: part.view(shape).clone() for (name, shape), part in parts}
        return found | {name: values[node].clone() for name, values in self.buffers.items()}

    def module(self, node: int, network: nn.Module | None = None) -> nn.Module:
        """Return a copy of the network with a node's parameters, in evaluation mode.

        Parameters
        ----------
        node
            The node.
        network
            A network of the same structure; only needed for a loaded history, since files do not
            contain the network.

        Raises
        ------
        ValueError, TypeError
            If there is no such node, or no network of this structure.
        """
        parameters = self.state_dict(node)
        module = self._copied(network).to(self.flat.dtype)
        module.load_state_dict(parameters, strict=False)  # what is not trained stays the network's
        for name, values in self.buffers.items():  # some of which no state dictionary has
            module.get_buffer(name).copy_(values[node])
        return module

    def _copied(self, network: nn.Module | None) -> nn.Module:
        """Return a copy of the network on the CPU, in evaluation mode."""
        found = self.network if network is None else network
        if found is None:
            raise ValueError(
                "`network` must be given for loaded models, whose files do not contain it, got "
                "None; pass the model that topofl.run was called with"
            )
        if not isinstance(found, nn.Module):
            raise TypeError(f"`network` must be an nn.Module, got {shown(found)}")
        named = found.named_parameters()
        shapes = {name: tuple(one.shape) for name, one in named if one.requires_grad}
        if shapes != dict(self.shapes):
            raise ValueError(
                f"`network` must have parameters {_listed(self.shapes)}, got {_listed(shapes)}; "
                "pass the model that topofl.run was called with"
            )
        return copy.deepcopy(found).cpu().eval()

    @torch.no_grad()
    def predict(self, x: Any, node: int | None = None, network: nn.Module | None = None) -> Tensor:
        """Return outputs for examples; see :meth:`topofl.History.predict`."""
        inputs = self.inputs.apply(self._examples(x), self.flat.dtype)
        if node is not None:
            return self.module(node, network)(inputs)
        apply = partial(torch.func.functional_call, self._copied(network).to(self.flat.dtype))
        return torch.stack([apply(self.state_dict(i), (inputs,)) for i in range(self.n)])

    def _examples(self, x: Any) -> Tensor:
        """Return examples (b, ...) as a tensor on the CPU.

        Raise unless their shape and dtype match those of the run's dataset.
        """
        given = _as_tensor(x)
        expected = self.inputs.shape
        got = tuple(given.shape)
        if got[1:] != expected or not got:
            listed = "".join(f", {size}" for size in expected)
            hint = "; for one example pass x[None]" if got == expected else ""
            raise ValueError(f"`x` must be examples of shape (b{listed}), got shape {got}{hint}")
        integers, fits = (torch.int32, torch.int64), given.is_floating_point()
        requirement = "floating-point numbers"
        if self.inputs.dtype == torch.uint8:
            requirement = "uint8 pixels, or normalized floating-point numbers"
            fits = fits or given.dtype == torch.uint8
        elif self.inputs.dtype in integers:
            requirement, fits = "int32 or int64 numbers", given.dtype in integers
        if not fits:
            raise TypeError(
                f"`x` must be {requirement}, like the run's dataset, got {given.dtype}; convert it"
            )
        return given

    def save(self, path: Path) -> None:
        """Write parameters, their names and shapes, and the normalization of inputs to a file."""
        inputs = self.inputs
        flat = self.flat if self.flat.stride(0) else self.flat[:1]  # equal models are stored once
        tensors = {"flat": flat, "scale": inputs.scale, "shift": inputs.shift}
        tensors |= {_BUFFER + name: values for name, values in self.buffers.items()}
        content = {
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "inputs": [list(inputs.shape), str(inputs.dtype).removeprefix("torch.")],
        }
        present = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        write_tensors(path, present, {"content": json.dumps(content)})

    @classmethod
    def load(cls, path: Path, n: int, checksum: str = "") -> "Trained":
        """Return the models of n nodes from a file, whose parameters are read on access.

        Raises
        ------
        ValueError
            If the file is damaged, or has another number of nodes, naming the file.
        """
        try:
            tensors, texts = read_tensors(path)
            content = json.loads(texts["content"])
            shapes = {name: tuple(map(int, shape)) for name, shape in content["shapes"].items()}
            shape, name = content["inputs"]
            inputs = Normalization(tuple(map(int, shape)), getattr(torch, name))
            flat = tensors.pop("flat")
            own = {name: part for name, part in tensors.items() if name.startswith(_BUFFER)}
            buffers = {name.removeprefix(_BUFFER): part.clone() for name, part in own.items()}
            rest = tensors.keys() - own.keys()
            inputs = replace(inputs, **{name: tensors[name].clone() for name in rest})
            if any(len(values) != n for values in buffers.values()):
                raise ValueError(f"its buffers must have {n} rows")
            size = sum(torch.Size(shape).numel() for shape in shapes.values())
            flat = flat.expand(n, -1) if len(flat) == 1 else flat
            if flat.shape != (n, size) or not isinstance(inputs.dtype, torch.dtype):
                got = tuple(flat.shape)
                raise ValueError(f"its parameters have shape {got}, expected {(n, size)}")
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"{path} is damaged: {what}; remove it, or run it again") from error
        made = cls(shapes, inputs, None, flat, buffers)
        if checksum:  # the file is read, and compared with it, at the first access to `flat`
            made.__dict__["_unread"] = (path, mapped(path), checksum, made.__dict__.pop("flat"))
        return made

    def __getattr__(self, name: str) -> Any:
        """Return `flat` of a loaded history at its first access, or raise if the file is damaged.

        The file stays mapped until then, so that it may be replaced by that of another history.
        """
        if name != "flat" or "_unread" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        path, content, checksum, flat = self.__dict__["_unread"]
        if hashlib.sha256(content.numpy()).hexdigest() != checksum:
            raise ValueError(
                f"{path} is damaged: its SHA-256 is not the one in meta.json; remove it, or run it "
                "again"
            )
        del self.__dict__["_unread"]
        self.__dict__["flat"] = flat
        return flat


def _as_tensor(x: Any) -> Tensor:
    """Return an array or tensor as a tensor on the CPU."""
    if isinstance(x, Tensor):
        return x.detach().cpu()
    try:
        return torch.from_numpy(as_array("x", x).copy())
    except TypeError as error:  # dtypes that torch does not support
        raise TypeError(
            f"`x` must be an array or a tensor of numbers, got {shown(x)}; convert it"
        ) from error


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return names and shapes of parameters as text."""
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
