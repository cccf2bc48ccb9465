"""Predicted rounds of one graph, and the settings and curves to which they are fitted."""

import re

import numpy as np
import pytest

from topofl import Spread, advice, data, topologies
from topofl.advice.predict import calibration, curve_of, known_hops, rounds_on, warnings_of

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)


@pytest.fixture(scope="module")
def clients():
    return data.shards(data.digits(), n=30, per_node=2, seed=0)


def test_predictions_are_those_of_recommend(clients):
    settings = {"lr": 0.5, "batch_size": 8}
    found = topologies.recommend(clients, max_degree=3, static=True, **settings)
    for candidate in found.candidates:
        one = advice.predict_rounds(candidate.topology, clients, **settings)
        assert one.rounds == Spread(candidate.rounds, candidate.low, candidate.high)
        assert (one.heterogeneity, one.noise) == (candidate.heterogeneity, candidate.noise)
        assert one.deviation == pytest.approx(candidate.deviation, rel=1e-12)
        assert (one.hops, one.fitted_to) == (found.hops, found.fitted_to)


@pytest.mark.parametrize("settings", [{}, {"hops": 20}, {"lr": 0.5, "batch_size": 8}])
def test_the_complete_graph_takes_exactly_its_own_rounds(clients, settings):
    found = advice.predict_rounds(topologies.fully_connected(30), clients, **settings)
    assert found.rounds == Spread(1, 1, 1)
    assert found.warnings == ()  # nothing was fitted
    assert str(found).startswith("exactly the rounds of the complete graph")
    recommended = topologies.recommend(clients, max_degree=29, static=True, **settings)
    complete = [c for c in recommended.candidates if c.degree == 29 and c.noise < 1e-12]
    assert complete
    assert all((c.rounds, c.low, c.high) == (1, 1, 1) for c in complete)
    others = [c.rounds for c in recommended.candidates if c not in complete]
    assert all(rounds != 1 for rounds in others)


def test_what_is_outside_of_the_fit_is_said(clients):
    ring = topologies.ring(30)
    assert advice.predict_rounds(ring, clients, lr=0.5, batch_size=8).warnings == ()
    unknown = advice.predict_rounds(ring, clients)
    assert ["learning rate" in text for text in unknown.warnings] == [True, False]
    assert "Warning: the predicted rounds are fitted to a batch size of 4 to 128" in str(unknown)
    few = data.one_class_per_node(data.digits(), n=10, seed=0)
    apart = advice.predict_rounds(topologies.ring(10), few, lr=0.5, batch_size=8)
    assert any("number of nodes" in text for text in apart.warnings)


def inside(**changes):
    """Return a setting of the fit, with changes."""
    known = calibration()["fitted_to"]
    n, spread, lr, batch_size = (known[name][0] for name in ("n", "spread", "lr", "batch_size"))
    usual = {"n": n, "spread": spread, "lr": lr, "batch_size": batch_size, "dataset": "digits"}
    return usual | {"n_tensors": 2} | changes


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"n": 7}, "number of nodes of .* only, here it is 7"),
        ({"spread": 2.0}, "label heterogeneity of the nodes of .* only, here it is 2"),
        ({"lr": 9.0}, "learning rate of .* only, here it is 9"),
        ({"lr": None}, "learning rate of .* only, here it is not given"),
        ({"batch_size": 1000}, "batch size of .* only, here it is 1000"),
        ({"batch_size": None}, "batch size of .* only, here it is not given"),
        ({"dataset": "cifar10"}, "fitted to digits.* only, here the data are cifar10"),
        ({"n_tensors": 8}, "logistic regression only, the model has 8 parameter tensors"),
    ],
)
def test_warnings_are_given_outside_of_the_fit_only(changes, text):
    assert warnings_of(**inside()) == []
    (warning,) = warnings_of(**inside(**changes))
    assert re.search(text, warning)


def test_warnings_of_a_recommendation_are_printed():
    found = topologies.recommend(CLIENTS, max_degree=2, static=True, lr=9.0, batch_size=8)
    assert any("learning rate" in text and "here it is 9" in text for text in found.warnings)
    assert not any("not given" in text for text in found.warnings)
    assert f"Warning: {found.warnings[0]}." in str(found).replace("\n", " ")
    unknown = topologies.recommend(CLIENTS, max_degree=2, static=True)
    assert sum("not given" in text for text in unknown.warnings) == 2


def test_rounds_are_predicted_for_the_hops_of_the_fit_only():
    plain, ranked = (
        topologies.recommend(CLIENTS, max_degree=2, static=True, hops=k) for k in (20, 15)
    )
    assert plain.best.rounds == rounds_on(curve_of("default", 20), plain.best.deviation).mean
    assert (ranked.best.rounds, ranked.best.low, ranked.best.high) == (None, None, None)
    assert [*ranked.warnings] == ["rounds are predicted for 10 or 20 hops only, here they are 15"]
    assert "Predicted rounds are fitted" not in str(ranked)
    assert "n/a" in ranked.to_markdown() or "not predicted" in ranked.to_markdown()
    (ax,) = ranked.plot().axes
    assert ax.get_xlabel() == "predicted deviation"
    drawn = ax.lines[0].get_xdata()
    np.testing.assert_allclose(drawn, [candidate.deviation for candidate in ranked.candidates])


@pytest.mark.slow
def test_deviations_above_those_of_the_fit_are_told():
    counts = np.diag([9] * 12)  # one class per node
    found = topologies.recommend(counts, max_messages=2)
    last = curve_of("default", 10)["deviation"][-1]
    beyond = sum(candidate.deviation > last for candidate in found.candidates)
    assert beyond > 0
    assert f"the deviation of {beyond} of {len(found.candidates)} candidates" in found.warnings[-1]


def test_calibration_is_well_formed_and_monotone():
    found = calibration()
    assert {curve["noise"] for curve in found["curves"]} == {"default", "measured"}
    assert known_hops() == [10, 20]
    assert 0 < found["noise_ratio"] < 1
    assert {"n", "spread", "lr", "batch_size", "methods", "models"} <= set(found["fitted_to"])
    for curve in found["curves"]:
        assert (np.diff(curve["deviation"]) > 0).all()
        low, ratio, high = (np.array(curve[key]) for key in ("low", "ratio", "high"))
        assert np.isfinite([low, ratio, high]).all()
        assert (np.diff([low, ratio, high]) >= 0).all()
        assert low.shape == (len(curve["deviation"]),)
        assert (low <= ratio).all()
        assert (ratio <= high).all()
        assert (ratio >= 1).all()


def test_curves_pass_through_their_knots_and_are_flat_beyond():
    curve = curve_of("default", 10)
    ends = curve["deviation"][0], curve["deviation"][-1]
    for k in (0, 5, -1):
        found = rounds_on(curve, curve["deviation"][k])
        expected = (curve["ratio"][k], curve["low"][k], curve["high"][k])
        assert (found.mean, found.low, found.high) == pytest.approx(expected)
    assert [rounds_on(curve, x) for x in (1e-6, 1e6)] == [rounds_on(curve, x) for x in ends]
    assert rounds_on(curve, 0.0) == Spread(1, 1, 1)  # of the complete graph only
    assert curve_of("default", 9) is None
