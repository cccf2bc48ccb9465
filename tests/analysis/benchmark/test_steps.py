"""The benchmark's floors compute what the engine computes; timing is not part of the suite."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import topofl
from analysis.benchmark import command, evaluation, measurements, timing
from analysis.benchmark.cases import (
    GN_LENET,
    LOGISTIC,
    TRAINING,
    Case,
    clients_of,
    matrix_cases,
    networks,
    on_few_nodes,
    setting,
)
from analysis.benchmark.report import page as report
from analysis.benchmark.report import plot, roofline, tables
from analysis.benchmark.report.measured import Measured
from analysis.benchmark.report.plot import Point
from analysis.benchmark.report.targets import (
    Check,
    checks_of_matrix,
    checks_of_training,
    memory_ratio,
    verdicts,
)
from analysis.benchmark.steps import floor as floor_steps
from analysis.benchmark.steps import floor_state, memory, naive_loop
from analysis.benchmark.steps.engine import engine_steps
from analysis.benchmark.steps.floor import floors
from analysis.benchmark.steps.floor_state import Floor
from analysis.benchmark.steps.stopwatch import in_turns
from analysis.benchmark.timing import EXECUTORS, Plan, measure
from tests import problems
from topofl import NotApplicable, Table

CPU = torch.device("cpu")
QUICK = Plan(CPU, rounds=1, repeats=1, naive_nodes=0, memory=False)


def small(case, n=20, batch_size=4, **changes):
    return on_few_nodes(replace(case, batch_size=batch_size, **changes), n, same_graph=True)


TINY = small(TRAINING[1], 4)

STEPS = {
    "D-Cliques + CA": small(TRAINING[0]),
    "more than one chunk": small(TRAINING[0], 110),
    "complete graph": small(TRAINING[1], 8),
    "exponential graph": small(matrix_cases()[0], 8),
    "GN-LeNet with momentum + CA": small(TRAINING[4], batch_size=2),
    "GN-LeNet on an exponential graph": small(Case("", GN_LENET, 4, 2), 4, 2),
}


def ways(case):
    stacked = floors(case, "batched", CPU) | {
        "10": floor_steps._stacked(10, floor_steps._mapped_gradients)
    }
    looped = floors(case, "looped", CPU) | {"2 Python threads": floor_steps._threads(2)}
    return stacked | looped


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS.keys())
def test_floors_do_the_work_of_the_engine(case):
    clients = clients_of(case)
    graph, algorithm = setting(case, clients)
    after = {}
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


def test_floor_in_bf16_is_near_that_in_fp32_but_coarser():
    flats = []
    for precision in ("fp32", "bf16"):
        case = replace(TINY, precision=precision)
        floor_state = Floor.build(case, clients_of(case), CPU)
        with floor_steps._looped(floor_state) as step:
            step(0)
        flats.append(floor_state.flat - Floor.build(case, clients_of(case), CPU).flat)
    exact, coarse = flats
    assert 1e-4 < (exact - coarse).norm() / exact.norm() < 3e-2


@pytest.mark.parametrize(("n", "reason"), [(20, "cliques of"), (7, "equally many")])
def test_settings_without_a_floor(n, reason, monkeypatch):
    case = replace(
        TINY, network=replace(LOGISTIC, examples=4 * n - 2 if n == 7 else 40), n=n, batch_size=2
    )
    clients = clients_of(case)
    if n == 20:
        case = replace(case, graph="dcliques", clique_averaging=True)
        groups = topofl.topologies.dcliques(clients.label_counts, clique_size=6, seed=0)
        monkeypatch.setattr(floor_state, "setting", lambda *_: (groups, None))
    with pytest.raises(ValueError, match=reason):
        Floor.build(case, clients, CPU)


def test_fastest_way_is_one_of_them():
    case = STEPS["GN-LeNet with momentum + CA"]
    assert floor_steps.fastest(case, "batched", clients_of(case), CPU) in floors(
        case, "batched", CPU
    )


def test_order_alternates_from_turn_to_turn():
    called = []
    found = in_turns(
        {name: lambda name=name: called.append(name) or [len(called)] for name in "abc"}, 3
    )
    assert "".join(called) == "abccbaabc"
    assert found == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


def test_ours_are_the_seconds_of_as_many_rounds_as_asked():
    seconds, history = engine_steps(TINY, clients_of(TINY), 3, CPU, "looped")
    assert len(seconds) == 3
    assert min(seconds) > 0
    assert (history.meta["executor"], history.meta["rounds"]) == ("looped", 5)


def test_every_way_is_timed():
    measured = measure(TINY, replace(QUICK, naive_nodes=2))
    assert set(measured.seconds) == {*EXECUTORS, "floor batched", "floor looped"}
    assert set(measured.chosen) == set(measured.seconds)
    assert measured.skipped == {}
    assert (measured.naive_nodes, measured.naive > 0) == (2, True)
    assert measured.chosen["auto"] == "batched, chunk 4"


def test_what_ran_is_described():
    meta = {"executor": "looped", "workers": 2, "chunk": 1}
    assert timing._described(meta) == "looped, 2 workers, chunk 1"
    assert timing._described(meta | {"workers": 1}) == "looped, chunk 1"


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
    assert missing.ratio("looped") == NotApplicable("not asked for")


def test_what_ran_as_an_executor_did_is_not_compared_with_it():
    chosen = {
        "batched": "batched, chunk 4",
        "looped": "looped, chunk 1",
        "auto": "batched, chunk 4",
    }
    assert (
        Measured(TINY, SECONDS, chosen=chosen).auto_over_better() == 1
    )  # 2.25, the median of both, of its own
    slower = SECONDS | {"looped": [1.5]}
    assert (
        Measured(TINY, slower, chosen=chosen).auto_over_better() == 1.5
    )  # 2.25 over 1.5: looped was the better choice
    mixed = chosen | {"auto": "batched, chunk 4 or looped, chunk 1"}
    assert Measured(TINY, SECONDS, chosen=mixed).auto_over_better() == 1.25
    both = mixed | {"batched": mixed["auto"]}  # but perhaps not in the same turns
    assert Measured(TINY, SECONDS, chosen=both).auto_over_better() == 1.25


def test_everything_that_ran_in_some_turn_is_recorded(monkeypatch):
    metas = iter(["batched", "looped", "batched"])

    def timed(*given):
        return [1.0], SimpleNamespace(meta={"executor": next(metas), "workers": 1, "chunk": 1})

    monkeypatch.setattr(timing, "engine_steps", timed)
    chosen = {}
    for _ in range(3):
        timing._timer(TINY, None, QUICK, "auto", 1.0, chosen)
    assert chosen == {"auto": "batched, chunk 1 or looped, chunk 1"}


def test_bf16_is_left_out_where_it_is_emulated(monkeypatch):
    case = replace(TINY, precision="bf16")
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: False)
    measured = measure(case, QUICK)
    assert measured.seconds == {}
    assert "--force-bf16" in measured.step("auto").reason
    assert timing.refusal(case, replace(QUICK, force_bf16=True)) == ""
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: True)
    assert timing.refusal(case, QUICK) == ""


def test_what_does_not_fit_into_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(timing, "free_memory", lambda device: 2**20)
    row = tables.matrix_table([measure(replace(TINY, n=1000), QUICK)]).rows[0]
    reasons = {cell.reason for cell in row if isinstance(cell, NotApplicable)}
    assert len(reasons) == 1
    assert "GiB" in reasons.pop()


def test_what_takes_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(
        timing, "_node_seconds", lambda case, way, device: 9 if way == "looped" else 1e-9
    )
    measured = measure(TINY, replace(QUICK, budget=100))
    assert set(measured.seconds) == {"batched", "auto", "floor batched"}
    assert (
        measured.step("looped").reason
        == "a step takes about 40 s, 3 of them more than the 100 s of --budget"
    )
    assert measured.ratio("auto") > 0
    assert measured.auto_over_better() == measured.step("looped")


def test_what_runs_out_of_memory_is_left_out(monkeypatch):
    def too_large(opened, floor, steps):
        raise torch.OutOfMemoryError("tried to allocate 1 TiB\nand so on")

    monkeypatch.setattr(timing, "_node_seconds", lambda *_: 1e-9)
    monkeypatch.setattr(timing, "steps_of", too_large)
    measured = measure(TINY, replace(QUICK, repeats=2))
    assert set(measured.seconds) == set(EXECUTORS)
    assert measured.ratio("looped").reason == "out of memory: tried to allocate 1 TiB"


def test_floor_that_runs_out_of_memory_is_not_the_fastest(monkeypatch):
    case = STEPS["GN-LeNet with momentum + CA"]

    def tried(opened, floor, steps):
        if opened == "large":
            raise torch.OutOfMemoryError
        return [1.0]

    monkeypatch.setattr(floor_steps, "steps_of", tried)
    monkeypatch.setattr(floor_steps, "floors", lambda *_: {"a": "large", "b": "small"})
    assert floor_steps.fastest(case, "batched", clients_of(case), CPU) == "b"


def test_naive_loop_on_some_nodes_is_scaled_up(monkeypatch):
    seconds = iter([1.0, 10.0])
    monkeypatch.setattr(
        naive_loop, "seconds_of", lambda function, device: function() or next(seconds)
    )
    assert naive_loop.naive_step(TINY, clients_of(TINY), 2) == 1.0 * 2 + 10.0 * 4


@pytest.mark.parametrize("case", [TINY, STEPS["D-Cliques + CA"]])
def test_naive_loop_on_all_nodes(case):
    assert naive_loop.naive_step(case, clients_of(case), case.n) > 0


@pytest.mark.parametrize(
    ("measured", "at_least", "verdict"),
    [(1.5, False, "met"), (1.51, False, "not met"), (1.5, True, "met"), (1.49, True, "not met")],
)
def test_verdicts(measured, at_least, verdict):
    (row,) = verdicts([Check("what", measured, 1.5, at_least)]).rows
    assert row == ("what", measured, "at least 1.5" if at_least else "at most 1.5", verdict)


def test_without_a_number_there_is_no_verdict():
    reason = NotApplicable("too slow")
    assert Check("what", reason, 1.5).verdict is reason


def test_every_target_has_a_row():
    memory = {"auto": {"peak": 260, "bound": 200}}
    found = [Measured(case, SECONDS, memory=memory) for case in TRAINING]
    checks = {c.what: c for c in checks_of_training(found, 2.5, 99.0)}
    assert {
        c.what: (c.measured, c.target, c.verdict) for c in checks_of_training(found[:1], 2.5, 99.0)
    } == {
        "ours / floor: D-Cliques + CA, 100 x 128": (2.5, 1.5, "not met"),
        "auto / better executor: D-Cliques + CA, 100 x 128": (1.25, 1.05, "not met"),
        "peak memory / lower bound: D-Cliques + CA, 100 x 128": (1.3, 1.3, "met"),
        "simulator / ours: D-Cliques + CA, 100 x 128 *": (0.11 / 2.5, 9, "not met"),
        "evaluation of 100 logistic models on 10,000 images / one product": (2.5, 2.0, "not met"),
        "simulator / ours: run with evaluation every epoch *": (99.0, 100.0, "not met"),
    }
    assert checks["looped / floor: GN-LeNet, 100 x 20"].verdict == "met"
    assert checks["looped / floor: GN-LeNet, 100 x 20"].target == 1.1
    assert checks["fp32 / bf16, looped: GN-LeNet, 100 x 20"].measured == 1.0
    assert [c.target for what, c in checks.items() if what.startswith("simulator")] == [
        9,
        25,
        30,
        1000,
        2.3,
        4.5,
        100,
    ]
    assert len(checks_of_matrix(found)) == len(found)


def test_memory_ratio_has_a_reason_where_there_is_none():
    assert memory_ratio(Measured(TINY, SECONDS), "auto").reason == "not asked for"
    assert memory_ratio(Measured(TINY, {}, {"auto": "too slow"}), "auto").reason == "too slow"
    unknown = NotApplicable("not known")
    assert memory_ratio(Measured(TINY, SECONDS, memory={"auto": unknown}), "auto") is unknown


def test_bytes_kept_for_the_backward_pass():
    minibatch, log_softmax, labels = 4 * 784 * 4, 4 * 10 * 4, 4 * 8
    assert (
        memory.saved_bytes(TINY) == minibatch + log_softmax + labels + 4
    )  # one float: the sum of weights
    data = 40 * (784 * 4 + 8)
    floats = memory.lower_bound(TINY, nodes=3, stored=4)
    assert floats == 4 * 7850 * 4 + 3 * memory.saved_bytes(TINY) + data
    bound = memory.lower_bound(TINY, nodes=3)
    assert floats - bound == 40 * 784 * 3, (
        "pixels are stored as bytes, as in the benchmark's own data"
    )
    assert clients_of(TINY).dataset.inputs.dtype == torch.uint8
    with_momentum = memory.lower_bound(replace(TINY, momentum=0.9), nodes=3)
    assert with_momentum - bound == 4 * 7850 * 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports peak memory")
def test_peak_memory_holds_the_data():
    case = replace(TINY, network=replace(LOGISTIC, examples=20_000))
    assert memory.peak_bytes(case, "auto", CPU) > 20_000 * 784


def test_unknown_peak_memory_has_a_reason(monkeypatch):
    def unknown(case, executor, device):
        raise OSError("no such file")

    monkeypatch.setattr(timing, "peak_bytes", unknown)
    cell = timing._memory_of(TINY, "auto", QUICK, {"auto": "batched, chunk 4"})
    assert cell.reason == "peak memory is not available here: no such file"


def test_arithmetic_of_a_step():
    assert (
        roofline.flops(TINY) == 4 * 4 * 7840 * 2 * 2
    )  # nodes, examples, weights; forward and backward
    parameters, minibatch = 7850 * 4, 4 * 784 * 4
    per_node = 2 * minibatch + 2 * memory.saved_bytes(TINY) + 8 * parameters
    assert roofline.moved_bytes(TINY) == 4 * per_node


@pytest.mark.parametrize(("copy", "bound"), [(1e3, "bytes"), (1e30, "arithmetic")])
def test_share_of_what_is_attainable(copy, bound):
    rates = roofline.Rates(fp32=1e6, bf16=1e6, copy=copy)
    table = roofline.roofline(
        [Measured(TINY, SECONDS), Measured(TINY, {}, {"auto": "too slow"})], rates
    )
    row, left_out = table.rows
    attainable = roofline.moved_bytes(TINY) / 1e3 if copy == 1e3 else roofline.flops(TINY) / 1e6
    assert row[3:] == (
        bound,
        1e3 * attainable,
        1e3,
        2e3,
        attainable / 2.0,
    )  # the better executor takes 2 s
    assert left_out[6].reason == left_out[7].reason == "too slow"


def test_rates_are_measured():
    rates = roofline.measured_rates(CPU, size=32, megabytes=1)
    assert min(rates.fp32, rates.bf16, rates.copy) > 0


def test_evaluation_beside_a_product(monkeypatch):
    found = evaluation.evaluation_of(3, CPU, images=50, repeats=2)
    assert (len(found.ours), len(found.product)) == (2, 2)
    assert evaluation.Evaluation(3, 50, [1.0, 3.0, 2.0], [1.0]).ratio == 2.0


def test_whole_run_has_an_evaluation_every_epoch():
    found = evaluation.whole_run(CPU, replace(TINY, simulator=7.0), epochs=2, images=100)
    assert len(found.epochs) == 2
    assert found.simulator == pytest.approx(3 * 7.0 + 4 * 0.5 * 100 / 10_000)
    table = evaluation.table([evaluation.Evaluation(4, 100, [0.1], [0.05])], found, "here")
    assert table.rows[0][1:] == pytest.approx((100.0, 50.0, 2.0, 20.0, 0.2))
    assert table.rows[1][-1] == found.ratio


def test_matrix_has_every_combination():
    labels = [case.label for case in matrix_cases()]
    assert len(set(labels)) == len(labels) == len(networks()) * 3 * 2
    assert max(case.batch_size * case.n for case in matrix_cases()) <= 50_000


def test_picture(tmp_path):
    points = [
        Point("one", "batched", 1.2, 1.5),
        Point("one", "auto", 1.3, 1.5),
        Point("two", "looped", 40.0),
    ]
    paths = plot.draw(points, tmp_path / "cpu-2.5", "here")
    assert [path.name for path in paths] == ["cpu-2.5.png", "cpu-2.5.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    text = paths[1].read_text()
    assert "<svg" in text
    plot.draw(points, tmp_path / "again", "here")
    assert (tmp_path / "again.svg").read_text() == text
    assert plot.draw([], tmp_path / "none") == []


@pytest.fixture
def tiny(monkeypatch):
    cases = (TINY, replace(TINY, label="half", precision="bf16"))
    monkeypatch.setattr(command, "quick_cases", lambda what: cases)
    monkeypatch.setattr(measurements, "quick_cases", lambda what: cases)
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: False)


@pytest.mark.parametrize(("what", "rows"), [("training", 2), ("matrix", 2 * 3), ("evaluation", 3)])
def test_command_line(what, rows, tiny, capsys, tmp_path):
    assert command.main([what, "--quick", "--out", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results" / f"cpu-{what}.md").read_text()
    numbers = json.loads((tmp_path / "results" / f"cpu-{what}.json").read_text())
    table = page.split("\n\n")[1].splitlines()
    assert len(table) == rows + 2
    assert {"machine", "software", "threads", "load", "date", "options"} <= set(numbers)
    assert report.title() in page
    assert "Held to" not in page, "tiny sizes have no verdicts"
    assert "mean nothing" in capsys.readouterr().out
    assert (tmp_path / "results" / f"cpu-{what}.png").exists() == (what != "evaluation")
    if what != "evaluation":
        assert "[1] bf16 on a processor without" in page
        assert len(numbers["cases"][0]["seconds"]["auto"]) == 2
        assert "emulated" in numbers["cases"][1]["skipped"]["auto"]
        assert {
            check["verdict"] for check in numbers["checks"] if isinstance(check["verdict"], str)
        } <= {
            "met",
            "not met",
        }


def test_only_some_cases(tiny, tmp_path):
    assert (
        command.main(["matrix", "--quick", "--no-naive", "--only", "half", "--out", str(tmp_path)])
        == 0
    )
    numbers = json.loads((tmp_path / "cpu-matrix.json").read_text())
    assert [case["case"] for case in numbers["cases"]] == ["half"]


def test_unknown_labels_are_refused_with_the_known_ones(capsys):
    assert command.main(["training", "--only", "GN-VGG"]) == 2
    assert "got 'GN-VGG'; labels: D-Cliques + CA, 100 x 128, fully-" in capsys.readouterr().err


def test_impossible_options_are_refused_before_anything_is_timed(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert command.main(["--out", str(tmp_path / "file")]) == 2
    assert "error: --out: " in capsys.readouterr().err
    assert command.main(["--device", "tpu"]) == 2
    assert "error: --device: `device` must be such as" in capsys.readouterr().err
    for options in (["--rounds", "0"], ["--repeats", "-1"], ["--naive-nodes", "0"]):
        with pytest.raises(SystemExit):
            command.main(options)
        assert "must be at least 1, got" in capsys.readouterr().err


def test_graphs_have_no_tiny_sizes(capsys):
    assert command.main(["graphs", "--quick"]) == 2
    assert "--quick must be left out for graphs" in capsys.readouterr().err


def test_cases_of_a_report():
    assert measurements.cases_of("training") == TRAINING
    assert measurements.cases_of("matrix") == matrix_cases()
    assert measurements.cases_of("graphs") == ()


def test_quick_cases_are_small():
    for what in ("training", "matrix"):
        cases = measurements.quick_cases(what)
        assert max(case.n * case.batch_size for case in cases) <= 80
    assert [case.label for case in measurements.quick_cases("training")] == [
        case.label for case in TRAINING
    ]


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ([], None),
        (["matrix"], 10),
        (["--naive-nodes", "7"], 7),
        (["--no-naive"], 0),
        (["--quick"], 4),
    ],
)
def test_nodes_of_the_naive_loop(options, nodes):
    assert command._naive_nodes(command._parser().parse_args(options)) == nodes


def test_tables_without_numbers_print():
    empty = [Measured(TINY, {}, dict.fromkeys(EXECUTORS, "too slow"), NotApplicable("too slow"))]
    for table in (tables.training_table(empty), tables.matrix_table(empty)):
        assert isinstance(table, Table)
        assert "too slow" in table.to_markdown()
