"""DPFL at scale ``smoke``: tables and figures are made once; settings and numbers."""

import json
import re

import numpy as np
import pytest

from paper_figures import reproduce
from paper_figures.command import figures_named
from paper_figures.dpfl import PAPER, read, study
from paper_figures.dpfl.arms import (
    BASELINES,
    DECLARED,
    budgets_of,
    flips,
    learned,
    malicious,
    method_of,
    splits_of,
    tab01,
)
from paper_figures.dpfl.claims import ACCURACIES as TABLE_1
from paper_figures.dpfl.study import CLIENTS, three_clients
from paper_figures.kit import reproduce as kit_reproduce
from paper_figures.kit.claims import FAILS, HOLDS, UNDECIDED
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import Store, keyed
from topofl import NotApplicable, algorithms, config, data, metrics

GRAPHS = (
    "fig02",
    "fig04a",
    "fig04b",
    "fig08",
    "fig09",
    "fig10",
    "fig11",
    "fig12",
    "fig13",
    "fig14",
    "fig15",
)
DIR, PATHO = "CIFAR-10, Dir(0.1)", "CIFAR-10, Patho(3)"
SMOKE = Setting("smoke", (0,))
SCALES = {name: DECLARED.scale(name) for name in ("smoke", "quick", "paper")}
SPLITS = SCALES["paper"].splits


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder, and the results by id, of the whole paper."""
    out = tmp_path_factory.mktemp("dpfl")
    results = reproduce("dpfl", scale="smoke", out=out, report=True, progress=False)
    return out, {result.figure.id: result for result in results}


def figure(id):
    return figures_named(id)[1][0]


@pytest.mark.slow
def test_every_figure_is_computed_drawn_and_judged(whole):
    _, results = whole
    lacking = {"dpfl-fig05", "dpfl-fig06"}  # whose data are not at hand
    elsewhere = {
        "dpfl-fig12",
        "dpfl-fig13",
    }  # judged with figures 4a and 4b, which show the same runs
    assert set(results) == {each.id for each in PAPER.figures} - lacking
    for name, result in results.items():
        assert result.picture.read_bytes().startswith(b"\x89PNG")
        assert {claim.verdict for claim in result.claims} == (
            set() if name in elsewhere else {UNDECIDED}
        )  # of one seed


def test_claims_on_a_split_are_judged_in_one_of_two_figures(whole):
    one, both = (
        {claim.statement for claim in whole[1][name].claims}
        for name in ("dpfl-fig01", "dpfl-fig07")
    )
    assert len(one) == len(both) == 2
    assert not one & both


def test_a_probe_tests_clients_on_their_own_images_and_on_all(monkeypatch):
    asked, told = [], config.Experiment.run
    monkeypatch.setattr(
        config.Experiment,
        "run",
        lambda self, **how: asked.append(self.options) or told(self, **how),
    )
    first, *_ = figure("dpfl-study").runs(SMOKE)
    assert first.tables["evaluation"]["on"] == ["own_test", "own_val", "test"]
    for run in (first, figure("dpfl-tab01").runs(SMOKE)[0]):
        seconds, _ = kit_reproduce.probe(run)
        assert 0 < seconds < 60
    assert [options["evaluation"].examples for options in asked] == [None] * 2


def test_table_1_has_all_methods_and_the_papers_numbers(whole):
    _, results = whole
    result = results["dpfl-tab01"]
    for title, table in zip((DIR, PATHO), result.tables, strict=True):
        assert table.column("method")[: len(BASELINES)] == tuple(BASELINES)
        printed = dict(zip(table.column("method"), table.column("paper, %"), strict=True))
        assert printed["APFL"] == "{:.2f} ± {:.2f}".format(*TABLE_1["APFL"][title])


def test_numbers_are_of_each_clients_best_model(whole):
    out, results = whole
    store, told = Store(out / "runs"), read(results["dpfl-tab01"].data["panels"])[DIR]
    arms = tab01(SMOKE)[DIR]
    chosen = {label: method_of(label).chosen_at for label in arms}
    assert chosen["FedAvg+FT"] == chosen["FedAvg"] == ""  # the best server's model is fine-tuned
    assert chosen["DPFL"] == "before_exchange"
    for label in ("Local", "FedAvg+FT", "DPFL"):
        method, (history, _) = method_of(label), store.load(arms[label][0])
        best = 100 * history.best_on_validation(method.column(history), method.validation(history))
        one = told[label]
        assert one.accuracy[0] == pytest.approx(best.mean())
        assert one.variance[0] == pytest.approx(((best - best.mean()) ** 2).mean())


def test_graphs_are_those_of_the_histories(whole):
    out, results = whole
    store = Store(out / "runs")
    (panel,) = learned(SMOKE).values()
    shown = results["dpfl-fig15"].data["graphs"]
    assert list(shown) == list(panel)
    for label, runs in panel.items():
        history, _ = store.load(runs[0])
        for t, received in shown[label][0]["heard"].items():
            support = history.mixing(int(t)).support()
            assert [support.in_neighbors(k).tolist() for k in range(6)] == received


def test_malicious_clients_have_wrong_labels_and_may_be_idle():
    bad = malicious(SCALES["smoke"], 0)
    assert len(bad) == 2
    for idle in (True, False):
        (((run,),),) = (panel.values() for panel in flips(SMOKE, idle=idle).values())
        experiment = config.build(run.tables)
        assert list(experiment.clients.flipped) == bad
        assert experiment.algorithm.phases["exchange"].settings.get("passive", []) == (
            bad if idle else []
        )


def test_arms_share_data_and_runs():
    runs = keyed(
        [
            run
            for each in PAPER.figures
            for run in each.runs(SMOKE)
            if each.id not in ("dpfl-fig05", "dpfl-fig06")
        ]
    )
    table = keyed(figure("dpfl-tab01").runs(SMOKE))
    assert set(keyed(figure("dpfl-fig07").runs(SMOKE))) == set(table)
    assert len(table) == 2 * (
        len(BASELINES) - 2 + 2
    )  # FedAvg and FedProx are one run with and without fine-tuning
    for name in GRAPHS:
        assert set(keyed(figure(f"dpfl-{name}").runs(SMOKE))) <= set(runs)
    for run in runs.values():
        assert {run.tables["data"]["seed"], run.tables["data"]["split_seed"], run.seed} == {0}


def test_settings_are_the_papers(tmp_path):
    (tmp_path / "data_batch_1").touch()
    setting = Setting("paper", (0,), tmp_path, datasets=("cifar10",))
    assert splits_of(setting) == [DIR, PATHO]
    assert splits_of(Setting("paper", (0,), datasets=("cifar10", "cinic10", "femnist"))) == list(
        SPLITS
    )
    runs = figure("dpfl-tab01").runs(setting)
    assert {run.tables["data"]["n"] for run in runs} == {100}
    for run in runs:  # all train as many epochs, 500
        first = 10 if run.tables["algorithm"]["name"] == "dpfl" else 5
        assert first + 5 * (run.tables["run"]["rounds"] - 1) == 500
    assert {run.tables["algorithm"]["batch_size"] for run in runs} == {16}
    assert {run.tables["algorithm"].get("budget") for run in runs} == {None, 20, 10, 5}
    paper = SCALES["paper"]
    assert (paper.of("cinic10").clients, paper.of("femnist").epochs, paper.of("femnist").lr) == (
        200,
        2,
        0.001,
    )
    every = [run.tables["algorithm"].get("every", 1) for run in figure("dpfl-tab03").runs(setting)]
    assert set(every) == {1, 5, 10, 20}


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_what_differs_from_the_code_is_said_beside_every_figure_and_true(scale, tmp_path):
    (tmp_path / "data_batch_1").touch()
    setting = Setting(scale, (0,), tmp_path, datasets=("cifar10",))
    for one in PAPER.figures:
        if one.id in ("dpfl-study", "dpfl-expA") or not one.runs(setting):
            continue
        said = " ".join(one.differences(setting))
        for words in (
            "neither normalized by channel",
            "nor randomly cropped or flipped",
            "clips gradients at norm 20",
            "a budget counts other clients only",
            "two convolutions and three linear layers",
        ):
            assert words in said, one.id
        for run in one.runs(setting):
            assert "clip" not in run.tables["algorithm"]
            assert "count_self" not in run.tables["algorithm"]
            assert "augment" not in run.tables["data"]
    assert algorithms.dpfl(0.1, budget=3).phases["exchange"].settings["count_self"] is False


def test_three_clients_hold_what_the_paper_says():
    dataset = data.from_arrays(
        np.zeros((6000, 1), np.float32), np.arange(6000) % 10, test=0.1, name="zeros"
    )
    clients = three_clients(dataset, 0)
    for counts, wanted in zip(clients.label_counts, CLIENTS, strict=True):
        assert {y: int(count) for y, count in enumerate(counts) if count} == dict(wanted)
    assert len(set(np.concatenate(clients.train).tolist())) == sum(map(len, clients.train))
    assert set(dataset.labels[list(clients.test[0])].tolist()) == set(CLIENTS[0])


def test_graphs_over_rounds_have_a_page_with_a_slider(whole):
    out, _ = whole
    with_page = {f"dpfl-fig{k:02d}" for k in (8, 9, 10, 11, 12, 13)} | {"dpfl-study"}
    assert {
        path.name.removesuffix("-rounds.html") for path in (out / "smoke").glob("*-rounds.html")
    } == with_page
    scale = SCALES["smoke"]
    for name in with_page:
        text = (out / "smoke" / f"{name}-rounds.html").read_text()
        shown = json.loads(re.search(r'id="graphs">(.*?)</script>', text).group(1))
        assert shown["n"] == scale.clients
        ends = [list(map(int, label.split(" to "))) for label in shown["labels"]]
        covered = [t for stage in ends for t in range(stage[0], stage[-1] + 1)]
        assert covered == list(range(scale.rounds))
        assert shown["marked"] == (
            len(malicious(scale, 0)) if name in ("dpfl-fig12", "dpfl-fig13") else 0
        )
        assert f"{name}-rounds.html" in (out / "smoke" / "dpfl-report.md").read_text()
    (out / "smoke" / "dpfl-fig08-rounds.html").unlink()
    reproduce("dpfl-fig08", scale="smoke", out=out, progress=False)
    assert (out / "smoke" / "dpfl-fig08-rounds.html").exists()


def test_the_study_compares_arms_with_one_budget(whole):
    out, results = whole
    data, scale = results["dpfl-study"].data, SCALES["smoke"]
    store = Store(out / "runs")
    for title, panel in study.arms(SMOKE).items():
        for label, (run,) in panel.items():
            (told,) = data["panels"][title][label]
            history, _ = store.load(run)
            counts = config.build(run.tables).clients.label_counts
            assert told["all test images"] == pytest.approx(
                100 * history["accuracy_test"][-1].mean()
            )
            own = study.personal_of(label, history)
            assert told["own test images"] == pytest.approx(100 * own.mean)
            assert run.tables["algorithm"]["epochs"] == scale.epochs
            assert run.tables["algorithm"].get("first_epochs", scale.epochs) == scale.epochs
            if label in ("DPFL", "random", "D-Cliques", "random cliques"):
                assert all(
                    history.mixing(t).support().in_degrees.max()
                    <= list(budgets_of(scale).values())[1]
                    for t in range(scale.rounds)
                )
            if label == "D-Cliques":
                expected = metrics.neighborhood_heterogeneity(history.mixing(-1), counts)
                assert told["graph"]["neighborhood heterogeneity"] == pytest.approx(expected)
    assert not data["panels"][DIR]["nobody"][0]["graph"]
    assert results["dpfl-study"].tables[0].column("mean degree")[-1] == NotApplicable(
        "not defined for this graph"
    )


def test_claims_of_the_study_fail_where_the_numbers_are_the_other_way_round():
    def panel(own, on_all, graph):
        return [
            {"own test images": own + s, "all test images": on_all + s, "graph": graph}
            for s in (0, 0.1, 0.2)
        ]

    alike, mixed = (
        {"neighbor label distance": d, "label separation": s} for d, s in ((0.5, 0.6), (1.2, -0.1))
    )
    good = {
        "DPFL": panel(90, 30, alike),
        "random": panel(80, 40, {}),
        "D-Cliques": panel(70, 50, mixed),
    }
    bad = {
        "DPFL": panel(70, 50, mixed),
        "random": panel(80, 55, {}),
        "D-Cliques": panel(90, 30, alike),
    }
    good["random cliques"], bad["random cliques"] = panel(80, 40, {}), panel(80, 55, {})
    for arms, verdict in ((good, HOLDS), (bad, FAILS)):
        claims = study.judged({"panels": {"a split": {**arms, "everybody": panel(0, 0, {})}}})
        assert [claim.verdict for claim in claims] == [verdict] * 6
