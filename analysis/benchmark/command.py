"""Time the engine against its floor, a naive loop over nodes, and its targets.

``python -m analysis.benchmark training`` times, in one process and in turns, training steps of
logistic regression and GN-LeNet on data with the shapes of MNIST and CIFAR-10:

* ours: one round of :func:`topofl.run` with each executor, including everything except evaluation;
* the floor: index gather into a reused buffer, forward and backward pass, update and mixing, on the
  same data and without the engine, in the fastest known implementation;
* the naive loop of ``tests/naive.py``: one ``nn.Module`` per node (in a source tree only).

``matrix`` does so for all networks, numbers of nodes, executors and precisions that fit into time
and memory; ``evaluation`` times the evaluation of all nodes; ``graphs`` times graphs of 100,000
nodes; ``peers``, with options of its own (``peers --help``), races maintained peers.

Ratios of times that were taken in one run carry over to other machines, times do not. Columns and
rows with a * compare with times of the D-Cliques authors' simulator on another machine, for
orientation only. ``--simulator DIR`` times its training steps in the same run, if DIR has its
sources.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import topofl
from topofl import NotApplicable, Table
from topofl.engine import plan as engine_plan
from topofl.engine.evaluation import evaluate, evaluation_plan
from topofl.engine.executor import Executor
from topofl.engine.gradients import dense_gradients
from topofl.engine.minibatches import Batches, Examples
from topofl.engine.options import check_device
from topofl.engine.population import Layout, Population

from ..peers.race import main as race_peers
from ..program import as_installed, at_least_one, in_turns, parser_of, seconds_of, stamps_of_rounds
from . import graphs as graph_benchmark
from . import report as tables
from .cases import LOGISTIC, TRAINING, Case, clients_of, matrix_cases, on_few_nodes, setting
from .report import Report, title
from .timing import NAIVE_NODES, Measured, Plan, check_sources, measure

STAR = (
    "\\* The D-Cliques authors' simulator, measured on another machine of 2 cores (with AMX), not "
    "in this run."
)

STAR_HERE = (
    "\\* The D-Cliques authors' simulator: training steps on the same data, in turns with ours, "
    "always in fp32; its evaluation, half a second a node, as measured on another machine (2 "
    "cores, AMX)."
)

TARGETS = "Targets in the picture: of auto for logistic regression, of looped for GN-LeNet."

NAIVE = (
    "naive: tests/naive.py, on as many nodes as `nodes` says; where these are not all, local steps "
    "are scaled up in proportion to nodes and averaging to their square."
)

SAME = (
    "auto / better executor is 1 where auto ran in every turn what the better one ran: there is "
    "nothing to compare."
)

QUICK = "A quick run on tiny sizes: it shows that everything works; its numbers mean nothing."
QUICK_IMAGES = 200
IMAGES = 10_000

SIMULATOR_NODE = 0.5
"""Seconds in which the D-Cliques authors' simulator evaluates a node, on another machine."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["peers"]:
        return race_peers(words[1:])
    options = _parser().parse_args(words)
    cases = {"training": TRAINING, "matrix": matrix_cases()}.get(options.what, ())
    cases = quick_cases(options.what) if options.quick else cases
    chosen = [case for case in cases if options.only in case.label]
    try:
        _check(options, cases, chosen)
    except (ValueError, OSError) as error:
        print(as_installed(f"python -m analysis.benchmark: error: {error}"), file=sys.stderr)
        return 2
    plan = _plan(options)
    facts = tables.facts_of(plan.device) | {
        "options": {key: str(value) for key, value in vars(options).items()}
    }
    report = REPORTS[options.what](plan, chosen, quick=options.quick)
    if options.quick:
        report = replace(report, notes=[*report.notes, QUICK])
    print("\n\n".join([*map(str, report.tables), *report.notes]))
    if options.out:
        for path in report.save(options.out, facts):
            print(f"written: {path}", file=sys.stderr)
    return 0


def _check(options: argparse.Namespace, cases: Sequence[Case], chosen: Sequence[Case]) -> None:
    """Refuse options that cannot work before anything is timed, and create the output folder."""
    try:
        check_device(options.device)
    except ValueError as error:
        raise ValueError(f"--device: {error}") from error
    if options.quick and options.what == "graphs":
        raise ValueError(
            "--quick must be left out for graphs, which have no tiny sizes; they take some minutes"
        )
    if cases and not chosen:
        raise ValueError(
            f"--only must be in a label, got {options.only!r}; labels: "
            f"{', '.join(case.label for case in cases)}"
        )
    if options.simulator is not None:
        check_sources(options.simulator)
    try:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"--out: {error}") from error


def _plan(options: argparse.Namespace) -> Plan:
    usual = NAIVE_NODES if options.what == "matrix" else None
    naive_nodes = 4 if options.quick else options.naive_nodes or usual
    return Plan(
        torch.device(options.device),
        rounds=2 if options.quick else options.rounds,
        repeats=1 if options.quick else options.repeats,
        budget=options.budget,
        naive_nodes=0 if options.no_naive else naive_nodes,
        memory=not (options.no_memory or options.quick),
        force_bf16=options.force_bf16,
        simulator=options.simulator,
    )


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "benchmark",
        __doc__,
        device=("cpu", "of the engine and the floors"),
        quick=(False, "tiny sizes, a test; the numbers mean nothing"),
        only=("", "only cases with this in their label, such as 'GN-LeNet, 100'"),
        budget=(120.0, "seconds that all steps of one cell may take"),
        no_naive=(False, "omit the naive loop"),
        simulator=(Path, "folder of the D-Cliques authors' simulator, for training"),
        no_memory=(False, "omit peak memory, which takes one process per cell"),
        force_bf16=(False, "time bf16 also on processors that emulate it"),
        out=(Path, "folder for tables, numbers and a figure, such as cpu-training.md"),
    )
    parser.add_argument("what", nargs="?", choices=list(REPORTS), default="training")
    for flag, default, text in (
        ("--rounds", 12, "steps per turn (default: 12)"),
        ("--repeats", 5, "turns (default: 5)"),
        ("--naive-nodes", None, f"of the naive loop (default: all, {NAIVE_NODES} in the matrix)"),
    ):
        parser.add_argument(flag, type=at_least_one, default=default, help=text)
    return parser


def training(plan: Plan, cases: Sequence[Case], *, quick: bool = False) -> Report:
    """Return the report of training steps, evaluation and a whole run, with all targets."""
    found = [_measured(case, plan) for case in cases]
    evaluated = evaluation(plan, [measured.case for measured in found], quick=quick)
    (first, *_), run = evaluated.raw["evaluations"], evaluated.raw["whole_run"]
    checks = tables.checks_of_training(found, first["ratio"], run["ratio"])
    judged, bound, raw = _judged(plan, found, checks, quick)
    shown = [tables.training_table(found), *judged, *evaluated.tables, bound]
    notes = [STAR if plan.simulator is None else STAR_HERE, NAIVE, SAME, TARGETS]
    targets = {c.label: tables.FLOOR if c.network.is_linear else tables.LENET_FLOOR for c in cases}
    points = tables.points_of(found, targets)
    return Report(f"{plan.device.type}-training", shown, notes, points, {**raw, **evaluated.raw})


def matrix(plan: Plan, cases: Sequence[Case], *, quick: bool = False) -> Report:
    """Return the report of D-SGD for all networks, numbers of nodes, executors and precisions."""
    found = [_measured(case, plan) for case in cases]
    judged, bound, raw = _judged(plan, found, tables.checks_of_matrix(found), quick)
    shown = [tables.matrix_table(found), *judged, bound]
    points = tables.points_of(found, {})
    return Report(f"{plan.device.type}-matrix", shown, [NAIVE, SAME], points, raw)


def _judged(
    plan: Plan, found: Sequence[Measured], checks: Sequence[tables.TargetCheck], quick: bool
) -> tuple[list[Table], Table, dict[str, Any]]:
    """Return the verdicts, unless sizes are tiny, the roofline of cases, and all their numbers."""
    rates = tables.measured_rates(plan.device, *([64, 1] if quick else []))
    raw = {
        "cases": [tables.raw_of(m) for m in found],
        "rates": rates,
        "checks": tables.raw_of_checks(checks),
    }
    return [] if quick else [tables.verdicts(checks)], tables.roofline(found, rates), raw


def evaluation(plan: Plan, cases: Sequence[Case] = (), *, quick: bool = False) -> Report:
    """Return the report of evaluation, and of a whole run of the first training case."""
    _announce("evaluation")
    images, nodes = (QUICK_IMAGES, (10, 20)) if quick else (IMAGES, (100, 1000))
    of = [evaluation_of(n, plan.device, images, plan.repeats) for n in nodes]
    standard = quick_cases("training")[0] if quick else TRAINING[0]
    case = next((case for case in cases if case.label == standard.label), standard)
    run = whole_run(plan.device, case, 1 if quick else 10, images)
    raw = {"evaluations": of, "whole_run": run}
    return Report(f"{plan.device.type}-evaluation", [evaluation_table(of, run)], [STAR], (), raw)


def graphs(plan: Plan, cases: Sequence[Case] = (), *, quick: bool = False) -> Report:
    """Return the report of large graphs, which are timed on CPU and have no quick sizes."""
    del plan, cases, quick
    return Report("cpu-graphs", [graph_benchmark.measure(title=title())])


def _measured(case: Case, plan: Plan) -> Measured:
    _announce(case.label)
    return measure(case, plan)


def _announce(what: str) -> None:
    print(f"timing {what} ...", file=sys.stderr, flush=True)


def quick_cases(what: str) -> tuple[Case, ...]:
    """Return tiny cases, which only show that everything works."""
    cases = (
        TRAINING
        if what == "training"
        else [case for case in matrix_cases((10,)) if case.network is LOGISTIC]
    )
    return tuple(on_few_nodes(replace(case, batch_size=4), 20, same_graph=True) for case in cases)


REPORTS = {"training": training, "matrix": matrix, "evaluation": evaluation, "graphs": graphs}


def evaluation_of(n: int, device: torch.device, images: int, repeats: int) -> dict[str, Any]:
    """Time loss and accuracy of n logistic models in turns with one product of that size.

    Each is called twice per turn, and the first call is not timed. The result has the seconds of
    both and the ratio of their medians.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(images, *LOGISTIC.shape, generator=generator).to(device)
    examples = Examples(inputs, None, inputs.dtype)
    labels = (torch.arange(images) % 10).to(device)
    module = LOGISTIC.build().to(device)
    layout = Layout.of(module)
    models = Population.alone(torch.randn(n, layout.d, generator=generator).to(device), layout)
    evaluated = dict.fromkeys(range(n), torch.arange(images, device=device))
    weight = models.flat[:, :-10].reshape(n * 10, -1).T.contiguous()
    out = torch.empty(images, n * 10, device=device)

    def timed(function) -> list[float]:
        return [seconds_of(function, device) for _ in range(2)][1:]

    threads = torch.get_num_threads()
    plan = engine_plan.Plan("batched", n, threads if device.type == "cpu" else 1, threads)
    batches = Batches([np.arange(images)], seed=0)
    executor = Executor(plan, examples, labels, batches, dense_gradients)
    how = evaluation_plan(module, examples(torch.arange(2, device=device)))

    def ours() -> None:
        with executor.threads():
            evaluate(how, models, executor, evaluated)

    ways = {
        "ours": partial(timed, ours),
        "product": partial(timed, lambda: torch.mm(inputs.flatten(1), weight, out=out)),
    }
    times = in_turns(ways, repeats)
    ratio = statistics.median(times["ours"]) / statistics.median(times["product"])
    return {"n": n, "images": images, **times, "ratio": ratio}


def whole_run(device: torch.device, case: Case, epochs: int, images: int) -> dict[str, Any]:
    """Time a run of logistic regression on D-Cliques that evaluates all nodes every epoch.

    An epoch is timed from the end of its last round to the end of the next epoch's last round, with
    one evaluation in between. The result has the seconds of the epochs, those of the authors'
    simulator, and the ratio of these to the median epoch.
    """
    clients = clients_of(case, test=images)
    graph, algorithm = setting(case, clients)
    steps = -(-case.network.examples // case.n // case.batch_size)
    stamps, stamp = stamps_of_rounds(device)
    topofl.run(
        algorithm,
        model=case.network.build(),
        clients=clients,
        topology=graph,
        rounds=steps * (epochs + 2),
        evaluation=steps,
        compute=device,
        seed=0,
        progress=False,
        callbacks=[stamp],
    )
    lasts = [float(second) for second in np.diff(stamps[steps - 1 :: steps])[1:]]
    simulator = steps * (case.simulator or 0) + case.n * SIMULATOR_NODE * images / IMAGES
    ratio = simulator / statistics.median(lasts)
    return {"epochs": lasts, "simulator": simulator, "ratio": ratio}


def evaluation_table(evaluations: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> Table:
    """Return the table of evaluation times."""
    rows = []
    for one in evaluations:
        ours, product = (1e3 * statistics.median(one[name]) for name in ("ours", "product"))
        simulator = 1e3 * one["n"] * SIMULATOR_NODE * one["images"] / IMAGES
        label = f"{one['n']} logistic models on {one['images']:,} images"
        rows.append((label, ours, product, one["ratio"], simulator, simulator / ours))
    none = NotApplicable("a run is no single product")
    ours = 1e3 * statistics.median(run["epochs"])
    label = "an epoch of 4 steps and the evaluation, D-Cliques + CA, 100 nodes"
    rows.append((label, ours, none, none, 1e3 * run["simulator"], run["ratio"]))
    columns = ("evaluation", "ours ms", "one product ms", "ours / product")
    return Table((*columns, "simulator ms *", "simulator / ours *"), tuple(rows), title=title())
