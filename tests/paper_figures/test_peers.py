"""PFedDST's chosen peers are counted as defined; the study has both ends and the default."""

from types import SimpleNamespace

import numpy as np
import pytest

from paper_figures.kit.claims import FAILS, HOLDS
from paper_figures.kit.comparison import DECLARED, METHODS
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import compute_missing
from paper_figures.pfeddst import CIFAR_10, MNIST, PAPER, peers
from topofl import metrics
from topofl.mixing import average_of_chosen

COUNTS = np.array([[4, 0, 0], [2, 2, 0], [0, 3, 3], [0, 0, 5], [1, 1, 2]])


def chosen(*rows):
    pairs = np.zeros((len(rows), len(rows)))
    for i, own in enumerate(rows):
        pairs[i, own] = 1
    return average_of_chosen(pairs)


def history_of(*matrices):
    return SimpleNamespace(n_rounds=len(matrices), mixing=lambda t: matrices[t])


ROUNDS = (
    chosen([1, 2], [0, 2], [3, 4], [2, 4], [0, 1]),
    chosen([3, 4], [3, 4], [0, 1], [0, 1], [2, 3]),
    chosen([1, 2], [0, 4], [1, 3], [2, 4], [1, 2]),
    chosen([1, 3], [0, 4], [1, 4], [2, 4], [0, 3]),
)


def test_shared_labels_are_what_two_nodes_have_in_common():
    shares = COUNTS / COUNTS.sum(1, keepdims=True)
    wanted = 1 - np.abs(shares[:, None] - shares).sum(2) / 2
    np.testing.assert_allclose(peers.shared_labels(COUNTS), wanted)


def test_overlap_and_chance_agree_with_the_metric_of_labels():
    told = peers.choices(history_of(*ROUNDS), COUNTS, k=2)
    for overlap, matrix in zip(told["overlap"], ROUNDS, strict=True):
        ratio = metrics.neighbor_label_distance(matrix.support(), COUNTS)
        assert (100 - overlap) / (100 - told["chance"]) == pytest.approx(ratio)
    everybody = peers.choices(
        history_of(chosen(*([j for j in range(5) if j != i] for i in range(5)))), COUNTS, 4
    )
    assert everybody["overlap"] == pytest.approx([everybody["chance"]])


def test_different_peers_are_counted_after_all_were_tried():
    told = peers.choices(history_of(*ROUNDS), COUNTS, k=2)  # 4 peers, 2 a round
    assert told["different"] == np.mean([3, 2, 3, 2, 4])  # of the last two rounds
    assert peers.choices(history_of(*ROUNDS[:2]), COUNTS, k=2)["different"] == 0


@pytest.mark.parametrize(
    ("n", "k", "rounds"), [(20, 5, 4), (100, 10, 10), (6, 5, 1), (7, 5, 2), (2, 1, 1), (3, 9, 1)]
)
def test_every_peer_is_tried_once_in_as_many_rounds(n, k, rounds):
    assert peers.explored(n, k) == rounds


@pytest.mark.parametrize("name", [None, CIFAR_10])
def test_the_cold_start_is_told_with_its_rounds(name, tmp_path):
    (tmp_path / "data_batch_1").touch()
    (tmp_path / "train-images-idx3-ubyte").touch()
    setting = Setting("quick", (0,), tmp_path)
    told = peers.exploration(setting, [name] if name else [CIFAR_10, MNIST])
    mnist = "" if name else ", 10 of 20 rounds (MNIST, Dir(0.3))"
    both = f"4 of 25 rounds (CIFAR-10, c=2){mnist}; at the paper's scale it is 10 of 500"
    assert told.endswith(both)
    for figure in PAPER.figures[:5]:
        is_said = any(text.startswith("cold start") for text in figure.differences(setting))
        assert is_said == ("fig04" not in figure.id)


def panel(overlap, chance=20.0):
    return {
        "explored": 1,
        "peers": 4,
        "seeds": [
            {"overlap": [90.0, *(o + s for o in overlap)], "chance": chance, "different": 3.0}
            for s in (0.0, 0.1, 0.2)
        ],
    }


def test_peers_with_like_labels_are_more_alike_than_chance():
    good, bad, undecided = panel([22.0, 24.0]), panel([18.0, 16.0]), panel([])
    claims = peers.alike({"panels": {"a": good, "b": bad, "c": undecided}})
    assert [claim.verdict for claim in claims] == [HOLDS, FAILS]
    assert claims[0].ours.mean == pytest.approx(3.1), (
        "the rounds in which every peer was tried do not count"
    )
    (table,) = peers.tables({"panels": {"a": good, "c": undecided}})
    assert table.rows[0][1:] == (1, "23.10 ± 0.10", "20.00 ± 0.00", "3.00 ± 0.00", 4)
    assert "no round" in table.rows[1][2].reason


def test_the_study_has_the_default_both_ends_and_the_terms_as_they_are():
    (arms,) = peers.sensitivity_arms(Setting("quick", (0, 1), datasets=())).values()
    found = [runs[0].tables["algorithm"] for runs in arms.values()]
    default = METHODS["PFedDST"].table(DECLARED.scale("quick"))
    names = ("standardize", "alpha", "recency_rate", "cost")

    def how_many(**wanted):
        return sum(
            all(table[name] == value for name, value in wanted.items())
            for table in found
            if table["k"]
        )

    assert how_many(**{name: default[name] for name in names}) == 1
    assert how_many(standardize=True, alpha=0.0) == how_many(standardize=True, alpha=1000.0) == 4
    assert how_many(standardize=False, alpha=1.0, cost=2.0, recency_rate=0.3) == 1
    assert sum(table["k"] == 0 for table in found) == 1
    assert len({run.key for runs in arms.values() for run in runs}) == 2 * len(arms)
    (paper,) = peers.sensitivity_arms(Setting("paper", (0, 1), datasets=())).values()
    assert paper == arms, "the same at both scales"


@pytest.mark.slow
def test_outcomes_are_those_of_the_runs(tmp_path):
    setting = Setting("smoke", (0,))
    store = peers.Store(tmp_path)
    (arms,) = peers.sensitivity_arms(setting).values()
    compute_missing([run for runs in arms.values() for run in runs], store, progress=False)
    data = peers.compute_sensitivity(setting, store)
    for label, runs in arms.items():
        (seed,), (history, _) = data["arms"][label]["seeds"], store.load(runs[0])
        assert seed["accuracy"] == pytest.approx(100 * history["accuracy"][-1].mean())
        assert ("overlap" in seed) == (label != peers.ALONE)
    (table,) = peers.sensitivity_tables(data)
    assert len(table.rows) == 3
    assert table.rows[-1][2].reason == peers.ALONE
