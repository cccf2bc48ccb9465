"""Statistics of the study are those of scipy; what is said of stored runs is true of them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from analysis.study import command, fits, page, results, statistics
from analysis.study.fits import read_runs, write_runs
from tests.analysis.studies import made_up_cells, random_cells, table, value
from topofl import data, metrics, models, topologies

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "analysis" / "results" / "study"
PAGE = (ROOT / "docs" / "what-predicts-convergence.md").read_text()


@pytest.fixture(scope="module")
def stored_cells():
    return read_runs(RESULTS / "runs.csv.gz")


def test_perfect_predictors_have_minus_one_whatever_their_sign():
    accuracy = np.linspace(0.1, 0.9, 12)
    cell = table("2 shards", accuracy, **{"spectral gap": accuracy, "H_10": -accuracy})
    for name in ("spectral gap", "H_10"):
        assert value(statistics.correlation(name, "learning phase"), cell) == pytest.approx(-1)
        assert value(statistics.correlation(name, "final", tau=True), cell) == pytest.approx(-1)
        assert value(statistics.correlation(name, "spread"), cell) == pytest.approx(1)
    columns, names = statistics.correlation("H_1", "learning phase").known(cell)
    assert (columns.shape, names) == ((2, 0), [])


def test_correlations_are_those_of_scipy_with_ties_draws_and_missing_graphs():
    columns = np.random.default_rng(0).integers(0, 6, size=(3, 5, 30)).astype(float)
    padded = np.concatenate([columns, np.full((3, 5, 4), np.nan)], axis=2)[..., ::-1]
    for function, known in ((statistics.spearman, spearmanr), (statistics.kendall, kendalltau)):
        expected = [known(*columns[:2, k]).statistic for k in range(5)]
        for found in (columns, padded):
            np.testing.assert_allclose(function(found[:2]), expected, atol=1e-12)
    expected = statistics.partial_spearman(columns)
    np.testing.assert_allclose(statistics.partial_spearman(padded), expected)
    assert np.isnan(statistics.spearman(np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])))
    assert np.isnan(statistics.median(np.full((1, 3), np.nan)))


def test_partial_correlation_removes_what_is_shared():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    x, y = (shared + 0.1 * rng.standard_normal(400) for _ in range(2))
    assert statistics.spearman(np.stack([x, y])) > 0.9
    assert abs(statistics.partial_spearman(np.stack([x, y, shared]))) < 0.15
    other = rng.standard_normal(400)
    assert statistics.partial_spearman(np.stack([x, x + 0.01 * y, other])) > 0.9


def test_intervals_hold_the_median_and_shrink_with_more_graphs():
    statistic = statistics.correlation("H_10", "learning phase")
    few, many = (
        statistics.median_over_cells(random_cells(n), statistic, draws=200) for n in (15, 150)
    )
    for interval in (few, many):
        assert interval.low <= interval.estimate <= interval.high < -0.5
        assert interval.p_value <= 2 / 201 + 1e-9
        assert interval.cells == 6
    assert many.high - many.low < few.high - few.low
    none = statistics.median_over_cells(random_cells(150, 0.0), statistic, draws=200)
    assert none.p_value > 0.05
    assert none.low < 0 < none.high


@pytest.mark.parametrize("shared", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_intervals_cover_the_true_correlation_about_as_often_as_they_say(shared):
    rng = np.random.default_rng(1)
    statistic, covered = statistics.correlation("H_10", "learning phase"), 0
    expected = -6 / np.pi * np.arcsin(0.8 / 2)  # Spearman's correlation of normal variables
    covariance = np.array([[1, 0.8], [0.8, 1]])
    for _ in range(100):
        graphs = rng.multivariate_normal([0, 0], covariance, size=40).T
        found = []
        for k in range(6):  # the same graphs in all cells, with a deviation of their own in each
            own = rng.multivariate_normal([0, 0], covariance, size=40).T
            x, y = np.sqrt(shared) * graphs + np.sqrt(1 - shared) * own
            found.append(table(f"{k}", y, H_10=-x))
        interval = statistics.median_over_cells(found, statistic, draws=200)
        covered += interval.low <= expected <= interval.high
    assert 88 <= covered <= 100


def test_p_values_are_adjusted_by_benjamini_and_hochberg():
    found = statistics.adjusted([0.01, float("nan"), 0.04, 0.03])
    np.testing.assert_allclose(found, [0.03, np.nan, 0.04, 0.04])


def test_rounds_are_interpolated_and_runs_that_diverge_are_the_worst():
    assert statistics.reached_at(0.5, [0.1, 0.4, 0.8], [0, 4, 8]) == pytest.approx(5)
    assert statistics.reached_at(0.1, [0.1, 0.4], [2, 4]) == 2
    assert statistics.reached_at(0.9, [0.1, 0.4], [0, 4]) is None
    learned = {"final": 0.9, "curve": [0.1, 0.9], "rounds": [0, 10], "bytes": [0, 5]}
    found = statistics._outcomes({"complete": learned, "ring": {"diverged": True}})
    assert found["final"][1] < found["final"][0]
    reached = 10 * (0.9 * 0.9 - 0.1) / (0.9 - 0.1)  # between evaluations
    assert found["rounds to target"][1] > found["rounds to target"][0] == pytest.approx(reached)


@pytest.mark.parametrize(("slope", "verdict"), [(-10.0, "HOLDS"), (10.0, "FAILS")])
def test_verdicts_follow_the_data_and_can_fail(slope, verdict):
    cells = [replace(cell, partition="2 shards") for cell in random_cells(40, slope)]
    (first,) = (row for row in results.hypotheses(cells).rows if row[0].startswith("1"))
    assert first[-1] == verdict


def test_the_finding_names_the_best_predictor_and_the_spectral_gap():
    outcome, gap = np.arange(9.0), np.array([1.0, 0, 2, 3, 4, 5, 6, 7, 8])
    said = page.finding([table("mine", outcome, **{"H_1": -outcome, "spectral gap": gap})])
    assert said.startswith("H_1 predicts mean accuracy in the learning phase best")
    assert "(median over 1 cell) is -1.000, that of the spectral gap +0.983" in said
    wrong = page.finding([table("mine", outcome, H_1=outcome)])
    assert wrong.startswith("no predictor has the expected sign for mean accuracy")
    assert page.finding([table("mine", outcome[:7], H_1=-outcome[:7])]) is None


@pytest.mark.slow
def test_fitted_rivals_predict_held_out_families(tmp_path):
    cells = made_up_cells([0, 1])
    runs = write_runs(cells, tmp_path / "runs.csv.gz")
    found, again = (fits.held_out_table(cells, runs, tmp_path / "graphs", None) for _ in range(2))
    orders = {row[0]: float(row[2].split()[0]) for row in found.rows}
    assert orders["isotonic in H_10"] > 0.95
    assert orders["monotone in H_10 and N_10"] > 0.9
    assert orders["message passing"] > 0.5
    assert again.rows == found.rows


def test_pairs_of_equal_degree_are_counted_as_defined():
    degree = np.array([4.0, 4.0, 4.4, 4.6, 4.0])
    accuracy = np.array([0.50, 0.505, 0.52, 0.60, 0.55])
    h_1 = np.array([3.0, 1.0, 3.0, 1.0, np.nan])
    given = {"mean degree": degree, "H_10": -accuracy, "H_1": h_1, "spectral gap": -accuracy}
    cell = table("2 shards", accuracy, **given)
    # All but (0, 1), which differ by half a point, and those of 4.6 with 4, which are 14 % apart.
    assert statistics.ordered_pairs([cell], "H_10") == (6, 6, 6)
    assert statistics.ordered_pairs([cell, cell], "spectral gap") == (0, 12, 12)
    # (0, 2) is equal, (1, 2) is wrong, (2, 3) is right, and three pairs have a graph without it.
    assert statistics.ordered_pairs([cell], "H_1") == (1, 2, 6)
    said = statistics.pairs_said([cell])
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


def test_stored_runs_are_read_as_they_were_written_and_the_report_has_their_table(
    stored_cells, tmp_path
):
    again = write_runs(stored_cells, tmp_path / "runs.csv.gz")
    assert again.read_bytes() == (RESULTS / "runs.csv.gz").read_bytes()
    assert len(stored_cells) == 96
    text = (RESULTS / "report.md").read_text()
    numbers = statistics.choice_table(statistics.first_cells(stored_cells)).to_markdown()
    assert f"{results.CHOICES}\n\n{numbers}\n" in text
    assert results.DEVIATIONS in text


def test_a_report_is_written_without_training_from_stored_runs(tmp_path, capsys):
    (cell,) = made_up_cells([0])
    degree = {"mean degree": np.full(len(cell.graphs), 4.0)}
    cells = [replace(cell, predictors={**cell.predictors, **degree})]
    runs, out = write_runs(cells, tmp_path / "runs.csv.gz"), tmp_path / "out"
    assert command.main(["--runs", str(runs), "--out", str(out)]) == 0
    assert f"{statistics.pairs_said(cells)}." in capsys.readouterr().out
    names = sorted(path.name for path in out.iterdir())
    assert names == ["report.md", "runs.csv.gz", "scatter.png"]
    assert (out / "runs.csv.gz").read_bytes() == runs.read_bytes()
    text = (out / "report.md").read_text()
    assert "| 7: within families, H_10 |" in text
    assert "## Choosing between graphs" in text


def test_the_order_on_mnist_is_the_plain_rank_correlation(stored_cells):
    of_dsgd = [cell for cell in stored_cells if cell.method == "D-SGD"]
    rows = {row[0]: row for row in results._of_order(of_dsgd, [])}
    plain = [
        -spearmanr(cell.predictors["H_10"], cell.outcomes["rounds to target"]).statistic
        for cell in stored_cells
        if cell.scenario.startswith("MNIST")
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
    report = (RESULTS / "report.md").read_text()
    first = "D-SGD, skewed labels: H_10 and accuracy in the learning phase"
    for claim, start in (
        (first, "1: H_10, learning phase"),
        ("the same: gradient mixing error", "gradient mixing error"),
        ("the same: H_1", "H_1"),
        ("the same: spectral gap", "spectral gap"),
        ("within families of graphs: H_10, learning phase", "7: within families, H_10"),
        ("MNIST: H_10 and rounds to a target", "8: H_10, MNIST, rounds to target"),
    ):
        number = report.split(f"| {start} | ")[1].split(";")[0]
        assert f"| {claim} | {number}) |" in PAGE


def test_a_lollipop_learns_faster_than_its_heterogeneity_says(capsys):
    names = {"data": data, "metrics": metrics, "models": models, "topologies": topologies}
    exec(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[-1], names)
    lines = [re.findall(r"\d+\.\d+", line) for line in capsys.readouterr().out.splitlines()]
    numbers = np.array(lines, dtype=float).reshape(2, 2, 2)  # seed, graph, number
    assert (numbers[:, 0] > numbers[:, 1]).all()  # more heterogeneity, and more accuracy
    shown = re.search(r"higher, (0\.\d+) against (0\.\d+) and (0\.\d+) against (0\.\d+)", PAGE)
    assert numbers[..., 1].ravel() == pytest.approx(list(map(float, shown.groups())), abs=0.015)
