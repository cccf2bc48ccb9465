"""The benchmark: floors compute what the engine computes, and tables follow from measurements."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import topofl
from analysis.benchmark import choice, command, convolution, graphs, report, timing
from analysis.benchmark import floor as floor_steps
from analysis.benchmark.cases import (
    GN_LENET,
    LOGISTIC,
    NETWORKS,
    TRAINING,
    Case,
    clients_of,
    matrix_cases,
    on_few_nodes,
    setting,
)
from analysis.benchmark.floor import Floor, floors
from analysis.benchmark.report import TargetCheck, checks_of_training, verdicts
from analysis.benchmark.timing import EXECUTORS, Measured, Plan, engine_steps, measure, saved_bytes
from analysis.program import in_turns
from tests import problems
from topofl import NotApplicable, topologies

CPU = torch.device("cpu")
QUICK = Plan(CPU, rounds=1, repeats=1, naive_nodes=0, memory=False)


def small(case, n=20, batch_size=4, **changes):
    return on_few_nodes(replace(case, batch_size=batch_size, **changes), n, same_graph=True)


TINY = small(TRAINING[1], 4)
CLIQUES = small(TRAINING[0])
CONVOLUTIONS = small(TRAINING[4], batch_size=2)
STEPS = {
    "complete graph": small(TRAINING[1], 8),
    "D-Cliques + CA": CLIQUES,
    "more than one chunk": small(TRAINING[0], 110),
    "exponential graph": small(matrix_cases()[0], 8),
    "GN-LeNet with momentum + CA": CONVOLUTIONS,
    "GN-LeNet on an exponential graph": small(Case("", GN_LENET, 4, 2), 4, 2),
}


def ways(case):
    stacked = floors(case, "batched", CPU)
    stacked |= {"10": floor_steps._stacked(10, floor_steps._mapped_gradients)}
    return stacked | floors(case, "looped", CPU) | {"2 Python threads": floor_steps._threads(2)}


@pytest.mark.parametrize(
    "label",
    [pytest.param(label, marks=pytest.mark.slow if k else ()) for k, label in enumerate(STEPS)],
)
def test_floors_do_the_work_of_the_engine(label):
    case = STEPS[label]
    clients, after = clients_of(case), {}
    graph, algorithm = setting(case, clients)
    topofl.run(
        algorithm,
        model=case.network.build(),
        clients=clients,
        topology=graph,
        rounds=2,
        evaluation=topofl.Evaluation(every=2, examples=1),
        compute="cpu",
        seed=0,
        init="given",
        progress=False,
        callbacks=[problems.each_round(lambda t, models: after.update({t: models.flat.clone()}))],
    )
    start = torch.nn.utils.parameters_to_vector(case.network.build().parameters()).detach()
    moved = (after[2] - start).abs().max()
    for name, opened in ways(case).items():
        floor_state = Floor.build(case, clients, CPU)
        assert_close(floor_state.models(), start.expand(case.n, -1))
        with opened(floor_state) as step:
            for t in (0, 1):
                step(t)
                worst = (floor_state.models() - after[t + 1]).abs().max()
                assert worst < 1e-3 * moved, (name, t)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with floor_steps._threads(2)(Floor.build(TINY, clients_of(TINY), CPU)) as step:
            step(0)
            assert torch.get_num_threads() == 2
        assert "2 Python threads" in floors(TINY, "looped", CPU)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("n", "reason"), [(20, "cliques of"), (7, "equally many")])
def test_settings_without_a_floor(n, reason, monkeypatch):
    network = replace(LOGISTIC, examples=4 * n - 2 if n == 7 else 40)
    case = replace(TINY, network=network, n=n, batch_size=2)
    clients = clients_of(case)
    if n == 20:
        case = replace(case, graph="dcliques", clique_averaging=True)
        groups = topologies.dcliques(clients.label_counts, clique_size=6, seed=0)
        monkeypatch.setattr(floor_steps, "setting", lambda *_: (groups, None))
    with pytest.raises(ValueError, match=reason):
        Floor.build(case, clients, CPU)


def test_order_alternates_from_turn_to_turn():
    called = []
    timed = {name: lambda name=name: called.append(name) or [len(called)] for name in "abc"}
    assert in_turns(timed, 3) == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}
    assert "".join(called) == "abccbaabc"


def test_every_way_is_timed():
    seconds, history = engine_steps(TINY, clients_of(TINY), 3, CPU, "looped")
    assert len(seconds) == 3
    assert min(seconds) > 0
    assert (history.meta["executor"], history.meta["rounds"]) == ("looped", 5)
    measured = measure(TINY, replace(QUICK, naive_nodes=2))
    assert set(measured.seconds) == {*EXECUTORS, "floor batched", "floor looped"}
    assert set(measured.chosen) == set(measured.seconds)
    assert measured.skipped == {}
    assert (measured.naive_nodes, measured.naive > 0) == (2, True)
    assert measured.chosen["auto"] == "batched, chunk 4"


def test_what_does_not_fit_or_takes_too_long_is_left_out_with_a_reason(monkeypatch):
    half = replace(TINY, precision="bf16")
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: False)
    measured = measure(half, QUICK)
    assert measured.seconds == {}
    assert "--force-bf16" in measured.step("auto").reason
    assert timing.refusal(half, replace(QUICK, force_bf16=True)) == ""
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: True)
    assert timing.refusal(half, QUICK) == ""
    with monkeypatch.context() as patch:
        patch.setattr(timing, "free_memory", lambda device: 2**20)
        row = report.matrix_table([measure(replace(TINY, n=1000), QUICK)]).rows[0]
    (reason,) = {cell.reason for cell in row if isinstance(cell, NotApplicable)}
    assert "GiB" in reason
    seconds = {"looped": 9}
    monkeypatch.setattr(timing, "_node_seconds", lambda case, way, _: seconds.get(way, 1e-9))
    measured = measure(TINY, replace(QUICK, budget=100))
    assert set(measured.seconds) == {"batched", "auto", "floor batched"}
    said = "a step takes about 40 s, 3 of them more than the 100 s of --budget"
    assert measured.step("looped").reason == said
    assert measured.ratio("auto") > 0
    assert measured.auto_over_better() == measured.step("looped")

    def too_large(opened, floor, steps):
        raise torch.OutOfMemoryError("tried to allocate 1 TiB\nand so on")

    seconds.clear()
    monkeypatch.setattr(timing, "steps_of", too_large)
    measured = measure(TINY, replace(QUICK, repeats=2))
    assert set(measured.seconds) == set(EXECUTORS)
    assert measured.ratio("looped").reason == "out of memory: tried to allocate 1 TiB"


def test_bytes_and_arithmetic_of_a_step():
    minibatch, log_softmax, labels = 4 * 784 * 4, 4 * 10 * 4, 4 * 8
    assert saved_bytes(TINY) == minibatch + log_softmax + labels + 4  # and the sum of weights
    data, parameters = 40 * (784 * 4 + 8), 7850 * 4
    floats = timing.lower_bound(TINY, nodes=3, stored=4)
    assert floats == 4 * parameters + 3 * saved_bytes(TINY) + data
    bound = timing.lower_bound(TINY, nodes=3)
    assert floats - bound == 40 * 784 * 3  # pixels are stored as bytes, as in the benchmark's data
    assert clients_of(TINY).dataset.inputs.dtype == torch.uint8
    with_momentum = timing.lower_bound(replace(TINY, momentum=0.9), nodes=3)
    assert with_momentum - bound == 4 * parameters
    # Nodes, examples, weights; forward and backward.
    assert report.flops(TINY) == 4 * 4 * 7840 * 2 * 2
    assert report.moved_bytes(TINY) == 4 * (2 * minibatch + 2 * saved_bytes(TINY) + 8 * parameters)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports peak memory")
@pytest.mark.slow
def test_peak_memory_holds_the_data():
    case = replace(TINY, network=replace(LOGISTIC, examples=20_000))
    assert timing.peak_bytes(case, "auto", CPU) > 20_000 * 784


def test_as_many_models_are_tried_by_a_choice_as_are_counted():
    table = choice.measure(n=4, validation=6, budgets=(None, 1), threads=1, repeats=1)
    tried = table.column("models tried")
    assert tried[0] == 4 * (2 * 3 + 2)
    assert 4 * 4 <= tried[1] <= tried[0]
    assert all(ratio > 0 for ratio in table.column("choice / bare"))


SECONDS = {
    "batched": [3.0, 1.0, 2.0],
    "looped": [4.0],
    "auto": [2.5],
    "floor batched": [1.0],
    "floor looped": [5.0],
}


def test_medians_and_ratios():
    measured = Measured(TINY, SECONDS)
    assert measured.step("batched") == 2.0
    assert [measured.ratio(executor) for executor in EXECUTORS] == [2.0, 0.8, 2.5]
    assert measured.auto_over_better() == 1.25
    missing = Measured(TINY, {"auto": [1.0], "looped": [1.0]}, {"batched": "too slow"})
    assert missing.auto_over_better() == NotApplicable("too slow")
    assert missing.ratio("looped") == NotApplicable("not requested")


@pytest.mark.parametrize(
    ("measured", "at_least", "verdict"),
    [(1.5, False, "met"), (1.51, False, "not met"), (1.5, True, "met"), (1.49, True, "not met")],
)
def test_verdicts(measured, at_least, verdict):
    (row,) = verdicts([TargetCheck("what", measured, 1.5, at_least)]).rows
    assert row == ("what", measured, "at least 1.5" if at_least else "at most 1.5", verdict)
    reason = NotApplicable("too slow")
    assert TargetCheck("what", reason, 1.5).verdict is reason


def test_every_target_has_a_row():
    memory = {"auto": {"peak": 260, "bound": 200}}
    found = [Measured(case, SECONDS, memory=memory) for case in TRAINING]
    case = "D-Cliques + CA, 100 x 128"
    first = checks_of_training(found[:1], 2.5, 99.0)
    assert {c.what: (c.measured, c.target, c.verdict) for c in first} == {
        f"ours / floor: {case}": (2.5, 1.5, "not met"),
        f"auto / better executor: {case}": (1.25, 1.05, "not met"),
        f"peak memory / lower bound: {case}": (1.3, 1.3, "met"),
        f"simulator / ours: {case} *": (0.11 / 2.5, 9, "not met"),
        "evaluation of 100 logistic models on 10,000 images / one product": (2.5, 2.0, "not met"),
        "simulator / ours: run with evaluation every epoch *": (99.0, 100.0, "not met"),
    }
    checks = {c.what: c for c in checks_of_training(found, 2.5, 99.0)}
    looped = checks["looped / floor: GN-LeNet, 100 x 20"]
    assert (looped.verdict, looped.target) == ("met", 1.1)
    assert checks["fp32 / bf16, looped: GN-LeNet, 100 x 20"].measured == 1.0
    targets = [c.target for what, c in checks.items() if what.startswith("simulator")]
    assert targets == [9, 25, 30, 1000, 2.3, 4.5, 100]
    assert len(report.checks_of_matrix(found)) == len(found)


def test_cases_are_complete_and_those_of_quick_are_small():
    labels = [case.label for case in matrix_cases()]
    assert len(set(labels)) == len(labels) == len(NETWORKS) * 3 * 2
    assert max(case.batch_size * case.n for case in matrix_cases()) <= 50_000
    for what in ("training", "matrix"):
        assert max(case.n * case.batch_size for case in command.quick_cases(what)) <= 80
    quick = [case.label for case in command.quick_cases("training")]
    assert quick == [case.label for case in TRAINING]


@pytest.mark.parametrize(("what", "rows"), [("training", 2), ("matrix", 2 * 3), ("evaluation", 3)])
def test_command_line(what, rows, monkeypatch, capsys, tmp_path):
    cases = (TINY, replace(TINY, label="half", precision="bf16"))
    monkeypatch.setattr(command, "quick_cases", lambda what: cases)
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: False)
    assert command.main([what, "--quick", "--out", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results" / f"cpu-{what}.md").read_text()
    numbers = json.loads((tmp_path / "results" / f"cpu-{what}.json").read_text())
    assert len(page.split("\n\n")[1].splitlines()) == rows + 2
    assert {"machine", "software", "threads", "load", "date", "options"} <= set(numbers)
    assert report.title() in page
    assert "**Targets**" not in page, "tiny sizes have no verdicts"
    assert "mean nothing" in capsys.readouterr().out
    assert (tmp_path / "results" / f"cpu-{what}.png").exists() == (what != "evaluation")
    if what != "evaluation":
        assert "[1] bf16 on a processor without" in page
        assert len(numbers["cases"][0]["seconds"]["auto"]) == 2
        assert "emulated" in numbers["cases"][1]["skipped"]["auto"]
    if what == "matrix":
        words = [what, "--quick", "--no-naive", "--only", "half", "--out", str(tmp_path)]
        assert command.main(words) == 0
        numbers = json.loads((tmp_path / "cpu-matrix.json").read_text())
        assert [case["case"] for case in numbers["cases"]] == ["half"]


# Peers have no time at all: a process each would take seconds.
FEW_NODES = graphs.GraphSizes(
    n=2_000, ring=4_000, nodes=20, rounds=60, fewer_rounds=30, restarts=20, limit=1e-3, repeats=1
)


def test_every_row_of_large_graphs_has_a_time_and_every_other_cell_a_time_or_a_reason():
    table = graphs.measure(FEW_NODES, title="here")
    assert table.columns == graphs.COLUMNS
    assert len(table.rows) == 5 + 2 + 2 + 2
    assert min(table.column("ours s")) > 0
    for name in ("bare scipy s", "ours / bare", "networkx s", "pygsp s"):
        for cell in table.column(name):
            assert cell.reason if isinstance(cell, NotApplicable) else cell > 0
    compared = [row for row in table.rows if not isinstance(row[4], NotApplicable)]
    assert len(compared) == 3
    assert [row[4] for row in compared] == [row[1] / row[3] for row in compared]
    by = dict(zip(table.column("graphs"), table.column("ours is"), strict=True))
    in_order = by["spectral gap of a ring, n=4,000, in order (bare: eigsh)"]
    assert in_order.startswith("circulant DFT, residual ")
    shuffled = next(text for label, text in by.items() if "shuffled" in label)
    assert shuffled.split(",")[0] in ("lanczos", "shift-invert")
    plain = [row[3] for row in table.rows if "ring, n=4,000" in row[0]]
    assert all("plain Lanczos did not converge in 20 restarts" in cell.reason for cell in plain)


def test_products_of_a_step_are_those_that_torch_counts():
    way = convolution.ways()["as it is"]
    with FlopCounterMode(display=False) as counter:
        way()
    assert counter.get_total_flops() == 2 * convolution.PRODUCTS


def test_all_ways_to_differentiate_a_convolutional_network_give_the_same_gradients():
    table = convolution.measure(repeats=1)
    ways = dict(zip(table.column("way"), table.column("difference of gradients"), strict=True))
    assert ways.pop("as it is") == 0
    for way, apart in ways.items():
        assert apart < (0.2 if "bfloat16" in way else 1e-5), way
        assert apart > 1e-3 or "bfloat16" not in way, "nothing was rounded"
    assert min(table.column("ms per step")) > 0
