"""The benchmark's reports: training steps, the matrix of networks, evaluation, and large graphs."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from . import evaluation as benchmark_evaluation
from . import graphs as graph_benchmark
from .cases import LOGISTIC, TRAINING, Case, matrix_cases, on_few_nodes
from .report.measured import Measured
from .report.page import Report, title
from .report.roofline import measured_rates, roofline
from .report.tables import (
    matrix_table,
    points_of,
    raw_of,
    raw_of_checks,
    training_table,
    verdict_tables,
)
from .report.targets import FLOOR, LENET_FLOOR, checks_of_matrix, checks_of_training
from .timing import Plan, measure

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


def training(plan: Plan, cases: Sequence[Case], *, quick: bool = False) -> Report:
    """Return the report of training steps, evaluation and a whole run, with all targets."""
    found = [_measured(case, plan) for case in cases]
    evaluated = evaluation(plan, [measured.case for measured in found], quick=quick)
    rates = measured_rates(plan.device, *([64, 1] if quick else []))
    (first, *_), run = evaluated.raw["evaluations"], evaluated.raw["whole_run"]
    checks = checks_of_training(found, first["ratio"], run["ratio"])
    targets = {c.label: FLOOR if c.network.is_linear else LENET_FLOOR for c in cases}
    raw = {
        "cases": [raw_of(m) for m in found],
        "rates": asdict(rates),
        "checks": raw_of_checks(checks),
        **evaluated.raw,
    }
    tables = [
        training_table(found),
        *verdict_tables(checks, quick),
        *evaluated.tables,
        roofline(found, rates),
    ]
    points = points_of(found, targets, plan.executors)
    return Report(
        f"{plan.device.type}-training", tables, [_star(plan), NAIVE, SAME, TARGETS], points, raw
    )


SAME = (
    "auto / better executor is 1 where auto ran in every turn what the better one ran: there is "
    "nothing to compare."
)


def matrix(plan: Plan, cases: Sequence[Case], *, quick: bool = False) -> Report:
    """Return the report of D-SGD for all networks, numbers of nodes, executors and precisions."""
    found = [_measured(case, plan) for case in cases]
    rates = measured_rates(plan.device, *([64, 1] if quick else []))
    checks = checks_of_matrix(found)
    raw = {
        "cases": [raw_of(m) for m in found],
        "rates": asdict(rates),
        "checks": raw_of_checks(checks),
    }
    tables = [matrix_table(found), *verdict_tables(checks, quick), roofline(found, rates)]
    return Report(
        f"{plan.device.type}-matrix",
        tables,
        [NAIVE, SAME],
        points_of(found, {}, plan.executors),
        raw,
    )


def evaluation(plan: Plan, cases: Sequence[Case] = (), *, quick: bool = False) -> Report:
    """Return the report of evaluation, and of a whole run of the first training case."""
    _announce("evaluation")
    images, nodes = (
        (QUICK_IMAGES, (10, 20)) if quick else (benchmark_evaluation.IMAGES, (100, 1000))
    )
    of = [
        benchmark_evaluation.evaluation_of(n, plan.device, images=images, repeats=plan.repeats)
        for n in nodes
    ]
    standard = quick_cases("training")[0] if quick else TRAINING[0]
    case = next((case for case in cases if case.label == standard.label), standard)
    run = benchmark_evaluation.whole_run(
        plan.device, case, epochs=1 if quick else 10, images=images
    )
    raw = {"evaluations": [asdict(one) | {"ratio": one.ratio} for one in of]}
    raw |= {"whole_run": asdict(run) | {"ratio": run.ratio}}
    return Report(
        f"{plan.device.type}-evaluation",
        [benchmark_evaluation.table(of, run, title())],
        [STAR],
        (),
        raw,
    )


def graphs(plan: Plan, cases: Sequence[Case] = (), *, quick: bool = False) -> Report:
    """Return the report of large graphs, which are timed on CPU and have no quick sizes."""
    del plan, cases, quick
    return Report("cpu-graphs", [graph_benchmark.measure(title=title())])


def _measured(case: Case, plan: Plan) -> Measured:
    _announce(case.label)
    return measure(case, plan)


def _star(plan: Plan) -> str:
    return STAR if plan.simulator is None else STAR_HERE


def _announce(what: str) -> None:
    print(f"timing {what} ...", file=sys.stderr, flush=True)


def cases_of(what: str) -> tuple[Case, ...]:
    """Return the cases of a report; none if it does not time cases."""
    return {"training": TRAINING, "matrix": matrix_cases()}.get(what, ())


def quick_cases(what: str) -> tuple[Case, ...]:
    """Return tiny cases, which only show that everything works."""
    cases = (
        TRAINING
        if what == "training"
        else [case for case in matrix_cases((10,)) if case.network is LOGISTIC]
    )
    return tuple(on_few_nodes(replace(case, batch_size=4), 20, same_graph=True) for case in cases)


REPORTS = {"training": training, "matrix": matrix, "evaluation": evaluation, "graphs": graphs}


QUICK = "A quick run on tiny sizes: it shows that everything works; its numbers mean nothing."


QUICK_IMAGES = 200
