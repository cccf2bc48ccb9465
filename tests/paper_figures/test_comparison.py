"""DFedPGP at scale ``smoke``. Long, since all tests read its figures, which are made once."""

import dataclasses
import inspect
import re

import numpy as np
import pytest

from paper_figures import dfedpgp, reproduce
from paper_figures.command import PAPERS as ALL
from paper_figures.command import figures_named
from paper_figures.dfedpgp import ABLATION, DEVICES, PAPER, TABLE_1, unequal
from paper_figures.dfedpgp.claims import ABLATION_NUMBERS as TABLE_4
from paper_figures.dfedpgp.claims import ACCURACIES as PAPERS
from paper_figures.dfedpgp.claims import ROUNDS as TABLE_2
from paper_figures.dfedpgp.claims import TARGETS, margin
from paper_figures.dfedpgp.claims import UNEQUAL_NUMBERS as TABLE_3
from paper_figures.kit import comparison
from paper_figures.kit import reproduce as kit_reproduce
from paper_figures.kit.claims import FAILS, HOLDS, UNDECIDED
from paper_figures.kit.comparison import (
    METHODS,
    STAGES,
    accuracy_table,
    best_stage,
    reported,
    rounds_table,
    splits_of,
    targets_of,
)
from paper_figures.kit.curves import Curve, final, read_panels, write_panels
from paper_figures.kit.paper import Setting, make_setting
from paper_figures.kit.report import command_of
from paper_figures.kit.store import Store, keyed
from topofl import algorithms, config
from topofl.runs import RunStore
from topofl.runs import execute as execution

SCALES = {name: comparison.DECLARED.scale(name) for name in ("smoke", "quick", "paper")}
SPLITS = SCALES["paper"].splits
SEEDS = PAPER.seeds
IDS = [
    f"dfedpgp-{name}" for name in ("tab01", "fig02", "tab02", "tab03", "tab04", "fig03a", "fig03b")
]
DIR, PAT, MNIST = "CIFAR-10, Dir(0.3)", "CIFAR-10, c=2", "MNIST, Dir(0.3)"
SMOKE = Setting("smoke", (0,))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder, and the results by id, of the whole paper."""
    out = tmp_path_factory.mktemp("dfedpgp")
    results = reproduce("dfedpgp", scale="smoke", out=out, report=True, progress=False)
    return out, {result.figure.id: result for result in results}


@pytest.fixture
def root(tmp_path):
    for name in ("data_batch_1", "cifar-100-python", "train-images-idx3-ubyte"):
        (tmp_path / name).touch()
    return tmp_path


def figure(id):
    return figures_named(id)[1][0]


def test_a_probe_runs_methods_that_are_fine_tuned_and_tests_clients_on_their_own(monkeypatch):
    runs = keyed(figure("dfedpgp-tab01").runs(SMOKE)).values()
    tuned = next(run for run in runs if run.tables["evaluation"].get("fine_tune_every"))
    asked = []
    told = config.Experiment.run
    monkeypatch.setattr(
        config.Experiment,
        "run",
        lambda self, **how: asked.append(self.options) or told(self, **how),
    )
    seconds, _ = kit_reproduce.probe(tuned)
    looked = [(o["rounds"], o["evaluation"]) for o in asked]
    assert [(rounds, e.every, e.fine_tune_every, e.examples) for rounds, e in looked] == [
        (6, 3, None, None),
        (1, 1, None, None),
    ]
    assert 0 < seconds < 60


def test_every_table_and_figure_is_there():
    assert [each.id for each in PAPER.figures] == IDS
    assert [paper.id for paper in ALL][:2] == ["dcliques", "dfedpgp"]


@pytest.mark.slow
def test_every_figure_is_computed_drawn_and_judged(whole):
    out, results = whole
    assert list(results) == IDS
    for result in results.values():
        assert result.picture.read_bytes().startswith(b"\x89PNG")
        assert result.claims
        assert {claim.verdict for claim in result.claims} <= {HOLDS, FAILS, UNDECIDED}
        assert len(result.tables) == len(result.data["panels"])
        assert any("digits" in text for text in result.differences)
    for kind in ("html", "md"):
        text = (out / "smoke" / f"dfedpgp-report.{kind}").read_text()
        assert all(id in text for id in IDS)


def test_figures_share_their_runs(whole):
    out, results = whole
    keys = {id: set(keyed(result.figure.runs(SMOKE))) for id, result in results.items()}
    assert keys["dfedpgp-tab01"] == keys["dfedpgp-fig02"] == keys["dfedpgp-tab02"]
    assert len(keys["dfedpgp-tab04"] - keys["dfedpgp-tab01"]) == 2  # DFedAvgM-P, by splits
    assert len(keys["dfedpgp-tab03"] - keys["dfedpgp-tab01"]) == len(DEVICES) * 2
    for id, shared in (("dfedpgp-fig03a", 1), ("dfedpgp-fig03b", 1)):
        assert len(keys[id] & keys["dfedpgp-tab01"]) == shared
    everything = set().union(*keys.values())
    assert {run.key for run in RunStore(out / "runs").runs()} == everything


def test_nothing_is_done_twice(whole, monkeypatch):
    out, results = whole
    monkeypatch.setattr(execution, "perform", lambda *_: pytest.fail("a run was done again"))
    (again,) = reproduce("dfedpgp-tab4", scale="smoke", out=out, progress=False)
    assert again.claims == results["dfedpgp-tab04"].claims


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


def test_accuracies_are_means_over_clients_and_bytes_those_sent(whole):
    out, results = whole
    (run, *_) = (
        r
        for r in results["dfedpgp-tab01"].figure.runs(SMOKE)
        if r.tables["algorithm"]["name"] == "dfedpgp"
    )
    history, note = Store(out / "runs").load(run)
    curve = read_panels(results["dfedpgp-tab01"].data["panels"])[DIR]["DFedPGP"]
    np.testing.assert_allclose(
        curve["after exchange"].mean[0], 100 * history["accuracy"].mean(axis=1), atol=1e-5
    )
    before = 100 * history["accuracy_before_exchange"].mean(axis=1)
    np.testing.assert_allclose(curve["after training"].mean[0], before, atol=1e-5)
    np.testing.assert_array_equal(curve["after exchange"].epochs, history["round"])
    experiment = config.build(run.tables)
    size = sum(
        p.numel() for name, p in experiment.model.named_parameters() if not name.startswith("head")
    )
    assert note["numbers"]["bytes"] == 4 * size * SCALES["smoke"].neighbors


def test_who_is_alone_is_tested_once_a_round_and_sends_nothing(whole):
    _, results = whole
    curves = read_panels(results["dfedpgp-tab01"].data["panels"])[DIR]["Local"]
    assert list(curves) == ["after exchange"]
    assert not curves["after exchange"].numbers["bytes"].any()


def test_curves_survive_json_and_the_best_stage_is_reported():
    def curve(level):
        mean = np.array([[10.0, level], [10.0, level + 1]])
        return Curve(
            np.arange(2), np.arange(2.0), mean, mean - 1, mean + 1, {"bytes": np.array([1.0, 1.0])}
        )

    value = {"panel": {"arm": {"after exchange": curve(50), "after training": curve(60)}}}
    again = read_panels(write_panels(value))
    assert best_stage(again["panel"]["arm"]) == "after training"
    np.testing.assert_array_equal(final(reported(again)["panel"]["arm"]), [60, 61])


def test_arms_are_compared_at_the_rounds_that_all_of_them_were_tested_after():
    def curve(*rounds):
        mean = np.array([[float(t) for t in rounds]])
        return Curve(np.arange(1), np.array(rounds, float), mean, mean, mean, {})

    value = {
        "panel": {
            "often": {"after exchange": curve(0, 1, 2, 3, 4)},
            "seldom": {"fine-tuned": curve(2, 4)},
        }
    }
    panel = reported(value)["panel"]
    for label in ("often", "seldom"):
        np.testing.assert_array_equal(panel[label].epochs, [2, 4])
        np.testing.assert_array_equal(panel[label].mean, [[2, 4]])


def test_served_methods_are_tested_after_passes_of_all_clients_as_often_as_otherwise(whole):
    for label in ("FedAvg", "FedPer", "FedRep", "FedBABU"):
        (run,) = comparison.arm(Setting("smoke", (0,)), DIR, label)
        assert run.tables["evaluation"]["fine_tune_every"] == run.tables["evaluation"]["every"]
        assert run.tables["algorithm"]["fine_tune_epochs"] == SCALES["smoke"].epochs
    _, results = whole
    panel = read_panels(results["dfedpgp-tab01"].data["panels"])[DIR]
    assert "after training" not in panel["FedPer"]
    assert "fine-tuned" in panel["FedPer"]
    assert "after training" in panel["DFedAvgM"]


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_settings_are_the_papers(scale, root):
    setting = make_setting(scale, root=root, seeds=SEEDS[scale])
    runs = figure("dfedpgp-tab01").runs(setting)
    wanted = SCALES[scale]
    assert {run.tables["algorithm"]["momentum"] for run in runs} == {0.9}
    assert {run.tables["algorithm"]["lr_decay"] for run in runs} == {0.99}
    assert {run.tables["data"]["n"] for run in runs if run.tables["data"]["name"] != "mnist"} == {
        wanted.clients
    }
    assert len(runs) == len(wanted.splits) * len(TABLE_1) * 3
    if scale == "paper":
        assert {run.tables["run"]["rounds"] for run in runs} == {500}
        assert {run.tables["topology"]["k"] for run in runs if "topology" in run.tables} == {10}
        assert {run.tables["algorithm"].get("participation", 10) for run in runs} == {10}
        assert {run.tables["model"]["name"] for run in runs} == {"resnet18_gn"}
        (ours,) = {
            str(r.tables["algorithm"]) for r in runs if r.tables["algorithm"]["name"] == "dfedpgp"
        }
        assert "'head_lr': 0.001" in ours
        assert "'epochs': 5" in ours
        assert "'head_epochs': 1" in ours
        assert "'mode': 'pull'" in ours
        assert {run.tables["data"]["name"] for run in runs} == {"cifar10", "cifar100"}
        assert figure("dfedpgp-fig03a").runs(setting)[0].tables["topology"]["k"] == 2


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
    assert (
        runs["ditto"]["algorithm"]["epochs"],
        runs["ditto"]["algorithm"]["personal_epochs"],
    ) == (1, 1)
    assert (
        runs["dispfl"]["algorithm"]["rounds"],
        runs["fedper"]["algorithm"]["fine_tune_epochs"],
    ) == (20, 1)
    assert MNIST not in splits_of(Setting("paper", (0,), datasets=("mnist", "cifar10")))


def test_all_arms_of_a_seed_share_data_model_and_minibatches():
    for each in PAPER.figures:
        for run in each.runs(Setting("smoke", (3, 4))):
            data, graph = run.tables["data"], run.tables.get("topology", {"seed": run.seed})
            assert {data["seed"], data["split_seed"], graph["seed"]} == {run.seed}


@pytest.mark.parametrize("label", METHODS)
def test_methods_are_over_their_kind_of_graph(label):
    (run,) = comparison.arm(Setting("smoke", (0,)), DIR, label)
    experiment = config.build(run.tables)
    over = METHODS[label].over
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
def test_what_differs_in_images_masks_and_directions_is_said_beside_the_figures_and_true(
    scale, root
):
    setting = Setting(scale, (0,), root, datasets=("cifar10",))
    said = {
        id: " ".join(figure(id).differences(setting))
        for id in ("dfedpgp-tab01", "dfedpgp-tab04", "dfedpgp-tab02")
    }
    runs = {
        run.tables["algorithm"]["name"]: run.tables for run in figure("dfedpgp-tab01").runs(setting)
    }
    for words in (
        "also subtracts each channel's mean"
        if scale == "paper"
        else "neither normalized by channel nor randomly cropped or flipped",
        "without a delay, which makes it SGP",
        "DFedPGP pulls",
        "all clients start with one mask",
        "scripts regrow at random",
    ):
        assert all(words in text for text in said.values())
    assert "OSGP pushes (columns sum to 1" in said["dfedpgp-tab04"]
    assert "training alone (Local) is shown but not compared with" in said["dfedpgp-tab02"]
    assert {"mean", "std", "normalize"}.isdisjoint(runs["fedavg"]["data"])
    assert ("augment" in runs["fedavg"]["data"]) == (scale == "paper")
    assert "delay" not in runs["osgp"]["algorithm"]
    assert {"regrow", "different_initial"}.isdisjoint(runs["dispfl"]["algorithm"])
    assert [runs[name]["mixing"]["direction"] for name in ("osgp", "dfedpgp")] == ["push", "pull"]
    settings = {
        name: phase.settings for name, phase in algorithms.dispfl(0.1, rounds=5).phases.items()
    }
    assert (settings["local"]["initial_masks"], settings["exchange"]["regrow"]) == (
        "common",
        "gradient",
    )
    assert inspect.signature(algorithms.osgp).parameters["delay"].default == 0


def test_devices_are_five_groups_of_equal_size():
    epochs = unequal(SCALES["paper"].devices, 100)
    assert [epochs.count(e) for e in (1, 2, 3, 4, 5)] == [20] * 5
    ditto = METHODS["Ditto"].table(SCALES["paper"], epochs=[1, 2, 3, 4, 5])
    assert (ditto["epochs"], ditto["personal_epochs"]) == ([1, 1, 1, 2, 2], [1, 1, 2, 2, 3])
    plain = METHODS["Ditto"].table(SCALES["paper"])
    assert (plain["epochs"], plain["personal_epochs"]) == (2, 3)


def test_a_server_samples_as_many_as_a_client_hears():
    for label, method in METHODS.items():
        table = method.table(SCALES["paper"])
        assert table.get("participation") == (10 if method.over == "server" else None), label


def test_every_row_of_the_papers_tables_has_a_method():
    assert set(TABLE_1) | {"DFedAvgM-P", "Dis-PFL"} == set(PAPERS) | {"DFedAvgM-P"}
    assert set(ABLATION) == set(TABLE_4[DIR])


@pytest.mark.parametrize(
    ("label", "title", "mean", "std"),
    [
        ("Local", "CIFAR-10, Dir(0.1)", 78.96, 0.42),
        ("FedAvg", "CIFAR-100, c=10", 66.37, 0.48),
        ("FedBABU", "CIFAR-10, c=2", 91.28, 0.15),
        ("Dis-PFL", "CIFAR-100, Dir(0.3)", 46.65, 0.18),
        ("FedPer", "CIFAR-100, c=5", 78.48, 0.93),
        ("DFedPGP", "CIFAR-10, Dir(0.3)", 85.61, 0.05),
        ("DFedPGP", "CIFAR-100, Dir(0.1)", 66.26, 0.25),
    ],
)
def test_numbers_of_table_1_are_the_papers(label, title, mean, std):
    assert PAPERS[label][title] == (mean, std)
    assert len(PAPERS) == 10
    assert {len(row) for row in PAPERS.values()} == {8}


def test_numbers_of_the_other_tables_are_the_papers():
    assert list(TARGETS.values()) == [80, 90, 45, 65]
    assert list(TABLE_2["DFedPGP"].values()) == [131, 224, 111, 113]
    assert list(TABLE_2["Dis-PFL"].values()) == [307, None, 368, 492]
    assert (TABLE_3[DIR]["OSGP"], TABLE_3[PAT]["FedRep"], TABLE_3[DIR]["FedRep"]) == (
        82.81,
        88.57,
        None,
    )
    assert (TABLE_4[DIR]["DFedAvgM-P"], TABLE_4[PAT]["DFedAvgM-P"]) == (84.69, 90.90)
    for label in ("DFedAvgM", "OSGP", "DFedPGP"):  # rows of table 4 are those of table 1
        assert [TABLE_4[title][label] for title in (DIR, PAT)] == [
            PAPERS[label][title][0] for title in (DIR, PAT)
        ]
    assert margin([DIR]) == pytest.approx(85.61 - 84.50)
    assert margin([PAT]) == pytest.approx(91.26 - 91.28)


def test_targets_are_the_papers_or_ninety_percent_of_the_best():
    mean = np.array([[0.0, 70.0], [0.0, 72.0]])
    best = Curve(np.arange(2), np.array([0.0, 1.0]), mean, mean, mean, {})
    panels = {DIR: {"one": best, "other": dataclasses.replace(best, mean=mean / 2)}}
    assert targets_of("quick", panels, TARGETS) == {DIR: 63.0}  # 90 % of 71 is 63.9
    assert targets_of("paper", panels, TARGETS) == {DIR: 80.0}


def test_splits_without_their_data_are_left_out():
    assert splits_of(Setting("paper", (0,))) == [
        title for title in SPLITS if comparison.DECLARED.split(title)[0] == "cifar10"
    ]
    assert splits_of(Setting("paper", (0,), datasets=("mnist", "cifar10", "cifar100"))) == list(
        SPLITS
    )
    assert splits_of(Setting("smoke", (0,)), PAT) == [PAT]


def test_seeds_are_the_papers_three():
    assert (SEEDS["paper"], SEEDS["quick"]) == (3, 3)


def test_stages_are_those_of_evaluations():
    assert list(STAGES.values()) == ["", "before_exchange", "fine_tuned"]


def test_figure_2_has_one_line_a_method_against_rounds(whole):
    _, results = whole
    result = results["dfedpgp-fig02"]
    axes = result.figure.draw(result.data).axes
    assert [ax.get_title() for ax in axes] == [f"(a) {DIR}", f"(b) {PAT}"]
    for ax in axes:
        assert ax.get_xlabel() == "round"
        assert len(ax.lines) == len(TABLE_1)  # without worst and best client


def test_dots_are_ours_and_diamonds_the_papers(whole):
    _, results = whole
    result = results["dfedpgp-tab04"]
    ax = result.figure.draw(result.data).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(ABLATION)
    diamonds = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    assert diamonds == [TABLE_4[DIR][label] for label in ABLATION]
    circles = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
    ours = reported(read_panels(result.data["panels"]))[DIR]
    np.testing.assert_allclose(circles, [final(ours[label]) for label in ABLATION])


def test_the_paper_decides_on_the_number_of_seeds(root, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "paper_figures.command.reproduce_each",
        lambda figures, setting, **_: asked.append(setting) or (),
    )
    for name, scale, seeds in (
        ("dfedpgp", "paper", None),
        ("dcliques", "paper", None),
        ("dfedpgp", "paper", 4),
    ):
        reproduce(name, scale=scale, seeds=seeds, data=root, out=root / "out")
    assert [len(setting.seeds) for setting in asked] == [3, 5, 4]


def test_the_report_names_the_data_that_the_paper_has():
    words = command_of("dfedpgp", PAPER.figures, Setting("paper", (0,), datasets=("cifar10",)))
    assert words.endswith("--data DIR --datasets cifar10 --report")
    every = command_of(
        "dfedpgp",
        PAPER.figures,
        Setting("paper", (0,), datasets=("mnist", "cifar10", "cifar100")),
    )
    assert every.endswith("--data DIR --report")


def test_tables_say_how_far_seeds_are_apart_and_who_missed_a_target():
    numbers = {"bytes": np.array([1e6, 1e6]), "busiest_bytes": np.array([3e6, 3e6])}

    def curve(*ends):
        mean = np.array([[0.0, end / 2, end] for end in ends])
        return Curve(np.arange(2), np.arange(3.0), mean, mean, mean, numbers)

    arms = {"DFedPGP": curve(80, 60), "FedRep": curve(40, 80), "Ditto": curve(20, 80)}
    table = accuracy_table(
        "panel", {label: {"after exchange": each} for label, each in arms.items()}, {"Ditto": "9"}
    )
    assert table.column("after exchange, %")[0] == "70.00 ± 14.14"
    assert (
        str(table.column("after training, %")[0].reason)
        == "DFedPGP is not tested at this stage (after training)"
    )
    assert table.column("paper, %")[2] == "9"
    assert table.column("MB of the busiest") == (3.0, 3.0, 3.0)
    table = rounds_table(DIR, arms, 30.0, TABLE_2, TARGETS)
    assert table.column("rounds")[:2] == ("1.00 ± 0.00", "1.25 ± 0.35")
    assert table.column("over DFedPGP's")[1] == "1.25 ± 0.35"
    assert table.column("MB of the busiest")[1] == "3.75 ± 1.06"
    assert table.column("rounds")[2].reason == "Ditto: 1 of 2 seeds stayed below 30 %"
    assert table.column("paper: over DFedPGP's") == (
        1.0,
        1.44,
        table.column("paper: over DFedPGP's")[2],
    )
