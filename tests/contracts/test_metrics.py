"""What holds for every metric: it equals its formula, in any order of nodes, for any size."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.metrics import METRICS, counts_of, relabelled
from topofl.mixing import MixingMatrix


def metrics_with(fits):
    """Return a parameter for each metric that a contract fits."""
    fitting = {name: metric for name, metric in METRICS.items() if fits(metric)}
    return pytest.mark.parametrize("metric", fitting.values(), ids=fitting.keys())


def size(x):
    return x[0].n if isinstance(x, list) else x.n


def fresh(x):
    """Return a graph or matrices of which nothing is remembered."""
    if isinstance(x, list):
        return [fresh(one) for one in x]
    return replace(x) if isinstance(x, MixingMatrix) else x


def value(metric, x, seed=None):
    """Return the metric of a graph, or of the graph and its label counts in the order of a seed."""
    if not metric.has_labels:
        return metric.of(x)
    counts = counts_of(size(x))
    order = slice(None) if seed is None else np.random.default_rng(seed).permutation(size(x))
    return metric.of(x, counts[order])


@metrics_with(lambda metric: True)
@given(data=st.data())
def test_it_equals_its_formula_within_its_bounds_in_any_order_of_nodes(metric, data):
    x, seed = data.draw(metric.draws), data.draw(st.integers(0, 99))
    labels = [counts_of(size(x))] if metric.has_labels else []
    found = value(metric, x)
    assert found == pytest.approx(metric.oracle(x, *labels), abs=metric.abs, rel=1e-9)
    least, most = metric.bounds(size(x))
    assert least - 1e-12 <= found <= most + 1e-12
    again = value(metric, relabelled(x, seed), seed)
    assert again == pytest.approx(found, abs=2 * metric.abs, rel=1e-9)


@metrics_with(lambda metric: metric.period)
@given(data=st.data())
def test_one_matrix_repeated_is_that_matrix_and_a_period_may_start_anywhere(metric, data):
    x = data.draw(metric.draws)
    found = value(metric, x)
    assert value(metric, x * 2) == pytest.approx(found, abs=2 * metric.abs, rel=1e-9)
    if metric.period == "turns":
        assert value(metric, x[1:] + x[:1]) == pytest.approx(found, abs=2 * metric.abs, rel=1e-9)


@metrics_with(lambda metric: metric.known)
def test_known_values(metric):
    for x, expected in metric.known:
        found = metric.of(x)
        if isinstance(expected, int | float):
            expected = pytest.approx(expected, abs=1e-12, rel=1e-10)
        assert found == expected, x


@metrics_with(lambda metric: metric.large)
def test_large_graphs_are_solved_as_small_ones_are(metric, monkeypatch):
    for x in metric.large:
        exact = value(metric, x)
        for limits in metric.limits:
            with monkeypatch.context() as patch:
                for (module, name), limit in limits.items():
                    patch.setattr(module, name, limit)
                again = value(metric, fresh(x))
                assert again == pytest.approx(exact, abs=1e-9, rel=1e-9)
