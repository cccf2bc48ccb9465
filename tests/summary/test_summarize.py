"""Statistics of groups of runs, against pandas, scipy and cases worked out by hand."""

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import topofl
from tests.summary.samples import curves, of_name, runs_of, stored
from topofl.runs import Failure, RunStore, StoredRun, Sweep
from topofl.summary.verdicts import FAILS, HOLDS, UNDECIDED, mean_interval, t_quantile, verdict

TOPOLOGIES = ["ring", "torus", "exponential"]


def final(run, statistic="mean", score="accuracy"):
    return run.curves["scores"][score][statistic][-1]


def frame_of(runs):
    """Return one row per run: its settings and final scores."""
    names = ("mean", "worst", "worst_tenth")
    return pd.DataFrame([run.settings | {name: final(run, name) for name in names} for run in runs])


def test_statistics_are_those_of_pandas_and_scipy():
    runs = runs_of(topology=TOPOLOGIES, alpha=[0.1, 1.0, 10.0], seeds=5)
    np.random.default_rng(0).shuffle(runs)
    found = topofl.summarize(runs, by=["topology", "alpha"]).to_pandas()
    grouped = frame_of(runs).groupby(["topology.name", "data.alpha"])
    assert found["topology"].tolist() == sorted(TOPOLOGIES * 3)
    assert found["alpha"].tolist() == [0.1, 1.0, 10.0] * 3
    assert found["runs"].tolist() == [5] * 9
    for statistic, head in (
        ("mean", "accuracy"),
        ("worst", "worst node"),
        ("worst_tenth", "worst tenth"),
    ):
        column = grouped[statistic]
        assert found[head].to_numpy() == pytest.approx(column.mean().to_numpy(), rel=1e-12)
        assert found[f"{head} std"].to_numpy() == pytest.approx(column.std().to_numpy(), rel=1e-9)
        for k, values in enumerate(group for _, group in column):
            low, high = stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values))
            assert found[f"{head} low"][k] == pytest.approx(low, rel=1e-9)
            assert found[f"{head} high"][k] == pytest.approx(high, rel=1e-9)


def test_paired_differences_are_those_of_scipy():
    runs = runs_of(topology=TOPOLOGIES, alpha=[0.1, 1.0], seeds=6)
    found = topofl.summarize(runs[::-1], by=["topology", "alpha"], baseline="ring").to_pandas()
    frame = (
        frame_of(runs).set_index(["topology.name", "data.alpha", "run.seed"]).sort_index()["mean"]
    )
    for row in found.to_dict("records"):
        if row["topology"] == "ring":
            assert (row["pairs"], row["better than ring"]) == (0, "")
            assert np.isnan(row["minus ring"])
            continue
        own, base = frame[row["topology"], row["alpha"]], frame["ring", row["alpha"]]
        test = stats.ttest_rel(own, base)
        low, high = test.confidence_interval(0.95)
        assert row["pairs"] == 6
        assert row["minus ring"] == pytest.approx((own - base).mean(), rel=1e-9)
        assert row["minus ring low"] == pytest.approx(low, rel=1e-9)
        assert row["minus ring high"] == pytest.approx(high, rel=1e-9)
        assert (row["better than ring"] == "HOLDS") == (low > 0)


def test_low_scores_can_be_better():
    runs = runs_of(topology=["ring", "star"], effect={"ring": 0.0, "star": -0.1}, low_is_good=True)
    found = topofl.summarize(runs, by="topology", baseline="ring", target=0.55)
    assert found.runs.low_is_good
    frame = found.to_pandas()
    assert frame["minus ring"][1] < 0
    assert frame["better than ring"][1] == "HOLDS"
    assert (frame["worst node"] > frame["loss"]).all()
    assert frame["reached 0.55"].tolist() == [0, 3]


def test_targets_count_runs_that_never_get_there():
    def run(seed, accuracies):
        found = curves(0.5, rounds=list(range(len(accuracies))), seconds=True)[0]
        found["scores"]["accuracy"]["mean"] = accuracies
        return StoredRun(Path(), f"{seed:x}", {"run": {"seed": seed}}, {"curves": found})

    rows = [[0.1, 0.8, 0.9], [0.1, 0.2, 0.8], [0.1, 0.7, 0.7], [0.9, 0.1, None]]
    runs = [run(seed, row) for seed, row in enumerate(rows)]
    some = topofl.summarize(runs[:3], target=0.8)
    frame = some.to_pandas()
    assert frame["reached 0.8"].tolist() == [2]
    assert frame[["rounds to 0.8", "rounds to 0.8 low", "rounds to 0.8 high"]].values.tolist() == [
        [2, 1, np.inf]
    ]
    assert frame["MB to 0.8"].tolist() == [2.0]
    assert frame["seconds to 0.8"].tolist() == [3.0]
    assert "2 of 3" in str(some)
    assert "2 (1 to never)" in str(some)
    assert topofl.summarize(runs, target=0.8).to_pandas()["rounds to 0.8"].tolist() == [1.5]
    none = topofl.summarize(runs[:3], target=0.95)
    assert none.to_pandas()["rounds to 0.95"].tolist() == [np.inf]
    assert "never" in str(none)


def test_seconds_are_left_out_unless_all_runs_have_them():
    runs = runs_of(topology=["ring"], seconds=True) + runs_of(topology=["star"])
    heads = topofl.summarize(runs, target=0.5).table.columns
    assert "rounds to 0.5" in heads
    assert "seconds to 0.5" not in heads


def test_targets_are_those_of_histories():
    runs = runs_of(topology=TOPOLOGIES, seeds=2)
    found = topofl.summarize(runs, by=["topology", "seed"], target=0.6).to_pandas()
    histories = {(run.settings["topology.name"], run.settings["run.seed"]): run for run in runs}
    for row in found.to_dict("records"):
        history = histories[row["topology"], row["seed"]].history
        expected = history.rounds_to(0.6, "accuracy")
        reached = not isinstance(expected, topofl.NotApplicable)
        assert row["reached 0.6"] == reached
        assert row["rounds to 0.6"] == (expected if reached else np.inf)


def test_megabytes_of_scores_before_an_exchange_are_those_of_histories():
    clients = topofl.data.shards(topofl.data.digits(), n=6, per_node=2, seed=0)
    history = topofl.run(
        topofl.algorithms.dsgd(lr=0.5, batch_size=8),
        model=topofl.models.logistic_regression(64),
        clients=clients,
        topology=topofl.topologies.ring(6),
        rounds=60,
        seed=0,
        evaluation=topofl.Evaluation(every=5, before_exchange=True),
    )
    for column in ("accuracy", "accuracy_before_exchange"):
        frame = topofl.summarize({"ring": history}, column=column, target=0.3).to_pandas()
        assert frame["MB to 0.3"][0] == pytest.approx(history.bytes_to(0.3, column) / 1e6)


def test_scores_before_an_exchange_are_compared_at_equal_messages():
    """All messages are equally large here, so that equal messages are equal bytes."""
    how = {"model": topofl.models.logistic_regression(64), "rounds": 8, "seed": 0}
    how |= {"clients": topofl.data.iid(topofl.data.digits(), n=6, seed=0)}
    how |= {"evaluation": topofl.Evaluation(every=2, before_exchange=True)}
    histories = {
        name: topofl.run(
            topofl.algorithms.dsgd(lr=0.1), topology=getattr(topofl.topologies, name)(6), **how
        )
        for name in ("ring", "fully_connected")
    }
    column, whole = "accuracy_before_exchange", histories["fully_connected"]
    by_messages, by_bytes, at_end = (
        topofl.summarize(histories, column=column, equal=equal).to_pandas()
        for equal in ("messages", "megabytes", None)
    )
    pd.testing.assert_frame_equal(by_messages, by_bytes)
    scores = whole[column].mean(axis=1)  # the ring sends 2 / 5 as much: in 7 rounds before it
    wanted = np.interp(7 * 2 / 5, [0, 1, 3, 5, 7], scores)
    place = [*by_messages.iloc[:, 0]].index("fully_connected")
    found, last = (one[column][place] for one in (by_messages, at_end))
    assert found == pytest.approx(wanted)
    assert found != pytest.approx(last)


@pytest.mark.parametrize(("low_is_good", "verdict"), [(True, "FAILS"), (False, "HOLDS")])
def test_runs_say_in_which_direction_their_score_is_good(low_is_good, verdict):
    runs = runs_of(topology=["ring", "star"], effect={"ring": 0.0, "star": 0.1})
    for run in runs:
        run.curves["low_is_good"] = {"accuracy": low_is_good}
    frame = topofl.summarize(runs, by="topology", baseline="ring").to_pandas()
    assert frame["better than ring"][1] == verdict


def test_runs_of_machines_with_other_places_of_data_are_one_group():
    runs = runs_of(seeds=2)
    for run, root in zip(runs, ("here", "there"), strict=True):
        run.tables.setdefault("data", {})["root"] = root
    assert topofl.summarize(runs).to_pandas()["runs"].tolist() == [2]


def test_runs_without_a_final_score_are_counted():
    runs = runs_of(topology=["ring"], seeds=3)
    runs[1].curves["scores"]["accuracy"]["mean"][-1] = None  # diverged
    summary = topofl.summarize(runs, baseline=None)
    frame = summary.to_pandas()
    assert frame["runs"].tolist() == [3]
    assert frame["accuracy"][0] == pytest.approx((final(runs[0]) + final(runs[2])) / 2)
    assert "1 run ended without a finite accuracy" in str(summary)


def test_a_single_run_has_no_interval():
    summary = topofl.summarize(runs_of(seeds=1))
    frame = summary.to_pandas()
    assert np.isnan(frame["accuracy low"][0])
    assert frame["accuracy"][0] == pytest.approx(final(runs_of(seeds=1)[0]))
    assert "±" not in str(summary.table)


def test_default_groups_are_all_settings_that_vary():
    runs = runs_of(topology=["ring", "star"], alpha=[0.1, 1.0])
    assert set(topofl.summarize(runs).by) == {"topology", "data.alpha"}
    assert topofl.summarize(runs_of()).groups == ((),)


def test_a_table_is_grouped_with_its_arguments():
    runs = [
        stored({"topology.name": "dcliques", "topology.size": size, "run.seed": seed}, 0.5)
        for size in (5, 10)
        for seed in (0, 1)
    ]
    runs += [stored({"topology.name": "ring", "run.seed": seed}, 0.4) for seed in (0, 1)]
    assert topofl.summarize(runs, by="topology").groups == (
        ("dcliques, size=5",),
        ("dcliques, size=10",),
        ("ring",),
    )


def test_averaging_over_a_setting_must_be_said():
    runs = runs_of(topology=["ring", "star"], alpha=[0.1, 1.0], seeds=2)
    found = topofl.summarize(runs, by="topology", over="alpha", baseline="ring").to_pandas()
    assert found["runs"].tolist() == [4, 4]
    assert found["pairs"].tolist() == [0, 4]


def test_what_differs_between_groups_is_noted():
    runs = [
        stored({"topology.name": name, "algorithm.lr": lr, "run.seed": seed}, 0.5)
        for name, lr in (("ring", 0.1), ("star", 0.5))
        for seed in (0, 1)
    ]
    assert "groups also differ in algorithm.lr" in topofl.summarize(runs, by="topology").notes


def test_what_does_not_change_results_may_vary():
    runs = [
        stored({"compute.executor": how, "saving.every": k, "run.seed": k}, 0.5)
        for k, how in enumerate(["looped", "batched"])
    ]
    assert topofl.summarize(runs).groups == ((),)


def test_pairs_share_the_seeds_that_both_have():
    runs = [stored({"topology.name": "ring", "run.seed": k}, x) for k, x in enumerate([0.2, 0.4])]
    runs += [
        stored({"topology.name": "random", "topology.seed": g, "run.seed": k}, x)
        for (k, g), x in {(0, 0): 0.3, (0, 1): 0.5, (1, 0): 0.4, (1, 1): 0.6}.items()
    ]
    found = topofl.summarize(runs, by="topology", baseline="ring").to_pandas()
    assert found["runs"].tolist() == [4, 2]
    assert found["pairs"].tolist() == [2, 0]
    # per seed of the run: (0.3 + 0.5) / 2 - 0.2, and (0.4 + 0.6) / 2 - 0.4
    assert found["minus ring"][0] == pytest.approx((0.2 + 0.1) / 2)


def test_groups_without_pairs_say_so():
    runs = runs_of(topology=["ring", "star"], seeds=2)
    runs += [stored(runs[0].settings | {"topology.name": "torus", "run.seed": 9}, 0.5)]
    summary = topofl.summarize(runs, by="topology", baseline="ring")
    assert summary.to_pandas()["pairs"].tolist() == [0, 2, 0]
    assert "no seeds in common with the baseline" in str(summary)


def test_baselines_can_be_given_by_setting():
    runs = runs_of(topology=["ring", "star"], alpha=[0.1, 1.0], seeds=3)
    by = ["topology", "alpha"]
    each = topofl.summarize(runs, by=by, baseline={"topology": "ring"})
    assert [pair.baseline for pair in each.pairs] == [0, 1, 0, 1]
    assert each.to_pandas().equals(topofl.summarize(runs, by=by, baseline="ring").to_pandas())
    one = topofl.summarize(runs, by=by, baseline={"data.alpha": 1.0, "topology": "ring"})
    assert [pair.baseline for pair in one.pairs] == [1, 1, 1, 1]
    lowest = topofl.summarize(runs, by=by, baseline="0.1")
    assert [pair.baseline for pair in lowest.pairs] == [0, 0, 2, 2]


def test_groups_whose_baseline_is_missing_say_so():
    runs = runs_of(topology=["ring", "star"], alpha=[0.1]) + runs_of(topology=["star"], alpha=[1.0])
    summary = topofl.summarize(runs, by=["topology", "alpha"], baseline="ring")
    assert "no runs of the baseline have its other settings" in str(summary)
    assert summary.to_pandas()["pairs"].tolist() == [0, 3, 0]


def test_runs_that_failed_are_noted():
    runs = runs_of()
    failure = Failure("0", {"run": {"seed": 7}}, "ValueError: no")
    assert "1 run failed and is absent" in topofl.summarize([*runs, failure]).notes
    swept = topofl.summarize(Sweep((), tuple(runs), (failure,)))
    assert "1 run failed and is absent" in swept.notes
    assert swept.to_pandas().equals(topofl.summarize(runs).to_pandas())


def test_store_folder_and_histories_agree(tmp_path):
    runs = runs_of(topology=["ring", "star"], seeds=2)
    store = RunStore(tmp_path / "store")
    for k, run in enumerate(runs):
        store.add(f"{k:016x}", run.history, run.tables)
    given = [
        topofl.summarize(what, by="topology", baseline="ring").to_pandas()
        for what in (store, tmp_path / "store", str(tmp_path / "store"), store.runs(), runs)
    ]
    for one in given[1:]:
        pd.testing.assert_frame_equal(one, given[0])
    named = {
        name: [run.history for run in runs if run.settings["topology.name"] == name]
        for name in ("star", "ring")
    }
    found = topofl.summarize(named, baseline="ring").to_pandas()
    assert found["name"].tolist() == ["star", "ring"]  # in the order of the mapping
    assert found["minus ring"][0] == pytest.approx(given[0]["minus ring"][1])


def test_equal_runs_are_rounded_as_numbers_without_spread():
    runs = [stored({"run.seed": seed}, 0.1) for seed in range(3)]
    text = str(topofl.summarize(runs))
    assert "0.1 ± 0" in text
    assert "000000" not in text


def test_csv_has_full_precision(tmp_path):
    runs = runs_of(topology=["ring", "star"])
    summary = topofl.summarize(runs, by="topology", baseline="ring", target=0.99)
    summary.to_csv(tmp_path / "t.csv")
    read = pd.read_csv(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(
        read.drop(columns="better than ring"),
        summary.to_pandas().drop(columns="better than ring"),
        rtol=0,
        check_exact=True,
    )
    assert read["rounds to 0.99"].tolist() == [np.inf, np.inf]
    assert summary.to_csv() == (tmp_path / "t.csv").read_text()
    assert pd.read_csv(io.StringIO(summary.to_csv()))["topology"].tolist() == ["ring", "star"]


def test_rounding_follows_the_standard_error():
    runs = [stored({"run.seed": k}, x) for k, x in enumerate([0.8111, 0.8234, 0.8167, 0.8312])]
    error = stats.sem([0.8111, 0.8234, 0.8167, 0.8312])
    assert 0.004 < error < 0.005  # so three decimals
    half = stats.t.ppf(0.975, 3) * error
    assert topofl.summarize(runs).table.rows[0][1].text == f"0.821 ± {half:.3f}"


def test_formats():
    runs = runs_of(topology=["ring", "star"], effect={"ring": 0.0, "star": -0.1})
    summary = topofl.summarize(runs, by="topology", baseline="ring")
    latex = summary.to_latex()
    assert latex.startswith("\\begin{tabular}{lrrrrrrrr}\n\\toprule\ntopology & runs & accuracy")
    assert "\\midrule" in latex
    assert "\\bottomrule\n\\end{tabular}" in latex
    assert re.search(r"\$-0\.\d+ \\pm 0\.", latex)  # a minus, not a hyphen
    assert "% ±: 95 % interval" in latex
    markdown = summary.to_markdown()
    assert markdown.startswith("| topology | runs | accuracy | std | worst node |")
    assert "averaged over run.seed" in markdown
    assert "<table>" in summary._repr_html_()


def test_wide_tables_are_printed_in_parts():
    runs = runs_of(topology=["a" * 60, "b" * 60], seconds=True)
    summary = topofl.summarize(runs, by="topology", baseline="a" * 60, target=0.6)
    text = str(summary)
    assert text.count("topology  ") == 3
    assert len(summary.table.columns) == len(set(summary.table.columns)) == 13


def test_notes_on_columns_that_are_left_out_are_left_out():
    runs = runs_of(topology=["ring", "star", "torus"], seeds=3)
    runs[0].curves["scores"]["accuracy"]["mean"][-1] = None
    whole = topofl.summarize(runs, "topology", baseline="ring", target=0.5)
    interval, ended, compared, to_target, comparisons = whole.notes
    assert interval == "±: 95 % interval (Student's t), averaged over run.seed"
    assert "2 comparisons" in comparisons
    for columns, expected in {
        ("topology", "runs", "reached 0.5"): (ended,),
        ("topology", "accuracy"): (interval, ended, compared),
        ("topology", "std"): ("averaged over run.seed", ended),
        ("MB to 0.5",): (ended, to_target),
        ("better than ring", "rounds to 0.5"): whole.notes,
    }.items():
        assert whole.select(columns).notes == expected
    assert whole.select(["runs", "accuracy"]).select("accuracy").notes == (
        *(interval, ended, compared),
    )


def runs_of_costs(**costs):
    """Return runs of two seeds per topology, which send so many megabytes per round."""
    return [
        stored({"topology.name": name, "run.seed": seed}, 0.6 + 0.1 * seed, cost=cost)
        for name, cost in costs.items()
        for seed in range(2)
    ]


def test_scores_at_equal_bytes_are_those_on_the_curves_at_the_total_of_the_cheapest_run():
    runs = runs_of_costs(ring=1, star=2, torus=3, alone=0)
    whole = topofl.summarize(runs, "topology", baseline="ring", equal="megabytes")
    found = whole.to_pandas().set_index("topology")
    curves = {
        (run.tables["topology"]["name"], run.tables["run"]["seed"]): run.curves["scores"][
            "accuracy"
        ]
        for run in runs
    }
    for statistic, head in {"mean": "accuracy", "worst": "worst node"}.items():
        means = {
            name: np.mean([curves[name, seed][statistic] for seed in range(2)], axis=0)
            for name in ("ring", "star", "torus", "alone")
        }
        wanted = {
            "ring": means["ring"][4],
            "star": means["star"][2],  # 40 MB after 20 of 40 rounds
            "torus": means["torus"][1] + (means["torus"][2] - means["torus"][1]) / 3,
            "alone": means["alone"][4],  # which sends nothing
        }
        assert found[head].to_dict() == pytest.approx(wanted)
        if statistic == "mean":
            assert found["minus ring"]["star"] == pytest.approx(wanted["star"] - wanted["ring"])
    (said,) = [
        note for note in whole.notes if note.startswith("compared at equal megabytes: 40 MB")
    ]
    assert "after 13.33 to 40 rounds, with scores interpolated" in said
    assert said.endswith("; 2 that cost nothing are taken at their end")


def test_equal_bytes_can_turn_a_verdict():
    """All groups reach the same at the end, and star has sent twice as much by then."""
    runs = runs_of_costs(ring=1, star=2)
    at_end = topofl.summarize(runs, "topology", baseline="ring").to_pandas()
    assert at_end["minus ring"].abs().max() == 0
    equal = topofl.summarize(runs, "topology", baseline="ring", equal="megabytes").to_pandas()
    assert equal["minus ring"][1] < -0.1


@pytest.mark.parametrize(
    ("equal", "said"),
    [
        (
            None,
            "compared at equal rounds, after 40 rounds, not at equal bytes: runs have sent 40 to",
        ),
        (
            "messages",
            "compared at equal messages: 800 messages, all that the cheapest run spends, af",
        ),
        ("rounds", "compared at equal rounds: 40 rounds, all that the cheapest run spends, with"),
    ],
)
def test_where_groups_are_compared_is_said(equal, said):
    runs = runs_of_costs(ring=1, star=2)
    whole = topofl.summarize(runs, "topology", baseline="ring", equal=equal)
    assert [note for note in whole.notes if note.startswith(said)]
    assert said in str(whole)
    at_end = topofl.summarize(runs, "topology", baseline="ring").to_pandas()
    pd.testing.assert_frame_equal(whole.to_pandas(), at_end)


def test_groups_without_baseline_or_cost_are_not_said_to_be_compared():
    assert "compared" not in str(topofl.summarize(runs_of_costs(ring=1, star=2), "topology"))
    same = topofl.summarize(runs_of_costs(ring=1, star=1), "topology", baseline="ring")
    assert "compared at equal rounds, after 40 rounds" in same.notes


def test_columns_are_selected_for_all_formats(tmp_path):
    runs = runs_of(topology=["ring", "star"], seeds=3)
    whole = topofl.summarize(runs, "topology", baseline="ring", target=0.5)
    frame = whole.to_pandas()
    chosen = whole.select(["minus ring", "topology", "worst tenth", "rounds to 0.5", "std"])
    heads = ["minus ring", "topology", "worst tenth", "rounds to 0.5", "std"]
    assert list(chosen.table.columns) == heads
    assert chosen.table == whole.table.select(heads)
    precise = [f"{head}{end}" for head in heads[:1] for end in ("", " low", " high")]
    precise += ["topology", *(f"worst tenth{end}" for end in ("", " std", " low", " high"))]
    precise += [*(f"rounds to 0.5{end}" for end in ("", " low", " high")), "accuracy std"]
    pd.testing.assert_frame_equal(chosen.to_pandas(), frame[precise])
    chosen.to_csv(tmp_path / "t.csv")
    assert pd.read_csv(tmp_path / "t.csv").columns.tolist() == precise
    assert " & ".join(heads) + r" \\" in chosen.to_latex()
    assert chosen.to_markdown().startswith(f"| {' | '.join(heads)} |")
    assert str(chosen).split()[:2] == ["minus", "ring"]
    assert chosen.notes == whole.notes
    assert chosen.select("std").to_pandas().columns.tolist() == ["accuracy std"]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("k", [2, 3, 10, 1000])
def test_interval_is_that_of_scipy(k, level):
    values = np.random.default_rng(k).normal(3.0, 2.0, k)
    expected = stats.t.interval(level, k - 1, loc=values.mean(), scale=stats.sem(values))
    assert mean_interval(values, level) == pytest.approx(expected, rel=1e-12)
    assert t_quantile(level, k) == pytest.approx(stats.t.ppf((1 + level) / 2, k - 1), rel=1e-12)


def test_verdicts_follow_the_interval():
    assert verdict([1.0, 1.2, 0.9]) == HOLDS
    assert verdict([1.0, 1.2, 0.9], sign=-1) == FAILS
    assert verdict([1.0, 1.2, 0.9], 1.1) == UNDECIDED
    assert verdict([0.0, 0.0]) == UNDECIDED  # it touches the bound
    assert verdict([5.0]) == UNDECIDED


def test_a_higher_level_decides_less():
    values = [1.0, 2.0, 3.0, 1.5]
    assert mean_interval(values, 0.95)[0] > 0 > mean_interval(values, 0.9999)[0]
    assert verdict(values) == HOLDS
    assert verdict(values, to_hold=0.9999) == UNDECIDED


def timed_runs(*settings):
    common = {"topology.name": "ring", "run.rounds": 40}
    return {
        f"method {k}": [
            stored(common | own | {"run.seed": seed}, 0.6 + 0.01 * k, seconds=True)
            for seed in (0, 1)
        ]
        for k, own in enumerate(settings)
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            [{"algorithm.clock.delay": "0.1"}, {"algorithm.events.clock.delay": "5"}],
            "clock.delay is 0.1, 5;",
        ),
        ([{"algorithm.clock": "Clock(compute=2)"}, {}], "clock.compute is 2, 1;"),
        ([{"hardware.latency": "0.1"}, {"hardware.latency": "0.2"}], "hardware.latency is 0.1, 0"),
        (
            [{"algorithm.clock.delay": 0.1}, {"algorithm.events.clock": "Clock(1.0, delay=0.10)"}],
            None,
        ),
        ([{"hardware.waiting": "all"}, {"hardware.waiting": "neighbors"}], None),
    ],
)
def test_equal_seconds_of_different_clocks_are_warned_of(settings, said):
    runs = timed_runs(*settings)
    topofl.summarize(runs, equal="rounds")  # without a warning, which would be an error
    if said is None:
        topofl.summarize(runs, equal="seconds")
        return
    with pytest.warns(UserWarning, match=f"runs of different clocks.*{re.escape(said)}"):
        topofl.summarize(runs, equal="seconds")


def test_hardware_times_runs_of_different_clocks_alike():
    slow, fast = {"compute": 0.1, "latency": 0.9}, {"compute": 0.1, "latency": 0.4}
    runs = {"slow": of_name().with_seconds(slow), "fast": of_name(0.2).with_seconds(fast)}
    with pytest.warns(UserWarning, match="hardware.latency is 0.9, 0.4;"):
        topofl.summarize(runs, equal="seconds")
    topofl.summarize(runs, equal="seconds", hardware=fast)


def test_groups_of_timed_methods_have_short_names():
    inner = [{"name": "d2", "lr": 0.1, "lazy": True}]
    inner += [{"name": "dsgd", "lr": lr, "momentum": 0.0} for lr in (0.1, 0.2)]
    outer = {"algorithm.name": "timed", "algorithm.clock": "Clock(delay=0.1)"}
    settings = [outer | {f"algorithm.algorithm.{k}": x for k, x in own.items()} for own in inner]
    settings += [{"algorithm.name": "ad_psgd", "algorithm.lr": 0.3}, {}]
    runs = [stored({"run.rounds": 40} | own, 0.6) for own in settings]
    wanted = ["-", "ad_psgd", "timed(d2)", "timed(dsgd), lr=0.1", "timed(dsgd), lr=0.2"]
    assert topofl.summarize(runs, "algorithm").to_pandas()["algorithm"].tolist() == wanted


def test_names_of_groups_say_which_of_two_equal_arguments_they_have():
    base = {"topology.name": "participation", "topology.base.name": "grown"}
    runs = [
        stored({"run.rounds": 40, **base, "topology.k": a, "topology.base.k": b}, 0.6)
        for a, b in ((1, 1), (1, 2), (2, 1))
    ]
    wanted = [f"participation(grown), k={a}, base.k={b}" for a, b in ((1, 1), (1, 2), (2, 1))]
    assert topofl.summarize(runs, "topology").to_pandas()["topology"].tolist() == wanted
