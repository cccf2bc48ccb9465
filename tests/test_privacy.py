"""The epsilon of noise agrees with closed forms and with numerical integration."""

import logging
import math
import sys

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

import topofl
from topofl import algorithms, data, models, topologies
from topofl.privacy import spent, spent_by

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
    history = run_of(algorithms.dp_fedavg(lr=0.1, noise=2.0))
    for wanted, t in ((1.5, 1), (2.3, 2), (3.0, 3)):
        assert round(spent_by(history, delta=1e-3, rounds=t), 1) == wanted


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


CLIENTS = data.iid(data.digits(), n=4, seed=0)


def run_of(method):
    graph = None if method.name in ("dp_fedavg", "fedavg") else topologies.ring(4)
    model = models.logistic_regression(64)
    return topofl.run(
        method, model=model, clients=CLIENTS, topology=graph, rounds=3, seed=0, evaluation=3
    )


@pytest.mark.parametrize("q", [1.0, 0.5, 1 / 3])
def test_what_a_run_with_a_server_spent_is_what_its_arguments_spend(q):
    """Also for a probability that six digits do not give."""
    history = run_of(algorithms.dp_fedavg(lr=0.1, noise=1.3, participation=q, steps=2))
    for t in (1, 3):
        by_hand = spent(1.3, steps=t, delta=DELTA, sampling=q)
        assert spent_by(history, delta=DELTA, rounds=t) == by_hand
    assert spent_by(history, delta=DELTA) == by_hand


def test_what_a_run_over_a_graph_spent_is_what_its_arguments_spend():
    hides_nodes = run_of(algorithms.dp_dsgd(lr=0.1, noise=1.3, level="node", steps=2))
    assert spent_by(hides_nodes, delta=DELTA) == spent(1.3, steps=3, delta=DELTA)
    method = algorithms.dp_dsgd(lr=0.1, noise=1.3, batch_size=150, steps=2)
    hides_records = run_of(method)
    passes = {100: 3, 149: 3, 225: 2, 449: 2, 450: 1}  # 100: one minibatch per round, not 1.5
    for m, times in passes.items():
        by_hand = spent(1.3, steps=2 * times, delta=DELTA)
        assert spent_by(hides_records, delta=DELTA, records=m) == by_hand


def test_what_a_run_spent_is_known_from_its_files(tmp_path):
    history = run_of(algorithms.dp_fedavg(lr=0.1, participation=0.5))
    history.save(tmp_path)
    loaded = topofl.History.load(tmp_path)
    assert spent_by(loaded, delta=DELTA) == spent_by(history, delta=DELTA)


def test_a_run_without_noise_spent_everything():
    assert spent_by(run_of(algorithms.dp_fedavg(lr=0.1, noise=0.0)), delta=DELTA) == math.inf


def test_runs_of_methods_without_privacy_are_refused():
    history = run_of(algorithms.dsgd(lr=0.1))
    with pytest.raises(ValueError, match=r"dp_fedavg, got one of dsgd, .* call `spent`"):
        spent_by(history, delta=DELTA)
    with pytest.raises(TypeError, match=r"`history` must be the History of a run, got 1\.3"):
        spent_by(1.3, delta=DELTA)


def test_runs_with_nodes_that_diverged_are_refused():
    history = run_of(algorithms.dp_dsgd(lr=0.1, level="node"))
    history.meta["diverged"].append([1, 2, 0.1])
    with pytest.raises(ValueError, match="in which 1 did; lower `lr`"):
        spent_by(history, delta=DELTA)


@pytest.mark.parametrize(
    ("level", "change", "error", "message"),
    [
        ("record", {}, ValueError, r"`records` must be .*, got None; clients.sizes.min\(\)"),
        ("record", {"records": 0}, ValueError, "`records` must be at least 1, got 0"),
        ("record", {"records": 1.5}, TypeError, "`records` must be an integer"),
        ("node", {"records": 9}, ValueError, "`records` must be None .*, got 9; leave it out"),
        ("node", {"rounds": 4}, ValueError, "`rounds` .*rounds run=3, got 4"),
        ("node", {"rounds": 0}, ValueError, "`rounds`.* got 0"),
        ("node", {"delta": 1.0}, ValueError, "`delta` must be below 1"),
    ],
)
def test_bad_arguments_on_runs_are_named(level, change, error, message):
    history = run_of(algorithms.dp_dsgd(lr=0.1, level=level))
    with pytest.raises(error, match=message):
        spent_by(history, **{"delta": DELTA} | change)
