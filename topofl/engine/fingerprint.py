"""Fingerprint of a run: JSON values that differ if two runs would give different results."""

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
import scipy.sparse as sparse
from torch import Tensor, nn, uint8

from topofl._version import RESULTS_WITHOUT_ENTRY
from topofl.data import Partition
from topofl.engine.checkpoint import OtherRunError
from topofl.engine.plan import Plan
from topofl.engine.requests import Setup

SAMPLED_ROUNDS = 3
"""Number of rounds whose graphs are compared if the sequence has no period."""

RESULTS_ENTRY = "last version of topofl that changed results"
"""Key in a marker's versions, which older markers lack."""

_ROUNDING_OPTIONS = ("precision", "channels_last", "compile", "dtype")
"""Options of a Compute that affect rounding, in addition to the plan."""


def fingerprint(setup: Setup, plan: Plan) -> dict[str, Any]:
    """Return everything that determines the results of a run except the number of rounds.

    Not included: graphs of sequences without a period after their first rounds, code of a model's
    ``forward``, and functions that users' functions call by name.
    """
    algorithm, clients, attack, graphs = setup.algorithm, setup.clients, setup.attack, setup.graphs
    found = {"algorithm": f"{algorithm.name}: {' -> '.join(algorithm.phases)}"}
    for name, settings in algorithm.settings.items():
        found |= {f"{name}.{key}": plain(value) for key, value in settings.items()}
    for name, phase in algorithm.phases.items():
        found |= _code_of(name, phase.init, phase.apply, phase.settings)
    for name, some in setup.trace.steps.items():
        if some:
            training = some[0][0]
            parts = [*training.descend.terms, *([] if training.at is None else [training.at])]
            found[f"{name}.steps"] = " -> ".join(part.name for part in parts) or "plain"
    members = (graphs.at(t) for t in range(graphs.period or SAMPLED_ROUNDS))
    edges = (part for g in members for part in (*_csr(g.adjacency), g.groups, g.own_weights))
    used = setup.trace.exchanged
    rules = ", ".join(dict.fromkeys(weights.name for weights in used)) or "none"
    shares = digest_of(part for weights in used for part in _csr(weights.weights))
    data = {field.name: getattr(clients.dataset, field.name) for field in fields(clients.dataset)}
    examples = (part for item in data.items() if item[1] is not None for part in item)
    found |= {
        "topology": f"{graphs.name} {digest_of(edges)}",
        "mixing": f"{rules} {shares}",
        "clients": f"{clients.name} {digest_of(_partition_parts(clients))}",
        "dataset": f"{clients.dataset.name} {digest_of(examples)}",
        "model": f"{type(setup.model).__name__} {digest_of(_model_parts(setup))}",
        "task": plain(setup.task),
        **_code_of("task", setup.task),
        **plan._asdict(),
    }
    if attack is not None:
        found |= {"attackers": plain(attack.description), **_code_of("attackers", attack.forge)}
    return found | {
        "seed": setup.seed,
        "init": setup.init,
        **({"compute.buffers": setup.compute.buffers} if setup.network.statistics else {}),
        "augment": None if clients.augment is None else clients.augment.name,
        **{f"evaluation.{key}": plain(value) for key, value in setup.evaluation_settings.items()},
        **{f"compute.{key}": plain(getattr(setup.compute, key)) for key in _ROUNDING_OPTIONS},
    }


def members_of(clients: Partition) -> str:
    """Return a short digest of the examples that each node holds, as positions in the dataset."""
    return digest_of([clients.dataset.name, *_partition_parts(clients)]).removeprefix("#")


def structure_of(model: nn.Module) -> str:
    """Return the type of a model, with a short digest of its modules and the parameters' shapes."""
    parts = [without_addresses(repr(model))]
    parts += [f"{name} {tuple(one.shape)}" for name, one in model.named_parameters()]
    return f"{type(model).__name__} {digest_of(parts)[:9]}"


def _code_of(name: str, *values: Any) -> dict[str, str]:
    code = digest_of_code(*values)
    return {f"{name}.code": code} if code else {}


def _csr(matrix: sparse.csr_array) -> tuple[np.ndarray, ...]:
    return matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)


def _partition_parts(clients: Partition) -> Iterator[Any]:
    for key in ("train", "val", "test"):
        nodes = getattr(clients, key)
        yield from (key, np.array([len(node) for node in nodes]), np.concatenate(nodes))


def _model_parts(setup: Setup) -> Iterator[Any]:
    """Yield the structure, the buffers, and the parameters: values if they are used, or shapes."""
    yield without_addresses(repr(setup.model))
    for name, parameter in setup.model.named_parameters():
        kept = setup.init == "given" or not parameter.requires_grad
        yield from (name, parameter if kept else tuple(parameter.shape))
    for name, buffer in setup.model.named_buffers():
        yield from (name, buffer)


def check_same(marker: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ``OtherRunError`` if a checkpoint belongs to another run; warn about other versions.

    Parameters
    ----------
    marker
        The marker of the checkpoint.
    now
        The marker that this process would write.
    """
    if different := _differences(marker["run"], now["run"]):
        must = f"`resume` must continue the same run: {'; '.join(different)}"
        raise OtherRunError(f"{must}; start another run in another folder")
    if different := _differences(_rounding_of(marker), _rounding_of(now)):
        text = f"the resumed run may round differently: {'; '.join(different)}"
        warnings.warn(text, RuntimeWarning, stacklevel=6)


def _rounding_of(marker: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may change rounding: versions of libraries, of topofl's results, and device."""
    found = {RESULTS_ENTRY: RESULTS_WITHOUT_ENTRY, **marker["versions"], "device": marker["device"]}
    found.pop("topofl", None)  # results have an entry of their own
    return found


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each entry that has changed."""
    now = json.loads(json.dumps(now))
    changed = (key for key in dict.fromkeys([*was, *now]) if was.get(key) != now.get(key))
    return [f"{key} was {was.get(key)}, is {now.get(key)}" for key in changed]


def digest_of(parts: Iterable[Any]) -> str:
    """Return a short digest of texts, arrays and tensors, copied only if not contiguous on CPU.

    Examples
    --------
    >>> digest_of(["a", "b"]) == digest_of(["ab"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor | np.ndarray):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            if isinstance(part, Tensor):
                part = part.detach().cpu().contiguous().view(-1).view(uint8).numpy()
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"{part}\0".encode())
    return f"#{digest.hexdigest()[:16]}"


def digest_of_code(*values: Any) -> str:
    """Return a digest of the users' functions in some values; empty if all are topofl's.

    Functions that these call by name are not included.

    Examples
    --------
    >>> import textwrap
    >>> len(digest_of_code(textwrap.dedent)), digest_of_code(plain)
    (17, '')
    """
    functions = list(_user_functions(values, set()))
    return digest_of(map(_describe_function, functions)) if functions else ""


def _user_functions(value: Any, seen: set[int]) -> Iterator[FunctionType]:
    """Yield users' functions in sequences, dataclasses and closures."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inside: Iterable[Any] = ()
    if isinstance(value, FunctionType):
        if value.__module__.partition(".")[0] != "topofl":
            yield value
        inside = _closed_over(value)
    elif isinstance(value, partial):
        inside = (value.func, value.args, tuple(value.keywords.values()))
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, tuple | list):
        inside = value
    elif is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in fields(value)]
    for part in inside:
        yield from _user_functions(part, seen)


def _closed_over(function: FunctionType) -> list[Any]:
    """Return the values that a function closes over, without cells that are still empty."""
    return [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]


def _describe_function(function: FunctionType) -> str:
    """Return a user's function as text: name, code, and the constants it closes over."""
    values = (*_closed_over(function), *(function.__defaults__ or ()))
    constants = [value for value in values if isinstance(value, str | int | float | bool | None)]
    name, code = f"{function.__module__}:{function.__qualname__}", _describe_code(function.__code__)
    return f"{name} {code} {constants}"


def _describe_code(code: CodeType) -> str:
    """Return code as text: instructions, names, constants, and the functions defined in it."""
    constants = []
    for value in code.co_consts:
        if isinstance(value, frozenset):  # its order differs between processes
            value = sorted(map(repr, value))
        constants.append(_describe_code(value) if isinstance(value, CodeType) else repr(value))
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def plain(value: Any) -> str | int | float | None:
    """Return a number or text unchanged, and other values as text without memory addresses.

    Examples
    --------
    >>> plain(np.float64(0.5)), plain(("a", 1))
    (0.5, "('a', 1)")
    """
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, str | int | float | None) else without_addresses(str(value))


def without_addresses(text: str) -> str:
    """Return text without memory addresses, which differ between processes.

    Examples
    --------
    >>> without_addresses("<function f at 0x7f1c>")
    '<function f at 0x>'
    """
    return re.sub(r"0x[0-9a-fA-F]+", "0x", text)
