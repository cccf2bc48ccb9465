"""The study: resumable records, correlations of known order, verdicts, and a report."""

import numpy as np
import pytest

from analysis.study import command, statistics, tables
from analysis.study.graphs import GRAPHS, build_graph
from analysis.study.predictors import PREDICTORS, predictors_of
from analysis.study.run import Job, Records, compute
from analysis.study.scenarios import PARTITIONS, Cell
from topofl import data, metrics, models

CLIENTS = data.shards(data.digits(), n=60, per_node=2, seed=0)


def table(quality, outcome, **predictors):
    """Return a cell whose predictors are all NaN but those given."""
    n = len(outcome)
    columns = {name: np.full(n, np.nan) for name in PREDICTORS} | predictors
    names = [f"graph {k}" for k in range(n)]
    outcomes = {name: np.asarray(outcome, float) for name in tables.OUTCOMES}
    return statistics.CellTable("digits 60", quality, "D-SGD", 0, names, columns, outcomes)


def test_there_are_at_least_forty_graphs_and_all_exist_for_sixty_nodes():
    assert len(GRAPHS) >= 40
    assert [name for name in GRAPHS if isinstance(build_graph(name, CLIENTS, 0), str)] == []


def test_predictors_of_a_static_graph_are_those_of_metrics():
    graph = build_graph("4-regular", CLIENTS, 0)
    found = metrics.gradient_statistics(CLIENTS, model=models.logistic_regression(64), batch_size=8)
    values = predictors_of(graph, CLIENTS, found)
    assert None not in values.values()
    assert values["H_10"] == metrics.neighborhood_heterogeneity(graph, CLIENTS, hops=10)
    assert values["spectral gap"] == metrics.spectral_gap(graph)
    assert values["mean degree"] == 4


def test_perfect_predictors_have_minus_one_whatever_their_sign():
    accuracy = np.linspace(0.1, 0.9, 12)
    cell = table("2 shards", accuracy, **{"spectral gap": accuracy, "H_10": -accuracy})
    rows = np.arange(12)
    for name in ("spectral gap", "H_10"):
        assert tables.signed(name, "learning phase")(cell, rows) == pytest.approx(-1)
    assert np.isnan(tables.signed("H_1", "learning phase")(cell, rows))


def test_partial_correlation_removes_what_is_shared():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    x, y = (shared + 0.1 * rng.standard_normal(400) for _ in range(2))
    assert statistics.correlation(x, y) > 0.9
    assert abs(statistics.partial_correlation(x, y, shared)) < 0.15
    assert statistics.partial_correlation(x, x + 0.01 * y, rng.standard_normal(400)) > 0.9


def test_intervals_hold_the_median_and_shrink_with_more_graphs():
    rng = np.random.default_rng(0)

    def cells(n):
        found = []
        for k in range(6):
            x = rng.standard_normal(n)
            y = -x + 0.3 * rng.standard_normal(n)
            found.append(table(f"partition {k}", y, H_10=x))
        return found

    statistic = tables.signed("H_10", "learning phase")
    few, many = (statistics.median_over_cells(cells(n), statistic, draws=200) for n in (15, 150))
    for interval in (few, many):
        assert interval.low <= interval.estimate <= interval.high < -0.5
    assert many.high - many.low < few.high - few.low


def test_runs_that_diverge_are_the_worst():
    runs = {
        "complete": {"final": 0.9, "curve": [0.1, 0.9], "rounds": [0, 10], "bytes": [0, 5]},
        "ring": {"diverged": True},
    }
    found = tables._outcomes(runs)
    assert found["final"][1] < found["final"][0]
    assert found["rounds to target"][1] > found["rounds to target"][0] == 10


def test_finished_jobs_are_not_computed_again(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    graphs = ["ring", "complete"]
    counted = Counted()
    monkeypatch.setattr("analysis.study.run._computed", counted)
    compute(["digits 30"], graphs, path)
    assert counted.jobs == 5 + 2 * 3 + 2 * 3  # rates, predictors, runs
    path.write_text(path.read_text() + '["cut off')
    compute(["digits 30"], graphs, path)
    assert counted.jobs == 17
    assert Job("predict", Cell("digits 30", "2 shards", "", 0, "ring")) in Records(path)


class Counted:
    """Stands for the pool of processes: counts jobs, and returns made-up results."""

    def __init__(self):
        self.jobs = 0

    def __call__(self, missing, root, processes, more):
        for job in missing:
            self.jobs += 1
            yield job, {"curve": [0.1, job.lr], "final": 0.5}


def test_command_line_counts_runs(capsys):
    assert command.main(["--dry-run", "digits 30"]) == 0
    assert f"digits 30: {3 * len(GRAPHS):,} runs" in capsys.readouterr().out


def test_hypotheses_name_the_predictors_and_partitions():
    text = (command.Path(command.__file__).parent / "HYPOTHESES.md").read_text()
    for name in ("H_10", "N_10", "spectral gap", "push-sum", "gradient tracking"):
        assert name in text
    assert set(PARTITIONS) >= set(tables.SKEWED)
