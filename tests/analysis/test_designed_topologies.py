"""The comparison of designed topologies: equal messages, kept runs, intervals, and the command."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis import designed_topologies as designed
from topofl import data, topologies

TINY = replace(designed.SETTINGS["digits"], n=20, rounds=4, every=2)


@pytest.fixture
def tiny(monkeypatch):
    """Compare on a small setting, with few steps of the search."""
    monkeypatch.setitem(designed.SETTINGS, "digits", TINY)
    monkeypatch.setattr(designed, "RATES", (0.1, 0.5))
    real = topologies.designed
    monkeypatch.setattr(topologies, "designed", lambda *a, **kw: real(*a, steps=2, **kw))
    designed.split.cache_clear()
    yield
    designed.split.cache_clear()


@pytest.mark.parametrize("name", designed.SETTINGS)
def test_others_are_near_the_budget_and_designs_never_send_more(name):
    n = designed.SETTINGS[name].n
    clients = data.shards(data.digits(), n=n, per_node=2, seed=0)
    sent_by = {
        name: designed.messages_of(designed.graph_of(name, clients, 0)) for name in designed.OTHERS
    }
    for name, sent in sent_by.items():
        budget = sent_by[f"D-Cliques of {designed.OTHERS[name][0]}"]
        assert 0.4 * budget < sent < 1.6 * budget
        assert n - 1 <= designed.designed_edges(sent) <= sent / 2


def test_messages_count_directed_edges_on_average_over_a_period():
    assert designed.messages_of(topologies.ring(6)) == 12
    assert designed.messages_of(topologies.exponential(8, directed=True)) == 24
    turns = topologies.matchings(topologies.path(4))  # two edges, then one
    assert designed.messages_of(turns) == 3


@pytest.mark.slow
def test_finished_runs_are_kept_and_both_runs_of_a_pair_have_equal_messages(
    tiny, tmp_path, monkeypatch
):
    partial = designed.records_of(tmp_path)
    left = iter([True] * 7)
    designed.compute(["digits"], partial, seeds=(0, 1), more=lambda: next(left, False))
    assert 2 < len(partial.store.runs()) <= 7
    assert max(len(one.pairs) for one in designed.comparisons(partial, (0, 1))) < 2
    designed.compute(["digits"], partial, seeds=(0, 1))
    records = designed.records_of(tmp_path)
    monkeypatch.setattr(topologies, "designed", None)  # finished runs are not repeated
    designed.compute(["digits"], records, seeds=(0, 1))
    found = designed.comparisons(records, (0, 1))
    assert [one.other for one in found] == list(designed.OTHERS)
    for one in found:
        for theirs, ours in one.pairs:
            assert ours["messages"] <= theirs["messages"] < ours["messages"] + 2
    paths = designed.write_report(records, tmp_path / "results", (0, 1))
    text = paths[0].read_text()
    assert all(name in text for name in designed.OTHERS)
    assert paths[2].stat().st_size > 1000
    table = pd.read_csv(paths[1])
    assert len(table) == 2 * 2 * len(designed.OTHERS)
    theirs, ours = found[0].pairs[1]
    own = table[(table["compared with"] == found[0].other) & (table["seed"] == 1)]
    assert own["graph"].tolist() == ["other", "designed"]
    assert own["final"].tolist() == [theirs["final"], ours["final"]]
    assert "Incomplete" not in text


def recorded(folder, seeds):
    """Return made-up results of the comparison with D-Cliques of 10 on digits, by seeds."""
    records = designed.records_of(folder)
    for lr in TINY.rates:
        records.ran[records.key(designed._tuning_cell(TINY), lr)] = {"all rounds": lr}
    (*_, lr), cliques = TINY.rates, "D-Cliques of 10"
    for seed in seeds:
        pair = designed._cell(TINY, seed, cliques), designed.designed_cell(TINY, 90.0, seed)
        for cell, accuracy in zip(pair, (0.5 + 0.001 * seed, 0.6 + 0.002 * seed), strict=True):
            records.add(cell, {"messages": 90.0, "H_1": 0.1, "H_10": 0.1, "N_10": 1.0})
            records.ran[records.key(cell, lr)] = dict.fromkeys(designed.OUTCOMES, accuracy)
    return records


def test_incomplete_comparisons_have_no_verdict_and_missing_ones_are_told(tiny, tmp_path):
    records = recorded(tmp_path, range(3))
    path, _ = designed.write_report(records, tmp_path, range(4))
    text = path.read_text()
    assert "better" not in text.replace("is better", "")
    assert "without a verdict: D-Cliques of 10 (3 seeds), STL-FW (10) (0 seeds)" in text
    assert "| D-Cliques of 10 | 3 | +10.10 | +10.10 | +10.10 |" in text
    assert "## MNIST\n\nNot run" in text
    paths = designed.write_report(records, tmp_path, range(3))
    assert len(paths) == 3
    text = paths[0].read_text()
    assert "learning phase better" in text
    assert "without a verdict: STL-FW (10) (0 seeds)" in text
    assert "## Seeds" not in text
    records = recorded(tmp_path, range(6))
    assert designed.further_seeds(records, range(3)) == [3, 4, 5]  # not in the protocol
    text = designed.write_report(records, tmp_path, range(3))[0].read_text()
    before, after = text.split("## Seeds 3 to 5")
    assert "| D-Cliques of 10 | 3 | 50.10 | 60.20 |" in before
    assert "| D-Cliques of 10 | 3 | 50.40 | 60.80 |" in after
    assert "not in the protocol" in after


def test_a_run_that_diverges_is_the_worst(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(designed, "RATES", (0.1, 1e38))
    records = designed.records_of(tmp_path)
    designed.compute(["digits"], records, seeds=())
    cell = designed._tuning_cell(TINY)
    assert records.outcomes(cell, 1e38) == {"diverged": True}
    assert designed.rate_of(TINY, records) == 0.1
    records.add(cell, {"messages": 80.0})
    lost = designed.known(cell, 1e38, records)
    assert [lost[name] for name in designed.OUTCOMES] == [0.0, 0.0, 0.0]
    assert designed.known(cell, 0.1, records)["all rounds"] > 0
    records.ran[records.key(cell, 0.1)] = {"missing": "a reason"}
    assert designed.known(cell, 0.1, records) is None


def test_the_rate_is_that_of_the_best_tuning_run(tiny, tmp_path):
    assert designed.rate_of(TINY, designed.records_of(tmp_path)) is None
    assert designed.rate_of(TINY, recorded(tmp_path, [])) == 0.5
    assert replace(TINY, momentum=0.9).rates == (0.01, 0.05)


def test_intervals_are_those_of_a_t_test():
    values = np.random.default_rng(0).normal(0.3, 1.0, 10)
    found = designed.difference(values)
    wanted = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found == pytest.approx((values.mean(), wanted.low, wanted.high, "undecided"))
    for values, verdict in (
        ([0.1, 0.2, 0.3], "undecided"),
        ([0.1, 0.11, 0.12], "better"),
        ([-0.1, -0.11, -0.12], "worse"),
    ):
        assert designed.difference(values)[-1] == verdict


@pytest.mark.slow
def test_the_command_writes_a_report(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(designed, "OTHERS", dict(list(designed.OTHERS.items())[:1]))
    assert designed.main(["--out", str(tmp_path)]) == 0
    assert "report.md" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        designed.main(["--help"])
    assert "Equal messages" in capsys.readouterr().out


def test_incomplete_comparisons_of_the_stored_report_are_in_it_and_base_graphs_in_the_page():
    root = Path(__file__).parents[2]
    found = pd.read_csv(root / "analysis" / "results" / "designed" / "runs.csv")
    text = (root / "analysis" / "results" / "designed" / "report.md").read_text()
    page = (root / "docs" / "what-predicts-convergence.md").read_text()
    for name in ("base graph (10)", "base graph (5)", "STL-FW (10)"):
        own = found[(found["setting"] == "CIFAR-10 subset") & (found["compared with"] == name)]
        theirs, ours = (own[own["graph"] == graph] for graph in ("other", "designed"))
        means = 100 * (ours[[*designed.OUTCOMES]].mean() - theirs[[*designed.OUTCOMES]].mean())
        shown = " | ".join(f"{mean:+.2f}" for mean in means)
        assert f"| {name} | {len(ours)} | {shown} |" in text
        assert (f"| CIFAR-10 subset | {name}, " in page) == name.startswith("base graph")
        assert (f" | {shown} |" in page) == name.startswith("base graph")
