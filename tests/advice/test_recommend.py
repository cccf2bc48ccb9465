"""Advice: budgets, candidates, ranking, reasons, code, and to what predictions are fitted."""

import re
from contextlib import suppress
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import torch

import topofl
from topofl import advice, data, metrics, mixing, models, topologies
from topofl.advice.candidates import Budget, candidates
from topofl.advice.predict import (
    accumulated,
    average_all,
    calibration,
    check_horizon,
    matrices_of,
    noise_of,
)

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
MODEL = models.logistic_regression(64)

OPTIONS = [
    {"max_degree": 2, "static": True},
    pytest.param({"max_degree": 3, "directed": True}, marks=pytest.mark.slow),
    pytest.param({"max_degree": 11, "directed": True}, marks=pytest.mark.slow),
    pytest.param({"max_messages": 50}, marks=pytest.mark.slow),
    pytest.param({"max_messages": 22, "static": True}, marks=pytest.mark.slow),
    {"max_bytes": 2600 * 40, "model": MODEL, "directed": True, "static": True},
]


def weights_of(graph, rounds=4):
    """Return the dense default weights of a few rounds."""
    times = range(1 if isinstance(graph, topofl.Topology) else rounds)
    return [mixing.metropolis_or_uniform(graph.at(t)).weights.toarray() for t in times]


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def case(request):
    return request.param, topologies.recommend(CLIENTS, **request.param)


@pytest.mark.slow
def test_the_code_builds_the_same_graph(case):
    _, found = case
    for candidate in found.candidates:
        rebuilt = eval(candidate.code, {"topologies": topologies, "clients": CLIENTS})
        assert rebuilt.name == candidate.topology.name
        for own, other in zip(weights_of(rebuilt), weights_of(candidate.topology), strict=True):
            np.testing.assert_array_equal(own, other)


@pytest.mark.slow
def test_all_rounds_are_within_the_budget(case):
    options, found = case
    limit = options.get("max_bytes", 2600 * options.get("max_messages", 10**6)) / 2600
    for candidate in found.candidates:
        for own in weights_of(candidate.topology, 12):
            sent = (own != 0) & ~np.eye(12, dtype=bool)
            assert max(sent.sum(axis=0).max(), sent.sum(axis=1).max()) <= candidate.degree
            assert sent.sum() <= limit
            np.testing.assert_allclose([own.sum(axis=0), own.sum(axis=1)], 1)
            if not options.get("directed"):
                np.testing.assert_array_equal(sent, sent.T)
        assert candidate.degree <= options.get("max_degree", 11)
        if options.get("static"):
            assert isinstance(candidate.topology, topofl.Topology)


def test_rank_by_deviation_of_metrics(case):
    _, found = case
    deviations = [candidate.deviation for candidate in found.candidates]
    rounds = [candidate.rounds for candidate in found.candidates]
    assert deviations == sorted(deviations)
    assert rounds == sorted(rounds)
    assert len({candidate.name for candidate in found.candidates}) == len(found.candidates)
    for candidate in found.candidates:
        examined = {"rounds": None if candidate.topology.period else 60}
        h = metrics.neighborhood_heterogeneity(candidate.topology, CLIENTS, hops=10, **examined)
        n = metrics.accumulated_noise(candidate.topology, 10, **examined)
        assert (candidate.heterogeneity, candidate.noise) == pytest.approx((h, n))
        assert candidate.deviation == pytest.approx(h + found.noise_ratio * n)
        assert candidate.low <= candidate.rounds <= candidate.high


def test_there_are_no_two_candidates_with_equal_weights(case):
    _, found = case
    static = [c for c in found.candidates if isinstance(c.topology, topofl.Topology)]
    keys = {weights_of(c.topology)[0].round(9).tobytes() for c in static}
    assert len(keys) == len(static)


@pytest.mark.slow
def test_families_of_graphs_are_candidates_and_arguments_have_their_names():
    found = topologies.recommend(CLIENTS, max_degree=4, directed=True)
    names = [candidate.name for candidate in found.candidates]
    assert {"ring(12)", "base_graph(12, k=4)", "neighborhood_swap(base=4)"} <= {*names}
    assert {"matchings(torus(12))", "matchings(designed(degree=4))"} <= {*names}
    assert any(c.code == "topologies.base_graph(12, k=4)" for c in found.candidates)
    for family in (
        *("ring(", "torus(", "circulant(", "random_regular(", "dcliques(", "designed("),
        *("designed_directed(", "stl_fw(", "d_equistatic(", "base_graph(", "matchings("),
        *("one_peer_exponential(", "neighborhood_swap(", "exponential("),
    ):
        assert any(name.startswith(family) for name in names), family


@pytest.mark.slow
def test_label_counts_give_the_same_advice():
    ours, counted = (
        topologies.recommend(x, max_degree=3, static=True)
        for x in (CLIENTS, CLIENTS.label_counts.tolist())
    )
    assert [c.deviation for c in ours.candidates] == [c.deviation for c in counted.candidates]


def test_reasons_are_powers_of_the_weights_of_each_candidate():
    shares = CLIENTS.label_counts / CLIENTS.label_counts.sum(axis=1, keepdims=True)
    whole = np.square(shares - shares.mean(axis=0)).sum()

    def left(graph):
        own, total, mixed = weights_of(graph)[0], 0.0, shares
        for _ in range(10):
            mixed = own @ mixed
            total += np.square(mixed - shares.mean(axis=0)).sum() / 10
        return 100 * total / whole

    found = topologies.recommend(CLIENTS, max_degree=3, static=True)
    ring = left(topologies.ring(12))
    chosen = [one for one in found.candidates if "label heterogeneity" in one.reason]
    assert len(chosen) > 3
    for one in chosen:
        shown, *against = map(float, re.findall(r"([\d.e-]+) % (?:of the lab|on)", one.reason))
        assert shown == pytest.approx(left(one.topology), rel=0.06)
        assert [*against] == [pytest.approx(ring, rel=0.06)] or one.name == "ring(12)"


def test_noise_is_the_reason_for_equal_nodes():
    counts = np.full((12, 3), 10)
    best, *_, last = topologies.recommend(counts, max_degree=2, static=True).candidates
    for candidate in (best, last):
        assert candidate.heterogeneity == pytest.approx(0, abs=1e-20)
        assert "gradient noise" in candidate.reason
        assert "accounts for 100 %" in candidate.reason


@pytest.mark.parametrize("n", [8, pytest.param(11, marks=pytest.mark.slow)])
def test_one_link_per_round_averages_over_all_nodes(n):
    clients = data.shards(data.digits(), n=n, per_node=2, seed=0)
    found = topologies.recommend(clients, max_messages=2)
    assert "matchings(topologies.star" in found.best.code
    graph = found.best.topology
    assert {graph.at(t).edge_index.shape[1] for t in range(graph.period)} == {2}
    product = reduce(np.matmul, weights_of(graph, 80 * n))
    np.testing.assert_allclose(product, 1 / n, atol=1e-6)


@pytest.mark.slow
def test_more_links_per_round_are_used_if_allowed():
    few, more = (topologies.recommend(CLIENTS, max_messages=m) for m in (2, 6))
    assert more.best.deviation < few.best.deviation
    assert max(candidate.messages for candidate in more.candidates) > 2
    usual = topologies.recommend(CLIENTS, max_messages=12)
    assert not any("star" in candidate.code for candidate in usual.candidates)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 9])
@pytest.mark.slow
def test_generators_refuse_impossible_graphs_by_topology_errors_only(n):
    counts = np.random.default_rng(n).integers(1, 9, (n, 4))
    budgets = [Budget(n - 1, 2, ""), *(Budget(k, n * (n - 1), "") for k in range(1, n))]
    for budget in budgets:
        for call in candidates(n, budget, directed=True, static=False, seed=0):
            with suppress(topofl.TopologyError):  # all other errors fail
                call.build(counts)


def test_other_errors_of_generators_are_not_hidden(monkeypatch):
    def broken(n):
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr(topologies, "torus", broken)
    with pytest.raises(ValueError, match="could not be broadcast"):
        topologies.recommend(CLIENTS, max_degree=2, static=True)


@pytest.mark.slow
def test_random_sequences_are_examined_over_60_rounds_whatever_the_hops():
    graph = topologies.random_matching(12, seed=0)
    assert average_all(matrices_of(graph, 1))
    assert len(matrices_of(graph, 1)) == len(matrices_of(graph, 10)) == 60
    counts = CLIENTS.label_counts
    wanted = metrics.neighborhood_heterogeneity(graph, counts, hops=1, rounds=60)
    assert accumulated(graph, counts, 1)[0] == wanted
    names = {c.name for c in topologies.recommend(CLIENTS, max_degree=1, rounds=1).candidates}
    assert "random_matching(12)" in names


@pytest.mark.slow
def test_a_model_measures_noise_and_bytes():
    torch.manual_seed(0)
    model = models.logistic_regression(64)
    found = topologies.recommend(CLIENTS, max_degree=3, static=True, model=model, batch_size=16)
    measured = metrics.gradient_statistics(CLIENTS, model=model, batch_size=16)
    shares = metrics.label_distributions(CLIENTS)
    spread = np.square(shares - shares.mean(axis=0)).sum() / 12
    expected = measured.noise / (measured.heterogeneity / spread)
    assert found.noise_ratio == pytest.approx(expected)
    assert found.best.bytes == found.best.messages * 650 * 4
    assert topologies.recommend(CLIENTS, max_degree=2, static=True).best.bytes is None


@pytest.mark.slow
def test_a_model_without_a_batch_size_is_a_size_of_messages_only():
    options = {"max_messages": 40, "static": True}
    plain = topologies.recommend(CLIENTS, **options)
    of_bytes = topologies.recommend(CLIENTS, max_bytes=2600 * 40, static=True, model=MODEL)
    assert of_bytes.noise_ratio == plain.noise_ratio == calibration()["noise_ratio"]
    assert [c.code for c in of_bytes.candidates] == [c.code for c in plain.candidates]
    counted = topologies.recommend(CLIENTS.label_counts, **options, model=MODEL, batch_size=8)
    assert counted.noise_ratio == calibration()["noise_ratio"]


@pytest.mark.slow
def test_without_measured_heterogeneity_noise_decides(monkeypatch):
    nothing = metrics.GradientStatistics(np.zeros((12, 3)), 0.0, 0.5, 8, 8)
    monkeypatch.setattr(metrics, "gradient_statistics", lambda *a, **kw: nothing)
    assert noise_of(CLIENTS, 0.5, MODEL, 8, 0) == np.inf
    found = topologies.recommend(CLIENTS, max_degree=3, model=MODEL, batch_size=8)
    noise = [candidate.noise for candidate in found.candidates]
    assert noise == sorted(noise)
    assert [candidate.deviation for candidate in found.candidates] == noise
    assert found.best.rounds is None
    assert "differ no more than their noise" in found.warnings[0]
    assert "gradient noise" in found.candidates[-1].reason
    assert "accounts for 100 %" in found.candidates[-1].reason


def test_learning_rate_and_rounds_decide_the_horizon():
    assert [check_horizon(None, lr, None) for lr in (None, 0.5, 0.25, 0.02)] == [10, 10, 20, 20]
    assert check_horizon(None, 0.1, 15) == 15
    found = topologies.recommend(CLIENTS, max_degree=2, static=True, lr=0.1, rounds=5)
    assert found.best.rounds is None
    assert found.hops == 5
    assert topologies.recommend(CLIENTS, max_degree=2, static=True, lr=0.1, hops=3).hops == 3


def test_topologies_offers_recommend_lazily_and_not_as_a_generator():
    assert topologies.recommend is advice.recommend
    assert "recommend" in dir(topologies)
    assert "recommend" not in topologies.__all__
    assert "recommend" not in topologies.GENERATORS
    with pytest.raises(AttributeError, match="no attribute 'recomend'"):
        topologies.recomend  # noqa: B018


def test_tables_and_picture():
    found = topologies.recommend(CLIENTS, max_degree=3, static=True, model=MODEL)
    frame = found.to_pandas()
    assert len(frame) == len(found.candidates)
    assert frame["code"].tolist() == [c.code for c in found.candidates]
    assert frame["rounds / complete low"].tolist() == [c.low for c in found.candidates]
    text = str(found)
    assert found.best.code in text
    assert found.best.reason in text
    assert found.fitted_to in text.replace("\n", " ")
    warned, table, _, legend, _ = text.split("\n\n")
    assert warned.replace("\n", " ") == " ".join(f"Warning: {one}." for one in found.warnings)
    legend, columns = legend.splitlines(), table.splitlines()[1]
    for line in legend[:-1]:
        for name in line.partition(": ")[0].split(", "):
            assert f" {name} " in f" {columns} ", name
        assert len(line) <= 120
    assert "lower is better" in next(line for line in legend if line.startswith("H_10: "))
    assert "docs/what-predicts-convergence.md" in legend[-1]
    assert (Path(__file__).parents[2] / "docs/what-predicts-convergence.md").is_file()
    assert "<table>" in found._repr_html_()
    assert found.to_markdown().count("\n| ") > len(found.candidates)
    (ax,) = found.plot().axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        c.name for c in found.candidates
    ]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [c.rounds for c in found.candidates])
