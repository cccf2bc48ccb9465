"""Figures of D-Cliques about graphs and deals: what they compute, show, and say of it."""

import matplotlib.figure
import numpy as np
import pytest

from paper_figures.dcliques import graphs
from paper_figures.dcliques.arms import ALL, EXPONENTIAL_LABEL
from paper_figures.dcliques.graphs import FIG05, FIG06, GREEN, NUMBERS, _numbers, _shares
from paper_figures.dcliques.greedy_swap import FIG17, FIG18, GREEDY, RANDOM, _descent, _fallen
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import Store
from tests.rows.papers import FIGURES, JUDGED
from topofl import data, from_edges, topologies

SMOKE = Setting("smoke", (3,))


@pytest.fixture(scope="module")
def repetitions(tmp_path_factory):
    """Return what figures 17 and 18 compute."""
    store = Store(tmp_path_factory.mktemp("store"))
    return {name: FIGURES[f"dcliques-{name}"].compute(SMOKE, store) for name in ("fig17", "fig18")}


def test_figures_of_one_graph_do_not_depend_on_the_setting(tmp_path):
    setting = Setting("paper", (8, 9))
    for figure in (FIG05, FIG06):
        assert figure.compute(setting, Store(tmp_path)) == JUDGED[figure.id].data()
        assert figure.differences(setting) == figure.differences(SMOKE)


@pytest.mark.slow
def test_graphs_are_those_of_the_paper():
    joined, pair, numbers = (JUDGED[f.id].data() for f in (FIG05, FIG06, NUMBERS))
    assert len(joined["edges"]) == 10 * 45 + 45
    assert np.bincount(joined["labels"]).tolist() == [10] * 10
    own, green = pair["labels"][graphs.A], pair["labels"][GREEN]
    assert pair["labels"][graphs.B] == own != green
    assert len(pair["edges"]) == 2 * 45 + 1
    assert np.sum(pair["without"]["A"]) == pytest.approx(1)
    assert list(numbers["1000"]) == [*graphs.INTER_CLIQUES, ALL]
    assert list(numbers["100"]) == [*graphs.INTER_CLIQUES, EXPONENTIAL_LABEL, ALL]


def test_shares_of_classes_are_those_of_the_averaged_gradient():
    value = JUDGED[FIG06.id].data()
    labels, weights = np.array(value["labels"]), np.array(value["without"]["B"])
    expected = [weights[labels == label].sum() for label in range(10)]
    assert _shares(value, "without", "B") == pytest.approx(expected)


def test_numbers_are_those_of_the_graph():
    star = _numbers(from_edges([(0, 1), (0, 2), (0, 3)], 4, groups=[(0, 1)]))
    assert star == {
        "degree": 1.5,
        "highest_degree": 3,
        "messages_paper": 3,  # both ways of 3 edges, twice, for 4 nodes
        "messages_exact": 1.5 + 0.5,  # gradients on one edge
        "gap": pytest.approx(0.25),
    }
    assert _numbers(topologies.ring(5))["messages_paper"] == 2  # no cliques, no gradients


def test_both_figures_show_the_same_repetitions_and_compute_them_once(repetitions, tmp_path):
    fig17, fig18 = repetitions.values()
    assert set(fig17) == set(fig18) == {"MNIST", "CIFAR-10"}
    for name, panel in fig18.items():
        skews = np.array(panel["skew"])
        assert skews.shape == (10, 1001)
        assert fig17[name] == {RANDOM: skews[:, 0].tolist(), GREEDY: skews[:, -1].tolist()}
    assert FIG18.compute(SMOKE, Store(tmp_path)) == fig18  # with the same measured seconds


def test_repetitions_are_deals_and_graphs_of_their_own_seeds(repetitions):
    digits = data.digits()
    for seed, skews in enumerate(repetitions["fig18"]["MNIST"]["skew"][:3]):
        counts = data.shards(digits, 20, per_node=2, seed=seed).label_counts
        trace = topologies.greedy_swap_trace(counts, 10, steps=1000, seed=seed)[1]
        assert skews == pytest.approx(trace.mean(axis=1), abs=1e-6)


def test_deals_of_mnist_are_those_that_training_gets(mnist_root):
    """The split differs between seeds, but not the number of training examples per class."""
    counts = data.shards(data.mnist(mnist_root, seed=1), 100, per_node=2, seed=1).label_counts
    expected = topologies.greedy_swap_trace(counts, 10, steps=1000, seed=1)[1].mean(axis=1)
    assert _descent("MNIST", str(mnist_root), 100, 2)[0][1].tolist() == expected.tolist()


def test_what_had_nowhere_to_fall_has_fallen():
    skews = np.array([[0.2, 0.2, 0.2], [0.5, 0.3, 0.1]])
    assert _fallen(skews) == pytest.approx(np.array([[1, 1, 1], [0, 0.5, 1]]))


def test_claims_on_mnist_are_left_out_without_it(tmp_path):
    setting = Setting("smoke", (0,), datasets=("cifar10",))
    for figure in (FIG17, FIG18):
        value = figure.compute(setting, Store(tmp_path))
        assert set(value) == {"CIFAR-10"}
        assert not any("MNIST" in claim.statement for claim in figure.claims(value))
        assert any("without MNIST" in sentence for sentence in figure.differences(setting))


def test_differences_say_what_was_computed(tmp_path):
    def said(*setting, **more):
        sentences = "; ".join(FIG17.differences(Setting(*setting, **more)))
        return [words in sentences for words in ("digits", "10 repetitions", "without MNIST")]

    assert said("smoke", (3,)) == [True, True, False]
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "train-images-idx3-ubyte.gz").touch()
    for scale in ("quick", "paper"):
        assert said(scale, (0,)) == [False, False, True]
        assert said(scale, (0,), tmp_path / "there") == [False, False, False]
        other = said(scale, (0,), tmp_path / "there", datasets=("cifar10",))
        assert other == [False, False, True]


@pytest.mark.slow
def test_pictures_show_the_data(repetitions, tmp_path):
    values = {f.id: JUDGED[f.id].data() for f in (FIG05, FIG06, NUMBERS)}
    values |= {FIG17.id: repetitions["fig17"], FIG18.id: repetitions["fig18"]}
    for name, value in values.items():
        picture = FIGURES[name].draw(value)
        assert isinstance(picture, matplotlib.figure.Figure)
        picture.savefig(tmp_path / "figure.png", dpi=50)
    texts = [text.get_text() for text in FIG06.draw(values[FIG06.id]).axes[0].texts]
    assert sorted(filter(None, texts)) == sorted(["12", "10", *["11"] * 8, "A", "B"])
    bars = NUMBERS.draw(values[NUMBERS.id]).axes[1].containers[0]
    degrees = [graph["degree"] for graph in values[NUMBERS.id]["1000"].values()]
    assert [bar.get_height() for bar in bars] == degrees
