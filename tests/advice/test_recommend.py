"""Advice: budgets, candidates, ranking, reasons, code, and what it was validated on."""

import re

import numpy as np
import pytest
import torch

import topofl
from topofl import advice, data, metrics, mixing, models, topologies
from topofl.advice.calibration import stored
from topofl.advice.prediction import horizon

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
MODEL = models.logistic_regression(64)

OPTIONS = [
    {"max_degree": 2, "static": True},
    {"max_degree": 3, "directed": True},
    {"max_degree": 11, "directed": True},
    {"max_messages": 50},
    {"max_messages": 22, "static": True},
    {"max_bytes": 2600 * 40, "model": MODEL, "directed": True, "static": True},
]


def weights_of(graph, rounds=4):
    """Return the dense default weights of a few rounds."""
    times = range(1 if isinstance(graph, topofl.Topology) else rounds)
    return [mixing.metropolis_or_uniform(graph.at(t)).weights.toarray() for t in times]


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def case(request):
    return request.param, topologies.recommend(CLIENTS, **request.param)


def test_the_code_builds_the_same_graph(case):
    _, found = case
    for candidate in found.candidates:
        rebuilt = eval(candidate.code, {"topologies": topologies, "clients": CLIENTS})
        assert rebuilt.name == candidate.topology.name
        for own, other in zip(weights_of(rebuilt), weights_of(candidate.topology), strict=True):
            np.testing.assert_array_equal(own, other)


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
        examined = {"rounds": None if candidate.topology.period else 20}
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


def test_families_of_graphs_are_candidates():
    found = topologies.recommend(CLIENTS, max_degree=4, directed=True)
    names = " ".join(candidate.name for candidate in found.candidates)
    for family in (
        *("ring(", "torus(", "circulant(", "random_regular(", "dcliques(", "designed("),
        *("designed_directed(", "stl_fw(", "d_equistatic(", "base_graph(", "matchings("),
        *("one_peer_exponential(", "neighborhood_swap(", "exponential("),
    ):
        assert family in names


def test_complete_graph_is_the_first_choice_if_it_is_affordable():
    found = topologies.recommend(CLIENTS, max_degree=11, static=True)
    assert found.best.name == "fully_connected(12)"
    assert found.best.deviation == pytest.approx(0, abs=1e-12)
    assert found.best.rounds == 1


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
    compared = 0
    for candidate in found.candidates:
        if "label heterogeneity" not in candidate.reason:
            continue
        shown, *against = map(
            float, re.findall(r"([\d.e-]+) % (?:of the lab|on)", candidate.reason)
        )
        assert shown == pytest.approx(left(candidate.topology), rel=0.06)
        assert [*against] == [pytest.approx(ring, rel=0.06)] or candidate.name == "ring(12)"
        compared += 1
    assert compared > 3


def test_noise_is_the_reason_for_equal_nodes():
    counts = np.full((12, 3), 10)
    best, *_, last = topologies.recommend(counts, max_degree=2, static=True).candidates
    for candidate in (best, last):
        assert candidate.heterogeneity == pytest.approx(0, abs=1e-20)
        assert "gradient noise" in candidate.reason
        assert "accounts for 100 %" in candidate.reason


LEAST = [
    ({"static": True}, "max_degree", 2, "a connected undirected static"),
    ({"static": True, "directed": True}, "max_degree", 1, ""),
    ({}, "max_degree", 1, ""),
    ({"static": True}, "max_messages", 22, r"2\(n-1\)=22 for a connected undirected static"),
    ({"static": True, "directed": True}, "max_messages", 12, r"n=12 for a strongly connected"),
    ({}, "max_messages", 12, r"2\(n//2\)=12 for a time-varying"),
    ({"directed": True}, "max_messages", 12, r"2\(n//2\)=12 for a time-varying"),
    ({"static": True, "model": MODEL}, "max_bytes", 57200, r"2\(n-1\) messages of 2,600 bytes"),
]


@pytest.mark.parametrize(("options", "name", "least", "text"), LEAST)
def test_the_least_budget_has_a_graph_and_less_is_refused(options, name, least, text):
    assert topologies.recommend(CLIENTS, **options, **{name: least}).candidates
    with pytest.raises(ValueError, match=f"`{name}` must be at least.*{text if least > 1 else ''}"):
        topologies.recommend(CLIENTS, **options, **{name: least - 1})


def test_an_odd_number_of_nodes_needs_fewer_messages_in_turns():
    odd = data.shards(data.digits(), n=11, per_node=2, seed=0)
    assert topologies.recommend(odd, max_messages=10).candidates
    with pytest.raises(ValueError, match=r"n=11 for a strongly.*static=False needs less"):
        topologies.recommend(odd, max_messages=10, static=True, directed=True)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, ValueError, "exactly one of .* got none"),
        ({"max_degree": 2, "max_messages": 50}, ValueError, "got max_degree and max_messages"),
        ({"max_degree": 0}, ValueError, "`max_degree` must be at least 1"),
        ({"max_degree": 2.5}, TypeError, "`max_degree`"),
        ({"max_bytes": 10**6}, ValueError, "`model` must be given for `max_bytes`"),
        ({"max_degree": 2, "lr": -1.0}, ValueError, "`lr`"),
        ({"max_degree": 2, "rounds": 0}, ValueError, "`rounds` must be at least 1, got 0"),
        ({"max_degree": 2, "hops": 0}, ValueError, "`hops` must be at least 1, got 0"),
        ({"max_degree": 2, "hops": "inf"}, ValueError, "`hops` must be a number"),
        ({"max_degree": 2, "model": "mlp"}, TypeError, "`model` must be a torch.nn.Module"),
        ({"max_bytes": 2, "model": torch.nn.Flatten()}, TypeError, "`model` must be a torch.nn"),
        ({"max_degree": 2, "seed": -1}, ValueError, "`seed` must be at least 0"),
        ({"max_degree": 2, "directed": "yes"}, ValueError, "`directed`"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        topologies.recommend(CLIENTS, **arguments)


def test_data_without_labels_are_refused_with_the_remedy():
    numbers = data.from_arrays(np.eye(40), targets=np.arange(40.0))
    clients = data.iid(numbers, n=4, seed=0)
    with pytest.raises(TypeError, match=r"must have class labels.*predicted_deviation.*gradients"):
        topologies.recommend(clients, max_degree=2)
    with pytest.raises(TypeError, match="`clients` must be a Partition or"):
        topologies.recommend(7, max_degree=2)
    with pytest.raises(ValueError, match="at least 2 nodes, got 1"):
        topologies.recommend([[3, 4]], max_degree=2)
    with pytest.raises(ValueError, match="at least one example"):
        topologies.recommend([[3, 4], [0, 0]], max_degree=2)


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


def test_learning_rate_and_rounds_decide_the_horizon():
    assert [horizon(lr, None, (10, 20)) for lr in (None, 0.5, 0.25, 0.02)] == [10, 10, 20, 20]
    assert horizon(0.1, 15, (10, 20)) == 15
    found = topologies.recommend(CLIENTS, max_degree=2, static=True, lr=0.1, rounds=5)
    assert found.hops == 5
    assert topologies.recommend(CLIENTS, max_degree=2, static=True, lr=0.1, hops=3).hops == 3


def test_warnings_are_given_outside_of_the_validated_settings_only():
    known = stored().validated_on
    n, spread, lr = (known[name][0] for name in ("n", "spread", "lr"))
    assert stored().warnings(n, spread, lr, 10, 2) == []
    assert stored().warnings(n, spread, None, 10, None) == []
    outside = stored().warnings(7, 2.0, 9.0, 500, 8)
    assert len(outside) == 5
    found = topologies.recommend(CLIENTS, max_degree=2, static=True, lr=9.0)
    assert any("learning rate" in text and "here it is 9" in text for text in found.warnings)
    assert f"Warning: {found.warnings[0]}." in str(found).replace("\n", " ")


def test_calibration_is_well_formed_and_monotone():
    found = stored()
    assert {curve.noise for curve in found.curves} == {"default", "measured"}
    assert found.hops == (10, 20)
    assert 0 < found.noise_ratio < 1
    assert {"n", "spread", "lr", "methods", "models", "partitions"} <= set(found.validated_on)
    for curve in found.curves:
        assert (np.diff(curve.deviation) > 0).all()
        for values in (curve.ratio, curve.low, curve.high):
            assert values.shape == curve.deviation.shape
            assert (np.diff(values) >= 0).all()
            assert np.isfinite(values).all()
        assert (curve.low <= curve.ratio).all()
        assert (curve.ratio <= curve.high).all()
        assert (curve.ratio >= 1).all()


def test_curves_pass_through_their_knots_and_are_flat_beyond():
    curve = stored().curve("default", 10)
    for k in (0, 5, len(curve.deviation) - 1):
        expected = (curve.ratio[k], curve.low[k], curve.high[k])
        assert curve.predict(float(curve.deviation[k])) == pytest.approx(expected)
    assert curve.predict(0.0) == curve.predict(float(curve.deviation[0]))
    assert curve.predict(1e6) == curve.predict(float(curve.deviation[-1]))
    assert stored().curve("default", 9) is curve


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
    assert found.validated_on in text.replace("\n", " ")
    assert "<table>" in found._repr_html_()
    assert found.to_markdown().count("\n| ") > len(found.candidates)
    ax = found.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        c.name for c in found.candidates
    ]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [c.rounds for c in found.candidates])
