"""Choosing between graphs by a predictor, and what is said of stored runs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from analysis.study import command, results, statistics
from analysis.study.fits import read_runs, write_runs
from tests.analysis.test_study import made_up_cells, small_cells, table, value
from topofl import data, metrics, models, topologies

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "analysis" / "results" / "study"
PAGE = (ROOT / "docs" / "what-predicts-convergence.md").read_text()


@pytest.fixture(scope="module")
def stored_cells():
    return read_runs(RESULTS / "runs.csv.gz")


def test_stored_runs_are_read_as_they_were_written(stored_cells, tmp_path):
    again = write_runs(stored_cells, tmp_path / "runs.csv.gz")
    assert again.read_bytes() == (RESULTS / "runs.csv.gz").read_bytes()
    assert len(stored_cells) == 96
    assert {cell.nodes for cell in stored_cells if cell.scenario == "MNIST 1000"} == {1000}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("H_10", "H_ten", "lacks ['H_10']"), ("digits 30", "digits 31", "only, got ['digits 31']")],
)
def test_tables_that_are_not_of_this_study_are_refused(old, new, message, tmp_path, capsys):
    write_runs(small_cells(), tmp_path / "runs.csv.gz")
    runs = pd.read_csv(tmp_path / "runs.csv.gz").rename(columns={old: new}).replace({old: new})
    runs.to_csv(tmp_path / "runs.csv.gz", index=False)
    words = ["--runs", str(tmp_path / "runs.csv.gz"), "--out", str(tmp_path)]
    assert command.main(words) == 2
    assert message in capsys.readouterr().err


def test_pairs_of_equal_degree_are_counted_as_defined():
    degree = np.array([4.0, 4.0, 4.4, 4.6, 4.0])
    accuracy = np.array([0.50, 0.505, 0.52, 0.60, 0.55])
    h_1 = np.array([3.0, 1.0, 3.0, 1.0, np.nan])
    given: dict[str, Any] = {"mean degree": degree, "H_10": -accuracy, "H_1": h_1}
    given["spectral gap"] = -accuracy
    cell = table("2 shards", accuracy, **given)
    # All but (0, 1), which differ by half a point, and those of 4.6 with 4, which are 14 % apart.
    assert statistics.ordered_pairs([cell], "H_10") == (6, 6, 6)
    assert statistics.ordered_pairs([cell, cell], "spectral gap") == (0, 12, 12)
    # (0, 2) is equal, (1, 2) is wrong, (2, 3) is right, and three pairs have a graph without it.
    assert statistics.ordered_pairs([cell], "H_1") == (1, 2, 6)
    said = statistics.pairs_said([cell])
    assert said is not None
    assert "of 6 pairs" in said
    assert "H_10 orders 100.0 % rightly, H_1 orders 50.0 % rightly" in said
    assert statistics.pairs_said([table("2 shards", accuracy)]) is None


def test_the_best_third_is_that_of_the_lowest_heterogeneity():
    h_10 = np.random.default_rng(0).permutation(np.arange(30.0))
    accuracy = np.where(h_10 < 10, h_10, -h_10)  # wrong among the ten lowest, right among the rest
    cell = table("2 shards", accuracy, H_10=h_10)
    assert value(statistics.best_third("H_10"), cell) == pytest.approx(1)
    assert len(statistics.best_third("H_10").known(cell)[1]) == 10
    assert value(statistics.correlation("H_10", "learning phase"), cell) < 0


def test_the_stored_report_has_the_table_of_its_runs(stored_cells):
    text = (RESULTS / "report.md").read_text()
    numbers = statistics.choice_table(statistics.first_cells(stored_cells)).to_markdown()
    assert f"{results.CHOICES}\n\n{numbers}\n" in text
    assert results.DEVIATIONS in text


def test_a_report_is_written_without_training_from_stored_runs(tmp_path, capsys):
    (cell,) = made_up_cells([0])
    degree = {"mean degree": np.full(len(cell.graphs), 4.0)}
    cells_ = [replace(cell, predictors={**cell.predictors, **degree})]
    runs = write_runs(cells_, tmp_path / "runs.csv.gz")
    assert command.main(["--runs", str(runs), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    said = statistics.pairs_said(cells_)
    assert said is not None
    assert f"{said}." in printed
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.md",
        "runs.csv.gz",
        "scatter.png",
    ]
    again = (tmp_path / "out" / "runs.csv.gz").read_bytes()
    assert again == runs.read_bytes()
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| 7: within families, H_10 |" in text
    assert "## Choosing between graphs" in text


def test_the_order_on_mnist_is_the_plain_rank_correlation(stored_cells):
    rows = {row[0]: row for row in results._of_order(stored_cells)}
    asked = [cell for cell in stored_cells if cell.scenario.startswith("MNIST")]
    plain = [
        -spearmanr(cell.predictors["H_10"], cell.outcomes["rounds to target"]).statistic
        for cell in asked
    ]
    shown = rows["8: H_10, MNIST, rounds to target"][1]
    assert shown.startswith(f"{np.median(plain):+.3f} ")
    text = (RESULTS / "report.md").read_text()
    for name, (_, found, *_) in rows.items():
        assert f"| {name} | {found} |" in text
    assert "held-out families, H_10" not in text


def test_the_page_and_the_readme_have_the_numbers_of_the_stored_runs(stored_cells):
    cells = statistics.first_cells(stored_cells)
    found = {row[0]: row for row in statistics.choice_table(cells).rows}
    shown = re.findall(r"^\| ([^|]+) \| (\d\S* %) \| ([-+]0\.\d+) \|$", PAGE, flags=re.MULTILINE)
    shown = {re.sub(r" \([\w ]+ et al.*|, of .*", "", name): rest for name, *rest in shown}
    assert list(shown) == ["H_10", "gradient mixing error", "H_1", "n_W(0.5)", "spectral gap"]
    for name, (share, third) in shown.items():
        assert (share, third) == (found[name][1], found[name][4])
    assert {found[name][3] for name in shown} == {2294}
    assert found["n_W(0.5)"][2] == found["spectral gap"][2] == 2014
    readme = (ROOT / "README.md").read_text()
    said = [found[name][1] for name in ("H_10", "H_1", "spectral gap")]
    assert re.findall(r"\d+\.\d %", readme.split("## Measured")[1].split("[What")[0]) == said


@pytest.mark.parametrize(
    ("claim", "start"),
    [
        (
            "D-SGD, skewed labels: H_10 and accuracy in the learning phase",
            "1: H_10, learning phase",
        ),
        ("the same: gradient mixing error", "gradient mixing error"),
        ("the same: H_1", "H_1"),
        ("the same: spectral gap", "spectral gap"),
        ("within families of graphs: H_10, learning phase", "7: within families, H_10"),
        ("MNIST: H_10 and rounds to a target", "8: H_10, MNIST, rounds to target"),
    ],
)
def test_correlations_of_the_page_are_those_of_the_report(claim, start):
    text = (RESULTS / "report.md").read_text()
    number = text.split(f"| {start} | ")[1].split(";")[0]
    assert f"| {claim} | {number}) |" in PAGE


def test_a_lollipop_learns_faster_than_its_heterogeneity_says(capsys):
    names = {"data": data, "metrics": metrics, "models": models, "topologies": topologies}
    exec(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[-1], names)
    lines = [re.findall(r"\d+\.\d+", line) for line in capsys.readouterr().out.splitlines()]
    numbers = np.array(lines, dtype=float).reshape(2, 2, 2)  # seed, graph, number
    assert (numbers[:, 0] > numbers[:, 1]).all()  # more heterogeneity, and more accuracy
    shown = re.search(r"higher, (0\.\d+) against (0\.\d+) and (0\.\d+) against (0\.\d+)", PAGE)
    assert shown is not None
    assert numbers[..., 1].ravel() == pytest.approx(list(map(float, shown.groups())), abs=0.015)
