"""The benchmark's tables, verdicts, roofline and figure follow from the measurements."""

import pytest

from analysis.benchmark import report
from analysis.benchmark.cases import TRAINING
from analysis.benchmark.report import (
    Point,
    TargetCheck,
    checks_of_matrix,
    checks_of_training,
    memory_ratio,
    verdicts,
)
from analysis.benchmark.timing import EXECUTORS, Measured, saved_bytes
from tests.analysis.benchmark.test_steps import CPU, TINY
from topofl import NotApplicable, Table

__all__ = []


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


@pytest.mark.parametrize(
    ("measured", "at_least", "verdict"),
    [(1.5, False, "met"), (1.51, False, "not met"), (1.5, True, "met"), (1.49, True, "not met")],
)
def test_verdicts(measured, at_least, verdict):
    (row,) = verdicts([TargetCheck("what", measured, 1.5, at_least)]).rows
    assert row == ("what", measured, "at least 1.5" if at_least else "at most 1.5", verdict)


def test_without_a_number_there_is_no_verdict():
    reason = NotApplicable("too slow")
    assert TargetCheck("what", reason, 1.5).verdict is reason


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
    assert memory_ratio(Measured(TINY, SECONDS), "auto").reason == "not requested"
    assert memory_ratio(Measured(TINY, {}, {"auto": "too slow"}), "auto").reason == "too slow"
    unknown = NotApplicable("not known")
    assert memory_ratio(Measured(TINY, SECONDS, memory={"auto": unknown}), "auto") is unknown


def test_arithmetic_of_a_step():
    assert (
        report.flops(TINY) == 4 * 4 * 7840 * 2 * 2
    )  # nodes, examples, weights; forward and backward
    parameters, minibatch = 7850 * 4, 4 * 784 * 4
    per_node = 2 * minibatch + 2 * saved_bytes(TINY) + 8 * parameters
    assert report.moved_bytes(TINY) == 4 * per_node


@pytest.mark.parametrize(("copy", "bound"), [(1e3, "bytes"), (1e30, "arithmetic")])
def test_share_of_what_is_attainable(copy, bound):
    rates = report.Rates(fp32=1e6, bf16=1e6, copy=copy)
    table = report.roofline(
        [Measured(TINY, SECONDS), Measured(TINY, {}, {"auto": "too slow"})], rates
    )
    row, left_out = table.rows
    attainable = report.moved_bytes(TINY) / 1e3 if copy == 1e3 else report.flops(TINY) / 1e6
    assert row[3:] == (
        bound,
        1e3 * attainable,
        1e3,
        2e3,
        attainable / 2.0,
    )  # the better executor takes 2 s
    assert left_out[6].reason == left_out[7].reason == "too slow"


def test_rates_are_measured():
    rates = report.measured_rates(CPU, size=32, megabytes=1)
    assert min(rates.fp32, rates.bf16, rates.copy) > 0


def test_picture(tmp_path):
    points = [
        Point("one", "batched", 1.2, 1.5),
        Point("one", "auto", 1.3, 1.5),
        Point("two", "looped", 40.0),
    ]
    paths = report.draw(points, tmp_path / "cpu-2.5", "here")
    assert [path.name for path in paths] == ["cpu-2.5.png", "cpu-2.5.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    text = paths[1].read_text()
    assert "<svg" in text
    report.draw(points, tmp_path / "again", "here")
    assert (tmp_path / "again.svg").read_text() == text
    assert report.draw([], tmp_path / "none") == []


def test_tables_without_numbers_print():
    empty = [Measured(TINY, {}, dict.fromkeys(EXECUTORS, "too slow"), NotApplicable("too slow"))]
    for table in (report.training_table(empty), report.matrix_table(empty)):
        assert isinstance(table, Table)
        assert "too slow" in table.to_markdown()
