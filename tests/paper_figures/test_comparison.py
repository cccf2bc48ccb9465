"""DFedPGP, PFedDST and the methods beside them: runs, curves at stages, tables and pictures."""

import inspect
import re

import numpy as np
import pytest
import torch

from paper_figures import dfedpgp
from paper_figures.dfedpgp import ABLATION, DEVICES, PAPER, TABLE_1, unequal
from paper_figures.dfedpgp.claims import ABLATION_NUMBERS as TABLE_4
from paper_figures.dfedpgp.claims import ACCURACIES, TARGETS, margin
from paper_figures.dfedpgp.claims import ROUNDS as TABLE_2
from paper_figures.dfedpgp.claims import UNEQUAL_NUMBERS as TABLE_3
from paper_figures.kit import comparison
from paper_figures.kit.claims import FAILS
from paper_figures.kit.comparison import (
    METHODS,
    accuracy_table,
    best_stage,
    reported,
    rounds_table,
    splits_of,
    targets_of,
)
from paper_figures.kit.curves import Curve, final, read_panels, write_panels
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import Store, keyed
from paper_figures.pfeddst import OURS
from paper_figures.pfeddst.peers import nearest
from tests.rows.papers import C10, DIR, FIGURES, PAT, reproduced
from topofl import algorithms, config, models
from topofl.engine.population import initial_population

SCALES = {name: comparison.DECLARED.scale(name) for name in ("smoke", "quick", "paper")}
MNIST = "MNIST, Dir(0.3)"
SMOKE = Setting("smoke", (0,))


@pytest.fixture(scope="module")
def whole():
    """Return the folder, and the results by id, of DFedPGP."""
    return reproduced("dfedpgp")[:2]


@pytest.fixture
def peers():
    """Return the results of PFedDST by id."""
    return reproduced("pfeddst")[1]


@pytest.mark.slow
def test_figures_share_their_runs():
    keys = {figure.id: set(keyed(figure.runs(SMOKE))) for figure in PAPER.figures}
    assert keys["dfedpgp-tab01"] == keys["dfedpgp-fig02"] == keys["dfedpgp-tab02"]
    assert len(keys["dfedpgp-tab04"] - keys["dfedpgp-tab01"]) == 2  # DFedAvgM-P, by splits
    assert len(keys["dfedpgp-tab03"] - keys["dfedpgp-tab01"]) == len(DEVICES) * 2
    for id, shared in (("dfedpgp-fig03a", 1), ("dfedpgp-fig03b", 1)):
        assert len(keys[id] & keys["dfedpgp-tab01"]) == shared


@pytest.mark.slow
def test_tables_have_ours_with_spread_beside_the_papers(whole):
    _, results = whole
    for title, table in zip((DIR, PAT), results["dfedpgp-tab01"].tables, strict=True):
        rows = dict(zip(table.column("method"), table.column("paper, %"), strict=True))
        assert list(rows) == list(TABLE_1)
        assert rows["DFedPGP"] == {DIR: "85.61 ± 0.05", PAT: "91.26 ± 0.05"}[title]
        assert all(re.fullmatch(r"\d+\.\d\d", cell) for cell in table.column("after exchange, %"))
    (dirichlet, _) = results["dfedpgp-tab02"].tables
    rows = dict(zip(dirichlet.column("method"), dirichlet.column("paper: rounds"), strict=True))
    assert (rows["DFedPGP"], rows["FedRep"]) == (131.0, 189.0)
    assert "not within its 500 rounds" in str(rows["FedAvg"].reason)


@pytest.mark.slow
def test_accuracies_are_means_over_clients_and_bytes_those_sent(whole):
    out, results = whole
    runs = results["dfedpgp-tab01"].figure.runs(SMOKE)
    run = next(run for run in runs if run.tables["algorithm"]["name"] == "dfedpgp")
    history, note = Store(out / "runs").load(run)
    panel = read_panels(results["dfedpgp-tab01"].data["panels"])[DIR]
    curve = panel["DFedPGP"]
    after, before = (
        100 * history[name].mean(axis=1) for name in ("accuracy", "accuracy_before_exchange")
    )
    np.testing.assert_allclose(curve["after exchange"].mean[0], after, atol=1e-5)
    np.testing.assert_allclose(curve["after training"].mean[0], before, atol=1e-5)
    np.testing.assert_array_equal(curve["after exchange"].epochs, history["round"])
    names = dict(config.build(run.tables).model.named_parameters())
    size = sum(p.numel() for name, p in names.items() if not name.startswith("head"))
    assert note["numbers"]["bytes"] == 4 * size * SCALES["smoke"].neighbors
    assert list(panel["Local"]) == ["after exchange"]  # who is alone is tested once a round
    assert not panel["Local"]["after exchange"].numbers["bytes"].any()
    assert "after training" not in panel["FedPer"]
    assert "fine-tuned" in panel["FedPer"]


def curve(*ends, rounds=(0.0, 1.0, 2.0), **numbers):
    """Return a curve a seed that rises to its end, linearly."""
    mean = np.array([[end * t / rounds[-1] for t in rounds] for end in ends])
    return Curve(np.arange(len(ends)), np.array(rounds, float), mean, mean, mean, numbers)


def test_curves_survive_json_and_the_best_stage_is_reported():
    value = {"panel": {"arm": {"after exchange": curve(50, 51), "after training": curve(60, 61)}}}
    again = read_panels(write_panels(value))
    assert best_stage(again["panel"]["arm"]) == "after training"
    np.testing.assert_array_equal(final(reported(again)["panel"]["arm"]), [60, 61])


def test_arms_are_compared_at_the_rounds_that_all_of_them_were_tested_after():
    often, seldom = (curve(4, rounds=rounds) for rounds in ((0, 1, 2, 3, 4), (2, 4)))
    value = {"panel": {"often": {"after exchange": often}, "seldom": {"fine-tuned": seldom}}}
    for found in reported(value)["panel"].values():
        np.testing.assert_array_equal(found.epochs, [2, 4])
        np.testing.assert_array_equal(found.mean, [[2, 4]])


def test_served_methods_are_tested_after_passes_of_all_clients_as_often_as_otherwise():
    for label in ("FedAvg", "FedPer", "FedRep", "FedBABU"):
        (run,) = comparison.arm(SMOKE, DIR, label)
        assert run.tables["evaluation"]["fine_tune_every"] == run.tables["evaluation"]["every"]
        assert run.tables["algorithm"]["fine_tune_epochs"] == SCALES["smoke"].epochs


def test_settings_of_ours_are_the_papers(tmp_path):
    (tmp_path / "data_batch_1").touch()
    setting = Setting("paper", (0,), tmp_path, datasets=("cifar10",))
    for figure, name, expected in (
        ("dfedpgp-tab01", "dfedpgp", {"head_lr": 0.001, "epochs": 5, "head_epochs": 1}),
        ("pfeddst-tab01", "dfedpgp", {"head_lr": 0.001}),
        ("pfeddst-tab01", "pfeddst", {"k": 10, "epochs": 5, "head_epochs": 1, "head_lr": 0.1}),
    ):
        runs = FIGURES[figure].runs(setting)
        tables = [
            run.tables["algorithm"] for run in runs if run.tables["algorithm"]["name"] == name
        ]
        assert tables
        assert all(table | expected | {"lr": 0.1} == table for table in tables)
    with pytest.raises(FileNotFoundError):
        FIGURES["pfeddst-tab01"].runs(Setting("paper", (0,), datasets=("cifar10",)))
    assert (PAPER.seeds["paper"], PAPER.seeds["quick"]) == (3, 3)


def test_mnist_is_added_with_settings_of_its_own(tmp_path):
    for name in ("train-images-idx3-ubyte", "data_batch_1"):
        (tmp_path / name).touch()
    setting = Setting("quick", (0,), root=tmp_path, datasets=("mnist", "cifar10"))
    panels = dfedpgp.tab01(setting)
    assert list(panels) == list(dfedpgp.tab02(setting)) == [DIR, PAT, MNIST]
    runs = {arm.tables["algorithm"]["name"]: arm.tables for (arm,) in panels[MNIST].values()}
    assert {tables["data"]["n"] for tables in runs.values()} == {100}
    assert {tables["run"]["rounds"] for tables in runs.values()} == {20}
    assert {tables["model"]["name"] for tables in runs.values()} == {"dpfl_femnist_cnn"}
    assert runs["fedavg"]["algorithm"]["participation"] == runs["dfedpgp"]["topology"]["k"] == 10
    ditto, dispfl = runs["ditto"]["algorithm"], runs["dispfl"]["algorithm"]
    assert (ditto["epochs"], ditto["personal_epochs"]) == (1, 1)
    assert (dispfl["rounds"], runs["fedper"]["algorithm"]["fine_tune_epochs"]) == (20, 1)


def test_splits_without_their_data_are_left_out():
    titles = SCALES["paper"].splits
    cifar10 = [title for title in titles if comparison.DECLARED.split(title)[0] == "cifar10"]
    assert splits_of(Setting("paper", (0,))) == cifar10
    every = Setting("paper", (0,), datasets=("mnist", "cifar10", "cifar100"))
    assert splits_of(every) == list(titles)  # MNIST is for scale quick only
    assert splits_of(SMOKE, PAT) == [PAT]


@pytest.mark.parametrize("label", METHODS)
def test_methods_are_over_their_kind_of_graph(label):
    (run,) = comparison.arm(SMOKE, DIR, label)
    experiment, over = config.build(run.tables), METHODS[label].over
    table = METHODS[label].table(SCALES["paper"])
    assert table.get("participation") == (10 if over == "server" else None)
    if over in ("nothing", "server", "peers"):
        assert experiment.topology is None
        return
    graph = experiment.topology.at(3)
    weights = experiment.mixing(graph)
    assert graph.is_directed == (over != "undirected")
    rows, columns = (np.allclose(weights.weights.sum(axis=axis), 1) for axis in (1, 0))
    assert rows or over == "push"
    assert columns or over == "pull"
    degrees = graph.out_degrees if over == "push" else graph.in_degrees
    assert set(degrees) == {SCALES["smoke"].neighbors}


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_what_is_said_of_images_masks_and_directions_is_true(scale, tmp_path):
    (tmp_path / "data_batch_1").touch()
    setting = Setting(scale, (0,), tmp_path, datasets=("cifar10",))
    table_1, table_2, table_4 = (FIGURES[f"dfedpgp-tab0{k}"] for k in (1, 2, 4))
    assert "OSGP pushes (columns sum to 1" in " ".join(table_4.differences(setting))
    alone = "training alone (Local) is shown but not compared with"
    assert alone in " ".join(table_2.differences(setting))
    runs = {run.tables["algorithm"]["name"]: run.tables for run in table_1.runs(setting)}
    assert {"mean", "std", "normalize"}.isdisjoint(runs["fedavg"]["data"])
    assert ("augment" in runs["fedavg"]["data"]) == (scale == "paper")
    assert "delay" not in runs["osgp"]["algorithm"]
    assert {"regrow", "different_initial"}.isdisjoint(runs["dispfl"]["algorithm"])
    assert [runs[name]["mixing"]["direction"] for name in ("osgp", "dfedpgp")] == ["push", "pull"]
    phases = algorithms.dispfl(0.1, rounds=5).phases
    assert phases["local"].settings["initial_masks"] == "common"
    assert phases["exchange"].settings["regrow"] == "gradient"
    assert inspect.signature(algorithms.osgp).parameters["delay"].default == 0


def test_devices_are_five_groups_of_equal_size():
    epochs = unequal(SCALES["paper"].devices, 100)
    assert [epochs.count(e) for e in (1, 2, 3, 4, 5)] == [20] * 5
    ditto = METHODS["Ditto"].table(SCALES["paper"], epochs=[1, 2, 3, 4, 5])
    assert (ditto["epochs"], ditto["personal_epochs"]) == ([1, 1, 1, 2, 2], [1, 1, 2, 2, 3])
    plain = METHODS["Ditto"].table(SCALES["paper"])
    assert (plain["epochs"], plain["personal_epochs"]) == (2, 3)


def test_numbers_of_table_1_are_the_papers():
    for label, title, mean, std in (
        ("Local", "CIFAR-10, Dir(0.1)", 78.96, 0.42),
        ("FedAvg", "CIFAR-100, c=10", 66.37, 0.48),
        ("FedBABU", "CIFAR-10, c=2", 91.28, 0.15),
        ("Dis-PFL", "CIFAR-100, Dir(0.3)", 46.65, 0.18),
        ("FedPer", "CIFAR-100, c=5", 78.48, 0.93),
        ("DFedPGP", "CIFAR-10, Dir(0.3)", 85.61, 0.05),
        ("DFedPGP", "CIFAR-100, Dir(0.1)", 66.26, 0.25),
    ):
        assert ACCURACIES[label][title] == (mean, std)
    assert len(ACCURACIES) == 10
    assert {len(row) for row in ACCURACIES.values()} == {8}
    assert set(TABLE_1) == set(ACCURACIES)


def test_numbers_of_the_other_tables_are_the_papers():
    assert list(TARGETS.values()) == [80, 90, 45, 65]
    assert list(TABLE_2["DFedPGP"].values()) == [131, 224, 111, 113]
    assert list(TABLE_2["Dis-PFL"].values()) == [307, None, 368, 492]
    assert [TABLE_3[DIR]["OSGP"], TABLE_3[PAT]["FedRep"]] == [82.81, 88.57]
    assert TABLE_3[DIR]["FedRep"] is None
    assert set(ABLATION) == set(TABLE_4[DIR])
    assert (TABLE_4[DIR]["DFedAvgM-P"], TABLE_4[PAT]["DFedAvgM-P"]) == (84.69, 90.90)
    for title in (DIR, PAT):  # rows of table 4 are those of table 1
        for label in ("DFedAvgM", "OSGP", "DFedPGP"):
            assert TABLE_4[title][label] == ACCURACIES[label][title][0]
    assert margin([DIR]) == pytest.approx(85.61 - 84.50)
    assert margin([PAT]) == pytest.approx(91.26 - 91.28)


def test_targets_are_the_papers_or_ninety_percent_of_the_best():
    panels = {DIR: {"one": curve(70, 72), "other": curve(35, 36)}}
    assert targets_of("quick", panels, TARGETS) == {DIR: 63.0}  # 90 % of 71 is 63.9
    assert targets_of("paper", panels, TARGETS) == {DIR: 80.0}


@pytest.mark.slow
def test_pictures_have_one_line_a_method_and_dots_of_ours_and_the_papers(whole):
    _, results = whole
    result = results["dfedpgp-fig02"]
    lines = [len(ax.lines) for ax in result.figure.draw(result.data).axes]
    assert lines == [len(TABLE_1)] * 2  # without worst and best client
    result = results["dfedpgp-tab04"]
    ax = result.figure.draw(result.data).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(ABLATION)
    diamonds = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    assert diamonds == [TABLE_4[DIR][label] for label in ABLATION]
    circles = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
    ours = reported(read_panels(result.data["panels"]))[DIR]
    np.testing.assert_allclose(circles, [final(ours[label]) for label in ABLATION])


def test_tables_say_how_far_seeds_are_apart_and_who_missed_a_target():
    numbers = {"bytes": np.array([1e6, 1e6]), "busiest_bytes": np.array([3e6, 3e6])}
    ends = {"DFedPGP": (80, 60), "FedRep": (40, 80), "Ditto": (20, 80)}
    arms = {label: curve(*own, **numbers) for label, own in ends.items()}
    table = accuracy_table(
        "panel", {label: {"after exchange": each} for label, each in arms.items()}, {"Ditto": "9"}
    )
    assert table.column("after exchange, %")[0] == "70.00 ± 14.14"
    reason = table.column("after training, %")[0].reason
    assert str(reason) == "DFedPGP is not tested at this stage (after training)"
    assert table.column("paper, %")[2] == "9"
    assert table.column("MB of the busiest") == (3.0, 3.0, 3.0)
    table = rounds_table(DIR, arms, 30.0, TABLE_2, TARGETS)
    assert table.column("rounds")[:2] == ("1.00 ± 0.00", "1.25 ± 0.35")
    assert table.column("over DFedPGP's")[1] == "1.25 ± 0.35"
    assert table.column("MB of the busiest")[1] == "3.75 ± 1.06"
    assert table.column("rounds")[2].reason == "Ditto: 1 of 2 seeds stayed below 30 %"
    assert table.column("paper: over DFedPGP's")[:2] == (1.0, 1.44)


@pytest.mark.slow
def test_pfeddst_is_tested_after_training_only_and_its_peers_in_every_round(peers):
    panel = peers["pfeddst-fig03"].data["panels"][C10]
    assert list(panel[OURS]) == ["after training"]
    assert "after exchange" in panel["DFedPGP"]
    (seed,) = peers["pfeddst-fig02b"].data["seeds"]
    assert peers["pfeddst-fig02a"].data["seeds"] == [seed]
    assert [len(seed[name]) for name in ("own", "near", "random")] == [2] * 3
    assert {len(row) for name in ("near", "random") for row in seed[name]} == {2}


def test_stability_is_judged_at_rounds_that_others_were_not_tested_in():
    tall = curve(*[80.0] * 3, rounds=range(11))
    tall.mean[:] = np.where(np.arange(11) == 3, 100.0, 80.0)
    other = curve(*[70.0] * 3, rounds=(0, 5, 10))
    panel = {OURS: {"after training": tall}, "DFedPGP": {"after exchange": other}}
    claims = FIGURES["pfeddst-fig03"].claims({"panels": write_panels({C10: panel})})
    assert (claims[-1].ours.mean, claims[-1].verdict) == (pytest.approx(0.8), FAILS)


def test_nearest_are_those_of_the_most_similar_heads():
    options = {"init": "independent", "seed": 0, "dtype": torch.float64}
    model = models.dpfl_cnn((1, 16, 16))
    some = initial_population(model, 4, device=torch.device("cpu"), **options)
    (part,) = some.columns(algorithms.head)
    some.flat[2, part] = 3 * some.flat[0, part]
    some.flat[3, part] = -some.flat[0, part]
    found = nearest(some, 0, 3)
    assert (found[0], found[-1]) == (2, 3)
