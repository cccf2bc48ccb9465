"""The study: stored runs, correlations of known order, verdicts, and a report."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from analysis.study import command, fits, page, results, runs, statistics
from analysis.study.fits import StudyDataset, runs_table, write_runs
from analysis.study.runs import PREDICTORS, Records, compute, predictors_of, train
from analysis.study.scenarios import (
    GRAPHS,
    METHODS,
    PARTITIONS,
    Cell,
    Source,
    about,
    arguments,
    build_graph,
    configured_scenarios,
    default_scenarios,
)
from tests.runs.test_clusters import killing_one
from topofl import History, cli, data, metrics, mixing, models, topologies
from topofl.runs.execute import Processes
from topofl.runs.identity import digest_of

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
    outcomes = {name: np.asarray(outcome, float) for name in statistics.OUTCOMES}
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
    given: dict[str, Any] = {"spectral gap": accuracy, "H_10": -accuracy}
    cell = table("2 shards", accuracy, **given)
    for name in ("spectral gap", "H_10"):
        assert value(statistics.correlation(name, "learning phase"), cell) == pytest.approx(-1)
        assert value(statistics.correlation(name, "final", tau=True), cell) == pytest.approx(-1)
        assert value(statistics.correlation(name, "spread"), cell) == pytest.approx(1)
    columns, names = statistics.correlation("H_1", "learning phase").known(cell)
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


@pytest.mark.parametrize("shared", [0.0, 0.9])
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


def test_runs_that_diverge_are_the_worst():
    runs = {
        "complete": {"final": 0.9, "curve": [0.1, 0.9], "rounds": [0, 10], "bytes": [0, 5]},
        "ring": {"diverged": True},
    }
    found = statistics._outcomes(runs)
    assert found["final"][1] < found["final"][0]
    reached = 10 * (0.9 * 0.9 - 0.1) / (0.9 - 0.1)  # between evaluations
    assert found["rounds to target"][1] > found["rounds to target"][0] == pytest.approx(reached)


def test_verdicts_follow_the_data_and_can_fail():
    good = [replace(cell, partition="2 shards") for cell in random_cells(40, -10.0)]
    bad = [replace(cell, partition="2 shards") for cell in random_cells(40, +10.0)]
    (first,) = (row for row in results.hypotheses(good).rows if row[0].startswith("1"))
    assert first[-1] == "HOLDS"
    (first,) = (row for row in results.hypotheses(bad).rows if row[0].startswith("1"))
    assert first[-1] == "FAILS"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the configuration and the results of a small study, which tests must not change."""
    config = tmp_path_factory.mktemp("study") / "small.toml"
    config.write_text(CONFIG)
    assert cli.main(["study", str(config), "--out", str(config.parent / "out")]) == 0
    return config, config.parent / "out"


def records_of(config, folder):
    return Records(folder, partial(about, Source(config=config)))


def every_run(config, records):
    scenario = configured_scenarios(config)["small"]
    return [*runs.tuning_runs(scenario), *runs.runs(scenario, records)]


@pytest.mark.slow
def test_a_configured_study_gives_the_same_results_in_one_and_two_processes(small, tmp_path):
    config, out = small
    words = ["study", str(config), "--out", str(tmp_path), "--processes", "2"]
    assert cli.main(words) == 0
    one, two = (records_of(config, folder) for folder in (out, tmp_path))
    assert one.predicted == two.predicted
    assert len(one.predicted) == 2 * 2 * 3 + 1  # and the settings
    runs = every_run(config, one)
    assert len(runs) == 2 * 2 + 2 * 2 * 3
    assert [one.outcomes(*pair) for pair in runs] == [two.outcomes(*pair) for pair in runs]
    text = (out / "report.md").read_text()
    assert text == (tmp_path / "report.md").read_text()
    assert "random_regular" not in text  # nothing was left out
    assert "a correlation needs at least 8 graphs, here are 3." in text


def test_correlations_that_are_not_computed_are_announced_and_have_no_tables(small, capsys):
    config, out = small
    note = "note: small has 3 graphs; a correlation needs at least 8, so none is computed"
    for words in (["--dry-run"], ["--out", str(out)]):
        assert command.main([str(config), *words]) == 0
        assert note in capsys.readouterr().err
    assert "| predictor |" not in (out / "report.md").read_text()


def test_learning_rates_are_said_and_extremes_named(small, capsys):
    config, out = small
    assert command.main([str(config), "--out", str(out)]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "learning rate" in one)
    scenario, records = configured_scenarios(config)["small"], records_of(config, out)
    for partition in scenario.partitions:
        lr = runs.rate_of(scenario, Cell("small", partition, "as configured", 100, ""), records)
        end = "smallest" if lr == 0.1 else "largest"
        assert f"{lr:g} (the {end} tried) for {partition}" in line
    assert line.endswith("Tried: 0.1, 0.2.")
    assert f"- {line}" in (out / "report.md").read_text().splitlines()[:8]
    assert runs._placed(0.2, (0.5, 0.1, 0.2)) == "0.2"


def test_without_rates_the_learning_rate_of_the_file_is_used_and_not_tuned(tmp_path):
    config = tmp_path / "small.toml"
    without = CONFIG.replace("rates = [0.1, 0.2]\n", "").replace("lr = 0.1", "lr = 0.3")
    config.write_text(without)
    scenario = configured_scenarios(config)["small"]
    assert runs.tuning_runs(scenario) == []
    assert {lr for _, lr in runs.runs(scenario, records_of(config, tmp_path))} == {0.3}
    config.write_text(without + 'algorithms = ["dsgd,batch_size=8,lr=0.7", "dsgt,batch_size=8"]\n')
    scenario = configured_scenarios(config)["small"]
    assert [scenario.rates_of(method) for method in scenario.methods] == [(0.7,), (0.3,)]


def test_results_of_configurations_have_folders_of_their_own(small):
    source = Source(config=small[0])
    assert command._folder(None, source) == Path("out/study/small")
    assert command._folder(None, Source()) == Path("out/study")
    assert command._folder(Path("x"), source) == Path("x")


def test_the_finding_names_the_best_predictor_and_the_spectral_gap():
    outcome = np.arange(9.0)
    gap = np.array([1.0, 0, 2, 3, 4, 5, 6, 7, 8])
    given: dict[str, Any] = {"H_1": -outcome, "spectral gap": gap}
    cell = table("mine", outcome, **given)
    said = page.finding([cell])
    assert said is not None
    assert said.startswith("H_1 predicts mean accuracy in the learning phase best")
    assert "(median over 1 cell) is -1.000, that of the spectral gap +0.983" in said
    (wrong,) = [page.finding([table("mine", outcome, H_1=outcome)])]
    assert wrong is not None
    assert wrong.startswith("no predictor has the expected sign for mean accuracy")
    assert page.finding([table("mine", outcome[:7], H_1=-outcome[:7])]) is None


def test_finished_runs_are_found_and_not_repeated(small, tmp_path, monkeypatch, capsys):
    config, out = small[0], tmp_path / "out"
    shutil.copytree(small[1], out)
    predictions = out / "predictions.jsonl"
    predictions.write_text(predictions.read_text() + '["cut off')
    started = []
    monkeypatch.setattr(runs, "perform_all", lambda jobs, *_, **__: started.extend(jobs))
    monkeypatch.setattr(Processes, "submit", None)
    monkeypatch.setattr(History, "load", None)  # the report opens no histories
    monkeypatch.setattr("analysis.study.scenarios.build_graph", None)  # nor are graphs built
    assert command.main([str(config), "--out", str(out)]) == 0
    assert capsys.readouterr().out.count(f"16 runs in {out / 'runs'}: 16 done, 0 to do") == 2
    assert started == []
    assert predictions.read_text().endswith('["cut off')
    records = records_of(config, out)
    assert records.store.remove(records.key(*every_run(config, records)[0]))
    assert command.main([str(config), "--out", str(out)]) == 0
    assert [job.key for job in started] == [records.key(*every_run(config, records)[0])]
    # The learning rate of one of the two partitions is not known, and so are not its six runs.
    assert capsys.readouterr().out.count(f"16 runs in {out / 'runs'}: 9 done, 7 to do") == 2


def test_runs_are_listed_with_their_cells(small, capsys):
    assert cli.main(["runs", str(small[1] / "runs"), "--where", "topology.name=ring"]) == 0
    assert "4 runs" in capsys.readouterr().out


def test_outcomes_are_those_of_the_history_to_the_last_bit(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.replace("every = 2", "every = 1\nnodes = 5"))  # three have NaN
    records = records_of(config, tmp_path / "out")
    cell = Cell("small", "iid", "as configured", 0, "ring")
    train([(cell, 0.1)], records, partial(arguments, Source(config=config)))
    history = records.store.find(records.key(cell, 0.1)).history
    accuracy, rounds = history["accuracy"], history["round"]
    assert np.isnan(accuracy).sum(axis=1).tolist() == [3] * 5
    means = np.nanmean(accuracy, axis=1)
    sent = np.concatenate([[0.0], np.cumsum(history["bytes"])])[rounds]
    assert records.outcomes(cell, 0.1) == {
        "learning phase": float(means[rounds <= 2].mean()),
        "final": float(means[rounds > 3.2].mean()),
        "worst node": float(np.nanmin(accuracy[-1])),
        "all rounds": float(means.mean()),
        "spread": float(np.nanstd(accuracy[-1])),
        "consensus": float(history["consensus_distance"].mean()),
        "curve": [round(float(mean), 5) for mean in means],
        "rounds": rounds.tolist(),
        "bytes": sent.astype(int).tolist(),
    }


def test_keys_depend_on_settings_data_and_versions(small, tmp_path, monkeypatch):
    config, out = small
    records, cell = records_of(config, out), Cell("small", "iid", "as configured", 0, "ring")
    key = records.key(cell, 0.1)
    keys = {key, records.key(cell, 0.2), records.key(cell), records.key(replace(cell, seed=1), 0.1)}
    other = tmp_path / "small.toml"
    other.write_text(CONFIG.replace("rounds = 4", "rounds = 6"))
    keys.add(records_of(other, out).key(cell, 0.1))
    source = Source(config=config)
    assert digest_of(data.digits(), splits=False) in about(source, "small")
    keys.add(Records(out, lambda name: [*about(source, name)[:-1], "other"]).key(cell, 0.1))
    monkeypatch.setattr(np, "__version__", "0")
    keys.add(records.key(cell, 0.1))
    assert len(keys) == 7


def test_runs_that_diverge_or_cannot_exist_are_kept_and_other_failures_tried_again(tmp_path):
    source, records = Source(), Records(tmp_path, partial(about, Source()))
    name = "digits 60, Clique Averaging"
    refused = Cell(name, "2 shards", "Clique Averaging", 0, "ring"), 0.1
    diverging = Cell("digits 30", "2 shards", "D-SGD", 0, "ring"), 1e38
    failing = Cell("digits 30", "2 shards", "D-SGD", 0, "ring"), 0.1

    def failing_once(point):
        if (point["cell"], point["lr"]) == failing:
            raise RuntimeError("once")
        return arguments(source, point)

    train([refused, diverging, failing], records, failing_once)
    for found in (records, Records(tmp_path, partial(about, Source()))):
        assert "groups" in found.outcomes(*refused)["missing"]
        assert found.outcomes(*diverging) == {"diverged": True}
        assert found.outcomes(*failing) is None
    assert records.failures.startswith(f"1 failed (topofl runs {tmp_path / 'runs'} --failed")
    assert all("Traceback" in failure.traceback for failure in records.store.failures())
    tried = []

    def counted(point):
        tried.append(point["lr"])
        return arguments(source, point) | {"rounds": 4}

    train([refused, diverging, failing], records, counted)
    assert tried == [0.1]
    assert records.outcomes(*failing)["rounds"] == [0, 4]
    assert records.failures == ""


@pytest.mark.slow
def test_a_killed_process_costs_its_own_run_only(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.replace("rounds = 4", "rounds = 200").replace("y = 2", "y = 100"))
    perform = partial(train, arguments=partial(arguments, Source(config=config)))
    records = records_of(config, tmp_path / "out")
    cell = Cell("small", "iid", "as configured", 0, "ring")
    runs = [(cell, lr) for lr in (0.1, 0.2, 0.3, 0.4)]
    with killing_one(tmp_path / "out" / "runs") as killed:
        perform(runs, records, executor=Processes(2, threads=1))
    assert killed
    assert sum(records.outcomes(*pair) is None for pair in runs) == len(records.failed) == 1
    perform(runs, records, executor=Processes(2, threads=1))
    assert sum(records.outcomes(*pair) is None for pair in runs) == len(records.failed) == 0


def test_an_interrupted_study_reports_what_is_complete(small, tmp_path, monkeypatch, capsys):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    shutil.copytree(small[1], tmp_path / "out")
    monkeypatch.setattr(runs, "perform_all", interrupted)
    assert command.main([str(small[0]), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "interrupted; the same command continues" in captured.err
    assert "report.md" in captured.out


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


def test_results_of_other_settings_are_not_mixed(small, tmp_path):
    other, more = (tmp_path / name / "small.toml" for name in ("other", "more"))
    for changed, text in (
        (other, CONFIG.replace("rounds = 4", "rounds = 6")),
        (more, CONFIG.replace("seeds = [0, 1]", "seeds = [0, 1, 2]")),
    ):
        changed.parent.mkdir()
        changed.write_text(text)
    _, out = small
    source = Source(config=other)
    with pytest.raises(ValueError, match="`out` must be a new folder"):
        compute(["small"], records_of(other, out), source)
    records, source = records_of(more, out), Source(config=more)
    compute(["small"], records, source, more=lambda: False)
    wanted = f"22 runs in {out / 'runs'}: 16 done, 6 to do"
    assert runs.status(["small"], records, source) == wanted


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


def test_command_line_counts_runs(capsys):
    assert command.main(["--dry-run", "digits 30"]) == 0
    wanted = f"digits 30: {3 * len(GRAPHS):,} runs, after 5 tuning runs"
    assert wanted in capsys.readouterr().out
    assert command.main(["digits 31"]) == 2
    assert "SCENARIO must be one of 'digits 60', 'digits 60, other" in capsys.readouterr().err
    for words, message in (
        (["--processes", "0"], "`--processes` must be at least 1, got 0"),
        (["--minutes", "-1"], "`--minutes` must be at least 0, got -1"),
    ):
        assert command.main(["digits 30", *words]) == 2
        assert message in capsys.readouterr().err


def test_a_study_without_a_complete_cell_says_how_to_go_on(tmp_path, capsys):
    words = ["digits 60, Clique Averaging", "--minutes", "0", "--out", str(tmp_path / "out")]
    assert command.main(words) == 0
    text = capsys.readouterr().out
    assert "the same command continues" in text
    assert text.count(f"{5 + 3 * len(GRAPHS)} runs in ") == 2


def test_hypotheses_name_the_predictors_and_partitions():
    text = (Path(command.__file__).parent / "HYPOTHESES.md").read_text()
    for name in ("H_10", "N_10", "spectral gap", "push-sum", "gradient tracking"):
        assert name in text
    assert set(PARTITIONS) >= set(statistics.SKEWED)


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
    assert complete.y[0, list(statistics.OUTCOMES).index("final")] == pytest.approx(0.9)
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
    found = fits.held_out_table(cells_, runs, tmp_path / "graphs", None)
    orders = {row[0]: float(row[2].split()[0]) for row in found.rows}
    assert orders["isotonic in H_10"] > 0.95
    assert orders["monotone in H_10 and N_10"] > 0.9
    assert orders["message passing"] > 0.5
    again = fits.held_out_table(cells_, runs, tmp_path / "graphs", None)
    assert again.rows == found.rows


def test_numbers_after_a_line_that_was_cut_off_are_kept(tmp_path):
    described = partial(about, Source())
    cells = [Cell("digits 60", "shards", "D-SGD", seed, "ring") for seed in range(3)]
    Records(tmp_path, described).add(cells[0], {"n": 0})
    file = tmp_path / "predictions.jsonl"
    file.write_text(file.read_text() + '["cut off')
    for cell in cells[1:]:
        Records(tmp_path, described).add(cell, {"n": cell.seed})
    again = Records(tmp_path, described)
    assert [again.prediction(cell) for cell in cells] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert file.read_text().count("\n") == 4
