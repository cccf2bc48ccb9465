"""How much memory a run needs, how much is free, and the refusal of runs that do not fit."""

import copy
import math
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from topofl.algorithms.phase import Algorithm
from topofl.data import Partition
from topofl.engine.evaluate import EXAMPLES, ROWS
from topofl.engine.forward import is_linear, stacked_forward
from topofl.engine.mixer import COLUMNS, SPARSE_BELOW
from topofl.engine.population import Layout
from topofl.engine.rehearsal import DryRound, rehearse
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologySequence

__all__ = ["Facts", "check_memory", "facts_of", "free_memory", "largest_chunk", "memory", "peak", "peak_of_step"]

TORCH = 10 * 2**20
"""What torch and Python take on first use, whatever the run: threads, buffers of products, modules loaded late."""

CONVOLUTIONS = 20 * 2**20
"""What the first convolutions take besides: the kernels that oneDNN compiles. Both measured on CPU, to 5 MiB."""

RETAINED = 64 * 2**20
"""What glibc's allocator keeps at most of what is freed: twice the size from which blocks are given back at once."""


@dataclass(frozen=True)
class Facts:
    """What the memory of a run depends on, executor and chunk apart; sizes in bytes.

    Parameters
    ----------
    n, d
        Number of nodes, and of parameters of one model.
    itemsize
        Of one parameter.
    minibatch
        One node's largest minibatch, gathered.
    looped, batched
        Gradients and activations of one node's step where they are most, alone and as one of many.
    state
        What phases carry from round to round.
    mixes_gradients
        Whether all nodes' gradients must exist at once.
    matrices
        Mixing matrices.
    mixing, evaluation
        Buffers that exist only while models are mixed or evaluated.
    data
        The dataset on the run's device.
    held
        The part of `data` that is there before the run.
    torch
        What torch takes on first use.
    workers
        Nodes that the looped executor works on at a time.
    """

    n: int
    d: int
    itemsize: int
    minibatch: int
    looped: int
    batched: int
    state: int
    mixes_gradients: bool
    matrices: int
    mixing: int
    evaluation: int
    data: int
    held: int
    torch: int
    workers: int = 1


def memory(facts: Facts, executor: str, chunk: int | None) -> dict[str, int]:
    """Return the bytes of each part of a run; not all exist at once, see :func:`peak`.

    Parameters
    ----------
    facts
        Of the run.
    executor
        ``"batched"`` or ``"looped"``.
    chunk
        Nodes per call of the batched executor; None: all.
    """
    looped = executor == "looped"
    together = min(facts.workers if looped else chunk or facts.n, facts.n)
    model = facts.d * facts.itemsize
    kept = facts.n * facts.mixes_gradients * (together < facts.n)  # else the chunk's gradients are all there are
    return {
        "parameters": facts.n * model,
        "state": facts.state,
        "gradients": (together + kept) * model,
        "minibatches": together * facts.minibatch,
        "activations": together * max((facts.looped if looped else facts.batched) - model, 0),
        "mixing": facts.mixing,
        "evaluation": facts.evaluation,
        "matrices": facts.matrices,
        "data": facts.data,
        "torch": facts.torch,
    }


def peak(parts: Mapping[str, int]) -> int:
    """Return the most that exists at once.

    Training and evaluation take turns, but the allocator keeps up to :data:`RETAINED` of what the one frees, and what
    the other needs rarely fits into the holes: so much of the smaller one counts too.
    """
    passing = ("activations", "mixing", "evaluation")
    lasting = sum(size for name, size in parts.items() if name not in (*passing, "gradients"))
    training = parts["gradients"] + max(parts["activations"], parts["mixing"])
    less, more = sorted([training, parts["evaluation"]])
    return lasting + more + min(less, RETAINED)


def _needed(facts: Facts, executor: str, chunk: int | None) -> int:
    """Return what a run adds to the memory in use before it."""
    return peak(memory(facts, executor, chunk)) - facts.held


def largest_chunk(facts: Facts, size: int) -> int:
    """Return the most nodes per call of the batched executor with which a run adds at most `size` bytes; 0: none."""
    low, high = 0, facts.n  # `low` fits, or is 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _needed(facts, "batched", middle) <= size else (low, middle - 1)
    return low


def check_memory(facts: Facts, executor: str, chunk: int | str | None, free: int | None) -> None:
    """Raise if a run does not fit into free memory, and say what would.

    Parameters
    ----------
    facts
        Of the run.
    executor
        ``"batched"``, ``"looped"``, or ``"auto"``, which fits if one of them does.
    chunk
        Nodes per call of the batched executor; None: all; ``"auto"``: as many as fit.
    free
        Bytes, from :func:`free_memory`; None: unknown, and nothing is refused.

    Raises
    ------
    ValueError
        Naming what is needed, what is free, and the largest chunk or the executor that fits; if none does, the largest
        part.
    """
    if free is None:
        return
    nodes = max(largest_chunk(facts, free), 1) if isinstance(chunk, str) else chunk
    kinds = ("batched", "looped") if executor == "auto" else (executor,)
    needs = {kind: _needed(facts, kind, nodes) for kind in kinds}
    if min(needs.values()) <= free:
        return
    name = "executor" if executor == "looped" else "chunk"
    raise ValueError(
        f"`{name}` must be one with which the run fits into memory: it needs {in_gib(min(needs.values()))}, "
        f"{in_gib(free)} are free; {_remedy(facts, free)}"
    )


def _remedy(facts: Facts, free: int) -> str:
    """Return what would fit, or what takes most."""
    chunk = largest_chunk(facts, free)
    if chunk:
        return f"chunk={chunk} would need {in_gib(_needed(facts, 'batched', chunk))}"
    looped = _needed(facts, "looped", None)
    if looped <= free:
        return f'executor="looped" would need {in_gib(looped)}'
    parts = memory(facts, "looped", None)
    name = max(parts, key=lambda part: parts[part])
    return f"{name} alone take {in_gib(parts[name])} with either executor: {_LESS.get(name, _LESS['parameters'])}"


_LESS = {
    "parameters": "take fewer nodes or a smaller model",
    "state": "leave out momentum, or take fewer nodes",
    "gradients": "take an algorithm that mixes no gradients, or fewer nodes",
    "minibatches": "lower batch_size",
    "activations": "lower batch_size",
    "data": "keep images as uint8, or take fewer examples",
    "matrices": "take a sparser topology or fewer nodes",
}


def in_gib(size: float) -> str:
    """Return a number of bytes as text, in MiB below 1 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{math.ceil(size / 2**20)} MiB"


def free_memory(device: torch.device | str, root: Path = Path("/")) -> int | None:
    """Return the bytes that can be had on a device, None where that is unknown.

    On CPU, what the system calls available, or less where a control group limits this process; `root` is where its
    ``proc`` and ``sys`` are.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    known = [size for size in (_available(root), *_cgroup_room(root)) if size is not None]
    return min(known, default=None)


def _available(root: Path) -> int | None:
    """Return ``MemAvailable``, or free pages where there is no /proc."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # names that this system does not have
        return None


def _cgroup_room(root: Path) -> list[int]:
    """Return limit minus usage of the process's control groups and of those above them."""
    rooms = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        limit, used = _CGROUP_V1 if controllers else _CGROUP_V2
        path = base / group.strip("/")
        for folder in (path, *path.parents):
            room = [_number(folder / name) for name in (limit, used)]
            if room[0] is not None and room[1] is not None:
                rooms.append(max(room[0] - room[1] + _reclaimable(folder), 0))
            if folder == base:
                break
    return rooms


_CGROUP_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_CGROUP_V2 = ("memory.max", "memory.current")


def _reclaimable(folder: Path) -> int:
    """Return the file cache that a control group's usage counts and that is given up when needed."""
    return sum(int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith("inactive_file "))


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # "max": no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def facts_of(
    algorithm: Algorithm,
    *,
    model: nn.Module,
    clients: Partition,
    graphs: Topology | TopologySequence,
    rule: Callable[[Topology], MixingMatrix],
    dtype: torch.dtype,
    device: torch.device,
    rounds: Sequence[DryRound] | None = None,
) -> Facts:
    """Return the facts of a run; of graphs that change, those of the first round unless `rounds` are given.

    Parameters
    ----------
    algorithm, model, clients, dtype, device
        As in :func:`topofl.run`; `clients` pooled where the algorithm pools them.
    graphs, rule
        The checked topology and weight rule.
    rounds
        Rounds played by :func:`rehearse`.
    """
    layout = Layout.of(model)
    played, state = rehearse(algorithm, layout, graphs, rule, dtype, 1)
    rounds = rounds or played
    inputs, labels = clients.dataset.inputs, clients.dataset.labels
    stored = inputs.dtype if inputs.dtype == torch.uint8 else dtype
    data = inputs.numel() * stored.itemsize + labels.nbytes
    width = min(max(r.batch_size for r in rounds), max(map(len, clients.train)))
    gathered = stored.itemsize + dtype.itemsize * (stored != dtype)
    example = inputs[0].numel() * gathered + labels.itemsize
    shape = (width, *inputs.shape[1:])
    looped = peak_of_step(model, shape, dtype, 1)
    return Facts(
        n=clients.n,
        d=layout.d,
        itemsize=dtype.itemsize,
        minibatch=width * example,
        looped=looped,
        batched=_of_one(model, shape, dtype, clients.n, looped),
        state=state,
        mixes_gradients=any(r.mixes_gradients for r in rounds),
        matrices=_bytes_of_matrices(rounds, dtype),
        mixing=clients.n * min(COLUMNS, layout.d) * dtype.itemsize * algorithm.exchanges,
        evaluation=_bytes_of_evaluation(model, clients, dtype),
        data=data,
        torch=TORCH + CONVOLUTIONS * _convolves(model),
        held=(inputs.nbytes if inputs.dtype == stored else 0) + labels.nbytes if device.type == "cpu" else 0,
    )


def _of_one(model: nn.Module, shape: Sequence[int], dtype: torch.dtype, n: int, looped: int) -> int:
    """Return the bytes of one node's step among others; of two, since stacks of one take a short cut."""
    if n == 1:
        return looped
    try:
        return -(-peak_of_step(model, shape, dtype, 2) // 2)
    except RuntimeError:  # torch.func cannot batch every module: the run will loop
        return looped


def _bytes_of_matrices(rounds: Sequence[DryRound], dtype: torch.dtype) -> int:
    """Return the bytes of the mixing matrices of some rounds, as scipy and torch hold them."""
    matrices = {id(matrix): matrix for r in rounds for matrix, _, _ in r.ledger.exchanges}
    total = 0
    for matrix in matrices.values():
        nonzero, square = matrix.weights.nnz, matrix.n**2
        sparse = nonzero < SPARSE_BELOW * square
        total += 12 * nonzero + (nonzero * (8 + dtype.itemsize) if sparse else square * dtype.itemsize)
    return total


def _bytes_of_evaluation(model: nn.Module, clients: Partition, dtype: torch.dtype) -> int:
    """Return the bytes that evaluating needs at most at once, inputs and logits included."""
    d, inputs = Layout.of(model).d, clients.dataset.inputs
    if not is_linear(model):
        largest = max(len(clients.dataset.test), len(clients.dataset.val)) or len(inputs)
        shape = (min(EXAMPLES, largest), *inputs.shape[1:])
        return peak_of_forward(model, shape, dtype) + (math.prod(shape) + d) * dtype.itemsize
    examples = min(max(1, ROWS // clients.n), len(inputs))
    logits = 3 * examples * clients.n * clients.dataset.n_classes  # and their log-softmax and losses
    return (clients.n * d + logits + examples * inputs[0].numel()) * dtype.itemsize


def peak_of_step(model: nn.Module, shape: Sequence[int], dtype: torch.dtype, nodes: int) -> int:
    """Return the bytes of the gradients and activations of `nodes` minibatches of `shape` where they are most.

    Forward and backward are played with tensors that have shapes but no memory (on CPU if the model needs values), and
    every tensor that torch makes is counted while it lives. What kernels need inside is not seen.

    Raises
    ------
    RuntimeError
        If torch cannot batch the model.
    """

    def step(module: nn.Module, device: str) -> None:
        inputs = torch.zeros(nodes, *shape, dtype=dtype, device=device)
        labels = torch.zeros(nodes, shape[0], dtype=torch.long, device=device)
        leaves = [torch.zeros(nodes, *p.shape, dtype=dtype, device=device, requires_grad=True) for p in _own(module)]
        with Living() as living:
            if nodes == 1:
                own = dict(zip(Layout.of(module).names, (leaf[0] for leaf in leaves), strict=True))
                logits = functional_call(module, own, (_reordered(module, inputs[0]),))[None]
            else:
                logits = stacked_forward(module).each(leaves, inputs)
            losses = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            gradients = torch.autograd.grad(losses.mean(1).sum(), leaves)
        del gradients
        peaks.append(living.peak)

    peaks: list[int] = []
    _play_anywhere(step, model, dtype)
    return peaks[-1]


def peak_of_forward(model: nn.Module, shape: Sequence[int], dtype: torch.dtype) -> int:
    """Return the bytes of the activations of one model on inputs of `shape` where they are most, without gradients."""

    def forward(module: nn.Module, device: str) -> None:
        inputs = torch.zeros(*shape, dtype=dtype, device=device)
        with torch.no_grad(), Living() as living:
            logits = module(_reordered(module, inputs))
        del logits
        peaks.append(living.peak)

    peaks: list[int] = []
    _play_anywhere(forward, model, dtype)
    return peaks[-1]


def _play_anywhere(play: Callable[[nn.Module, str], None], model: nn.Module, dtype: torch.dtype) -> None:
    module = copy.deepcopy(model).to(dtype=dtype)
    try:
        play(copy.deepcopy(module).to("meta"), "meta")
    except (RuntimeError, NotImplementedError):  # a model that looks at values, or an operation that needs them
        play(module.cpu(), "cpu")


def _own(module: nn.Module) -> list[Tensor]:
    return [p.detach() for p in module.parameters()]


def _reordered(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return a copy of images for models that convolve, as with channels last."""
    return inputs.clone() if _convolves(module) else inputs


def _convolves(module: nn.Module) -> bool:
    return any(isinstance(layer, nn.Conv2d) for layer in module.modules())


class Living(TorchDispatchMode):
    """Counts the bytes of tensors made while it is entered, as long as they live.

    Attributes
    ----------
    now, peak
        Bytes alive, and the most there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the storages that an operation made."""
        del types
        kwargs = kwargs or {}
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **kwargs)
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and x.untyped_storage()._cdata not in given | self._sizes.keys():
                self._note(x.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        self._sizes[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, storage._cdata).atexit = False

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
