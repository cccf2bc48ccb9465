"""The epsilon of noise agrees with closed forms and with numerical integration."""

import logging
import math
import sys

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from topofl.privacy import spent

DELTA = 1e-5


def exact(noise, steps, delta):
    """Return the exact epsilon of Gaussian mechanisms (Balle and Wang 2018, Theorem 8)."""
    mu = math.sqrt(steps) / noise

    def excess(epsilon):
        second = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return norm.cdf(mu / 2 - epsilon / mu) - second - delta

    return brentq(excess, 0, 1000)


def simple(noise, steps, delta):
    """Return the looser bound of Mironov (2017), Propositions 3 and 7, over some Renyi orders."""
    orders = 1 + np.arange(1, 100) / 10
    return min(orders * steps / (2 * noise**2) + math.log(1 / delta) / (orders - 1))


@pytest.mark.parametrize("steps", [1, 30, 1000])
@pytest.mark.parametrize("noise", [1.0, 5.0, 20.0])
def test_without_sampling_it_lies_between_what_is_exact_and_what_is_simple(noise, steps):
    least = exact(noise, steps, DELTA)
    most = simple(noise, steps, DELTA)
    assert least < most
    assert least <= spent(noise, steps=steps, delta=DELTA) <= most


def sampled(noise, steps, sampling, delta):
    """Return a bound from the integrated Renyi divergence of a sampled Gaussian at some orders.

    Mironov, Talwar and Zhang 2019, in the direction that is the larger one; Canonne, Kamath and
    Steinke 2020.
    """

    def moment(order):
        def integrand(x):
            moved = math.log(sampling) + (2 * x - 1) / (2 * noise**2)
            ratio = np.logaddexp(math.log1p(-sampling), moved)
            return math.exp(norm.logpdf(x, scale=noise) + order * ratio)

        ends, how = (-30 * noise, order + 30 * noise), {"limit": 500, "epsrel": 1e-12}
        return quad(integrand, *ends, points=[0, order], **how)[0]

    def epsilon(order):
        spent_at = steps * math.log(moment(order)) / (order - 1)
        return spent_at + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    return min(map(epsilon, range(2, 33)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "steps", "sampling"), [(1.0, 100, 0.01), (2.0, 100, 0.1), (1.0, 1000, 0.1)]
)
def test_with_sampling_it_is_no_more_than_what_is_integrated_at_whole_orders(
    noise, steps, sampling
):
    """And hardly less, as orders between these bring little."""
    most = sampled(noise, steps, sampling, DELTA)
    found = spent(noise, steps=steps, delta=DELTA, sampling=sampling)
    assert 0.97 * most <= found <= most * (1 + 1e-9)


@pytest.mark.parametrize("sampling", [0.1, 0.5])
@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_of_one_sampled_step_it_is_no_less_than_what_is_exact(noise, sampling):
    """Delta at the returned epsilon, in the direction in which the record is present."""
    epsilon = spent(noise, steps=1, delta=DELTA, sampling=sampling)

    def excess(x):
        without, present = norm.pdf(x, scale=noise), norm.pdf(x, loc=1, scale=noise)
        there = (1 - sampling) * without + sampling * present
        return max(there - math.exp(epsilon) * without, 0)

    assert quad(excess, -20 * noise, 1 + 20 * noise, limit=500)[0] <= DELTA


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rounds", "sampling"), [(1.0, 100, 0.1), (0.8, 20, 0.5), (1.1, 50, 0.2)]
)
def test_of_sampled_nodes_it_is_no_less_than_by_numerical_convolution(noise, rounds, sampling):
    """Privacy-loss distributions are an independent way to compose sampled rounds."""
    accounting = pytest.importorskip("dp_accounting")
    accountant = pytest.importorskip("dp_accounting.pld").PLDAccountant()
    event = accounting.PoissonSampledDpEvent(sampling, accounting.GaussianDpEvent(noise))
    accountant.compose(accounting.SelfComposedDpEvent(event, rounds))
    least = accountant.get_epsilon(1e-3)
    assert least <= spent(noise, steps=rounds, delta=1e-3, sampling=sampling) <= 1.2 * least


def excess_of(epsilon, present, absent):
    """Return delta at epsilon of two mixtures of normal distributions, (share, mean) each."""

    def density(x, parts):
        return sum(share * norm.pdf(x, loc=mean) for share, mean in parts)

    def integrand(x):
        return max(density(x, present) - math.exp(epsilon) * density(x, absent), 0)

    return quad(integrand, -20, 22, limit=500)[0]


def test_a_fixed_number_of_participants_is_not_covered():
    """Half of the nodes, one round, noise 1, and others whose updates are the opposite.

    If all of them participate by chance of their own, an update is in the sum or not. If a fixed
    number does, an update also displaces one of the others from the sum.
    """
    poisson, fixed = (
        ([(0.5, 0), (0.5, far)], absent)
        for far, absent in ((1, [(1, 0)]), (2, [(0.5, 0), (0.5, 1)]))
    )
    epsilon = brentq(lambda x: excess_of(x, *poisson) - DELTA, 0, 20)
    assert epsilon <= spent(1.0, steps=1, delta=DELTA, sampling=0.5)
    assert excess_of(epsilon, *fixed) > 2 * DELTA


def test_epsilon_of_25_steps():
    """25 steps with 5 times the noise are one step: at order 5.8 it is 2.9 + 11.5129 / 4.8."""
    wanted = pytest.approx(2.9 + 11.5129 / 4.8, abs=1e-4)
    assert simple(5.0, 25, DELTA) == simple(1.0, 1, DELTA) == wanted
    assert exact(1.0, 1, DELTA) == pytest.approx(4.3767, abs=1e-3)


def test_the_numbers_of_the_documentation():
    for wanted, steps, sampling in ((35.1, 100, 1.0), (22.0, 50, 1.0), (2.6, 100, 0.1)):
        assert round(spent(2.0, steps=steps, delta=DELTA, sampling=sampling), 1) == wanted


def test_log_lines_of_the_accountant_are_not_printed(caplog, capfd):
    assert spent(0.3, steps=1, delta=DELTA, sampling=0.1) == pytest.approx(16.33, abs=0.01)
    assert caplog.text == ""
    assert capfd.readouterr().err == ""
    assert not logging.getLogger("absl").filters


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    match = r"dp-accounting, which is not installed; .* pip install 'topofl\[privacy\]'"
    with pytest.raises(ImportError, match=match):
        spent(1.0, steps=1, delta=DELTA)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"noise": -1.0}, ValueError, "`noise`"),
        ({"noise": "much"}, TypeError, "`noise`"),
        ({"steps": 0}, ValueError, "`steps`"),
        ({"delta": 0.0}, ValueError, "`delta`"),
        ({"delta": 1.0}, ValueError, "`delta` must be below 1"),
        ({"sampling": 0.0}, ValueError, "`sampling`"),
        ({"sampling": 1.5}, ValueError, "`sampling`"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    with pytest.raises(error, match=message):
        spent(**{"noise": 1.0, "steps": 1, "delta": DELTA} | change)
