"""Heterogeneity and noise accumulated over hops equal loops, closed forms and each other."""

import networkx as nx
import numpy as np
import pytest
import torch

import topofl
from topofl import (
    TopologyError,
    algorithms,
    as_topology,
    data,
    metrics,
    mixing,
    models,
    tasks,
    topologies,
)
from topofl.metrics import accumulated_noise, heterogeneity_spectrum, neighborhood_heterogeneity

RNG = np.random.default_rng(0)


def counts_of(n, classes=4, seed=0):
    counts = np.random.default_rng(seed).integers(0, 5, (n, classes))
    counts[:, 0] += 1
    return counts


def looped(matrices, values, hops, discount=1.0, limits=None, pushed=False):
    """Return the sum over hops as a loop over nodes, starts, hops and columns."""
    n, period, total = len(values), len(matrices), 0.0
    for start in range(period):
        limit = values.mean(axis=0) if limits is None else limits[start]
        state, ones = values.astype(float), np.ones((n, 1))
        for k in range(1, hops + 1):
            weights = matrices[(start + k - 1) % period]
            state, ones = weights @ state, weights @ ones
            seen = state / ones if pushed else state
            for i in range(n):
                total += discount ** (k - 1) * ((seen[i] - limit) ** 2).sum() / n / period
    return total


SYMMETRIC = {
    "ring": topologies.ring(12),
    "star": topologies.star(9),
    "random": topologies.random_regular(30, 4, seed=0),
    "D-Cliques": topologies.dcliques(counts_of(30), clique_size=5, seed=0),
    "exponential": topologies.exponential(16),
}


@pytest.mark.parametrize("graph", SYMMETRIC.values(), ids=SYMMETRIC.keys())
@pytest.mark.parametrize(("hops", "discount"), [(1, 1.0), (6, 1.0), (6, 0.7)])
def test_heterogeneity_equals_a_loop(graph, hops, discount):
    counts = counts_of(graph.n)
    shares = counts / counts.sum(axis=1, keepdims=True)
    matrix = mixing.metropolis_or_uniform(graph)
    wanted = looped([matrix.weights.toarray()], shares, hops, discount)
    found = neighborhood_heterogeneity(graph, counts, hops=hops, discount=discount)
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("graph", SYMMETRIC.values(), ids=SYMMETRIC.keys())
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_all_hops_are_the_limit_of_many(graph, discount):
    counts = counts_of(graph.n)
    many = neighborhood_heterogeneity(graph, counts, hops=2000, discount=discount)
    infinite = neighborhood_heterogeneity(graph, counts, hops="inf", discount=discount)
    assert infinite == pytest.approx(many, rel=1e-9)
    many = accumulated_noise(graph, 2000, discount=discount)
    assert accumulated_noise(graph, "inf", discount=discount) == pytest.approx(many, rel=1e-9)


@pytest.mark.parametrize("graph", SYMMETRIC.values(), ids=SYMMETRIC.keys())
def test_noise_is_the_heterogeneity_of_one_class_per_node(graph):
    # With the identity as values, W^k Pi - J Pi is W^k - J.
    identity = np.eye(graph.n)
    for hops in (1, 7, "inf"):
        found = neighborhood_heterogeneity(graph, gradients=identity, hops=hops)
        assert accumulated_noise(graph, hops) == pytest.approx(found, rel=1e-10)


def test_without_communication_every_hop_counts_the_same():
    identity = mixing.from_weights(np.eye(5))
    assert accumulated_noise(identity, 10) == pytest.approx(10 * (1 - 1 / 5))
    assert accumulated_noise(identity, "inf") == np.inf
    assert neighborhood_heterogeneity(identity, np.eye(5, dtype=int), hops="inf") == np.inf
    discounted = accumulated_noise(identity, "inf", discount=0.5)
    assert discounted == pytest.approx(2 * (1 - 1 / 5))


def test_exact_averaging_leaves_nothing():
    graph = topologies.fully_connected(10)
    assert neighborhood_heterogeneity(graph, np.eye(10, dtype=int), hops=50) == 0
    infinite = neighborhood_heterogeneity(graph, np.eye(10, dtype=int), hops="inf")
    assert infinite == pytest.approx(0, abs=1e-28)
    assert accumulated_noise(graph, "inf") == pytest.approx(0, abs=1e-28)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_closed_form_of_periodic_labels_on_a_ring(classes):
    # Labels that repeat after c nodes have energy at the frequencies n/c, 2n/c, ... only, each the
    # same for one class per node: H_K = (1/c) sum_{m=1..c-1} sum_k ((1 + 2 cos(2 pi m / c))/3)^2k.
    n = 10 * classes
    labels = np.eye(classes, dtype=int)[np.arange(n) % classes]
    values = (1 + 2 * np.cos(2 * np.pi * np.arange(1, classes) / classes)) / 3
    for hops in (1, 4, 20):
        wanted = sum(value ** (2 * k) for value in values for k in range(1, hops + 1)) / classes
        found = neighborhood_heterogeneity(topologies.ring(n), labels, hops=hops)
        assert found == pytest.approx(wanted, rel=1e-10, abs=1e-14)
    wanted = (values**2 / (1 - values**2)).sum() / classes
    found = neighborhood_heterogeneity(topologies.ring(n), labels, hops="inf")
    assert found == pytest.approx(wanted, rel=1e-10, abs=1e-14)


def test_labels_in_one_eigenspace_decay_like_its_eigenvalue():
    # On the hypercube, a class that is one coordinate has the eigenvalue 1 - 2/(d+1).
    d = 4
    graph = as_topology(
        nx.convert_node_labels_to_integers(nx.hypercube_graph(d), ordering="sorted")
    )
    labels = np.eye(2, dtype=int)[np.arange(2**d) >> (d - 1)]
    rate = 1 - 2 / (d + 1)
    wanted = 0.5 * sum(rate ** (2 * k) for k in range(1, 6))
    assert neighborhood_heterogeneity(graph, labels, hops=5) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("graph", SYMMETRIC.values(), ids=SYMMETRIC.keys())
def test_effective_neighbors_are_a_function_of_discounted_noise(graph, gamma):
    if gamma == 0:
        noise = accumulated_noise(graph, 1)
    else:
        noise = accumulated_noise(graph, "inf", discount=gamma)
    wanted = 1 / (1 / graph.n + (1 - gamma) * noise)
    assert metrics.effective_neighbors(graph, gamma) == pytest.approx(wanted, rel=1e-9)


def test_all_noise_depends_on_the_whole_spectrum():
    matrix = mixing.metropolis_hastings(SYMMETRIC["random"])
    squares = np.linalg.eigvalsh(matrix.weights.toarray())[:-1] ** 2
    wanted = (squares / (1 - squares)).mean() * (matrix.n - 1) / matrix.n
    assert accumulated_noise(matrix, "inf") == pytest.approx(wanted, rel=1e-10)


# Directed weights


def test_pull_is_compared_with_its_consensus():
    graph = topologies.random_out(10, 3, seed=1).at(0)
    matrix = mixing.uniform(graph, direction="pull")
    counts = counts_of(10)
    shares = counts / counts.sum(axis=1, keepdims=True)
    pi = metrics.perron_vector(matrix)
    wanted = looped([matrix.weights.toarray()], shares, 8, limits=[pi @ shares])
    assert neighborhood_heterogeneity(matrix, counts, hops=8) == pytest.approx(wanted, rel=1e-10)
    about_mean = looped([matrix.weights.toarray()], shares, 8)
    found = neighborhood_heterogeneity(matrix, counts, hops=8, around="mean")
    assert found == pytest.approx(about_mean, rel=1e-12)
    many = neighborhood_heterogeneity(matrix, counts, hops=500)
    assert neighborhood_heterogeneity(matrix, counts, hops="inf") == pytest.approx(many, rel=1e-9)


def test_push_is_divided_by_its_push_sum_weights():
    edges = [(i, (i + 1) % 9) for i in range(9)] + [(0, 4), (2, 7), (5, 1)]
    matrix = mixing.uniform(topofl.from_edges(edges, 9, directed=True), direction="push")
    counts = counts_of(9)
    shares = counts / counts.sum(axis=1, keepdims=True)
    wanted = looped([matrix.weights.toarray()], shares, 8, pushed=True)
    assert neighborhood_heterogeneity(matrix, counts, hops=8) == pytest.approx(wanted, rel=1e-10)
    many = neighborhood_heterogeneity(matrix, counts, hops=1000)
    assert neighborhood_heterogeneity(matrix, counts, hops="inf") == pytest.approx(many, rel=1e-9)


def test_directed_circulants_have_a_closed_form():
    edges = [(i, (i + 1) % 15) for i in range(15)]
    matrix = mixing.uniform(topofl.from_edges(edges, 15, directed=True))
    counts = counts_of(15)
    many = neighborhood_heterogeneity(matrix, counts, hops=3000)
    assert neighborhood_heterogeneity(matrix, counts, hops="inf") == pytest.approx(many, rel=1e-9)
    spectrum = heterogeneity_spectrum(matrix, counts)
    found = neighborhood_heterogeneity(matrix, counts, hops=6)
    assert spectrum.heterogeneity(6) == pytest.approx(found, rel=1e-10)


# Sequences


def test_periodic_sequences_are_products_from_every_start():
    sequence = topologies.one_peer_exponential(8)
    matrices = [
        mixing.metropolis_or_uniform(sequence.at(t)).weights.toarray()
        for t in range(sequence.period)
    ]
    counts = counts_of(8)
    shares = counts / counts.sum(axis=1, keepdims=True)
    wanted = looped(matrices, shares, 5)
    assert neighborhood_heterogeneity(sequence, counts, hops=5) == pytest.approx(wanted, rel=1e-10)
    # A period of the one-peer exponential graph averages exactly.
    period = neighborhood_heterogeneity(sequence, counts, hops=sequence.period)
    found = neighborhood_heterogeneity(sequence, counts, hops="inf")
    assert found == pytest.approx(period, rel=1e-12)


def test_a_constant_sequence_is_its_graph():
    graph = SYMMETRIC["random"]
    counts = counts_of(graph.n)
    twice = as_topology([graph, graph])
    for hops in (4, "inf"):
        assert neighborhood_heterogeneity(twice, counts, hops=hops) == pytest.approx(
            neighborhood_heterogeneity(graph, counts, hops=hops), rel=1e-9
        )


def test_sequences_without_a_period_are_examined_for_some_rounds():
    sequence = topologies.random_matching(10, seed=0)
    counts = counts_of(10)
    shares = counts / counts.sum(axis=1, keepdims=True)
    matrices = [mixing.metropolis_hastings(sequence.at(t)).weights.toarray() for t in range(12)]
    wanted = np.mean([looped_from(matrices, s, shares, 5) for s in range(8)])
    found = neighborhood_heterogeneity(sequence, counts, hops=5, rounds=12)
    assert found == pytest.approx(wanted, rel=1e-10)
    once = neighborhood_heterogeneity(sequence, counts, hops=5, rounds=5)  # from one start
    assert once == pytest.approx(looped_from(matrices, 0, shares, 5), rel=1e-10)
    with pytest.raises(ValueError, match="`hops` must be at most the 4 rounds"):
        neighborhood_heterogeneity(sequence, counts, hops=5, rounds=4)
    with pytest.raises(TopologyError, match="`rounds` must be given"):
        neighborhood_heterogeneity(sequence, counts, hops=5)
    with pytest.raises(TopologyError, match="no period"):
        neighborhood_heterogeneity(sequence, counts, hops="inf", rounds=10)


def looped_from(matrices, start, values, hops):
    state, total = values, 0.0
    for k in range(hops):
        state = matrices[start + k] @ state
        total += np.square(state - values.mean(axis=0)).sum() / len(values)
    return total


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
    shares = metrics.label_distributions(clients)
    wanted = np.square(history.mixing(0).weights @ shares - shares.mean(axis=0)).sum() / 8
    assert one == pytest.approx(wanted, rel=1e-12)
    assert neighborhood_heterogeneity(history, clients, hops=2) > 0


# Spectra


@pytest.mark.parametrize("graph", SYMMETRIC.values(), ids=SYMMETRIC.keys())
def test_spectrum_sums_to_the_heterogeneity(graph):
    counts = counts_of(graph.n)
    spectrum = heterogeneity_spectrum(graph, counts)
    shares = counts / counts.sum(axis=1, keepdims=True)
    variance = np.square(shares - shares.mean(axis=0)).sum() / graph.n
    assert spectrum.energies.sum() == pytest.approx(variance, rel=1e-12)
    for hops, discount in ((1, 1.0), (9, 0.8), ("inf", 1.0), ("inf", 0.5)):
        found = spectrum.heterogeneity(hops, discount)
        wanted = neighborhood_heterogeneity(graph, counts, hops=hops, discount=discount)
        assert found == pytest.approx(wanted, rel=1e-9)


def test_equal_eigenvalues_are_one_bar():
    spectrum = heterogeneity_spectrum(topologies.ring(12), counts_of(12))
    assert len(spectrum.eigenvalues) == 6  # cos(2 pi m / 12) for m = 1..6
    assert np.abs(spectrum.eigenvalues[0]) == pytest.approx((1 + 3**0.5) / 3)
    complete = heterogeneity_spectrum(topologies.fully_connected(6), counts_of(6))
    assert len(complete.eigenvalues) == 1
    assert complete.eigenvalues[0] == pytest.approx(0, abs=1e-12)


def test_parts_without_a_link_have_energy_at_eigenvalue_one():
    parts = topofl.from_edges([(0, 1), (2, 3)], 4)
    spectrum = heterogeneity_spectrum(parts, np.eye(2, dtype=int)[[0, 0, 1, 1]])
    assert spectrum.eigenvalues[0] == pytest.approx(1)
    assert spectrum.energies[0] == pytest.approx(0.5)
    assert spectrum.heterogeneity("inf") == np.inf


def test_large_graphs_have_gauss_nodes_with_exact_sums(monkeypatch):
    graph = topologies.random_regular(300, 6, seed=0)
    counts = counts_of(300)
    exact = heterogeneity_spectrum(graph, counts)
    monkeypatch.setattr("topofl._linalg.spectral.SPECTRUM_LIMIT", 100)
    nodes = heterogeneity_spectrum(graph, counts)
    assert exact.is_exact
    assert not nodes.is_exact
    for hops in (1, 10, 60):
        assert nodes.heterogeneity(hops) == pytest.approx(exact.heterogeneity(hops), rel=1e-10)


def test_large_graphs_are_solved_as_small_ones_are(monkeypatch):
    counts = counts_of(200)
    graphs = [
        topologies.random_regular(200, 4, seed=0),
        topologies.small_world(200, k=4, p=0.05, seed=0),
    ]
    for graph in graphs:
        exact = [
            neighborhood_heterogeneity(graph, counts, hops="inf", discount=d) for d in (1.0, 0.9)
        ]
        with monkeypatch.context() as patch:
            patch.setattr("topofl._linalg.spectral.DENSE_LIMIT", 50)
            for cost in (0, 1e10):  # conjugate gradients, then a band solver
                patch.setattr("topofl.metrics.hops.BAND_COST", cost)
                found = [
                    neighborhood_heterogeneity(graph, counts, hops="inf", discount=d)
                    for d in (1.0, 0.9)
                ]
                assert found == pytest.approx(exact, rel=1e-9)
    parts = as_topology(nx.disjoint_union(nx.cycle_graph(101), nx.cycle_graph(101)))
    monkeypatch.setattr("topofl._linalg.spectral.DENSE_LIMIT", 50)
    apart = np.eye(2, dtype=int)[[0] * 101 + [1] * 101]
    assert neighborhood_heterogeneity(parts, apart, hops="inf") == np.inf


@pytest.mark.parametrize("cost", [0, 1e10])
def test_parts_with_the_same_mean_are_solved_apart(cost, monkeypatch):
    parts = as_topology(nx.disjoint_union(nx.cycle_graph(101), nx.cycle_graph(101)))
    alike = np.eye(2, dtype=int)[(np.arange(202) % 101) % 2]
    exact = neighborhood_heterogeneity(parts, alike, hops="inf")
    monkeypatch.setattr("topofl._linalg.spectral.DENSE_LIMIT", 50)
    monkeypatch.setattr("topofl.metrics.hops.BAND_COST", cost)
    assert neighborhood_heterogeneity(parts, alike, hops="inf") == pytest.approx(exact, rel=1e-9)


def test_noise_of_large_graphs_is_estimated(monkeypatch):
    graph = topologies.random_regular(600, 4, seed=0)
    exact = accumulated_noise(graph, 10)
    monkeypatch.setattr("topofl.metrics.hops.EXACT_LIMIT", 100)
    estimates = [accumulated_noise(graph, 10, probes=32, seed=seed) for seed in range(30)]
    error = np.std(estimates, ddof=1) / 30**0.5
    assert np.mean(estimates) == pytest.approx(exact, abs=4 * error)
    assert error < 0.01 * exact


# Gradients


def test_gradients_take_the_place_of_labels():
    graph = SYMMETRIC["random"]
    gradients = RNG.standard_normal((graph.n, 7))
    found = neighborhood_heterogeneity(graph, gradients=gradients)
    assert found == pytest.approx(metrics.gradient_mixing_error(graph, gradients), rel=1e-12)
    assert neighborhood_heterogeneity(graph, gradients=2 * gradients, hops=5) == pytest.approx(
        4 * neighborhood_heterogeneity(graph, gradients=gradients, hops=5), rel=1e-12
    )


def test_noise_is_the_deviation_of_models_under_independent_gradients():
    # X <- W (X - g) with independent g: after t rounds, E (1/n) ||X - J X||^2 = N_t per coordinate.
    graph, rounds, columns = SYMMETRIC["random"], 6, 200_000
    weights = mixing.metropolis_hastings(graph).weights
    x = np.zeros((graph.n, columns))
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        x = weights @ (x - rng.standard_normal(x.shape))
    found = np.square(x - x.mean(axis=0)).sum() / graph.n / columns
    assert found == pytest.approx(accumulated_noise(graph, rounds), rel=5e-3)


def test_heterogeneity_is_the_deviation_of_models_under_gradients_that_turn():
    # Gradients that keep their distribution over nodes, with an independent sign each round.
    graph, rounds = SYMMETRIC["random"], 6
    weights = mixing.metropolis_hastings(graph).weights
    gradients = RNG.standard_normal((graph.n, 5))
    rng = np.random.default_rng(0)
    found = []
    for _ in range(4000):
        x = np.zeros_like(gradients)
        for _ in range(rounds):
            x = weights @ (x - rng.choice([-1.0, 1.0]) * gradients)
        found.append(np.square(x - x.mean(axis=0)).sum() / graph.n)
    error = np.std(found) / len(found) ** 0.5
    wanted = neighborhood_heterogeneity(graph, gradients=gradients, hops=rounds)
    assert np.mean(found) == pytest.approx(wanted, abs=4 * error)


CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
MODEL = models.logistic_regression(64)


def test_gradient_statistics_equal_those_of_all_minibatches():
    # With batches of all of a node's examples, there is no noise, and means are full gradients.
    largest = int(CLIENTS.sizes.max())
    found = metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=largest, minibatches=2)
    assert found.noise == pytest.approx(0, abs=1e-12)
    inputs, labels = CLIENTS.dataset.examples().flatten(1).double().numpy(), CLIENTS.dataset.labels
    for node, examples in enumerate(CLIENTS.train):
        weight, bias = (p.detach().double().numpy() for p in MODEL.parameters())
        logits = inputs[examples] @ weight.T + bias
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        errors = (shares - np.eye(10)[labels.numpy()[examples]]) / len(examples)
        wanted = np.concatenate([(errors.T @ inputs[examples]).ravel(), errors.sum(axis=0)])
        np.testing.assert_allclose(found.means[node], wanted, atol=1e-6)
    spread = np.square(found.means - found.means.mean(axis=0)).sum() / 12
    assert found.heterogeneity == pytest.approx(spread, rel=1e-6)


def test_gradient_statistics_are_unbiased():
    exact = metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=10**6, minibatches=2)
    found = [
        metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=8, minibatches=2, seed=seed)
        for seed in range(40)
    ]
    heterogeneity = np.array([one.heterogeneity for one in found])
    error = heterogeneity.std(ddof=1) / len(found) ** 0.5
    assert heterogeneity.mean() == pytest.approx(exact.heterogeneity, abs=4 * error)


@pytest.mark.parametrize("by", ["labels", "gradients"])
def test_predicted_deviation_is_its_two_terms(by):
    graph = topologies.ring(12)
    found = metrics.predicted_deviation(
        graph, CLIENTS, model=MODEL, batch_size=8, hops=5, by=by, seed=1
    )
    noise = accumulated_noise(graph, 5)
    assert found.noise == noise
    wanted = found.zeta2 * found.heterogeneity + found.sigma2 / 8 * noise
    assert found.value == pytest.approx(wanted, rel=1e-12)
    assert float(found) == found.value
    statistics = metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=8, seed=1)
    if by == "labels":
        assert found.heterogeneity == neighborhood_heterogeneity(graph, CLIENTS, hops=5)
        shares = metrics.label_distributions(CLIENTS)
        spread = np.square(shares - shares.mean(axis=0)).sum() / 12
        assert found.zeta2 == pytest.approx(statistics.heterogeneity / spread)
    else:
        assert found.zeta2 == 1.0
        noisy = neighborhood_heterogeneity(graph, gradients=statistics.means, hops=5)
        assert found.heterogeneity == pytest.approx(noisy - statistics.noise / 8 * noise)
    again = metrics.predicted_deviation(
        graph, CLIENTS, statistics=statistics, hops=5, by=by, seed=1
    )
    assert again == found


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "`statistics`, or `model` and `batch_size`, must be given, got none"),
        ({"model": MODEL}, ValueError, "`batch_size` must be given with `model`, got None"),
        ({"batch_size": 8}, ValueError, "`model` must be given with `batch_size`, got None"),
        ({"statistics": 1.0}, TypeError, "`statistics` must be what gradient_statistics"),
        ({"model": MODEL, "batch_size": 0}, ValueError, "`batch_size` must be at least 1"),
    ],
)
def test_predictions_need_a_model_or_statistics(arguments, error, message):
    with pytest.raises(error, match=message):
        metrics.predicted_deviation(topologies.ring(12), CLIENTS, **arguments)


def test_predictions_need_statistics_of_the_same_nodes():
    statistics = metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=8)
    fewer = data.shards(data.digits(), n=10, per_node=2, seed=0)
    with pytest.raises(ValueError, match="`statistics` must be of the 10 nodes of `clients`"):
        metrics.predicted_deviation(topologies.ring(10), fewer, statistics=statistics)


@pytest.mark.parametrize(
    "extra",
    [
        {"model": MODEL},
        {"batch_size": 512},
        {"task": tasks.classification()},
        {"minibatches": 8},
        {"batch_size": 8, "model": MODEL},
    ],
)
def test_statistics_and_what_would_be_measured_are_refused_together(extra):
    statistics = metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=8)
    name = "model" if "model" in extra else next(iter(extra))
    with pytest.raises(ValueError, match=f"`{name}` must be left out with `statistics`"):
        metrics.predicted_deviation(topologies.ring(12), CLIENTS, statistics=statistics, **extra)


def test_measuring_leaves_model_and_generators_as_they_are():
    before = [p.detach().clone() for p in MODEL.parameters()]
    state = torch.get_rng_state()
    with torch.no_grad():
        metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=8)
    assert all(torch.equal(a, b) for a, b in zip(before, MODEL.parameters(), strict=True))
    assert all(p.grad is None for p in MODEL.parameters())
    assert torch.equal(state, torch.get_rng_state())


# Refusals


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"hops": 0}, ValueError, "`hops` must be at least 1, got 0"),
        ({"hops": 2.5}, TypeError, "`hops` must be an integer"),
        ({"hops": "many"}, ValueError, "`hops` must be a number of at least 1"),
        ({"discount": 0}, ValueError, "`discount` must be"),
        ({"discount": 1.5}, ValueError, "`discount` must be at most 1"),
    ],
)
def test_impossible_sums_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        neighborhood_heterogeneity(SYMMETRIC["ring"], counts_of(12), **arguments)
    with pytest.raises(error, match=message):
        accumulated_noise(SYMMETRIC["ring"], **arguments)


def test_values_are_labels_or_gradients():
    ring = SYMMETRIC["ring"]
    with pytest.raises(TypeError, match=r"one of `label_counts` and `gradients`.*neither"):
        neighborhood_heterogeneity(ring)
    with pytest.raises(TypeError, match="got both"):
        neighborhood_heterogeneity(ring, counts_of(12), gradients=np.eye(12))
    with pytest.raises(ValueError, match=r"`label_counts`.*11 rows.*n=12"):
        neighborhood_heterogeneity(ring, counts_of(11), hops=3)
    with pytest.raises(ValueError, match=r"`gradients`.*\(11, 2\).*n=12"):
        neighborhood_heterogeneity(ring, gradients=np.ones((11, 2)), hops=3)
    with pytest.raises(ValueError, match="`around`"):
        neighborhood_heterogeneity(ring, counts_of(12), around="median")


def test_spectra_need_symmetric_weights():
    pull = mixing.uniform(topologies.star(5), direction="pull")
    with pytest.raises(TopologyError, match="needs symmetric weights"):
        heterogeneity_spectrum(pull, counts_of(5))


def test_gradient_statistics_refuse_other_arguments():
    with pytest.raises(TypeError, match="`clients` must be a Partition"):
        metrics.gradient_statistics([[1, 2]], model=MODEL, batch_size=8)
    with pytest.raises(ValueError, match="`minibatches` must be at least 2"):
        metrics.gradient_statistics(CLIENTS, model=MODEL, batch_size=8, minibatches=1)


def test_picture_of_a_spectrum():
    (ax,) = heterogeneity_spectrum(topologies.ring(12), counts_of(12)).plot().axes
    heights = np.array([bar.get_height() for bar in ax.patches])
    shares = metrics.label_distributions(counts_of(12))
    variance = np.square(shares - shares.mean(axis=0)).sum() / 12
    assert heights.sum() == pytest.approx(variance)
    assert ax.get_xlabel() == "eigenvalue"
