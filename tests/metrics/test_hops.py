"""Heterogeneity and noise accumulated over hops equal closed forms and each other."""

import numpy as np
import pytest
import torch

import topofl
from tests.rows.metrics import GRAPHS, counts_of, irregular_digraph, pull, shares_of, two_rings
from topofl import algorithms, data, metrics, mixing, models, topologies
from topofl.metrics import (
    accumulated_noise,
    gradient_statistics,
    heterogeneity_spectrum,
    label_distributions,
    neighborhood_heterogeneity,
    predicted_deviation,
)
from topofl.topology import TopologySequence, from_edges

RNG = np.random.default_rng(0)
RANDOM = GRAPHS["random"]
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())


# Identities


@every_graph
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
def test_effective_neighbors_are_a_function_of_discounted_noise(graph, gamma):
    hops, discount = (1, 1.0) if gamma == 0 else ("inf", gamma)
    noise = accumulated_noise(graph, hops, discount=discount)
    wanted = 1 / (1 / graph.n + (1 - gamma) * noise)
    assert metrics.effective_neighbors(graph, gamma) == pytest.approx(wanted, rel=1e-9)


@every_graph
def test_spectrum_sums_to_the_heterogeneity(graph):
    counts = counts_of(graph.n)
    spectrum, shares = heterogeneity_spectrum(graph, counts), shares_of(counts)
    variance = np.square(shares - shares.mean(axis=0)).sum() / graph.n
    assert spectrum.energies.sum() == pytest.approx(variance, rel=1e-12)
    for hops, discount in ((1, 1.0), (9, 0.8), ("inf", 1.0), ("inf", 0.5)):
        found = spectrum.heterogeneity(hops, discount)
        wanted = neighborhood_heterogeneity(graph, counts, hops=hops, discount=discount)
        assert found == pytest.approx(wanted, rel=1e-9)


# Closed forms


def test_without_communication_every_hop_counts_the_same():
    identity = mixing.from_weights(np.eye(5))
    assert accumulated_noise(identity, 10) == pytest.approx(10 * (1 - 1 / 5))
    assert accumulated_noise(identity, "inf") == np.inf
    assert neighborhood_heterogeneity(identity, np.eye(5, dtype=int), hops="inf") == np.inf
    discounted = accumulated_noise(identity, "inf", discount=0.5)
    assert discounted == pytest.approx(2 * (1 - 1 / 5))


def test_exact_averaging_leaves_nothing():
    graph, labels = topologies.fully_connected(10), np.eye(10, dtype=int)
    assert neighborhood_heterogeneity(graph, labels, hops=50) == 0
    infinite = neighborhood_heterogeneity(graph, labels, hops="inf")
    assert infinite == pytest.approx(0, abs=1e-28)
    assert accumulated_noise(graph, "inf") == pytest.approx(0, abs=1e-28)
    sequence = topologies.one_peer_exponential(8)  # of which a period averages exactly
    period = neighborhood_heterogeneity(sequence, counts_of(8), hops=sequence.period)
    infinite = neighborhood_heterogeneity(sequence, counts_of(8), hops="inf")
    assert infinite == pytest.approx(period, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_closed_form_of_periodic_labels_on_a_ring(classes):
    # Labels that repeat after c nodes have energy at the frequencies n/c, 2n/c, ... only, each the
    # same for one class per node: H_K = (1/c) sum_{m=1..c-1} sum_k ((1 + 2 cos(2 pi m / c))/3)^2k.
    n = 10 * classes
    labels = np.eye(classes, dtype=int)[np.arange(n) % classes]
    squares = ((1 + 2 * np.cos(2 * np.pi * np.arange(1, classes) / classes)) / 3) ** 2
    wanted = {hops: sum((squares**k).sum() for k in range(1, hops + 1)) for hops in (1, 4, 20)}
    wanted["inf"] = (squares / (1 - squares)).sum()
    for hops, total in wanted.items():
        found = neighborhood_heterogeneity(topologies.ring(n), labels, hops=hops)
        assert found == pytest.approx(total / classes, rel=1e-10, abs=1e-14)


def test_directed_weights_are_compared_with_their_consensus_or_the_mean():
    matrix, counts = pull(irregular_digraph()), counts_of(6)
    shares, state, total = shares_of(counts), shares_of(counts), 0.0
    for _ in range(8):
        state = matrix @ state
        total += np.square(state - shares.mean(axis=0)).sum() / 6
    found = neighborhood_heterogeneity(matrix, counts, hops=8, around="mean")
    assert found == pytest.approx(total, rel=1e-12)
    assert neighborhood_heterogeneity(matrix, counts, hops=8) < total


def test_directed_circulants_have_a_closed_form():
    matrix, counts = mixing.uniform(topologies.circulant(15, [1], directed=True)), counts_of(15)
    many, infinite, some = (
        neighborhood_heterogeneity(matrix, counts, hops=hops) for hops in (3000, "inf", 6)
    )
    assert infinite == pytest.approx(many, rel=1e-9)
    assert heterogeneity_spectrum(matrix, counts).heterogeneity(6) == pytest.approx(some, rel=1e-10)


# Sequences


def test_sequences_without_a_period_are_examined_for_some_rounds():
    sequence, counts = topologies.random_matching(10, seed=0), counts_of(10)
    shares = shares_of(counts)

    def looped(start):
        state, total = shares, 0.0
        for k in range(5):
            state = mixing.metropolis_hastings(sequence.at(start + k)) @ state
            total += np.square(state - shares.mean(axis=0)).sum() / 10
        return total

    for rounds, starts in ((12, range(8)), (5, [0])):
        found = neighborhood_heterogeneity(sequence, counts, hops=5, rounds=rounds)
        assert found == pytest.approx(np.mean([looped(s) for s in starts]), rel=1e-10)
    table = metrics.compare([sequence], label_counts=counts, metrics=["N_10", "H_10"])
    # columns of sequences without a period examine twice as many rounds as hops
    noise = accumulated_noise(sequence, 10, rounds=20)
    heterogeneity = neighborhood_heterogeneity(sequence, counts, hops=10, rounds=20)
    assert (table.column("N_10"), table.column("H_10")) == ((noise,), (heterogeneity,))
    few = [metrics.compare([sequence], rounds=rounds, about="averaging") for rounds in (9, 10)]
    short, enough = (table.column("N_10")[0] for table in few)
    assert short.reason == "the sum over 10 hops needs 10 rounds, got 9"
    assert enough == accumulated_noise(sequence, 10, rounds=10)


def test_learned_graphs_of_a_history():
    clients = data.shards(data.digits(), n=8, per_node=2, seed=0)
    history = topofl.run(
        algorithms.dpfl(0.05, budget=2, epochs=1),
        model=models.logistic_regression(64),
        clients=data.with_validation(clients, 0.2, seed=0),
        rounds=4,
        seed=0,
        evaluation=topofl.Evaluation(on="own_val"),
        progress=False,
    )
    one = neighborhood_heterogeneity(history.mixing(0), clients, around="mean")
    shares = label_distributions(clients)
    wanted = np.square(history.mixing(0).weights @ shares - shares.mean(axis=0)).sum() / 8
    assert one == pytest.approx(wanted, rel=1e-12)
    assert neighborhood_heterogeneity(history, clients, hops=2) > 0


# Spectra


def test_equal_eigenvalues_are_one_bar():
    spectrum = heterogeneity_spectrum(topologies.ring(12), counts_of(12))
    assert len(spectrum.eigenvalues) == 6  # cos(2 pi m / 12) for m = 1..6
    assert np.abs(spectrum.eigenvalues[0]) == pytest.approx((1 + 3**0.5) / 3)
    complete = heterogeneity_spectrum(topologies.fully_connected(6), counts_of(6))
    assert complete.eigenvalues == pytest.approx([0], abs=1e-12)


def test_parts_without_a_link_have_energy_at_eigenvalue_one():
    parts = from_edges([(0, 1), (2, 3)], 4)
    spectrum = heterogeneity_spectrum(parts, np.eye(2, dtype=int)[[0, 0, 1, 1]])
    assert spectrum.eigenvalues[0] == pytest.approx(1)
    assert spectrum.energies[0] == pytest.approx(0.5)
    assert spectrum.heterogeneity("inf") == np.inf


def test_large_graphs_have_gauss_nodes_with_exact_sums(monkeypatch):
    graph, counts = topologies.random_regular(300, 6, seed=0), counts_of(300)
    exact = heterogeneity_spectrum(graph, counts)
    monkeypatch.setattr("topofl._linalg.spectral.SPECTRUM_LIMIT", 100)
    nodes = heterogeneity_spectrum(graph, counts)
    assert exact.is_exact
    assert not nodes.is_exact
    for hops in (1, 10, 60):
        assert nodes.heterogeneity(hops) == pytest.approx(exact.heterogeneity(hops), rel=1e-10)


def test_picture_of_a_spectrum():
    spectrum = heterogeneity_spectrum(topologies.ring(12), counts_of(12))
    (ax,) = spectrum.plot().axes
    heights = [bar.get_height() for bar in ax.patches]
    assert sum(heights) == pytest.approx(spectrum.energies.sum())
    assert ax.get_xlabel() == "eigenvalue"


@pytest.mark.parametrize("cost", [0, 400, 1e10])  # conjugate gradients, then a band solver
def test_large_parts_are_solved_apart_if_they_have_the_same_mean(cost, monkeypatch):
    apart, alike = np.arange(202) // 101, np.arange(202) % 101 % 2
    exact = neighborhood_heterogeneity(two_rings(), np.eye(2, dtype=int)[alike], hops="inf")
    monkeypatch.setattr("topofl._linalg.spectral.DENSE_LIMIT", 50)
    monkeypatch.setattr("topofl.metrics.hops.BAND_COST", cost)
    unused = "splu" if cost < 202 * 2**2 else "cg"  # the bandwidth is that of W^2, at least 2
    monkeypatch.setattr(f"topofl.metrics.hops.sparse_linalg.{unused}", None)
    for labels, wanted in ((apart, np.inf), (alike, exact)):
        counts = np.eye(2, dtype=int)[labels]
        found = neighborhood_heterogeneity(two_rings(), counts, hops="inf")
        assert found == pytest.approx(wanted, rel=1e-9)


def test_noise_of_large_graphs_is_estimated(monkeypatch):
    graph = topologies.random_regular(600, 4, seed=0)
    exact = accumulated_noise(graph, 10)
    monkeypatch.setattr("topofl.metrics.hops.EXACT_LIMIT", 100)
    estimates = [accumulated_noise(graph, 10, probes=32, seed=seed) for seed in range(30)]
    error = np.std(estimates, ddof=1) / 30**0.5
    assert np.mean(estimates) == pytest.approx(exact, abs=4 * error)
    assert error < 0.01 * exact


# Deviations of models


def test_gradients_take_the_place_of_labels():
    gradients = RNG.standard_normal((RANDOM.n, 7))
    found = neighborhood_heterogeneity(RANDOM, gradients=gradients)
    assert found == pytest.approx(metrics.gradient_mixing_error(RANDOM, gradients), rel=1e-12)
    once = neighborhood_heterogeneity(RANDOM, gradients=gradients, hops=5)
    twice = neighborhood_heterogeneity(RANDOM, gradients=2 * gradients, hops=5)
    assert twice == pytest.approx(4 * once, rel=1e-12)


@every_graph
def test_label_shares_stand_for_gradients_that_are_linear_in_them(graph):
    # Sums over gradients lie between those over label shares, times the least and the largest
    # eigenvalue of the products of the gradients of classes on vectors of sum 0.
    shares = shares_of(counts_of(graph.n))
    plane = np.eye(shares.shape[1]) - 1 / shares.shape[1]
    some = np.random.default_rng(3).standard_normal((len(plane), 5))
    for gradients in (some, 3 * np.eye(len(plane))):
        least, *_, largest = np.linalg.eigvalsh(plane @ gradients @ gradients.T @ plane)[1:]
        for how in ({"hops": 1}, {"hops": 7, "discount": 0.8}):
            labels = neighborhood_heterogeneity(graph, gradients=shares, **how)
            found = neighborhood_heterogeneity(graph, gradients=shares @ gradients, **how)
            assert least * labels * (1 - 1e-12) <= found <= largest * labels * (1 + 1e-12)
    assert least == pytest.approx(largest) == pytest.approx(9)


@pytest.mark.slow
def test_noise_is_the_deviation_of_models_under_independent_gradients():
    # X <- W (X - g) with independent g: after t rounds, E (1/n) ||X - J X||^2 = N_t per coordinate.
    rounds, columns = 6, 200_000
    weights = mixing.metropolis_hastings(RANDOM).weights
    x, rng = np.zeros((RANDOM.n, columns)), np.random.default_rng(0)
    for _ in range(rounds):
        x = weights @ (x - rng.standard_normal(x.shape))
    found = np.square(x - x.mean(axis=0)).sum() / RANDOM.n / columns
    assert found == pytest.approx(accumulated_noise(RANDOM, rounds), rel=5e-3)


def test_heterogeneity_is_the_deviation_of_models_under_gradients_that_turn():
    # Gradients that keep their distribution over nodes, with an independent sign each round.
    rounds, rng, found = 6, np.random.default_rng(0), []
    weights = mixing.metropolis_hastings(RANDOM).weights
    gradients = RNG.standard_normal((RANDOM.n, 5))
    for _ in range(4000):
        x = np.zeros_like(gradients)
        for _ in range(rounds):
            x = weights @ (x - rng.choice([-1.0, 1.0]) * gradients)
        found.append(np.square(x - x.mean(axis=0)).sum() / RANDOM.n)
    error = np.std(found) / len(found) ** 0.5
    wanted = neighborhood_heterogeneity(RANDOM, gradients=gradients, hops=rounds)
    assert np.mean(found) == pytest.approx(wanted, abs=4 * error)


CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
MODEL = models.logistic_regression(64)


def test_gradient_statistics_equal_those_of_all_minibatches():
    # With batches of all of a node's examples, there is no noise, and means are full gradients.
    largest = int(CLIENTS.sizes.max())
    found = gradient_statistics(CLIENTS, model=MODEL, batch_size=largest, minibatches=2)
    assert found.noise == pytest.approx(0, abs=1e-12)
    inputs, labels = CLIENTS.dataset.examples().flatten(1).double().numpy(), CLIENTS.dataset.labels
    weight, bias = (p.detach().double().numpy() for p in MODEL.parameters())
    for node, examples in enumerate(CLIENTS.train):
        logits = inputs[examples] @ weight.T + bias
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        errors = (shares - np.eye(10)[labels.numpy()[examples]]) / len(examples)
        wanted = np.concatenate([(errors.T @ inputs[examples]).ravel(), errors.sum(axis=0)])
        np.testing.assert_allclose(found.means[node], wanted, atol=1e-6)
    spread = np.square(found.means - found.means.mean(axis=0)).sum() / 12
    assert found.heterogeneity == pytest.approx(spread, rel=1e-6)


def test_gradient_statistics_are_unbiased():
    def heterogeneity(batch_size, seed):
        options = {"model": MODEL, "batch_size": batch_size, "minibatches": 2, "seed": seed}
        return gradient_statistics(CLIENTS, **options).heterogeneity

    found = np.array([heterogeneity(8, seed) for seed in range(40)])
    error = found.std(ddof=1) / len(found) ** 0.5
    assert found.mean() == pytest.approx(heterogeneity(10**6, 0), abs=4 * error)


@pytest.mark.parametrize("by", ["labels", "gradients"])
def test_predicted_deviation_is_its_two_terms(by):
    graph = topologies.ring(12)
    sampled, noise = {"model": MODEL, "batch_size": 8}, accumulated_noise(graph, 5)
    found = predicted_deviation(graph, CLIENTS, **sampled, hops=5, by=by, seed=1)
    assert found.noise == noise
    wanted = found.zeta2 * found.heterogeneity + found.sigma2 / 8 * noise
    assert found.value == pytest.approx(wanted, rel=1e-12)
    assert float(found) == found.value
    statistics = gradient_statistics(CLIENTS, **sampled, seed=1)
    if by == "labels":
        assert found.heterogeneity == neighborhood_heterogeneity(graph, CLIENTS, hops=5)
        shares = label_distributions(CLIENTS)
        spread = np.square(shares - shares.mean(axis=0)).sum() / 12
        assert found.zeta2 == pytest.approx(statistics.heterogeneity / spread)
    else:
        assert found.zeta2 == 1.0
        noisy = neighborhood_heterogeneity(graph, gradients=statistics.means, hops=5)
        assert found.heterogeneity == pytest.approx(noisy - statistics.noise / 8 * noise)
    given = {"statistics": statistics, "hops": 5, "by": by, "seed": 1}
    assert predicted_deviation(graph, CLIENTS, **given) == found


def test_measuring_leaves_model_and_generators_as_they_are():
    before = [p.detach().clone() for p in MODEL.parameters()]
    state = torch.get_rng_state()
    with torch.no_grad():
        gradient_statistics(CLIENTS, model=MODEL, batch_size=8)
    assert all(torch.equal(a, b) for a, b in zip(before, MODEL.parameters(), strict=True))
    assert all(p.grad is None for p in MODEL.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_sums_over_all_hops_end_only_when_the_rest_is_negligible():
    graph, counts = topologies.ring(100), np.eye(2, dtype=int)[[0] * 50 + [1] * 50]
    slow = TopologySequence(100, lambda t: graph, period=2)
    wanted = heterogeneity_spectrum(graph, counts).heterogeneity("inf")
    found = neighborhood_heterogeneity(slow, counts, hops="inf")
    assert found == pytest.approx(wanted, rel=1e-11, abs=0)


def test_the_spectrum_of_a_large_graph_of_equal_nodes_is_one_inexact_zero(monkeypatch):
    monkeypatch.setattr("topofl._linalg.spectral.SPECTRUM_LIMIT", 4)
    equal = heterogeneity_spectrum(GRAPHS["random"], np.ones((GRAPHS["random"].n, 3), dtype=int))
    assert (equal.eigenvalues.tolist(), equal.energies.tolist()) == ([0], [0])
    assert not equal.is_exact
