"""Comparisons of rotating cliques and the number for deep networks: runs, sums and verdicts."""

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from analysis import deep_number, mean_models, paired, rotating_cliques
from analysis.study.graphs import GRAPHS, build_graph, graph_of_spec
from analysis.study.learned import model_of
from analysis.study.scenarios import Cell, Source, scenarios_of
from topofl import data, metrics, mixing, models, topologies

CLIENTS = data.shards(data.digits(), n=20, per_node=2, seed=0)
FULL = Source(study="rotating_cliques")


@pytest.mark.parametrize(
    ("graph", "models"),
    [
        (topologies.fully_connected(10), 2 * 9 / 10),
        (topologies.ring(10), 2.0),
        (topologies.ring(3), 2 * 2 / 3),
        (topologies.greedy_swap(CLIENTS, clique_size=5, seed=0), 2 * 4 / 5),
        # Two cliques of 10, and one edge between them.
        (topologies.dcliques(CLIENTS, clique_size=10, seed=0), 2 * 9 / 10 + 2 / 20),
        (topologies.exponential(8, directed=True), 3.0),
        (topologies.rotating_cliques(CLIENTS, 2, seed=0).at(0), 1.0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_groups_average_by_all_reduce_where_that_sends_less(graph, models):
    assert rotating_cliques.models_sent(graph) == pytest.approx(models)


def test_claims_are_open_only_if_missing_runs_matter():
    assert paired.all_hold([True, None]) is None
    assert paired.all_hold([False, None]) is False
    assert paired.all_hold([True, True]) is True
    assert paired.at_least(2, [True, True, None]) is True
    assert paired.at_least(2, [True, False, None]) is None
    assert paired.at_least(2, [True, False, False]) is False


@pytest.mark.slow
@pytest.mark.parametrize("study", ["rotating_cliques", "deep_number"])
def test_all_declared_graphs_exist_for_their_numbers_of_nodes(study):
    scenarios = [one for one in scenarios_of(Source(study=study)).values() if one.n <= 60]
    graphs = {(one.n, name): graph for one in scenarios for name, graph in one.graphs.items()}
    for (n, name), graph in graphs.items():
        clients = data.shards(data.digits(), n=n, per_node=2, seed=0)
        assert not isinstance(build_graph(graph, clients, 0), str), (n, name)


def test_settings_differ_from_digits_as_their_names_say():
    plain = graph_of_spec("rotating_cliques,clique_size=5", CLIENTS, 0)
    noisy = graph_of_spec("rotating_cliques,clique_size=5", CLIENTS, 0, epsilon=0.01)
    absent = graph_of_spec("rotating_cliques,clique_size=5", CLIENTS, 0, absent=0.2)
    skew = metrics.neighborhood_heterogeneity
    assert skew(noisy, CLIENTS) > 2 * skew(plain, CLIENTS)
    assert (absent.at(0).in_degrees == 0).sum() >= 4
    assert (plain.at(0).in_degrees == 4).all()


def made_up(lead=0.02, seeds=10):
    """Return runs of all scenarios, in which graphs named "rotating ..." lead by `lead`."""
    rng, rows = np.random.default_rng(0), []
    for scenario in map(FULL.scenario, scenarios_of(FULL)):
        for graph in scenario.graphs.values():
            for seed in scenario.seeds[:seeds]:
                ours = lead * graph.name.startswith("rotating") + rng.normal(0, 1e-4)
                told = {"setting": scenario.name, "family": graph.family, "graph": graph.name}
                sent = {"messages": 9.0, "models": 1.8, "links": 36, "H_1": 0.0, "H_10": 0.0}
                rate = {"seed": seed, "lr": 0.1, "end": ""}
                rows.append(told | sent | rate | dict.fromkeys(paired.OUTCOMES, 0.8 + ours))
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_verdicts_follow_the_runs():
    for lead, expected in ((0.02, "HOLDS"), (-0.02, "FAILS")):
        found = rotating_cliques.Found(made_up(lead), FULL)
        states = {one.name: one.state for one in rotating_cliques.verdicts(found)}
        # The same lead with and without tracking; equal numbers of partitions; equal noise.
        fixed = {"10": "FAILS" if lead > 0 else "HOLDS", "11": "HOLDS", "12": "HOLDS"}
        assert states == dict.fromkeys(states, expected) | fixed
        assert len(states) == 13
    runs = made_up()
    lost = (runs["setting"] == "GN-LeNet") & (runs["graph"] == "rotating 10")
    runs.loc[lost, list(paired.OUTCOMES)] -= 0.04
    states = {
        v.name: v.state for v in rotating_cliques.verdicts(rotating_cliques.Found(runs, FULL))
    }
    assert states["1"] == "HOLDS", "four of five settings suffice"
    assert states["3"] == "FAILS"
    lost = rotating_cliques.losses(rotating_cliques.Found(runs, FULL), rotating_cliques.DECIDING)
    assert {line.split(":")[0] for line in lost} == {"- GN-LeNet"}
    assert any("rotating 10 against D-Cliques 10 ring, final: -2.0" in line for line in lost)
    states = {
        one.name: one.state
        for one in rotating_cliques.verdicts(rotating_cliques.Found(made_up(seeds=9), FULL))
    }
    assert set(states.values()) == {"OPEN"}


def test_the_learning_phase_is_that_of_trained_models():
    outcomes = {"rounds": [0, 4, 8, 12, 16], "curve": [0.1, 0.4, 0.6, 0.7, 0.9]}
    assert paired.learning_phase(outcomes) == pytest.approx(0.5)
    assert paired.learning_phase({"diverged": True}) == 0


def sums_by_definition(power, z, starts):
    """Return the sums of the page from ``power(start, k)``, the product of k rounds."""
    n, found = len(z), []
    apart = np.eye(n) - 1 / n  # I - J
    for start in range(starts):
        p = [power(start, k) for k in range(1, 51)]
        after = [np.eye(n) - power(start + k, 1) for k in range(1, 11)]  # I - W
        mixed = [one @ z for one in p[:10]]
        noisy = [one - 1 / n for one in p[:10]]
        discounted = [0.9**k * one for k, one in enumerate(p)]
        noise = np.linalg.norm(p[0] - 1 / n) ** 2
        found.append([
            noise,
            noise + 3 * np.linalg.norm(p[0] - p[1]) ** 2,
            np.trace(z.T @ sum(discounted) @ z),
            np.linalg.norm(apart @ sum(discounted) @ z) ** 2,
            sum(0.9**k * np.linalg.norm(apart @ one @ z) ** 2 for k, one in enumerate(p)),
            sum(2 * np.trace(x.T @ left @ x) for x, left in zip(mixed, after, strict=True)),
            sum(2 * np.trace(x.T @ left @ x) for x, left in zip(noisy, after, strict=True)),
        ])  # fmt: skip
    return np.mean(found, axis=0) / n


@pytest.mark.parametrize("name", ["4-regular", "base graph 1", "random matching"])
def test_sums_over_rounds_are_those_of_their_definition(name):
    graph: Any = build_graph(GRAPHS[name], CLIENTS, 0)
    shares = metrics.label_distributions(CLIENTS)
    z = shares - shares.mean(axis=0)
    found = deep_number.coherent(graph, z)
    if name == "4-regular":
        w = mixing.metropolis_hastings(graph).weights.toarray()
        expected = sums_by_definition(lambda _, k: np.linalg.matrix_power(w, k), z, 1)
    else:
        rounds = [mixing.metropolis_or_uniform(graph.at(t)).weights.toarray() for t in range(71)]

        def power(start, k):
            return functools.reduce(np.matmul, reversed(rounds[start : start + k]))

        expected = sums_by_definition(power, z, graph.period or 20)
    assert found == pytest.approx(expected, rel=1e-9)
    if name == "random matching":  # the metrics examine other starts
        return
    assert found[0] == pytest.approx(metrics.accumulated_noise(graph, 1))
    spread = metrics.neighborhood_heterogeneity(graph, CLIENTS, hops=50, discount=0.9)
    assert found[4] == pytest.approx(spread)


def test_nothing_is_left_where_neighbors_are_equal():
    alone = topologies.greedy_swap(CLIENTS, clique_size=5, seed=0)
    shares = metrics.label_distributions(CLIENTS)
    deviations = shares - shares.mean(axis=0)
    found = deep_number.coherent(alone, deviations)
    assert found[-2:] == pytest.approx([0, 0], abs=1e-12)
    w = mixing.metropolis_hastings(alone).weights.toarray()
    mixed = ((w @ deviations) ** 2).sum() / 20
    assert found[2] == pytest.approx(mixed * (1 - 0.9**50) / 0.1)  # W is a projection
    assert found[3] == pytest.approx(mixed * ((1 - 0.9**50) / 0.1) ** 2)


def deep_runs(good):
    """Return made-up runs of all cells, whose accuracies the candidate `good` ranks perfectly."""
    source, rng, rows = Source(Path("data"), study="deep_number"), np.random.default_rng(0), []
    for name in source.free():
        scenario = source.scenario(name)
        for seed in scenario.seeds:
            ranks = rng.permutation(len(scenario.graphs)) / len(scenario.graphs)
            for graph, rank in zip(scenario.graphs.values(), ranks, strict=True):
                level = {"complete": 0.9, "isolated": 0.15}.get(graph.name, 0.3 + rank / 2)
                told = {"setting": name, "family": graph.family, "graph": graph.name}
                values = dict(
                    zip(deep_number.SIGNS, rng.normal(size=len(deep_number.SIGNS)), strict=True)
                )
                values |= {good: deep_number.SIGNS[good] * level, "n_W(0.5)": np.nan}
                told |= {"seed": seed, "lr": 0.1, "end": ""}
                told |= dict.fromkeys((*paired.OUTCOMES, *paired.STAGES), level)
                rows.append(told | values)
    return pd.DataFrame(rows), source


@pytest.mark.slow
def test_the_number_is_chosen_on_one_seed_and_judged_on_others(monkeypatch):
    monkeypatch.setattr(deep_number, "DRAWS", 200)
    runs, source = deep_runs("coherent return")
    found, tables = deep_number.verdicts(runs, source)
    states = {one.name: one.state for one in found}
    assert states["6"] == "HOLDS"
    assert found[-1].found.startswith("coherent return: -1.000")
    assert {table.seed for table in tables} == {301, 302}
    worse = runs.copy()
    judged = worse["seed"] != 300
    worse.loc[judged, "coherent return"] = np.random.default_rng(1).normal(size=judged.sum())
    found, _ = deep_number.verdicts(worse, source)
    assert {one.name: one.state for one in found}["6"] == "FAILS"
    floors = runs.copy()
    floors.loc[(floors["setting"] == "MNIST, MLP") & (floors["graph"] != "complete"), "final"] = 0.1
    assert deep_number.off_floor(floors, "MNIST, MLP") == (1, len(GRAPHS_OF_CELL))
    _, tables = deep_number.verdicts(floors, source)
    assert "MNIST, MLP" not in {table.scenario for table in tables}
    chosen_by = runs.copy()  # on seed 300 only one cell is off the floor, and N_1 is perfect there
    first, own = chosen_by["seed"] == 300, chosen_by["setting"] == "MNIST, MLP"
    chosen_by.loc[first & ~own & (chosen_by["graph"] != "complete"), "final"] = 0.1
    chosen_by.loc[first & own, "N_1"] = -chosen_by["learning phase"]
    chosen_by.loc[first & own, "coherent return"] = chosen_by["learning phase"]
    found, tables = deep_number.verdicts(chosen_by, source)
    assert found[-1].found.startswith("N_1: ")
    assert len({table.scenario for table in tables}) == 12
    found, _ = deep_number.verdicts(runs[runs["graph"] != "ring"], source)
    assert {one.state for one in found} == {"OPEN"}


def test_no_graph_leaves_the_floor_below_it():
    runs, _ = deep_runs("H_1")
    own = runs["setting"] == "MNIST, MLP"
    runs.loc[own, "final"] = 0.3  # isolated nodes, too
    runs.loc[own & (runs["graph"] == "complete"), "final"] = 0.0  # diverged
    runs.loc[own & (runs["graph"] == "ring"), "final"] = 0.4
    assert deep_number.off_floor(runs, "MNIST, MLP") == (1, len(GRAPHS_OF_CELL))


def test_hypotheses_without_a_cell_off_the_floor_stay_open(monkeypatch):
    monkeypatch.setattr(deep_number, "DRAWS", 20)
    runs, source = deep_runs("H_1")
    floor = runs.assign(final=0.2)
    found, tables = deep_number.verdicts(floor, source)
    assert not tables
    assert [(one.name, one.state) for one in found] == [
        ("1", "FAILS"), *((str(k), "OPEN") for k in range(2, 7))
    ]  # fmt: skip
    only_first = runs["seed"].isin(deep_number.CHOOSING)
    found, _ = deep_number.verdicts(runs[only_first], source)
    assert [one.state for one in found] == ["OPEN"] * 6
    # No candidate has a correlation where all graphs learn alike.
    even = runs.assign(**{"learning phase": 0.5})
    states = {one.name: one.state for one in deep_number.verdicts(even, source)[0]}
    assert [states[name] for name in "23456"] == ["OPEN"] * 5


@pytest.mark.slow
def test_the_page_has_verdicts_candidates_cells_and_rates(monkeypatch, tmp_path):
    monkeypatch.setattr(deep_number, "DRAWS", 20)
    runs, source = deep_runs("coherent return")
    runs.loc[runs["setting"] == "MNIST, MLP", "end"] = "largest"
    found = deep_number.report(runs, source, tmp_path)
    text = (tmp_path / "table.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| MNIST, MLP ")]
    assert [cell.strip() for cell in rows[0].split("|")[2:4]] == ["0.1", "largest"]
    assert sum(line.startswith("| coherent return ") for line in text.splitlines()) == 2
    kept = json.loads((tmp_path / "results.json").read_text())
    assert [one["state"] for one in kept["verdicts"]] == [one.state for one in found]
    assert kept["medians"]["coherent return"] == pytest.approx(-1)


def small_runs(learning, h_10):
    """Return made-up runs of three graphs, one row of values per seed."""
    rows = []
    for seed, (own, numbers) in enumerate(zip(learning, h_10, strict=True)):
        for graph, level, number in zip("abc", own, numbers, strict=True):
            told = {"setting": "MNIST, GN-LeNet", "graph": graph, "seed": seed}
            rows.append(told | {"learning phase": level, "H_10": number})
    return pd.DataFrame(rows)


def test_seeds_agree_as_the_ranks_of_their_graphs_do():
    alike = small_runs([[0.1, 0.2, 0.3], [0.4, 0.5, 0.9], [0.9, 0.5, 0.4]], [[3, 2, 1]] * 3)
    # Correlations of pairs of seeds: 1, -1 and -1.
    assert deep_number.agreement(alike) == pytest.approx(-1 / 3)
    assert deep_number.agreement(alike[alike["seed"] < 2]) == pytest.approx(1)
    assert np.isnan(deep_number.agreement(alike[alike["seed"] == 0]))


def test_accuracies_are_kept_at_three_stages():
    found = paired.accuracy_at_stages({"rounds": [0, 5, 10, 15, 20], "curve": [0, 1, 2, 3, 4]})
    assert [*found.values()] == [1, 2, 4]
    assert [*paired.accuracy_at_stages({"diverged": True}).values()] == [0, 0, 0]


def test_numbers_rank_graphs_at_three_stages():
    runs = small_runs([[0.1, 0.2, 0.3]] * 2, [[1, 2, 3], [3, 2, 1]])
    stages = {one: [0.3, 0.2, 0.1] * 2 for one in paired.STAGES}
    runs = runs.assign(H_1=[1, 2, 3] * 2, H_5=[3, 2, 1] * 2, **stages)
    runs["last evaluation"] = [0.3, 0.2, 0.1, 0.1, 0.2, 0.3]
    ((cell, *found),) = deep_number.stages_table(runs).rows
    assert cell == "MNIST, GN-LeNet"
    # The order of H_10 changes between seeds: medians of -1 and 1, and, at the end, of -1 and -1.
    expected = [[-1, -1, 0], [1, 1, 0], [0, 0, -1]]
    assert found == [f"{value:+.2f}" for values in expected for value in values]


def test_accuracies_are_means_over_seeds_and_the_best_graph_is_first():
    runs = small_runs([[0.1, 0.2, 0.3], [0.1, 0.4, 0.4]], [[1, 2, 3]] * 2)
    assert deep_number.accuracy_table(runs).rows == (("c", "35.0"), ("b", "30.0"), ("a", "10.0"))


def test_graphs_are_misplaced_by_the_difference_of_their_ranks():
    # "c" has the highest H_10 (rank 3) and learns best (rank 1) with the first seed.
    runs = small_runs([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], [[1, 2, 3], [1, 2, 3]])
    one = runs[runs["seed"] == 0]
    assert deep_number.misplaced_table(one).rows == (("c", "+2"), ("b", "+0"), ("a", "-2"))
    both = dict(deep_number.misplaced_table(runs).rows)
    assert both == {"c": "+1", "b": "+0", "a": "-1"}


def test_the_mean_of_all_models_is_scored_beside_them():
    source = Source(study="deep_number", preset="smoke")
    cell = Cell("smoke", "2 shards", "D-SGD", 900, "complete")
    found = mean_models.outcomes_of(source, cell, 0.1)
    assert found["mean, final"] == pytest.approx(found["nodes, final"])
    apart = mean_models.outcomes_of(
        source, Cell("smoke", "2 shards", "D-SGD", 900, "isolated"), 0.1
    )
    # The accuracy of the mean of isolated models differs from their mean accuracy.
    assert apart["mean, final"] != pytest.approx(apart["nodes, final"])
    rows = [
        {"cell": "one", "graph": graph, "seed": seed, "nodes, learning": 20.0 + seed}
        | {"mean, learning": mean, "nodes, final": 40.0, "mean, final": 30.0 + seed}
        for graph, mean in (("cliques 5 alone", 25.0), ("ring", 30.0))
        for seed in (0, 1)
    ]
    alone, ring = mean_models.table(pd.DataFrame(rows)).rows
    assert alone[2:6] == ("20.5", "25.0", "+4.5 (-1.9 to +10.9)", "")
    # The differences are 10 and 9; the t-quantile of one degree of freedom is 12.71.
    assert ring[2:6] == ("20.5", "30.0", "+9.5 (+3.1 to +15.9)", "+5.0 (+5.0 to +5.0)")
    assert ring[-1] == "+0.0 (+0.0 to +0.0)"


@pytest.mark.slow
def test_means_of_models_are_measured_at_the_rates_of_the_study(tmp_path, capsys):
    words = ["--preset", "smoke", "--out", str(tmp_path), "--known", str(tmp_path / "absent")]
    assert mean_models.main(words) == 0  # there is one rate, which needs no file
    rows = json.loads((tmp_path / "mean_models.json").read_text())
    assert {row["graph"] for row in rows} == {"cliques 5 alone", "D-Cliques 5 ring", "rotating 5"}
    assert {row["seed"] for row in rows} == {900, 901, 902}
    assert "| smoke | rotating 5 |" in (tmp_path / "mean_models.md").read_text()
    capsys.readouterr()
    empty = tmp_path / "empty.gz"
    empty.write_bytes(gzip.compress(b""))
    assert mean_models.main(["--known", str(empty), "--out", str(tmp_path)]) == 2
    assert "no learning rate of a cell is known from" in capsys.readouterr().err


def test_the_committed_page_of_means_is_that_of_the_committed_runs():
    folder = Path(mean_models.__file__).parent / "results" / "mean_models"
    runs = pd.DataFrame(json.loads((folder / "mean_models.json").read_text()))
    assert (folder / "mean_models.md").read_text() == mean_models.page(runs)


@pytest.mark.parametrize("study", [mean_models, deep_number, rotating_cliques])
def test_paths_that_do_not_exist_are_refused_before_anything_runs(study, tmp_path, capsys):
    for option in ("--data", "--known"):
        assert study.main([option, str(tmp_path / "absent"), "--out", str(tmp_path / "out")]) == 2
        told = capsys.readouterr().err
        assert f"`{option}` must be " in told
        assert told.endswith("absent, which does not exist\n")
    assert not (tmp_path / "out").exists()


def test_scenarios_without_their_data_are_counted(tmp_path, capsys):
    assert deep_number.main(["--minutes", "0", "--out", str(tmp_path)]) == 0
    assert "8 scenarios are left out, since --data is not given" in capsys.readouterr().err
    assert Source(study="deep_number", preset="smoke").left_out() == 0


def test_lenets_on_one_channel_are_those_of_the_library_in_the_faster_format():
    torch.manual_seed(0)
    images, whole = torch.randn(5, 1, 16, 16), models.gn_lenet((1, 16, 16))
    ours = model_of(["gray_gn_lenet", [16, 16]])
    assert [*map(torch.equal, ours.parameters(), whole.parameters())] == [True] * 14
    torch.testing.assert_close(ours(images), whole(images))
    pooled = ours[:3](images)
    assert pooled.is_contiguous(memory_format=torch.channels_last)
    bare = model_of(["gray_lenet", [16, 16]])
    assert not any(isinstance(layer, torch.nn.GroupNorm) for layer in bare.modules())
    assert len([*bare.parameters()]) == 8


GRAPHS_OF_CELL = Source(study="deep_number").scenario("MNIST, MLP").graphs


@pytest.mark.slow
@pytest.mark.parametrize("study", [rotating_cliques, deep_number])
def test_a_smoke_run_is_kept_and_not_repeated(study, tmp_path, monkeypatch, capsys):
    words = ["--preset", "smoke", "--out", str(tmp_path)]
    assert study.main([*words, "--minutes", "0"]) == 0
    assert "nothing to report" in capsys.readouterr().out
    assert study.main(words) == 0
    assert ": 0 done, " in capsys.readouterr().out
    runs = pd.read_csv(tmp_path / "runs.csv")
    scenario = Source(study=study.__name__.split(".")[-1], preset="smoke").scenario("smoke")
    assert len(runs) == len(scenario.graphs) * len(scenario.seeds)
    text = (tmp_path / "table.md").read_text()
    assert "complete" in text or "coherent return" in text
    assert json.loads((tmp_path / "results.json").read_text())["verdicts"] == []
    monkeypatch.setattr("analysis.study.scenarios.build_graph", None)
    assert study.main(words) == 0
    assert ", 0 to do" in capsys.readouterr().out
    assert (tmp_path / "table.md").read_text() == text
    elsewhere, known = tmp_path / "elsewhere", str(tmp_path / paired.KNOWN)
    again = ["--preset", "smoke", "--out", str(elsewhere), "--known", known]
    assert study.main(again) == 0
    assert ", 0 to do" in capsys.readouterr().out
    for name in ("table.md", "runs.csv", paired.KNOWN):
        assert (elsewhere / name).read_bytes() == (tmp_path / name).read_bytes()
    Path(known).write_text("runs")
    assert study.main(again) == 2
    assert "`known` must be a file that a study wrote" in capsys.readouterr().err
