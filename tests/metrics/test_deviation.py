"""Deviations of D-SGD on quadratics, and predictions from a rate and a curvature."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg

from tests.rows.metrics import GRAPHS
from topofl import data, mixing, models, topologies
from topofl.metrics import (
    GradientStatistics,
    accumulated_noise,
    gradient_statistics,
    heterogeneity_spectrum,
    label_distributions,
    neighborhood_heterogeneity,
    predicted_deviation,
)
from topofl.metrics._rounds import as_rounds
from topofl.metrics.deviation import coherent
from topofl.topology import TopologyError, TopologySequence, as_topology, from_edges

CLIENTS = data.shards(data.digits(), n=24, per_node=2, seed=0)
MODEL = models.logistic_regression(64)
MEASURED = gradient_statistics(CLIENTS, model=MODEL, batch_size=32)
N = CLIENTS.n

EVERY = {
    **GRAPHS,
    "path": topologies.path(N),
    "torus": topologies.torus(N),
    "exponential": topologies.exponential(N),
    "odd exponential": topologies.exponential(2 * N + 1),
    "regular": topologies.random_regular(N, 4, seed=0),
    "star": topologies.star(N),
    "dcliques": topologies.dcliques(CLIENTS, clique_size=8, inter="ring", seed=0),
    "designed": topologies.designed(CLIENTS, degree=4, seed=0),
    "one peer": topologies.one_peer_exponential(16),
}
every_graph = pytest.mark.parametrize("graph", EVERY.values(), ids=EVERY.keys())


def random_hessian(rng, d, least, largest):
    """Return eigenvalues and eigenvectors of a Hessian."""
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.linspace(least, largest, d), basis


def simulated(graph, hessian, gradients, lr, rounds):
    """Return ``(1/n) ||X - J X||^2`` of D-SGD with full gradients ``x A - b`` from x = 0."""
    source, models = as_rounds(graph), np.zeros_like(gradients)
    for t in range(rounds):
        weights = source.at(t % (source.period or 1)).weights.toarray()
        models = weights @ (models - lr * (models @ hessian + gradients))
    return np.square(models - models.mean(axis=0)).sum() / graph.n


# The sum is exact for quadratics of a common Hessian


@every_graph
@pytest.mark.parametrize("rounds", [1, 2, 9, 60])
def test_deviation_on_quadratics_is_the_coherent_sum(graph, rounds):
    rng, lr = np.random.default_rng(0), 0.3
    curvatures, basis = random_hessian(rng, 4, 0.05, 3.0)
    gradients = rng.standard_normal((graph.n, 4))
    source = as_rounds(graph)
    # The sum is averaged over the rounds of a period at which it may begin; here it begins at all.
    found = coherent(source, gradients @ basis, rounds, 1 - lr * curvatures)
    hessian = basis @ np.diag(curvatures) @ basis.T
    shifted = [mixing.MixingSequence(graph.n, lambda t, s=s: source.at((t + s) % source.period),
               "shifted", period=source.period) for s in range(source.period)]  # fmt: skip
    wanted = [simulated(one, hessian, gradients, lr, rounds) for one in shifted]
    assert lr**2 * found == pytest.approx(np.mean(wanted), rel=1e-12, abs=1e-28)


@pytest.mark.parametrize("name", ["path", "exponential", "dcliques"])
def test_coherent_sum_is_that_of_powers(name):
    graph, rng, discount = EVERY[name], np.random.default_rng(1), 0.9
    weights, gradients = as_rounds(graph).at(0).weights.toarray(), rng.standard_normal((N, 3))
    powers = [np.linalg.matrix_power(weights, k) - 1 / N for k in range(1, 12)]
    total = sum(discount**k * power for k, power in enumerate(powers)) @ gradients
    found = coherent(as_rounds(graph), gradients, 11, discount)
    assert found == pytest.approx(np.square(total).sum() / N, rel=1e-12)


@pytest.mark.parametrize("name", ["path", "torus", "regular", "star", "dcliques", "designed"])
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.95])
def test_each_mode_counts_one_plus_over_one_minus_the_incoherent_sum(name, discount):
    graph = EVERY[name]
    found = coherent(as_rounds(graph), label_distributions(CLIENTS), "inf", discount)
    spectrum = heterogeneity_spectrum(graph, CLIENTS)
    lam, energies = spectrum.eigenvalues, spectrum.energies
    incoherent = lam**2 / (1 - (discount * lam) ** 2)
    factor = (1 + discount * lam) / (1 - discount * lam)
    assert found == pytest.approx((energies * incoherent * factor).sum(), rel=1e-10)


@every_graph
def test_all_hops_are_the_limit_of_many(graph):
    gradients = np.random.default_rng(2).standard_normal((graph.n, 3))
    many = coherent(as_rounds(graph), gradients, 400, 0.9)
    found = coherent(as_rounds(graph), gradients, "inf", 0.9)
    assert found == pytest.approx(many, rel=1e-10, abs=1e-28)


@pytest.mark.parametrize("lr", [1e-6, 1e-15, 1e-20])
@pytest.mark.parametrize("name", ["path", "exponential"])
def test_all_hops_of_a_tiny_rate_are_those_without_decay(name, lr):
    graph, shares = EVERY[name], label_distributions(CLIENTS)
    weights = as_rounds(graph).at(0).weights.toarray() - 1 / N
    limit = np.linalg.solve(np.eye(N) - (1 - lr) * weights, weights @ shares)
    found = predicted_deviation(graph, CLIENTS, statistics=MEASURED, lr=lr, curvature=1.0)
    assert found.heterogeneity == pytest.approx(np.square(limit).sum() / N, rel=1e-11)


def path_modes(n):
    """Return the eigenvalues of Metropolis-Hastings weights on a path, and their eigenvectors."""
    k, i = np.arange(n), np.arange(n) + 0.5
    vectors = np.cos(np.pi / n * np.outer(i, k)) * (2 / n) ** 0.5
    vectors[:, 0] = n**-0.5
    return 1 - (2 / 3) * (1 - np.cos(np.pi / n * k)), vectors


@pytest.mark.parametrize("lost", [1e-2, 1e-4, 1e-7])
def test_slow_graphs_have_all_hops_at_small_rates(lost):
    n, discount = 200, 1 - lost
    lam, vectors = path_modes(n)
    values = np.random.default_rng(8).standard_normal((n, 3))
    energies = np.square(vectors.T @ values).sum(axis=1)[1:]
    lam = lam[1:]
    found = coherent(as_rounds(topologies.path(n)), values, "inf", discount)
    wanted = (energies * np.square(lam / (1 - discount * lam))).sum() / n
    assert found == pytest.approx(wanted, rel=1e-11)
    noise = (lam**2 / (1 - (discount * lam) ** 2)).sum() / n
    path = topologies.path(n)
    found = accumulated_noise(path, "inf", discount=discount**2)
    assert found == pytest.approx(noise, rel=1e-11)
    twice = TopologySequence(n, lambda t: path, period=2)
    found = accumulated_noise(twice, "inf", discount=discount**2)
    assert found == pytest.approx(noise, rel=1e-11)


@pytest.mark.slow
def test_all_hops_of_a_slow_graph_are_those_one_by_one():
    n, discount = 200, 1 - 1e-4
    weights = as_rounds(topologies.path(n)).at(0).weights.toarray()
    apart = np.random.default_rng(8).standard_normal((n, 3))
    apart -= apart.mean(axis=0)
    term, total = weights @ apart, np.zeros((n, 3))
    while np.linalg.norm(term) > 1e-18 * np.linalg.norm(apart):
        total += term
        term = discount * (weights @ term)
    found = coherent(as_rounds(topologies.path(n)), apart, "inf", discount)
    assert found == pytest.approx(
        np.square(total).sum() / n, rel=1e-11
    )  # W is rounded: eps / gap is 1e-12


PAIRS = [(i, i + 1) for i in range(39)]
ALTERNATING = as_topology([from_edges(PAIRS[s::2], 40) for s in (0, 1)])


def test_noise_of_slow_rounds_that_alternate():
    """Each of two matchings of a path averages in pairs: no matrix of a round is connected."""
    discount, first = 1 - 1e-5, [as_rounds(ALTERNATING).at(t).weights.toarray() for t in (0, 1)]
    total = 0.0
    for weights in (first, first[::-1]):
        product, both = weights[1] @ weights[0] - 1 / 40, weights[0] - 1 / 40
        # sum_j d^(2j) ||A Q^j||^2 = <vec(I), (I - d^2 Q' x Q')^-1 vec(A' A)>, for A of one and two
        squares = both.T @ both + discount * product.T @ product
        lyapunov = scipy.linalg.solve_discrete_lyapunov(discount * product.T, squares)
        total += np.trace(lyapunov) / 40 / 2
    found = accumulated_noise(ALTERNATING, "inf", discount=discount)
    assert found == pytest.approx(total, rel=1e-11)


@pytest.mark.parametrize("name", ["path", "odd exponential", "one peer", "alternating"])
def test_large_graphs_are_summed_by_periods(monkeypatch, name):
    graph = ALTERNATING if name == "alternating" else EVERY[name]
    values = np.random.default_rng(9).standard_normal((graph.n, 3))
    wanted = coherent(as_rounds(graph), values, "inf", 0.98)
    monkeypatch.setattr("topofl._linalg.spectral.DENSE_LIMIT", 1)
    found = coherent(as_rounds(graph), values, "inf", 0.98)
    assert found == pytest.approx(wanted, rel=1e-11)
    slow = mixing.from_weights(np.eye(3))
    with pytest.raises(TopologyError, match=r"within 20,000 hops, .* use a number of hops"):
        coherent(as_rounds(slow), values[:3], "inf", 1 - 1e-9)


# The bound


@every_graph
def test_deviation_is_at_most_the_discounted_heterogeneity(graph):
    rng, lr = np.random.default_rng(3), 0.5
    for least, largest, rounds in ((0.1, 2.0, 5), (0.01, 1.0, 30), (1.0, 2.0, 30), (0.4, 0.4, 80)):
        curvatures, basis = random_hessian(rng, 4, least, largest)
        gradients = rng.standard_normal((graph.n, 4))
        found = coherent(as_rounds(graph), gradients @ basis, rounds, 1 - lr * curvatures)
        discount = 1 - lr * least
        kept = {"hops": rounds, "discount": discount, "around": "consensus"}
        total = neighborhood_heterogeneity(graph, gradients=gradients, **kept)
        counted = (1 - discount**rounds) / (lr * least)
        assert counted <= 1 / (lr * least)
        assert found <= counted * total * (1 + 1e-12)


def test_bound_is_attained_without_communication():
    gradients, discount = np.random.default_rng(4).standard_normal((7, 3)), 0.8
    isolated = mixing.from_weights(np.eye(7))
    found = coherent(as_rounds(isolated), gradients, 25, discount)
    total = neighborhood_heterogeneity(
        isolated, gradients=gradients, hops=25, discount=discount, around="consensus"
    )
    assert found == pytest.approx((1 - discount**25) / (1 - discount) * total, rel=1e-12)


# Special cases


@pytest.mark.parametrize("hops", [1, 7, "inf"])
def test_complete_graph_has_no_coherent_deviation(hops):
    complete = as_rounds(topologies.fully_connected(N))
    assert coherent(complete, label_distributions(CLIENTS), hops, 0.9) == 0
    distant = 1e6 + np.random.default_rng(7).standard_normal((N, 3))
    assert coherent(complete, distant, hops, 0.9) == 0


@every_graph
def test_discount_0_is_neighborhood_heterogeneity(graph):
    gradients = np.random.default_rng(5).standard_normal((graph.n, 3))
    one_hop = neighborhood_heterogeneity(graph, gradients=gradients, around="consensus")
    for hops in (1, 4, "inf"):
        assert coherent(as_rounds(graph), gradients, hops, 0.0) == pytest.approx(one_hop, rel=1e-12)


# Minibatch noise


def test_noise_of_a_round_decays_like_deviations():
    graph, lr, curvature, rounds = topologies.path(6), 0.5, 0.4, 9
    weights, total = as_rounds(graph).at(0).weights.toarray(), 0.0
    for noisy in range(rounds):  # noise of variance 1 per node in one round: its squares add up
        models = np.zeros((6, 6))
        for t in range(rounds):
            models = weights @ ((1 - lr * curvature) * models - lr * np.eye(6) * (t == noisy))
        total += np.square(models - models.mean(axis=0)).sum() / 6
    squared = (1 - lr * curvature) ** 2
    wanted = lr**2 * accumulated_noise(graph, rounds, discount=squared)
    assert total == pytest.approx(wanted, rel=1e-12)


# Predictions


RATE = {"lr": 0.5, "curvature": 0.2}


@pytest.mark.parametrize("by", ["labels", "labels+residual", "gradients"])
@pytest.mark.parametrize("hops", [6, None])
def test_prediction_of_a_rate_is_its_three_terms(by, hops):
    graph = EVERY["path"]
    found = predicted_deviation(graph, CLIENTS, statistics=MEASURED, by=by, hops=hops, **RATE)
    last = "inf" if hops is None else hops
    assert (found.hops, found.discount) == (last, 0.9)
    assert found.noise == accumulated_noise(graph, last, discount=0.9**2)
    source = as_rounds(graph)
    assert found.persistent == coherent(source, np.eye(N), last, 0.9)
    values = MEASURED.means if by == "gradients" else label_distributions(CLIENTS)
    noisy = MEASURED.noise / MEASURED.minibatches * found.persistent * (by == "gradients")
    assert found.heterogeneity == pytest.approx(coherent(source, values, last, 0.9) - noisy)
    assert (found.residual > 0) == (by == "labels+residual")
    terms = found.zeta2 * found.heterogeneity, found.residual * found.persistent
    assert found.value == pytest.approx(sum(terms) + MEASURED.noise * found.noise, rel=1e-12)


def test_without_a_rate_the_residual_counts_as_noise_over_the_horizon():
    graph = EVERY["torus"]
    plain = predicted_deviation(graph, CLIENTS, statistics=MEASURED)
    found = predicted_deviation(graph, CLIENTS, statistics=MEASURED, by="labels+residual")
    assert (found.hops, found.discount, found.persistent) == (10, None, plain.noise)
    explained = found.zeta2 * neighborhood_heterogeneity(graph, CLIENTS, hops=10)
    wanted = explained + (found.residual + found.sigma2 / 32) * plain.noise
    assert found.value == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("rate", [{}, RATE])
def test_isolated_nodes_deviate_by_all_of_their_heterogeneity(rate):
    # Whatever labels explain, both parts add up to the heterogeneity of gradients in the first hop.
    isolated, exact = mixing.from_weights(np.eye(N)), replace(MEASURED, noise=0.0)
    found = predicted_deviation(
        isolated, CLIENTS, statistics=exact, by="labels+residual", hops=1, **rate
    )
    assert found.value == pytest.approx(MEASURED.heterogeneity, rel=1e-12)


def test_a_rate_of_one_over_the_curvature_leaves_one_hop():
    found = predicted_deviation(EVERY["path"], CLIENTS, statistics=MEASURED, lr=2, curvature=0.5)
    wanted = predicted_deviation(EVERY["path"], CLIENTS, statistics=MEASURED, hops=1)
    assert found.discount == 0
    assert found.value == pytest.approx(wanted.value, rel=1e-12)


def test_all_hops_of_a_rate_need_rounds_that_repeat():
    drawn = topologies.random_matching(N, seed=0)
    with pytest.raises(TopologyError, match=r"needs rounds that repeat, .* use a number of hops"):
        predicted_deviation(drawn, CLIENTS, statistics=MEASURED, rounds=20, **RATE)
    found = predicted_deviation(drawn, CLIENTS, statistics=MEASURED, rounds=20, hops=20, **RATE)
    assert found.hops == 20


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_residual_is_the_variance_that_labels_do_not_explain(noise):
    rng, shares, variance, batches = np.random.default_rng(6), label_distributions(CLIENTS), 0.7, 2
    scales = rng.standard_normal((shares.shape[1], 5))
    residuals = []
    for _ in range(400):
        own = rng.standard_normal((N, 5)) * ((variance + noise / batches) / 5) ** 0.5
        means = 3.0 + shares @ scales + own
        apart = np.square(means - means.mean(axis=0)).sum() / N
        drawn = GradientStatistics(means, apart, noise, 8, batches)
        by = {"statistics": drawn, "by": "labels+residual", "hops": 1}
        residuals.append(predicted_deviation(EVERY["torus"], CLIENTS, **by).residual)
    error = np.std(residuals) / len(residuals) ** 0.5
    assert np.mean(residuals) == pytest.approx(variance, abs=4 * error)
