"""Claims on graphs hold for what we compute, and fail for data that contradict them."""

import copy
import json

import matplotlib.figure
import numpy as np
import pytest

from paper_figures.dcliques import graphs
from paper_figures.dcliques.arms import ALL, EXPONENTIAL_LABEL
from paper_figures.dcliques.graphs import FIG06, GREEN, NUMBERS, _numbers, _shares
from paper_figures.dcliques.greedy_swap import FIG17, FIG18, GREEDY, RANDOM, _descent, _fallen
from paper_figures.kit.claims import FAILS, HOLDS
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import Store
from topofl import data, from_edges, topologies

SMOKE = Setting("smoke", (3,))


def computed(figure, setting, tmp_path_factory):
    """Return what the figure computes, as it comes back from a file."""
    return json.loads(json.dumps(figure.compute(setting, Store(tmp_path_factory.mktemp("store")))))


@pytest.fixture(scope="module")
def fig05(tmp_path_factory):
    return computed(graphs.FIG05, SMOKE, tmp_path_factory)


@pytest.fixture(scope="module")
def fig06(tmp_path_factory):
    return computed(FIG06, SMOKE, tmp_path_factory)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return computed(NUMBERS, SMOKE, tmp_path_factory)


def verdicts(figure, value):
    """Return the verdicts by what is claimed, which must be told apart by it."""
    claims = figure.claims(value)
    assert len({claim.statement for claim in claims}) == len(claims)
    return {claim.statement: claim.verdict for claim in claims}


def failing(figure, value):
    """Return the claims that fail; the others must hold."""
    found = verdicts(figure, value)
    assert set(found.values()) <= {HOLDS, FAILS}
    return {statement for statement, verdict in found.items() if verdict == FAILS}


def changed(value, change):
    """Return a copy with `change` made to it."""
    value = copy.deepcopy(value)
    change(value)
    return value


@pytest.mark.parametrize("scale", ["smoke", "quick", "paper"])
def test_figures_of_one_graph_do_not_depend_on_the_setting(scale, fig05, fig06, tmp_path_factory):
    setting = Setting(scale, (8, 9))
    for figure, value in ((graphs.FIG05, fig05), (FIG06, fig06)):
        assert computed(figure, setting, tmp_path_factory) == value
        assert figure.differences(setting) == figure.differences(SMOKE)


def test_fig05_is_the_graph_of_the_paper(fig05):
    assert set(verdicts(graphs.FIG05, fig05).values()) == {HOLDS}
    assert len(fig05["edges"]) == 10 * 45 + 45
    assert np.bincount(fig05["labels"]).tolist() == [10] * 10


def test_every_claim_of_fig05_can_fail(fig05):
    clique = np.empty(100, int)
    for k, group in enumerate(fig05["groups"]):
        clique[group] = k
    between = [edge for edge in fig05["edges"] if clique[edge[0]] != clique[edge[1]]]

    def shuffle(value):
        value["labels"] = np.random.default_rng(0).permutation(value["labels"]).tolist()

    def add(value):
        pairs = {tuple(edge) for edge in value["edges"]}
        first, second = value["groups"][:2]
        value["edges"].append(
            next([u, v] for u in first for v in second if not {(u, v), (v, u)} & pairs)
        )

    def lose(value):
        value["edges"].remove(
            next(edge for edge in value["edges"] if clique[edge[0]] == clique[edge[1]])
        )

    def crowd(value):
        """Let all edges between cliques end at the first node of each."""
        heads = [[value["groups"][clique[end]][0] for end in edge] for edge in between]
        value["edges"] = [edge for edge in value["edges"] if edge not in between] + heads

    def unjoin(value):
        value["edges"].remove(between[0])

    def claims(change):
        return failing(graphs.FIG05, changed(fig05, change))

    mixture = {"Cliques have the global class distribution", "Every clique holds each class once"}
    mean, far = "Nodes have 9.9 edges on average", "No two nodes are farther apart than 3"
    one = "Each clique has exactly one edge with each other clique"
    assert claims(shuffle) == mixture
    assert {one, mean} <= claims(add)
    assert {"Cliques are fully connected", mean} <= claims(lose)
    assert claims(crowd) == {"These edges are spread evenly over the nodes of a clique"}
    assert {one, far, mean} <= claims(unjoin)


def test_fig06_has_the_weights_of_the_paper(fig06):
    assert set(verdicts(FIG06, fig06).values()) == {HOLDS}
    own, green = fig06["labels"][graphs.A], fig06["labels"][GREEN]
    assert fig06["labels"][graphs.B] == own != green
    assert len(fig06["edges"]) == 2 * 45 + 1
    assert np.sum(fig06["without"]["A"]) == pytest.approx(1)


def test_every_claim_of_fig06_can_fail(fig06):
    def swap_rules(value):
        value["without"], value["with"] = value["with"], value["without"]

    def swap_nodes(value):
        value["without"]["A"], value["without"]["B"] = value["without"]["B"], value["without"]["A"]

    every = set(verdicts(FIG06, fig06))
    averaging = {f"Clique Averaging removes the bias at node {node}" for node in ("A", "B")}
    with_rules, with_nodes = (
        failing(FIG06, changed(fig06, change)) for change in (swap_rules, swap_nodes)
    )
    assert averaging <= with_rules
    assert with_rules | with_nodes == every
    one = changed(
        fig06, lambda value: value["without"]["A"].__setitem__(7, 0.11)
    )  # one of the eight
    assert failing(FIG06, one) == {"Node A gives its other neighbors equal weights"}


def test_shares_of_classes_are_those_of_the_averaged_gradient(fig06):
    labels, weights = np.array(fig06["labels"]), np.array(fig06["without"]["B"])
    expected = [weights[labels == label].sum() for label in range(10)]
    assert _shares(fig06, "without", "B") == pytest.approx(expected)


@pytest.fixture(scope="module")
def fig17(tmp_path_factory):
    return computed(FIG17, SMOKE, tmp_path_factory)


@pytest.fixture(scope="module")
def fig18(tmp_path_factory):
    return computed(FIG18, SMOKE, tmp_path_factory)


def test_both_figures_show_the_same_repetitions_and_compute_them_once(
    fig17, fig18, tmp_path_factory
):
    assert set(fig17) == set(fig18) == {"MNIST", "CIFAR-10"}
    for name, panel in fig18.items():
        skews = np.array(panel["skew"])
        assert skews.shape == (10, 1001)
        assert fig17[name] == {
            RANDOM: skews[:, 0].tolist(),
            GREEDY: skews[:, -1].tolist(),
        }
    assert computed(FIG18, SMOKE, tmp_path_factory) == fig18  # with the same measured seconds


def test_repetitions_are_deals_and_graphs_of_their_own_seeds(fig18):
    digits = data.digits()
    for seed, skews in enumerate(fig18["MNIST"]["skew"][:3]):
        counts = data.shards(digits, 20, per_node=2, seed=seed).label_counts
        trace = topologies.greedy_swap_trace(counts, 10, steps=1000, seed=seed)[1]
        assert skews == pytest.approx(trace.mean(axis=1), abs=1e-6)


def test_deals_of_mnist_are_those_that_training_gets(mnist_root):
    """The split differs between seeds, but not the number of training examples per class."""
    counts = data.shards(data.mnist(mnist_root, seed=1), 100, per_node=2, seed=1).label_counts
    expected = topologies.greedy_swap_trace(counts, 10, steps=1000, seed=1)[1].mean(axis=1)
    assert _descent("MNIST", str(mnist_root), 100, 2)[0][1].tolist() == expected.tolist()


def told(repetitions=6, floor=(0.06, 0.02), pace=(60, 40)):
    """Return descents as the paper shows them: exponential falls to a floor."""
    steps = np.arange(1001)
    panels = {}
    for name, low, slow in zip(("MNIST", "CIFAR-10"), floor, pace, strict=True):
        starts = 0.45 + low + 0.01 * np.arange(repetitions)[:, None]
        lows = low + 0.001 * np.arange(repetitions)[:, None]
        skews = lows + (starts - lows) * np.exp(-steps / slow)
        panels[name] = {
            "skew": skews.tolist(),
            "seconds": [0.05 + 0.001 * k for k in range(repetitions)],
        }
    return panels


def test_every_claim_of_fig17_can_fail():
    value = {
        name: {RANDOM: [0.4, 0.45, 0.5, 0.48], GREEDY: [0.06, 0.07, 0.05, 0.06]}
        for name in ("MNIST", "CIFAR-10")
    }
    assert set(verdicts(FIG17, value).values()) == {HOLDS}
    swapped = {name: {RANDOM: v[GREEDY], GREEDY: v[RANDOM]} for name, v in value.items()}
    assert set(verdicts(FIG17, swapped).values()) == {FAILS}
    no_swap = {name: {RANDOM: v[RANDOM], GREEDY: v[RANDOM]} for name, v in value.items()}
    assert set(verdicts(FIG17, no_swap).values()) == {FAILS}


def test_every_claim_of_fig18_can_fail():
    value = told()
    every = verdicts(FIG18, value)
    assert set(every.values()) == {HOLDS}

    def reverse(value):
        for panel in value.values():
            panel["skew"] = [skews[::-1] for skews in panel["skew"]]

    def slow_down(value):
        for panel in value.values():
            panel["seconds"] = [200 * seconds for seconds in panel["seconds"]]

    def swap(value):
        value["MNIST"], value["CIFAR-10"] = value["CIFAR-10"], value["MNIST"]

    per_dataset = {
        part: {statement for statement in every if part in statement}
        for part in ("400 steps", "raises", "are fast")
    }
    assert {len(statements) for statements in per_dataset.values()} == {2}
    imbalance = {statement for statement in every if "imbalance" in statement}
    assert per_dataset["400 steps"] | per_dataset["raises"] <= failing(
        FIG18, changed(value, reverse)
    )
    assert failing(FIG18, changed(value, slow_down)) == per_dataset["are fast"]
    assert failing(FIG18, changed(value, swap)) == imbalance
    assert failing(FIG18, told(pace=(400, 40))) == {
        "MNIST: the low skew is reached in less than 400 steps"
    }
    rise = changed(value, lambda v: v["MNIST"]["skew"][2].__setitem__(500, 0.061))
    assert failing(FIG18, rise) == {"MNIST: no swap raises the sum of skews"}


def test_what_had_nowhere_to_fall_has_fallen():
    skews = np.array([[0.2, 0.2, 0.2], [0.5, 0.3, 0.1]])
    assert _fallen(skews) == pytest.approx(np.array([[1, 1, 1], [0, 0.5, 1]]))


def test_claims_on_mnist_are_left_out_without_it(tmp_path_factory):
    setting = Setting("smoke", (0,), datasets=("cifar10",))
    for figure in (FIG17, FIG18):
        value = computed(figure, setting, tmp_path_factory)
        assert set(value) == {"CIFAR-10"}
        assert not any("MNIST" in claim.statement for claim in figure.claims(value))
        assert any("without MNIST" in sentence for sentence in figure.differences(setting))


def told_of(setting):
    """Return whether differences name the digits, fewer repetitions, and missing MNIST."""
    sentences = "; ".join(FIG17.differences(setting))
    return [words in sentences for words in ("digits", "10 repetitions", "without MNIST")]


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_differences_say_what_was_computed(scale, tmp_path):
    assert told_of(SMOKE) == [True, True, False]
    assert (
        told_of(Setting(scale, (0,)))
        == told_of(Setting(scale, (0,), tmp_path))
        == [False, False, True]
    )
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    assert told_of(Setting(scale, (0,), tmp_path)) == [False, False, False]
    assert told_of(Setting(scale, (0,), tmp_path, datasets=("cifar10",))) == [False, False, True]


def test_numbers_hold(numbers):
    assert set(verdicts(NUMBERS, numbers).values()) == {HOLDS}
    assert list(numbers["1000"]) == [*graphs.INTER_CLIQUES, ALL]
    assert list(numbers["100"]) == [
        *graphs.INTER_CLIQUES,
        EXPONENTIAL_LABEL,
        ALL,
    ]


def test_every_number_can_fail(numbers):
    every = set(verdicts(NUMBERS, numbers))
    of_full_graph = changed(
        numbers,
        lambda value: value["1000"].update({graphs.JOINED_CLIQUES: value["1000"][ALL]}),
    )
    swapped = {
        "100": numbers["1000"] | {EXPONENTIAL_LABEL: numbers["1000"][graphs.RING_OF_CLIQUES]},
        "1000": numbers["100"],
    }
    failed = failing(NUMBERS, of_full_graph) | failing(NUMBERS, swapped)
    small = changed(
        numbers,
        lambda value: value["1000"].update(
            {graphs.SMALL_WORLD_CLIQUES: value["1000"][graphs.FRACTAL_CLIQUES]}
        ),
    )
    uneven = changed(
        numbers,
        lambda value: value["1000"][graphs.FRACTAL_CLIQUES].update(highest_degree=11),
    )
    assert failed | failing(NUMBERS, small) | failing(NUMBERS, uneven) == every
    assert len(failing(NUMBERS, small)) == 3  # 14.5, 22 %, the gap


def test_one_more_edge_is_noticed(numbers):
    value = changed(
        numbers, lambda value: value["1000"][graphs.JOINED_CLIQUES].update(degree=18.902)
    )
    assert failing(NUMBERS, value) == {"D-Cliques have 18.9 edges per node"}


def test_numbers_are_those_of_the_graph():
    star = _numbers(from_edges([(0, 1), (0, 2), (0, 3)], 4, groups=[(0, 1)]))
    assert {key: star[key] for key in ("degree", "highest_degree")} == {
        "degree": 1.5,
        "highest_degree": 3,
    }
    assert star["messages_paper"] == 3  # both ways of 3 edges, twice, for 4 nodes
    assert star["messages_exact"] == 1.5 + 0.5  # gradients on one edge
    assert star["gap"] == pytest.approx(0.25)
    assert _numbers(topologies.ring(5))["messages_paper"] == 2  # no cliques, no gradients


def test_pictures_show_the_data(fig05, fig06, numbers, tmp_path):
    for figure, value in ((graphs.FIG05, fig05), (FIG06, fig06), (NUMBERS, numbers)):
        picture = figure.draw(value)
        assert isinstance(picture, matplotlib.figure.Figure)
        picture.savefig(tmp_path / "figure.png", dpi=50)
    texts = [text.get_text() for text in FIG06.draw(fig06).axes[0].texts if text.get_text()]
    assert sorted(texts) == sorted(["12", "10", *["11"] * 8, "A", "B"])
    bars = NUMBERS.draw(numbers).axes[1].containers[0]
    assert [bar.get_height() for bar in bars] == [
        graph["degree"] for graph in numbers["1000"].values()
    ]


def test_pictures_of_repetitions(fig17, fig18, tmp_path):
    pytest.importorskip("paper_figures.kit.drawing")
    for figure, value in ((FIG17, fig17), (FIG18, fig18)):
        figure.draw(value).savefig(tmp_path / "figure.png", dpi=50)
