"""Timing a case: the engine and its floors in turns, the naive loop, memory, and omissions.

The D-Cliques authors' simulator is not part of this project. To time its training steps on the same
data and graph, name a folder with its sources, from which only the loop over nodes
(``tools/simulate/algorithm/d_sgd.py``) and the models (``tools/setup/model/``) are imported.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import topofl
from topofl import NotApplicable, Topology, data, mixing, toolkit
from topofl.toolkit import has_fast_bf16

from ..program import in_turns, process_bytes, seconds_of, stamps_of_rounds
from .cases import Case, clients_of, on_few_nodes, setting
from .floor import Floor, fastest, floors, steps_of

NOT_REQUESTED = NotApplicable("not requested")


@dataclass(frozen=True)
class Measured:
    """Measurements of a case.

    Parameters
    ----------
    case
        The timed case, with the simulator's step time if it was measured in the same run.
    seconds
        Seconds of every step by method: an executor's name, ``"floor batched"``, ``"floor looped"``
        or ``"simulator"``.
    skipped
        Method -> reason why it is not in `seconds`.
    naive
        Seconds per step of the naive loop, or the reason why there are none.
    naive_nodes
        Number of nodes with which the naive loop ran.
    chosen
        What ran: name and chunk of each executor, all of them if they differed between turns; the
        fastest variant of each floor.
    memory
        Executor -> peak and lower bound in bytes, or the reason why there are none.
    """

    case: Case
    seconds: Mapping[str, Sequence[float]]
    skipped: Mapping[str, str] = field(default_factory=dict)
    naive: float | NotApplicable = NOT_REQUESTED
    naive_nodes: int = 0
    chosen: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)

    def step(self, way: str) -> float | NotApplicable:
        """Return the median step time of a method, or the reason why there is none."""
        if way in self.seconds:
            return statistics.median(self.seconds[way])
        return NotApplicable(self.skipped.get(way, "not requested"))

    def floor(self, executor: str) -> float | NotApplicable:
        """Return the median step time of an executor's floor; of the lower floor for ``"auto"``."""
        if executor != "auto":
            return self.step(f"floor {executor}")
        both = [self.step("floor batched"), self.step("floor looped")]
        return min((step for step in both if isinstance(step, float)), default=both[0])

    def ratio(self, executor: str) -> float | NotApplicable:
        """Return the ratio of an executor's step time to its floor's."""
        return quotient(self.step(executor), self.floor(executor))

    def auto_over_better(self) -> float | NotApplicable:
        """Return the ratio of the step time of ``"auto"`` to that of the faster executor.

        If ``"auto"`` ran the same plan as an executor in every turn, their steps are pooled.
        """
        executors, ran = ("batched", "looped"), self.chosen.get("auto", " or ")
        same = [one for one in executors if " or " not in ran and self.chosen.get(one) == ran]
        pooled = [seconds for way in ("auto", *same) for seconds in self.seconds.get(way, [])]
        auto = statistics.median(pooled) if pooled else self.step("auto")
        better = [quotient(auto, auto if one in same else self.step(one)) for one in executors]
        reason = first_reason(*better)
        return max(r for r in better if isinstance(r, float)) if reason is None else reason


def quotient(above: Any, below: Any) -> float | NotApplicable:
    """Return the ratio of two numbers, or the reason of the first that is missing."""
    missing = first_reason(above, below)
    return above / below if missing is None else missing


def first_reason(*cells: Any) -> NotApplicable | None:
    """Return the first missing value, or None."""
    return next((cell for cell in cells if isinstance(cell, NotApplicable)), None)


EXECUTORS = ("batched", "looped", "auto")

WAYS = (*EXECUTORS, "floor batched", "floor looped")

SIMULATOR = "simulator"
"""Name of the training steps of the D-Cliques authors' simulator."""


NAIVE_NODES = 10
"""Nodes of the naive loop if all nodes would take too long; its time is then scaled up."""


@dataclass(frozen=True)
class Plan:
    """What to measure, on which device, and for how long.

    Parameters
    ----------
    device
        Device of the engine and of the floors.
    rounds, repeats
        Steps per turn, and turns, of each method; fewer if these would take longer than `budget`.
    budget
        Seconds that the steps of one method may take per case. A method is omitted if three steps
        take longer.
    naive_nodes
        Nodes of the naive loop; 0: omit it, None: all.
    memory
        Whether to measure peak memory, in a separate process for each executor.
    force_bf16
        Time bfloat16 even if the processor has no instructions for it.
    simulator
        Folder with the sources of the D-Cliques authors' simulator, whose training steps are timed
        in turns with the engine's in the cases that it supports; None: omit it.
    """

    device: torch.device
    rounds: int = 12
    repeats: int = 5
    budget: float = 120.0
    naive_nodes: int | None = NAIVE_NODES
    memory: bool = True
    force_bf16: bool = False
    simulator: Path | None = None


def measure(case: Case, plan: Plan) -> Measured:
    """Return step times and memory of a case for every method that fits into time and memory."""
    if reason := refusal(case, plan):
        return Measured(case, {}, dict.fromkeys(WAYS, reason), NotApplicable(reason))
    node = {
        executor: _node_seconds(case, executor, plan.device) for executor in ("batched", "looped")
    }
    predicted = {
        way: case.n * node.get(way.removeprefix("floor "), min(node.values())) for way in WAYS
    }
    skipped = {way: _too_slow(s, plan) for way, s in predicted.items() if 3 * s > plan.budget}
    kept = [way for way in WAYS if way not in skipped]
    clients, chosen = clients_of(case), {}
    timers = {
        way: partial(_timer, case, clients, plan, way, predicted[way], chosen) for way in kept
    }
    affordable = max([predicted[way] for way in kept], default=0.0) * (plan.rounds + 2)
    repeats = max(1, min(plan.repeats, int(plan.budget / max(affordable, 1e-9))))
    if plan.simulator is not None and case.simulator is not None:
        brief = plan.budget / repeats
        timers[SIMULATOR] = partial(
            simulator_steps, plan.simulator, case, rounds=plan.rounds, budget=brief
        )
    seconds = in_turns(
        {way: _unless_too_large(timer, way, skipped) for way, timer in timers.items()}, repeats
    )
    seconds = {way: found for way, found in seconds.items() if way not in skipped}
    slow, nodes = _naive_of(case, clients, plan)
    memory = {
        way: _memory_of(case, way, plan, chosen)
        for way in seconds
        if plan.memory and way in EXECUTORS
    }
    if SIMULATOR in seconds:
        case = replace(case, simulator=statistics.median(seconds[SIMULATOR]))
    return Measured(case, seconds, skipped, slow, nodes, chosen, memory)


def refusal(case: Case, plan: Plan) -> str:
    """Return the reason why a case cannot be timed on this machine, or an empty string."""
    if case.precision == "bf16" and not plan.force_bf16 and not has_fast_bf16(plan.device):
        return (
            "bf16 on a processor without AMX or AVX-512 BF16 is emulated; --force-bf16 times it "
            "all the same"
        )
    needed, free = lower_bound(case, nodes=1), free_memory(plan.device)
    if needed > 0.7 * free:
        return (
            f"needs at least {needed / 2**30:.1f} GiB, and 0.7 of the {free / 2**30:.1f} GiB that "
            "are free are less"
        )
    return ""


def _node_seconds(case: Case, executor: str, device: torch.device) -> float:
    """Return the estimated seconds per node and step, from a floor step of two nodes."""
    sample = on_few_nodes(case, 2)
    clients = clients_of(sample)
    # the first is a loop on one Python thread, or all nodes in one call
    first = next(iter(floors(sample, executor, device).values()))
    return min(steps_of(first, Floor.build(sample, clients, device), 2)) / 2


def _too_slow(predicted: float, plan: Plan) -> str:
    about = f"{float(f'{predicted:.0e}'):g}"  # one digit, so that equal reasons share a footnote
    return f"a step takes about {about} s, 3 of them more than the {plan.budget:g} s of --budget"


def _timer(
    case: Case,
    clients: data.Partition,
    plan: Plan,
    way: str,
    predicted: float,
    chosen: dict[str, str],
) -> list[float]:
    """Return the seconds of one turn of a method, and record in `chosen` what ran."""
    rounds = max(1, min(plan.rounds, math.ceil(plan.budget / predicted) - 2))
    if not way.startswith("floor "):
        seconds, history = engine_steps(case, clients, rounds, plan.device, way)
        ran = _described(history.meta)
        known = chosen[way].split(" or ") if way in chosen else []
        chosen[way] = " or ".join(
            dict.fromkeys([*known, ran])
        )  # the choice may be another in the next turn
        return seconds
    executor = way.removeprefix("floor ")
    if way not in chosen:
        chosen[way] = fastest(case, executor, clients, plan.device)
    return steps_of(
        floors(case, executor, plan.device)[chosen[way]],
        Floor.build(case, clients, plan.device),
        rounds,
    )


def _described(meta: Mapping[str, Any]) -> str:
    """Return the executor, the number of workers and the chunk size that the engine chose."""
    workers = f", {meta['workers']} workers" if meta["workers"] > 1 else ""
    return f"{meta['executor']}{workers}, chunk {meta['chunk']}"


def _unless_too_large(
    timer: Callable[[], list[float]], way: str, skipped: dict[str, str]
) -> Callable[[], Sequence[float]]:
    """Return a timer that records the reason and returns no times after it ran out of memory."""

    def attempt() -> Sequence[float]:
        if way in skipped:
            return []
        try:
            return timer()
        except (MemoryError, torch.OutOfMemoryError) as error:
            skipped[way] = (
                "out of memory: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            )
            return []

    return attempt


def _naive_of(case: Case, clients: data.Partition, plan: Plan) -> tuple[float | NotApplicable, int]:
    nodes = case.n if plan.naive_nodes is None else min(case.n, plan.naive_nodes)
    if not nodes:
        return NOT_REQUESTED, 0
    if case.precision != "fp32":
        return NotApplicable("the naive loop has no bf16"), 0
    try:
        return naive_step(case, clients, nodes), nodes
    except ImportError:
        return NotApplicable("tests/naive.py is in the source tree only"), 0


def _memory_of(
    case: Case, executor: str, plan: Plan, chosen: Mapping[str, str]
) -> dict[str, Any] | NotApplicable:
    """Return peak memory and its lower bound, in bytes, of an executor's run."""
    nodes = int(chosen[executor].rsplit(" ", 1)[1])
    try:
        return {"peak": peak_bytes(case, executor, plan.device), "bound": lower_bound(case, nodes)}
    except OSError as error:
        return NotApplicable(f"peak memory is not available here: {error}")


def engine_steps(
    case: Case, clients: data.Partition, rounds: int, device: torch.device, executor: str = "auto"
) -> tuple[list[float], topofl.History]:
    """Return the seconds of each of `rounds` rounds without evaluation, and the history of the run.

    The first round of the run is a warm-up and is not timed.
    """
    graph, algorithm = setting(case, clients)
    stamps, stamp = stamps_of_rounds(device)
    history = topofl.run(
        algorithm,
        model=case.network.build(),
        clients=clients,
        topology=graph,
        rounds=rounds + 2,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds + 2, nodes=1, examples=1),
        compute=topofl.Compute(device=device, executor=executor, precision=case.precision),
        callbacks=[stamp],
        progress=False,
    )
    seconds = [float(second) for second in np.diff(stamps)]
    return seconds[:rounds], history  # the last round also evaluates


def naive_step(case: Case, clients: data.Partition, nodes: int) -> float:
    """Return the seconds per step of the naive loop on CPU.

    With fewer nodes than the case has, the time of local steps is multiplied by n / nodes, and that
    of averaging, which sums over all nodes for each node, by its square.

    Raises
    ------
    ImportError
        Outside of a source tree, which has the naive loop in its tests.
    """
    from tests import naive as reference

    graph, _ = setting(case, clients)
    modules = [case.network.build() for _ in range(nodes)]
    inputs, labels = clients.dataset.examples(), clients.dataset.labels
    given = reference.Nodes(modules, inputs, labels, clients.train, case.batch_size, 0)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    options: dict[str, Any] = {"lr": case.network.lr, "momentum": case.momentum}
    cpu = torch.device("cpu")
    if nodes == case.n and case.clique_averaging:
        return seconds_of(
            lambda: reference.clique_averaging(given, weights, 1, cliques=graph.groups, **options),
            cpu,
        )
    if nodes == case.n:
        return seconds_of(lambda: reference.dsgd(given, weights, 1, **options), cpu)
    local = seconds_of(lambda: reference.local_only(given, 1, **options), cpu)
    average = seconds_of(lambda: reference.average(modules, weights), cpu)
    return local * case.n / nodes + average * (case.n / nodes) ** 2


def lower_bound(case: Case, nodes: int, stored: int = 1) -> int:
    """Return the bytes of parameters, optimizer state, data, and activations of `nodes` nodes.

    Data take `stored` bytes per number: 1 for pixels, as from :func:`clients_of`, 4 for float32.
    Activations are what autograd saves for the backward pass: the gathered minibatch and the
    outputs that it needs.
    """
    parameters = 4 * sum(p.numel() for p in case.network.build().parameters())
    held = 2 if case.momentum else 1
    data = case.network.examples * (stored * math.prod(case.network.shape) + 8)  # int64 labels
    return case.n * parameters * held + nodes * saved_bytes(case) + data


def loss_of(module: nn.Module, case: Case) -> Tensor:
    """Return the loss of a module on a minibatch of zeros."""
    x = torch.zeros(case.batch_size, *case.network.shape)
    return functional.cross_entropy(module(x), torch.zeros(case.batch_size, dtype=torch.int64))


def saved_bytes(case: Case) -> int:
    """Return the bytes that a node's forward pass saves for backward, without the parameters."""
    module = case.network.build()
    known = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, Tensor] = {}  # by address; held, so that no address is reused

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x),
        torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"),
    ):
        loss_of(module, case)
    return sum(x.untyped_storage().nbytes() for place, x in kept.items() if place not in known)


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device, or all of its memory if free bytes are unknown."""
    free = toolkit.free_memory(device)
    return toolkit.total_memory() or 1 << 62 if free is None else free


def peak_bytes(case: Case, executor: str, device: torch.device) -> int:
    """Return the peak bytes of a short run with its data, without those of torch itself.

    Raises
    ------
    OSError
        If the system does not report it.
    """
    with ProcessPoolExecutor(
        1, get_context("spawn"), torch.set_num_threads, (torch.get_num_threads(),)
    ) as pool:
        return pool.submit(_peak_here, case, executor, device).result()


def _peak_here(case: Case, executor: str, device: torch.device) -> int:
    small = on_few_nodes(case, 20, same_graph=True)
    engine_steps(small, clients_of(small), 1, device, executor)  # libraries load and initialize
    if device.type == "cuda":
        clients = clients_of(case)
        toolkit.return_freed_memory()
        torch.cuda.reset_peak_memory_stats(device)
        engine_steps(case, clients, 1, device, executor)
        return torch.cuda.max_memory_allocated(device)
    toolkit.return_freed_memory()  # memory that the run could reuse would not be counted
    before, clients = process_bytes("VmRSS"), clients_of(case)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak: data were made before the run
    engine_steps(case, clients, 1, device, executor)
    return process_bytes("VmHWM") - before


PARTS = ("simulate.algorithm.d_sgd", "setup.model.linear", "setup.model.gn_lenet")
"""The imported modules: the algorithm, logistic regression, GN-LeNet."""


def simulator_steps(folder: Path, case: Case, *, rounds: int, budget: float) -> list[float]:
    """Return the seconds of training steps of the authors' simulator, always in fp32.

    The first step and the work between epochs are not timed.

    Parameters
    ----------
    folder
        The folder of the simulator's sources, which contains ``tools/``.
    case
        The case to train: logistic regression or GN-LeNet.
    rounds, budget
        Number of steps, and seconds after which no further step starts.

    Raises
    ------
    FileNotFoundError
        If `folder` lacks one of the modules.
    """
    clients = clients_of(case)
    graph, _ = setting(case, clients)
    with _imported(folder) as (algorithm, linear, gn_lenet):
        params = _params(case)
        model = linear if case.network.is_linear else gn_lenet
        nodes = _nodes(clients, algorithm, model, params)
        state, *_ = algorithm.init(nodes, _topology(graph), params)
        seconds: list[float] = []
        while len(seconds) <= rounds and (len(seconds) < 2 or sum(seconds) < budget):
            start = time.perf_counter()
            state, _, epoch_ended = algorithm.next(state, params)
            seconds += [] if epoch_ended else [time.perf_counter() - start]
    return seconds[1:]


def check_sources(folder: Path) -> Path:
    """Return the folder of the simulator's modules; FileNotFoundError if one is missing."""
    tools = Path(folder) / "tools"
    missing = [
        part for part in PARTS if not (tools / part.replace(".", "/")).with_suffix(".py").is_file()
    ]
    if missing:
        raise FileNotFoundError(
            "--simulator must be the folder of the D-Cliques authors' simulator, with tools/ in "
            f"it; not found in {tools}: {', '.join(missing)}"
        )
    return tools


@contextmanager
def _imported(folder: Path) -> Iterator[list[ModuleType]]:
    """Import the simulator's modules temporarily, with an empty module for its datasets."""
    tools, before = check_sources(folder), set(sys.modules)
    sys.path.insert(0, str(tools))
    sys.modules["setup.dataset"] = ModuleType("setup.dataset")
    try:
        yield [import_module(part) for part in PARTS]
    finally:
        sys.path.remove(str(tools))
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("setup", "simulate"):
                del sys.modules[name]


def _params(case: Case) -> dict[str, Any]:
    """Return the settings of a case in the simulator's format."""
    return {
        "meta": {"log": "warning"},
        "dataset": {"name": "mnist" if case.network.is_linear else "cifar10"},
        "model": {"input-size": torch.Size(case.network.shape).numel()},
        "topology": {},
        "algorithm": {
            "learning-rate": case.network.lr,
            "learning-momentum": case.momentum,
            "batch-size": case.batch_size,
            "clique-gradient": case.clique_averaging,
            "unbiased-gradient": False,
            "initial-averaging": False,
        },
    }


def _nodes(
    clients: data.Partition, algorithm: Any, model: Any, params: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return all nodes with their examples, as lists of tensors and labels."""
    inputs, labels = clients.dataset.examples(), clients.dataset.labels.tolist()
    models = [model.create(params) for _ in range(clients.n)]
    return [
        {
            "rank": rank,
            "model": models[rank],
            "optimizer": algorithm.optimizer(models[rank], params),
            "train-set": [(inputs[k], labels[k]) for k in train],
            "train-iterator": None,
        }
        for rank, train in enumerate(clients.train)
    ]


def _topology(graph: Topology) -> dict[str, Any]:
    """Return neighbors, cliques and weights in the simulator's format."""
    weights = mixing.metropolis_hastings(graph).weights
    neighbors = [sorted(int(j) for j in row.indices if j != i) for i, row in enumerate(weights)]
    return {
        "edges": neighbors, "weights": torch.tensor(weights.toarray(), dtype=torch.float32),
        "cliques": [list(map(int, group)) for group in graph.groups or ()],
    }  # fmt: skip
