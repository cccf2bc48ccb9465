"""The study: its runs and records, configurations of one's own, and reports of what is complete."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.study import command, runs, statistics
from analysis.study.fits import StudyDataset, runs_table, write_runs
from analysis.study.runs import Records, compute, predictors_of, train
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
from tests.analysis.studies import CONFIG, small_cells
from topofl import History, cli, data, metrics, mixing, models, topologies
from topofl.runs.execute import Processes
from topofl.runs.identity import digest_of

CLIENTS = data.shards(data.digits(), n=60, per_node=2, seed=0)


@pytest.mark.slow
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
def test_a_configured_study_gives_the_same_results_in_one_and_two_processes(
    small, tmp_path, capsys
):
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
    assert cli.main(["runs", str(out / "runs"), "--where", "topology.name=ring"]) == 0
    assert "4 runs" in capsys.readouterr().out


@pytest.mark.slow
def test_correlations_that_are_not_computed_are_announced_and_have_no_tables(small, capsys):
    config, out = small
    note = "note: small has 3 graphs; a correlation needs at least 8, so none is computed"
    for words in (["--dry-run"], ["--out", str(out)]):
        assert command.main([str(config), *words]) == 0
        assert note in capsys.readouterr().err
    assert "| predictor |" not in (out / "report.md").read_text()


@pytest.mark.slow
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


@pytest.mark.slow
def test_results_of_configurations_have_folders_of_their_own(small):
    source = Source(config=small[0])
    assert command._folder(None, source) == Path("out/study/small")
    assert command._folder(None, Source()) == Path("out/study")
    assert command._folder(Path("x"), source) == Path("x")


@pytest.mark.slow
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


@pytest.mark.slow
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
def test_an_interrupted_study_reports_what_is_complete(small, tmp_path, monkeypatch, capsys):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    shutil.copytree(small[1], tmp_path / "out")
    monkeypatch.setattr(runs, "perform_all", interrupted)
    assert command.main([str(small[0]), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "interrupted; the same command continues" in captured.err
    assert "report.md" in captured.out


def test_what_a_file_does_not_say_has_defaults(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG.replace("[evaluation]\nevery = 2\n", "").replace("= 4", "= 60", 1))
    assert configured_scenarios(config)["small"].evaluation.every == 3
    before, _, rest = CONFIG.partition("[algorithm]")
    config.write_text(f'algorithm = "dsgd,lr=0.1"\n{before}[run]{rest.partition("[run]")[2]}')
    assert configured_scenarios(config)["small"].batch_size == 128


@pytest.mark.slow
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


def test_a_study_without_a_complete_cell_says_how_to_go_on(tmp_path, capsys):
    assert command.main(["--dry-run", "digits 30"]) == 0
    plan = f"digits 30: {3 * len(GRAPHS):,} runs, after 5 tuning runs"
    assert plan in capsys.readouterr().out
    words = ["digits 60, Clique Averaging", "--minutes", "0", "--out", str(tmp_path / "out")]
    assert command.main(words) == 0
    text = capsys.readouterr().out
    assert "the same command continues" in text
    assert text.count(f"{5 + 3 * len(GRAPHS)} runs in ") == 2


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
