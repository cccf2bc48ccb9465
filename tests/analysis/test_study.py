"""The study: resumable records, correlations of known order, verdicts, and a report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from analysis.study import cells, command, hypotheses, rivals, statistics, tables
from analysis.study.cells import Cell, Source
from analysis.study.configured import configured_scenarios
from analysis.study.dataset import StudyDataset, runs_table, write_runs
from analysis.study.graphs import GRAPHS, build_graph
from analysis.study.predictors import PREDICTORS, predictors_of
from analysis.study.run import Job, Records, compute
from analysis.study.scenarios import METHODS, PARTITIONS, default_scenarios
from topofl import cli, data, metrics, mixing, models, topologies

CLIENTS = data.shards(data.digits(), n=60, per_node=2, seed=0)

CONFIG = """
[data]
name = "digits"
n = 8
seed = 0
[algorithm]
name = "dsgd"
lr = 0.1
batch_size = 8
[run]
rounds = 4
seed = 0
[evaluation]
every = 2
[study]
graphs = ["ring", "fully_connected", "random_regular,k=4"]
partitions = ["shards,per_node=1", "iid"]
seeds = [0, 1]
rates = [0.1, 0.2]
"""


def table(quality, outcome, scenario="digits 60", method="D-SGD", **predictors):
    """Return a cell whose predictors are all NaN but those given."""
    n = len(outcome)
    columns = {name: np.full(n, np.nan) for name in PREDICTORS} | predictors
    outcomes = {name: np.asarray(outcome, float) for name in tables.OUTCOMES}
    return statistics.CellTable(
        *(scenario, quality, method, 0),
        nodes=60,
        graphs=[f"graph {k}" for k in range(n)],
        families=[f"family {k % 3}" for k in range(n)],
        predictors=columns,
        outcomes=outcomes,
        lr=0.1,
    )


def value(statistic, cell):
    return float(statistic.value(statistic.known(cell)[0]))


def test_there_are_at_least_forty_graphs_and_all_exist_for_sixty_nodes():
    assert len(GRAPHS) >= 40
    graphs = [build_graph(graph, CLIENTS, 0) for graph in GRAPHS.values()]
    assert [graph for graph in graphs if isinstance(graph, str)] == []


def test_predictors_of_a_static_graph_are_those_of_metrics():
    graph = build_graph(GRAPHS["4-regular"], CLIENTS, 0)
    model = models.logistic_regression(64)
    found = metrics.gradient_statistics(CLIENTS, model=model, batch_size=8)
    values = predictors_of(graph, CLIENTS, found)
    assert None not in values.values()
    assert values["H_10"] == metrics.neighborhood_heterogeneity(graph, CLIENTS, hops=10)
    assert values["spectral gap"] == metrics.spectral_gap(graph)
    assert values["mean degree"] == 4
    # All nodes of a regular graph have equal weights, with and without this rule.
    assert values["H_1, unweighted"] == pytest.approx(values["H_1"])
    star = predictors_of(topologies.star(60), CLIENTS, found)
    assert star["H_1, unweighted"] != pytest.approx(star["H_1"], rel=0.01)
    predicted = metrics.predicted_deviation(graph, CLIENTS, model=model, batch_size=8, hops=10)
    assert values["predicted deviation (10)"] == pytest.approx(predicted.value)


def test_perfect_predictors_have_minus_one_whatever_their_sign():
    accuracy = np.linspace(0.1, 0.9, 12)
    cell = table("2 shards", accuracy, **{"spectral gap": accuracy, "H_10": -accuracy})
    for name in ("spectral gap", "H_10"):
        assert value(tables.correlation(name, "learning phase"), cell) == pytest.approx(-1)
        assert value(tables.correlation(name, "final", tau=True), cell) == pytest.approx(-1)
        assert value(tables.correlation(name, "spread"), cell) == pytest.approx(1)
    columns, names = tables.correlation("H_1", "learning phase").known(cell)
    assert (columns.shape, names) == ((2, 0), [])


def test_correlations_are_those_of_scipy_with_ties_and_over_many_draws():
    columns = np.random.default_rng(0).integers(0, 6, size=(2, 5, 30)).astype(float)
    for function, known in ((statistics.spearman, spearmanr), (statistics.kendall, kendalltau)):
        expected = [known(*columns[:, k]).statistic for k in range(5)]
        np.testing.assert_allclose(function(columns), expected, atol=1e-12)
    assert np.isnan(statistics.spearman(np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])))


def test_graphs_that_are_missing_do_not_count():
    columns = np.random.default_rng(0).integers(0, 6, size=(3, 20)).astype(float)
    padded = np.concatenate([columns, np.full((3, 4), np.nan)], axis=1)[:, ::-1]
    for function, few in ((statistics.spearman, 2), (statistics.kendall, 2)):
        assert function(padded[:few]) == pytest.approx(function(columns[:few]))
    expected = statistics.partial_spearman(columns)
    assert statistics.partial_spearman(padded) == pytest.approx(expected)
    assert np.isnan(statistics.median(np.full((1, 3), np.nan)))


def test_partial_correlation_removes_what_is_shared():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(400)
    x, y = (shared + 0.1 * rng.standard_normal(400) for _ in range(2))
    assert statistics.spearman(np.stack([x, y])) > 0.9
    assert abs(statistics.partial_spearman(np.stack([x, y, shared]))) < 0.15
    other = rng.standard_normal(400)
    assert statistics.partial_spearman(np.stack([x, x + 0.01 * y, other])) > 0.9


def random_cells(n, slope=-1.0):
    rng = np.random.default_rng(0)
    found = []
    for k in range(6):
        x = rng.standard_normal(n)
        found.append(table(f"{k}", slope * x + 0.3 * rng.standard_normal(n), H_10=x))
    return found


def test_intervals_hold_the_median_and_shrink_with_more_graphs():
    statistic = tables.correlation("H_10", "learning phase")
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


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_intervals_cover_the_true_correlation_about_as_often_as_they_say(shared):
    rng = np.random.default_rng(1)
    statistic, covered = tables.correlation("H_10", "learning phase"), 0
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


def test_runs_that_diverge_are_the_worst():
    runs = {
        "complete": {"final": 0.9, "curve": [0.1, 0.9], "rounds": [0, 10], "bytes": [0, 5]},
        "ring": {"diverged": True},
    }
    found = tables._outcomes(runs)
    assert found["final"][1] < found["final"][0]
    reached = 10 * (0.9 * 0.9 - 0.1) / (0.9 - 0.1)  # between evaluations
    assert found["rounds to target"][1] > found["rounds to target"][0] == pytest.approx(reached)


def test_verdicts_follow_the_data_and_can_fail():
    good = [replace(cell, partition="2 shards") for cell in random_cells(40, -10.0)]
    bad = [replace(cell, partition="2 shards") for cell in random_cells(40, +10.0)]
    (first,) = (row for row in hypotheses.hypotheses(good).rows if row[0].startswith("1"))
    assert first[-1] == "HOLDS"
    (first,) = (row for row in hypotheses.hypotheses(bad).rows if row[0].startswith("1"))
    assert first[-1] == "FAILS"


def test_finished_jobs_are_not_computed_again(tmp_path, monkeypatch):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG)
    source, path = Source(config=config), tmp_path / "records.jsonl"
    counted = Counted()
    monkeypatch.setattr("analysis.study.run._computed", counted)
    compute(["small"], path, source)
    assert counted.jobs == 2 * 2 + 2 * 2 * 3 + 2 * 2 * 3  # rates, predictors, runs
    path.write_text(path.read_text() + '["cut off')
    compute(["small"], path, source)
    assert counted.jobs == 28
    assert Job("predict", Cell("small", "iid", "", 0, "ring")) in Records(path)


class Counted:
    """Stands for the pool of processes: counts jobs, and returns made-up results."""

    def __init__(self):
        self.jobs = 0

    def __call__(self, missing, source, pool, processes, more):
        for job in missing:
            self.jobs += 1
            yield job, {"curve": [0.1, job.lr], "final": 0.5}


def test_a_configured_study_gives_the_same_records_in_one_and_two_processes(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG)
    found = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        words = ["study", str(config), "--out", str(out), "--processes", str(processes)]
        assert cli.main(words) == 0
        assert "report.md" in capsys.readouterr().out
        found.append(Records(out / "records.jsonl").found)
        text = (out / "report.md").read_text()
        assert "random_regular" not in text  # nothing was left out
        assert "a correlation needs at least 8 graphs, here are 3." in text
    assert found[0] == found[1]
    assert len(found[0]) == 29  # runs, predictors, rates, and the settings


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("graph = []", r"must have keys of graphs, .*, got 'graph'; did you mean 'graphs'\?"),
        ("rate = [0.1]", r"^.*small.toml: .* got 'rate'; did you mean 'rates'\?"),
        ("seeds = []", r"`seeds` in \[study\] must be a list of different integers .* got \[\]"),
        ("seeds = [0, 0]", r"`seeds` in \[study\] must be a list of different integers"),
        ("seeds = [-1]", r"`seeds` in \[study\] must be .*of at least 0, got \[-1\]"),
        ('seeds = ["a"]', r"`seeds` in \[study\] must be .* got \['a'\]"),
        ("rates = [0]", r"`rates` in \[study\] must be a list of different positive numbers"),
        ('graphs = "ring"', r"`graphs` in \[study\] must be a list of .* got 'ring'"),
        ("graphs = [3]", r"`graphs` in \[study\] must be a list of different specs"),
        ('graphs = ["rng"]', r"rng"),
        ('graphs = ["random_regular,k=9"]', r"`k`"),
        ('partitions = ["shrds"]', r"shrds"),
        ('algorithms = ["dsdg"]', r"dsdg"),
        ('algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=4"]', r"one batch size, got 4, 8"),
    ],
)
def test_faulty_configurations_are_refused_before_any_run(line, message, tmp_path):
    config = tmp_path / "small.toml"
    key = line.partition(" ")[0]
    kept = [old for old in CONFIG.splitlines() if not old.startswith(f"{key} =")]
    config.write_text("\n".join([*kept, line]))
    with pytest.raises((ValueError, TypeError), match=message):
        configured_scenarios(config)


def test_configurations_have_a_table_of_the_study_and_enough_nodes(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text("study = 3\n" + CONFIG.partition("[study]")[0])
    with pytest.raises(ValueError, match=r"\[study\] must be a table, got 3"):
        configured_scenarios(config)
    config.write_text(CONFIG.replace("n = 8", "n = 4").replace(', "random_regular,k=4"', ""))
    with pytest.raises(ValueError, match=r"`n` in \[data\] must be at least 6, got 4"):
        configured_scenarios(config)
    text = CONFIG.replace("[algorithm]", "[other]").partition("[other]")
    rest = text[2].partition("[run]")
    config.write_text(f'algorithm = "dsgd,lr=0.1"\n{text[0]}[run]{rest[2]}')
    assert configured_scenarios(config)["small"].batch_size == 128


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[study]", "[studdy]", r"no table \[studdy\]; did you mean \[study\]\?"),
        ("n = 8", "n = 8\nalfa = 1", r"small.toml: .*alfa"),
        ("lr = 0.1", "lr = -1", r"small.toml: .*lr"),
        (
            "every = 2",
            "every = 3",
            r"`every` in \[evaluation\] must be at most half of `rounds`, 2",
        ),
    ],
)
def test_faulty_tables_are_refused_with_the_path_of_the_file(old, new, message, tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.replace(old, new))
    with pytest.raises(ValueError, match=message):
        configured_scenarios(config)


def test_runs_are_evaluated_often_where_a_file_does_not_say(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.replace("[evaluation]\nevery = 2\n", "").replace("= 4", "= 60", 1))
    assert configured_scenarios(config)["small"].evaluation.every == 3


def test_results_of_other_settings_are_not_mixed(tmp_path, monkeypatch):
    config, path = tmp_path / "small.toml", tmp_path / "records.jsonl"
    config.write_text(CONFIG)
    monkeypatch.setattr("analysis.study.run._computed", Counted())
    compute(["small"], path, Source(config=config))
    other, more = (tmp_path / name / "small.toml" for name in ("other", "more"))
    for changed, text in (
        (other, CONFIG.replace("rounds = 4", "rounds = 6")),
        (more, CONFIG.replace("seeds = [0, 1]", "seeds = [0, 1, 2]")),
    ):
        changed.parent.mkdir()
        changed.write_text(text)
    with pytest.raises(ValueError, match="`out` must be a new folder"):
        compute(["small"], path, Source(config=other))
    compute(["small"], path, Source(config=more))


def test_configured_random_graphs_are_drawn_with_the_seed_of_the_cell(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG)
    scenario = configured_scenarios(config)["small"]
    graph = scenario.graphs["random_regular,k=4"]
    first, second = (graph.build(scenario.clients("iid", 0), seed) for seed in (0, 1))
    assert first.name != second.name
    assert scenario.clients("iid", 1).name != scenario.clients("shards,per_node=1", 1).name


def test_scenarios_name_known_partitions_and_methods():
    for scenario in default_scenarios().values():
        assert set(scenario.partitions) <= set(PARTITIONS)
        assert set(scenario.methods) <= set(METHODS)
        for method in scenario.methods:
            scenario.method(method, 0.1)


def test_a_graph_that_a_method_refuses_is_missing_with_the_reason():
    source = Source()
    cell = Cell("digits 60, Clique Averaging", "2 shards", "Clique Averaging", 0, "ring")
    assert "groups" in cells.outcomes(cell, 0.1, source)["missing"]


def test_command_line_counts_runs(capsys):
    assert command.main(["--dry-run", "digits 30"]) == 0
    assert f"digits 30: {3 * len(GRAPHS):,} runs" in capsys.readouterr().out
    assert command.main(["digits 31"]) == 2
    assert "SCENARIO must be one of 'digits 60', 'digits 60, other" in capsys.readouterr().err
    for words, message in (
        (["--processes", "0"], "`--processes` must be at least 1, got 0"),
        (["--minutes", "-1"], "`--minutes` must be at least 0, got -1"),
    ):
        assert command.main(["digits 30", *words]) == 2
        assert message in capsys.readouterr().err


def test_a_study_without_a_complete_cell_says_how_to_go_on(tmp_path, capsys):
    assert command.main(["digits 30", "--minutes", "0", "--out", str(tmp_path / "out")]) == 0
    assert "the same command continues" in capsys.readouterr().out


def test_hypotheses_name_the_predictors_and_partitions():
    text = (Path(command.__file__).parent / "HYPOTHESES.md").read_text()
    for name in ("H_10", "N_10", "spectral gap", "push-sum", "gradient tracking"):
        assert name in text
    assert set(PARTITIONS) >= set(tables.SKEWED)


def small_cells():
    """Return a cell of two graphs that exist, with made-up outcomes."""
    own = table("2 shards", [0.5, 0.9], scenario="digits 30", H_10=np.array([1.0, 0.1]))
    return [replace(own, graphs=["ring", "complete"], families=["classic", "classic"])]


def test_runs_are_kept_as_a_dataset_of_torch_geometric(tmp_path):
    runs = write_runs(small_cells(), tmp_path / "runs.csv.gz")
    first = runs.read_bytes()
    assert write_runs(small_cells(), runs).read_bytes() == first
    ring, complete = StudyDataset(tmp_path / "graphs", runs, scenarios=["digits 30"])
    clients = data.shards(data.digits(), n=30, per_node=2, seed=0)
    np.testing.assert_allclose(ring.x, metrics.label_distributions(clients), rtol=1e-6)
    weights = torch.zeros(30, 30)
    weights[ring.edge_index[1], ring.edge_index[0]] = ring.edge_weight
    expected = mixing.metropolis_hastings(topologies.ring(30)).weights.todense()
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert complete.num_edges == 900
    assert complete.y[0, list(tables.OUTCOMES).index("final")] == pytest.approx(0.9)
    assert ring.graph == "ring"
    (cell,) = small_cells()
    write_runs([replace(cell, graphs=["ring", "star"])], runs)  # other runs, another dataset
    assert [one.graph for one in StudyDataset(tmp_path / "graphs", runs)] == ["ring", "star"]
    assert len(runs_table(small_cells())) == 2


def made_up_cells(seeds):
    """Return cells of real graphs whose rounds to target grow with H_10."""
    names = [name for name, graph in GRAPHS.items() if graph.family in ("classic", "random")]
    found = []
    for seed in seeds:
        clients = data.shards(data.digits(), n=60, per_node=2, seed=seed)
        graphs = [build_graph(GRAPHS[name], clients, seed) for name in names]
        h_10, n_10 = (
            np.array([metric(graph) for graph in graphs])
            for metric in (
                lambda graph, own=clients: metrics.neighborhood_heterogeneity(graph, own, hops=10),
                lambda graph: metrics.accumulated_noise(graph, 10),
            )
        )
        more = {
            "spectral gap": np.array([metrics.spectral_gap(graph) for graph in graphs]),
            "predicted deviation (10)": h_10 + 0.1 * n_10,
        }
        cell = table("2 shards", 10 * (1 + h_10), H_10=h_10, N_10=n_10, **more)
        families = [GRAPHS[name].family for name in names]
        found.append(replace(cell, seed=seed, graphs=names, families=families))
    return found


def test_fitted_rivals_predict_held_out_families(tmp_path):
    cells_ = made_up_cells([0, 1])
    runs = write_runs(cells_, tmp_path / "runs.csv.gz")
    found = rivals.held_out_table(cells_, runs, tmp_path / "graphs", None)
    orders = {row[0]: float(row[2].split()[0]) for row in found.rows}
    assert orders["isotonic in H_10"] > 0.95
    assert orders["monotone in H_10 and N_10"] > 0.9
    assert orders["message passing"] > 0.5
    again = rivals.held_out_table(cells_, runs, tmp_path / "graphs", None)
    assert again.rows == found.rows
