"""The benchmark's command line: cases, options, refusals and files."""

import json
from dataclasses import replace

import pytest

from analysis.benchmark import command, timing
from analysis.benchmark.cases import (
    TRAINING,
    matrix_cases,
    networks,
)
from analysis.benchmark.report import title
from tests.analysis.benchmark.test_steps import CPU, TINY

__all__ = []


def test_evaluation_beside_a_product(monkeypatch):
    found = command.evaluation_of(3, CPU, images=50, repeats=2)
    assert (len(found.ours), len(found.product)) == (2, 2)
    assert command.EvaluationTimes(3, 50, [1.0, 3.0, 2.0], [1.0]).ratio == 2.0


def test_whole_run_has_an_evaluation_every_epoch():
    found = command.whole_run(CPU, replace(TINY, simulator=7.0), epochs=2, images=100)
    assert len(found.epochs) == 2
    assert found.simulator == pytest.approx(3 * 7.0 + 4 * 0.5 * 100 / 10_000)
    times = command.EvaluationTimes(4, 100, [0.1], [0.05])
    table = command.evaluation_table([times], found, "here")
    assert table.rows[0][1:] == pytest.approx((100.0, 50.0, 2.0, 20.0, 0.2))
    assert table.rows[1][-1] == found.ratio


def test_matrix_has_every_combination():
    labels = [case.label for case in matrix_cases()]
    assert len(set(labels)) == len(labels) == len(networks()) * 3 * 2
    assert max(case.batch_size * case.n for case in matrix_cases()) <= 50_000


@pytest.fixture
def tiny(monkeypatch):
    cases = (TINY, replace(TINY, label="half", precision="bf16"))
    monkeypatch.setattr(command, "quick_cases", lambda what: cases)
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: False)


@pytest.mark.parametrize(("what", "rows"), [("training", 2), ("matrix", 2 * 3), ("evaluation", 3)])
def test_command_line(what, rows, tiny, capsys, tmp_path):
    assert command.main([what, "--quick", "--out", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results" / f"cpu-{what}.md").read_text()
    numbers = json.loads((tmp_path / "results" / f"cpu-{what}.json").read_text())
    table = page.split("\n\n")[1].splitlines()
    assert len(table) == rows + 2
    assert {"machine", "software", "threads", "load", "date", "options"} <= set(numbers)
    assert title() in page
    assert "**Targets**" not in page, "tiny sizes have no verdicts"
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
    assert command.cases_of("training") == TRAINING
    assert command.cases_of("matrix") == matrix_cases()
    assert command.cases_of("graphs") == ()


def test_quick_cases_are_small():
    for what in ("training", "matrix"):
        cases = command.quick_cases(what)
        assert max(case.n * case.batch_size for case in cases) <= 80
    assert [case.label for case in command.quick_cases("training")] == [
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
