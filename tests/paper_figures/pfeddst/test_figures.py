"""PFedDST at scale ``smoke``: figures and table are made; claims fail where they should."""

import numpy as np
import pytest
import torch

from paper_figures import reproduce
from paper_figures.kit.claims import FAILS, HOLDS, OUR_QUESTION, PAPER, UNDECIDED
from paper_figures.kit.curves import Curve, write_panels
from paper_figures.kit.paper import Setting
from paper_figures.pfeddst import (
    CIFAR_10,
    LABELS,
    OURS,
    best,
    own_best,
    sooner,
    steady,
    tab01,
    useful,
)
from paper_figures.pfeddst.peers import nearest
from topofl import algorithms, models
from topofl.engine.population import initial_population


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("pfeddst")
    results = reproduce("pfeddst", scale="smoke", out=out, report=True, progress=False)
    return {result.figure.id: result for result in results}


def curve(end, tau=8.0):
    rounds, seeds = np.arange(0, 101.0), np.array([[0.0], [0.1], [-0.1]])
    mean = (end + seeds) * (1 - np.exp(-rounds / tau))
    return Curve(np.arange(3), rounds, mean, mean, mean, {})


def verdicts(claims):
    return [claim.verdict for claim in claims]


@pytest.mark.slow
def test_every_figure_is_computed_drawn_and_judged(whole):
    judged = {
        "pfeddst-fig02a",
        "pfeddst-fig02b",
        "pfeddst-fig03",
        "pfeddst-tab01",
    }  # no CIFAR-100 at smoke
    assert set(whole) == judged | {"pfeddst-labels", "pfeddst-sensitivity"}
    for name, result in whole.items():
        assert result.picture.read_bytes().startswith(b"\x89PNG")
        assert {claim.verdict for claim in result.claims} == (
            {UNDECIDED} if name in judged else set()
        )  # of one seed


def test_stability_is_judged_at_rounds_that_others_were_not_tested_in(whole):
    rounds = np.arange(11.0)
    tall = np.full((3, 11), 80.0)
    tall[:, 3] = 100.0
    ours, other = Curve(np.arange(3), rounds, tall, tall, tall, {}), curve(70.0)
    panel = {
        OURS: {"after training": ours},
        "DFedPGP": {"after exchange": _at(other, [0, 5, 10])},
    }
    (figure,) = (result.figure for result in whole.values() if result.figure.id == "pfeddst-fig03")
    stable = figure.claims({"panels": write_panels({CIFAR_10: panel})})[-1]
    assert (stable.ours.mean, stable.verdict) == (pytest.approx(0.8), FAILS)


def _at(curve, rounds):
    kept = curve.mean[:, rounds]
    return Curve(curve.seeds, np.array(rounds, float), kept, kept, kept, {})


def test_peers_are_looked_at_in_every_round(whole):
    (seed,) = whole["pfeddst-fig02b"].data["seeds"]
    assert whole["pfeddst-fig02a"].data["seeds"] == [seed]
    assert len(seed["own"]) == len(seed["near"]) == len(seed["random"]) == 2
    assert {len(row) for name in ("near", "random") for row in seed[name]} == {2}


def test_ours_is_tested_after_training_only(whole):
    moments = whole["pfeddst-fig03"].data["panels"][CIFAR_10]
    assert list(moments[OURS]) == ["after training"]
    assert "after exchange" in moments["DFedPGP"]


def test_nearest_are_those_of_the_most_similar_heads():
    model = models.dpfl_cnn((1, 16, 16))
    some = initial_population(
        model, 4, init="independent", seed=0, device=torch.device("cpu"), dtype=torch.float64
    )
    (part,) = some.columns(algorithms.head)
    some.flat[2, part] = 3 * some.flat[0, part]
    some.flat[3, part] = -some.flat[0, part]
    assert nearest(some, 0, 3)[0] == 2
    assert nearest(some, 0, 3)[-1] == 3


def panels(**ends):
    return {
        CIFAR_10: {label: curve(ends.get(label.replace("-", ""), 80.0), 20.0) for label in LABELS}
    }


def test_accuracy_and_speed_are_leads_over_all_others():
    good = panels()
    good[CIFAR_10][OURS] = curve(82.0)
    assert verdicts(best(good)) == [HOLDS] * 2
    assert verdicts(steady(good)) == [HOLDS]
    assert verdicts(best(panels(FedPer=90.0))) == [FAILS] * 2
    falling = curve(82.0)
    falling.mean[:, 80:] /= 2
    good[CIFAR_10][OURS] = falling
    assert verdicts(steady(good)) == [FAILS]


def test_table_1_counts_rounds():
    arms = panels()[CIFAR_10] | {OURS: curve(82.0, 4.0), "DFedPGP": curve(82.0, 8.0)}
    data = {
        "panels": write_panels({CIFAR_10: {k: {"after exchange": c} for k, c in arms.items()}}),
        "targets": {CIFAR_10: 60},
    }
    claims = sooner(data)
    assert verdicts(claims) == [HOLDS] * 2
    assert [claim.paper for claim in claims] == ["1.29", "1.35"]
    assert claims[1].threshold.startswith("≥ 1.174, each: “much better”")
    assert {part.name for part in claims[1].parts} == set(LABELS) - {
        OURS,
        "DFedPGP",
    }
    mnist = {
        "panels": {"MNIST, Dir(0.3)": data["panels"][CIFAR_10]},
        "targets": {"MNIST, Dir(0.3)": 60},
    }
    assert [(claim.paper, claim.kind) for claim in sooner(mnist)] == [("", OUR_QUESTION)] * 2
    assert {claim.kind for claim in claims} == {PAPER}
    arms |= {OURS: curve(82.0, 40.0), "DFedPGP": curve(82.0, 60.0)}
    data["panels"] = write_panels({CIFAR_10: {k: {"after exchange": c} for k, c in arms.items()}})
    assert verdicts(sooner(data)) == [FAILS] * 2


def test_peers_are_judged_by_the_mean_over_rounds():
    good = [{"own": [90 + s], "near": [[80 + s, 82]], "random": [[40, 50 + s]]} for s in range(3)]
    assert verdicts([*useful({"seeds": good}), *own_best({"seeds": good})]) == [HOLDS] * 2
    bad = [{"own": [30 + s], "near": [[40, 50 + s]], "random": [[80 + s, 82]]} for s in range(3)]
    assert verdicts([*useful({"seeds": bad}), *own_best({"seeds": bad})]) == [FAILS] * 2


def test_settings_are_the_papers(tmp_path):
    with pytest.raises(FileNotFoundError):
        tab01(Setting("paper", (0,), datasets=("cifar10",)))
    (tmp_path / "data_batch_1").touch()
    (panel,) = tab01(Setting("paper", (0,), tmp_path, datasets=("cifar10",))).values()
    tables = {label: runs[0].tables for label, runs in panel.items()}
    assert list(tables) == list(LABELS)
    for table in tables.values():
        assert (table["data"]["n"], table["run"]["rounds"]) == (100, 500)
        assert (table["data"]["partition"], table["data"]["classes_per_node"]) == (
            "pathological_shared",
            2,
        )
    ours = tables[OURS]["algorithm"]
    assert (ours["name"], ours["k"], ours["epochs"], ours["head_epochs"]) == ("pfeddst", 10, 5, 1)
    assert (ours["lr"], ours["head_lr"]) == (0.1, 0.1), "one learning rate for all that is trained"
    assert tables["DFedPGP"]["algorithm"]["head_lr"] == 0.001
