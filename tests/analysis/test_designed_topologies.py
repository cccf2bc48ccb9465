"""The comparison of designed topologies: equal messages, kept runs, intervals, and the command."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.designed_topologies import command, report, runs, settings
from topofl import data, topologies

TINY = replace(settings.SETTINGS["digits"], n=20, rounds=4, every=2)


@pytest.fixture
def tiny(monkeypatch):
    """Compare on a small setting, with few steps of the search."""
    monkeypatch.setitem(settings.SETTINGS, "digits", TINY)
    monkeypatch.setattr(settings, "RATES", (0.1, 0.5))
    designed = topologies.designed
    monkeypatch.setattr(topologies, "designed", lambda *a, **kw: designed(*a, steps=2, **kw))
    settings.split.cache_clear()
    yield
    settings.split.cache_clear()


@pytest.mark.parametrize("name", settings.SETTINGS)
def test_others_are_near_the_budget_and_designs_never_send_more(name):
    n = settings.SETTINGS[name].n
    clients = data.shards(data.digits(), n=n, per_node=2, seed=0)
    budgets = {size: settings.OTHERS[f"D-Cliques of {size}"] for size in settings.CLIQUE_SIZES}
    for other in settings.OTHERS.values():
        graph = other.graph(clients, 0)
        sent = settings.messages(graph)
        budget = settings.messages(budgets[other.clique_size].graph(clients, 0))
        assert 0.4 * budget < sent < 1.6 * budget
        assert n - 1 <= settings.designed_edges(sent) <= sent / 2


def test_messages_count_directed_edges_on_average_over_a_period():
    assert settings.messages(topologies.ring(6)) == 12
    assert settings.messages(topologies.exponential(8, directed=True)) == 24
    turns = topologies.matchings(topologies.path(4))  # two edges, then one
    assert settings.messages(turns) == 3


def test_finished_runs_are_kept_and_both_runs_of_a_pair_have_equal_messages(
    tiny, tmp_path, monkeypatch
):
    partial = runs.records_of(tmp_path)
    left = iter([True] * 7)
    runs.compute(["digits"], partial, seeds=(0, 1), more=lambda: next(left, False))
    assert 2 < len(partial.store.runs()) <= 7
    assert max(len(one.pairs) for one in report.comparisons(partial, (0, 1))) < 2
    runs.compute(["digits"], partial, seeds=(0, 1))
    records = runs.records_of(tmp_path)
    monkeypatch.setattr(topologies, "designed", None)  # finished runs are not repeated
    runs.compute(["digits"], records, seeds=(0, 1))
    found = report.comparisons(records, (0, 1))
    assert [one.other.name for one in found] == list(settings.OTHERS)
    for one in found:
        for theirs, ours in one.pairs:
            assert ours["messages"] <= theirs["messages"] < ours["messages"] + 2
    paths = report.write_report(records, tmp_path / "results", (0, 1))
    text = paths[0].read_text()
    assert all(name in text for name in settings.OTHERS)
    assert paths[2].stat().st_size > 1000
    table = pd.read_csv(paths[1])
    assert len(table) == 2 * 2 * len(settings.OTHERS)
    theirs, ours = found[0].pairs[1]
    own = table[(table["compared with"] == found[0].other.name) & (table["seed"] == 1)]
    assert own["graph"].tolist() == ["other", "designed"]
    assert own["final"].tolist() == [theirs["final"], ours["final"]]
    assert "Incomplete" not in text


def recorded(folder, seeds):
    """Return made-up results of the comparison with D-Cliques of 10 on digits, by seeds."""
    records = runs.records_of(folder)
    for lr in TINY.rates:
        records.ran[records.key(runs._tuning_cell(TINY), lr)] = {"all rounds": lr}
    other, (*_, lr) = settings.OTHERS["D-Cliques of 10"], TINY.rates
    for seed in seeds:
        pair = runs.other_cell(TINY, other, seed), runs.designed_cell(TINY, 90.0, seed)
        for cell, accuracy in zip(pair, (0.5 + 0.001 * seed, 0.6 + 0.002 * seed), strict=True):
            records.add(cell, {"messages": 90.0, "H_1": 0.1, "H_10": 0.1, "N_10": 1.0})
            records.ran[records.key(cell, lr)] = dict.fromkeys(report.OUTCOMES, accuracy)
    return records


def test_incomplete_comparisons_have_no_verdict_and_missing_ones_are_told(tiny, tmp_path):
    records = recorded(tmp_path, range(3))
    path, _ = report.write_report(records, tmp_path, range(4))
    text = path.read_text()
    assert "better" not in text.replace("is better", "")
    assert "without a verdict: D-Cliques of 10 (3 seeds), STL-FW (10) (0 seeds)" in text
    assert "| D-Cliques of 10 | 3 | +10.10 | +10.10 | +10.10 |" in text
    assert "## MNIST\n\nNot run" in text
    paths = report.write_report(records, tmp_path, range(3))
    assert len(paths) == 3
    text = paths[0].read_text()
    assert "learning phase better" in text
    assert "without a verdict: STL-FW (10) (0 seeds)" in text
    assert "## Seeds" not in text


def test_seeds_that_are_not_in_the_protocol_are_kept_apart(tiny, tmp_path):
    records = recorded(tmp_path, range(6))
    assert report.further_seeds(records, range(3)) == [3, 4, 5]
    text = report.write_report(records, tmp_path, range(3))[0].read_text()
    before, after = text.split("## Seeds 3 to 5")
    assert "| D-Cliques of 10 | 3 | 50.10 | 60.20 |" in before
    assert "| D-Cliques of 10 | 3 | 50.40 | 60.80 |" in after
    assert "not in the protocol" in after


def test_a_run_that_diverges_is_the_worst(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "RATES", (0.1, 1e38))
    records = runs.records_of(tmp_path)
    runs.compute(["digits"], records, seeds=())
    cell = runs._tuning_cell(TINY)
    assert records.outcomes(cell, 1e38) == {"diverged": True}
    assert runs.rate_of(TINY, records) == 0.1
    records.add(cell, {"messages": 80.0})
    lost = runs.known(cell, 1e38, records)
    assert [lost[name] for name in report.OUTCOMES] == [0.0, 0.0, 0.0]
    assert runs.known(cell, 0.1, records)["all rounds"] > 0
    records.ran[records.key(cell, 0.1)] = {"missing": "a reason"}
    assert runs.known(cell, 0.1, records) is None


def test_the_rate_is_that_of_the_best_tuning_run(tiny, tmp_path):
    records = runs.records_of(tmp_path)
    assert runs.rate_of(TINY, records) is None
    for lr, accuracy in zip(TINY.rates, (0.3, 0.4), strict=True):
        records.ran[records.key(runs._tuning_cell(TINY), lr)] = {"all rounds": accuracy}
    assert runs.rate_of(TINY, records) == 0.5
    assert replace(TINY, momentum=0.9).rates == (0.01, 0.05)


def test_intervals_are_those_of_a_t_test():
    values = np.random.default_rng(0).normal(0.3, 1.0, 10)
    found = report.difference(values)
    wanted = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.verdict == "undecided"
    assert report.difference([0.1, 0.2, 0.3]).verdict == "undecided"
    assert report.difference([0.1, 0.11, 0.12]).verdict == "better"
    assert report.difference([-0.1, -0.11, -0.12]).verdict == "worse"
    with pytest.raises(ValueError, match="at least 2 differences, got 1"):
        report.difference([0.1])


def test_missing_data_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    assert command.main(["MNIST", "--out", str(tmp_path)]) == 2
    assert "`--data` must name a folder with the folder mnist" in capsys.readouterr().err


def test_the_command_writes_a_report(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runs, "OTHERS", dict(list(settings.OTHERS.items())[:1]))
    assert command.main(["--out", str(tmp_path)]) == 0
    assert "report.md" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "Equal messages" in capsys.readouterr().out


def test_incomplete_comparisons_of_the_stored_report_are_in_it_and_base_graphs_in_the_page():
    root = Path(__file__).parents[2]
    found = pd.read_csv(root / "analysis" / "results" / "designed" / "runs.csv")
    text = (root / "analysis" / "results" / "designed" / "report.md").read_text()
    page = (root / "docs" / "what-predicts-convergence.md").read_text()
    for name in ("base graph (10)", "base graph (5)", "STL-FW (10)"):
        own = found[(found["setting"] == "CIFAR-10 subset") & (found["compared with"] == name)]
        theirs, ours = (own[own["graph"] == graph] for graph in ("other", "designed"))
        means = 100 * (ours[[*report.OUTCOMES]].mean() - theirs[[*report.OUTCOMES]].mean())
        shown = " | ".join(f"{mean:+.2f}" for mean in means)
        assert f"| {name} | {len(ours)} | {shown} |" in text
        assert (f"| CIFAR-10 subset | {name}, " in page) == name.startswith("base graph")
        assert (f" | {shown} |" in page) == name.startswith("base graph")
