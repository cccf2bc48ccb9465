"""DPFL: numbers of its figures are those of the runs, its pages, and the studies beyond it."""

import json
import re

import numpy as np
import pytest

from paper_figures import reproduce
from paper_figures.dpfl import DIR, PAPER, PATHO, study
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
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import Store, keyed
from tests.rows.papers import FIGURES, LACKING, reproduced
from topofl import NotApplicable, algorithms, config, data, metrics

SMOKE = Setting("smoke", (0,))
SCALES = {name: DECLARED.scale(name) for name in ("smoke", "quick", "paper")}


@pytest.fixture(scope="module")
def whole():
    """Return the folder, and the results by id, of the whole paper."""
    return reproduced("dpfl")[:2]


@pytest.mark.slow
def test_claims_on_a_split_are_judged_in_one_of_two_figures(whole):
    one, both = (
        {claim.statement for claim in whole[1][name].claims}
        for name in ("dpfl-fig01", "dpfl-fig07")
    )
    assert len(one) == len(both) == 2
    assert not one & both


@pytest.mark.slow
def test_table_1_has_all_methods_and_the_papers_numbers(whole):
    for title, table in zip((DIR, PATHO), whole[1]["dpfl-tab01"].tables, strict=True):
        assert table.column("method")[: len(BASELINES)] == tuple(BASELINES)
        printed = dict(zip(table.column("method"), table.column("paper, %"), strict=True))
        assert printed["APFL"] == "{:.2f} ± {:.2f}".format(*TABLE_1["APFL"][title])
    assert [label for label in TABLE_1 if not label.startswith("DPFL")] == list(BASELINES)


@pytest.mark.slow
def test_numbers_are_of_each_clients_best_model(whole):
    out, results = whole
    store, told = Store(out / "runs"), results["dpfl-tab01"].data["panels"][DIR]
    arms = tab01(SMOKE)[DIR]
    for label, chosen_by in (
        ("Local", ""),
        ("FedAvg+FT", ""),  # the best server's model is fine-tuned
        ("DPFL", "before_exchange"),
    ):
        history, _ = store.load(arms[label][0])
        validation = history.column(stage=chosen_by, on="own_val")
        best = 100 * history.best_on_validation(method_of(label).column(history), validation)
        assert told[label]["accuracy"][0] == pytest.approx(best.mean())
        assert told[label]["variance"][0] == pytest.approx(((best - best.mean()) ** 2).mean())


@pytest.mark.slow
def test_graphs_are_those_of_the_histories(whole):
    out, results = whole
    (panel,) = learned(SMOKE).values()
    shown = results["dpfl-fig15"].data["graphs"]
    assert list(shown) == list(panel)
    for label, runs in panel.items():
        history, _ = Store(out / "runs").load(runs[0])
        for t, received in shown[label][0]["heard"].items():
            support = history.mixing(int(t)).support()
            assert [support.in_neighbors(k).tolist() for k in range(6)] == received


def test_malicious_clients_have_wrong_labels_and_may_be_idle():
    bad = malicious(SCALES["smoke"], 0)
    assert len(bad) == 2
    for idle in (True, False):
        (((run,),),) = (panel.values() for panel in flips(SMOKE, idle=idle).values())
        experiment = config.build(run.tables)
        passive = experiment.algorithm.phases["exchange"].settings.get("passive", [])
        assert list(experiment.clients.flipped) == bad
        assert passive == (bad if idle else [])


def test_arms_share_runs():
    keys = {f.id: set(keyed(f.runs(SMOKE))) for f in PAPER.figures if f.id not in LACKING}
    assert keys["dpfl-fig07"] == keys["dpfl-tab01"]
    # FedAvg and FedProx are one run with and without fine-tuning.
    assert len(keys["dpfl-tab01"]) == 2 * (len(BASELINES) - 2 + 2)


def test_settings_are_the_papers(tmp_path):
    (tmp_path / "data_batch_1").touch()
    setting = Setting("paper", (0,), tmp_path, datasets=("cifar10",))
    assert splits_of(setting) == [DIR, PATHO]
    every = Setting("paper", (0,), datasets=("cifar10", "cinic10", "femnist"))
    assert splits_of(every) == list(SCALES["paper"].splits)
    for run in FIGURES["dpfl-tab01"].runs(setting):  # all train as many epochs, 500
        first = 10 if run.tables["algorithm"]["name"] == "dpfl" else 5
        assert first + 5 * (run.tables["run"]["rounds"] - 1) == 500
    cinic10, femnist = (SCALES["paper"].of(name) for name in ("cinic10", "femnist"))
    assert (cinic10.clients, femnist.epochs, femnist.lr) == (200, 2, 0.001)


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_what_is_said_of_the_code_is_true(scale, tmp_path):
    (tmp_path / "data_batch_1").touch()
    setting = Setting(scale, (0,), tmp_path, datasets=("cifar10",))
    for figure in PAPER.figures:
        for run in figure.runs(setting):
            assert {"clip", "count_self"}.isdisjoint(run.tables["algorithm"])
            assert "augment" not in run.tables["data"]
    assert algorithms.dpfl(0.1, budget=3).phases["exchange"].settings["count_self"] is False


def test_three_clients_hold_what_the_paper_says():
    labels = np.arange(6000) % 10
    dataset = data.from_arrays(np.zeros((6000, 1), np.float32), labels, test=0.1, name="zeros")
    clients = three_clients(dataset, 0)
    for counts, wanted in zip(clients.label_counts, CLIENTS, strict=True):
        assert {y: int(count) for y, count in enumerate(counts) if count} == dict(wanted)
    assert len(set(np.concatenate(clients.train).tolist())) == sum(map(len, clients.train))
    assert set(dataset.labels[list(clients.test[0])].tolist()) == set(CLIENTS[0])


@pytest.mark.slow
def test_graphs_over_rounds_have_a_page_with_a_slider(whole):
    folder, scale = whole[0] / "smoke", SCALES["smoke"]
    with_page = {f"dpfl-fig{k:02d}" for k in (8, 9, 10, 11, 12, 13)} | {"dpfl-study"}
    assert {path.name for path in folder.glob("*-rounds.html")} == {
        f"{name}-rounds.html" for name in with_page
    }
    for name in with_page:
        text = (folder / f"{name}-rounds.html").read_text()
        shown = json.loads(re.search(r'id="graphs">(.*?)</script>', text).group(1))
        assert shown["n"] == scale.clients
        ends = [list(map(int, label.split(" to "))) for label in shown["labels"]]
        covered = [t for stage in ends for t in range(stage[0], stage[-1] + 1)]
        assert covered == list(range(scale.rounds))
        is_marked = name in ("dpfl-fig12", "dpfl-fig13")
        assert shown["marked"] == (len(malicious(scale, 0)) if is_marked else 0)
        assert f"{name}-rounds.html" in (folder / "dpfl-report.md").read_text()
    (folder / "dpfl-fig08-rounds.html").unlink()
    reproduce("dpfl-fig08", scale="smoke", out=whole[0], progress=False)
    assert (folder / "dpfl-fig08-rounds.html").exists()


@pytest.mark.slow
def test_the_study_compares_arms_with_one_budget(whole):
    out, results = whole
    shown, scale, store = results["dpfl-study"].data, SCALES["smoke"], Store(out / "runs")
    budget = list(budgets_of(scale).values())[1]
    for title, panel in study.arms(SMOKE).items():
        for label, (run,) in panel.items():
            (told,) = shown["panels"][title][label]
            history, _ = store.load(run)
            on_all = 100 * history["accuracy_test"][-1].mean()
            assert told["all test images"] == pytest.approx(on_all)
            own = study.personal_of(label, history)
            assert told["own test images"] == pytest.approx(100 * own.mean)
            table = run.tables["algorithm"]
            assert {table["epochs"], table.get("first_epochs", scale.epochs)} == {scale.epochs}
            if label in ("DPFL", "random", "D-Cliques", "random cliques"):
                for t in range(scale.rounds):
                    assert history.mixing(t).support().in_degrees.max() <= budget
            if label == "D-Cliques":
                counts = config.build(run.tables).clients.label_counts
                expected = metrics.neighborhood_heterogeneity(history.mixing(-1), counts)
                assert told["graph"]["neighborhood heterogeneity"] == pytest.approx(expected)
    assert not shown["panels"][DIR]["nobody"][0]["graph"]
    absent = NotApplicable("not defined for this graph")
    assert results["dpfl-study"].tables[0].column("mean degree")[-1] == absent
