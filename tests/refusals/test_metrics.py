"""What the metrics refuse."""

from dataclasses import replace
from functools import partial

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from tests import problems
from tests.refusals import named, refused
from tests.rows.metrics import ONE_PEER, SWAP, counts_of, halving, irregular_digraph, pull, push
from topofl import algorithms, clocks, data, mixing, models, run, topologies
from topofl.metrics import (
    Hardware,
    accumulated_noise,
    azure_latency,
    b_connectivity,
    clique_skew,
    clustering,
    communities,
    compare,
    consensus_distance,
    curvature,
    dobrushin,
    edge_connectivity,
    effective_neighbors,
    effective_resistance,
    expected_gap,
    gradient_mixing_error,
    gradient_statistics,
    heterogeneity_spectrum,
    kemeny_constant,
    kirchhoff_index,
    label_distributions,
    label_separation,
    mean_model,
    measured_contraction,
    mixing_time,
    neighbor_label_distance,
    neighborhood_heterogeneity,
    node_connectivity,
    over_rounds,
    perron_vector,
    pi_weighted_gap,
    plot_contraction,
    predicted_deviation,
    product_contraction,
    push_sum_constants,
    reciprocity,
    round_cost,
    round_time,
    sigma,
    slem,
    smallest_eigenvalue,
    sparsity,
    step_seconds,
    window_product,
)
from topofl.mixing import MixingSequence
from topofl.topology import Topology, TopologyError, from_edges

ONE_GRAPH = ("`graph` must be one graph, got TopologySequence", ".at(0)")
BURNT = "`burn_in` + `rounds` must be at most the 12 rounds of a run, got 1 + 12"
SHAPE = ("`gradients` must have shape (n, d)", "has n=3")
DISTANCE = ("`distance` must be one of 'l1'", "got 'hellingr'; did you mean 'hellinger'")
LABELS = "but 'neighborhood heterogeneity' needs label counts; pass `label_counts=`"
HARDWARE = "but 'seconds per round' needs hardware; pass `hardware=`"
LARGE_STAR = ("up to n=2,000, star", "has n=2,001; use metrics.slem")
FLOWS = ("maximum flows", "smallest degree")
PRODUCTS = "products of several rounds are computed up to n="
TOO_LARGE = ("too large from round 3 on", "use fewer rounds")

RING, CYCLE = topologies.ring(6), irregular_digraph()
SIX_AND_FIVE = [RING, topologies.ring(5)]
LINE = from_edges([(0, 1), (1, 2)], 3, name="line", directed=True)
PATH = from_edges([(0, 1), (1, 2)], 3, name="path")
OUTSIDE = from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)
APART = from_edges([(0, 1), (2, 3)], 5)
CLIQUES = topologies.with_groups(topologies.ring(8), [[0, 1], [2, 3], [4, 5], [6, 7]])
COUNTS, EMPTY = [[6, 0], [0, 3], [2, 2]], [[4, 0], [0, 0], [0, 4]]
SHARES, OPPOSITE = np.array(COUNTS, float), np.array([[1.0], [-1.0]])
ENDLESS = topologies.random_out(6, 2, seed=0)
MATRIX, BOTH, LOSING = mixing.uniform(RING), [pull(CYCLE), push(CYCLE)], push(LINE)
RECORDED = MixingSequence(6, lambda t: MATRIX, "a run", length=12)
TAKEN = mixing.from_weights([[1, 1], [0, 0]], edges="u<-v")
TURNED = MixingSequence(6, lambda t: BOTH[t >= 3])
SLOW = mixing.from_weights([[1 - 1e-12, 1e-12], [1e-12, 1 - 1e-12]])
CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
FEWER = data.shards(data.digits(), n=10, per_node=2, seed=0)
MODEL = models.logistic_regression(64)
MEASURED = {"statistics": gradient_statistics(CLIENTS, model=MODEL, batch_size=8)}
FAILING = clocks.Times(1.0, lambda rng, count: np.full(count, -1.0 if count == 6 else 1.0))
TABLE, LINKS = {"compute": 1, "latency": np.zeros((6, 6))}, {"compute": 1, "bandwidth": np.ones(6)}
TABLE_OF_3, PLACED = {"compute": 1, "latency": np.eye(3)}, {"compute": 1, "placement": [0, 1]}
DRAWN = {"compute": clocks.exponential(1.0)}
AD_PSGD, DSGD = algorithms.ad_psgd(lr=0.1), algorithms.dsgd(lr=0.1)
AVERAGING = algorithms.clique_averaging(lr=0.1)


def chain(w):
    """Return a path of four nodes whose middle edge has another weight than the others."""
    return Topology(np.array([[0, 1, 0, 0], [1, 0, w, 0], [0, w, 0, 1], [0, 0, 1, 0.0]]))


def at_2_1(value):
    changed = SHARES.copy()
    changed[2, 1] = value
    return changed


def heterogeneity(*values, **options):
    return neighborhood_heterogeneity(*values, **{"hops": 3} | options)


def mixing_error(gradients, graph=PATH, weights=None):
    return gradient_mixing_error(graph, gradients, weights=weights)


def predicted(clients=CLIENTS, **arguments):
    return predicted_deviation(topologies.ring(clients.n), clients, **arguments)


def with_rate(curvature, graph=None, **arguments):
    graph = topologies.ring(12) if graph is None else graph
    options = {**MEASURED, "lr": 1.0, "curvature": curvature, **arguments}
    return predicted_deviation(graph, CLIENTS, **options)


def of_drawn_rounds(hops):
    drawn = topologies.random_matching(12, seed=0)
    return with_rate(0.1, drawn, rounds=4, hops=hops)


def pulled_with_rate():
    return with_rate(0.1, topologies.star(12), weights=mixing.uniform)


def alone_with_rate(curvature):
    return with_rate(curvature, mixing.from_weights(np.eye(12)))


def few_nodes():
    few = data.shards(data.digits(), n=5, per_node=2, seed=0)
    return predicted(few, model=MODEL, batch_size=8, by="labels+residual")


def statistics(clients=CLIENTS, minibatches=2):
    return gradient_statistics(clients, model=MODEL, batch_size=8, minibatches=minibatches)


class Failing(torch.autograd.Function):
    """The identity, without a derivative."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("there is no derivative")


class Once(Failing):
    """The identity, with a first derivative only."""

    @staticmethod
    def backward(ctx, gradient):
        return Failing.apply(gradient)


class OnceDifferentiable(torch.nn.Module):
    def forward(self, x):
        return Once.apply(x)


ROW, SMALL = np.ones((1, 650)), torch.nn.Linear(3, 1)
ONCE = torch.nn.Sequential(MODEL, OnceDifferentiable())


def bent(directions, model=MODEL):
    return curvature(CLIENTS, directions, model=model)


def steps(model=MODEL, steps=1):
    return step_seconds(model, CLIENTS, batch_size=8, steps=steps)


def sequence_of(n):
    return MixingSequence(n, lambda t: MATRIX, "m").at(0)


def sequence_of_three(period):
    return MixingSequence(2, lambda t: SWAP, period=period, length=3)


def gap(x, rounds, weights=None):
    return expected_gap(x, rounds=rounds, weights=weights)


def measured(x, rounds=5, seed=0, **options):
    return measured_contraction(x, rounds=rounds, seed=seed, **options)


def contraction_drawn(x, rounds):
    return plot_contraction(x, rounds=rounds, seed=0)


def squared(x):
    return window_product(x, rounds=2)


def neighbors(x=CYCLE, **options):
    return effective_neighbors(x, 0.5, **options)


def noise_of(x, rounds):
    return accumulated_noise(x, 5, rounds=rounds)


def separation(groups):
    return label_separation(groups, COUNTS)


def skew(counts, groups=((0, 2), (1,)), weighting="uniform"):
    return clique_skew(groups, counts, weighting=weighting)


def recorded_rounds(rounds):
    return over_rounds(RECORDED, rounds=rounds, about=[])


def seconds(machines=LINKS, graph=RING, **options):
    return round_time(graph, hardware=machines, **{"n_parameters": 25} | options)


def history_of(algorithm, graph=None):
    settings = {"rounds": 2, "seed": 0, "progress": False, "model": problems.linear()}
    graph = topologies.ring(8) if graph is None else graph
    return run(algorithm, clients=problems.equal_clients(8), topology=graph, **settings)


def seconds_of(algorithm, graph=None):
    return round_time(history_of(algorithm, graph), hardware={"compute": 1.0})


def each(message, call, *values):
    """Return a row for each value that a call refuses."""
    return [(message, partial(lambda value: call(value), value)) for value in values]


def border(message, call, refused, accepted):
    """Return the row of a value that a call refuses, and of the nearest that it accepts."""
    return message, lambda: call(refused), lambda: call(accepted)


TYPE_ERRORS = [
    *each("`x`", slem, np.eye(3), nx.cycle_graph(3), [], [MATRIX, RING], sparse.eye_array(3), None),
    *each("`weights`", lambda rule: slem(RING, weights=rule), "metropolis", Topology.to_scipy),
    ("x.at(t)", lambda: sigma(ONE_PEER(8))),
    ("`gamma` must be a number", lambda: effective_neighbors(CYCLE, "0.5")),
    ("`hops` must be an integer", lambda: accumulated_noise(RING, 2.5)),
    ("one of `label_counts` and `gradients` must be given", lambda: heterogeneity(RING)),
    ("got both", lambda: heterogeneity(RING, counts_of(6), gradients=np.eye(6))),
    *each("`models`", mean_model, [[1.0]], None, np.array([["a"]]), np.eye(1) * 1j),
    ("`models`", lambda: mean_model(torch.tensor([[1j]]))),
    *each("`gradients`", mixing_error, SHARES.tolist(), np.array([["a"]] * 3), torch.eye(3) * 1j),
    ("`statistics` must be what gradient_statistics", lambda: predicted(statistics=1.0)),
    ("`clients` must be a data.Partition", lambda: statistics(clients=[[1, 2]])),
    ("`model` must be a torch.nn.Module with trainable", lambda: bent(ROW, torch.nn.Flatten())),
    *each("`label_counts`", label_distributions, [[0.5, 0.5]], [["a"]]),
    (ONE_GRAPH, lambda: communities(ONE_PEER(8))),
    ("`graph`", lambda: clustering(None)),
    (("`topology` must be a Topology, got Topology", ".at(t)"), lambda: sparsity(ENDLESS)),
    ("`u` must be an integer", lambda: effective_resistance(RING, 0.5, 1)),
    ("`x` must be one MixingMatrix or Topology", lambda: kemeny_constant(ONE_PEER(4))),
    ("`graphs`", lambda: b_connectivity(3.5)),
    ("`graphs` must be a list of graphs, got Graph", lambda: compare(nx.path_graph(3))),
    ("`graphs` must be a list of graphs, got Topology", lambda: compare(RING)),
    ("`graphs`", lambda: compare([object()])),
    ("`names` must be a list of names, got str", lambda: compare([RING, RING], names="ab")),
    ("`mixing` must be a MixingMatrix, got Topology", lambda: round_cost(RING, 1)),
    ("`gradient_mixing`", lambda: round_cost(MATRIX, 1, gradient_mixing=RING)),
    ("`hardware` must be a Hardware such as", lambda: seconds(3)),
    ("`model` must be a torch.nn.Module", lambda: steps(model=None)),
]

VALUE_ERRORS = [
    ("`x` must hold matrices of one size", lambda: slem([MATRIX, SWAP])),
    ("`weights` must be None", lambda: slem(MATRIX, weights=push)),
    border("every MixingMatrix of m must have n=5 nodes, round 0 has 6;", sequence_of, 5, 6),
    border("`period` must be at most `length`=3, got 4", sequence_of_three, 4, 3),
    ("`rounds` must be left out: ring(n=6) repeats after 1, got 3", lambda: gap(RING, 3)),
    border("between 1 and the recorded=12, got 13", lambda r: gap(RECORDED, r), 13, 12),
    border("`rounds`", lambda r: measured(RING, r), 0, 1),
    border("`burn_in`", lambda b: measured(RING, burn_in=b), -1, 0),
    border("`seed`", lambda seed: measured(RING, seed=seed), -1, 0),
    border(BURNT, lambda r: measured(RECORDED, r, burn_in=1), 12, 11),
    border("`rounds` must be at least 1", lambda r: contraction_drawn(RING, r), 0, 1),
    border("`rounds` must be at least 1, got 0", lambda r: dobrushin(LINE, rounds=r), 0, 1),
    border("`start` must be at least 0, got -1", lambda s: dobrushin(LINE, start=s), -1, 0),
    border("`gamma` must be in [0, 1)", lambda g: effective_neighbors(CYCLE, g), -0.1, 0),
    *each("`gamma` must be in [0, 1)", lambda g: effective_neighbors(CYCLE, g), 1, np.nan),
    ("`which` must be one of 'mean', 'worst', got 'all'", lambda: neighbors(which="all")),
    border("`epsilon` must be between 0 and 1", lambda e: mixing_time(RING, epsilon=e), 1, 0.9),
    border("`hops` must be at least 1, got 0", lambda k: accumulated_noise(RING, k), 0, 1),
    border("`hops` must be a number of", lambda k: accumulated_noise(RING, k), "many", "inf"),
    ("`discount` must be", lambda: accumulated_noise(RING, discount=0)),
    border(
        "`discount` must be above 0 and at most 1",
        lambda d: accumulated_noise(RING, discount=d),
        1.5,
        1,
    ),
    border("at most the 4 rounds examined of", lambda r: noise_of(ENDLESS, r), 4, 5),
    (("`label_counts`", "11 rows", "n=6"), lambda: heterogeneity(RING, counts_of(11))),
    (("`gradients`", "(11, 2)", "n=6"), lambda: heterogeneity(RING, gradients=np.ones((11, 2)))),
    ("`around`", lambda: heterogeneity(RING, counts_of(6), around="median")),
    *each("`models` must have shape", consensus_distance, np.zeros(3), np.zeros((0, 3))),
    ("`models` must have a mean other than 0", lambda: consensus_distance(OPPOSITE, relative=True)),
    (("`gradients` must be finite, got", "at (2, 1)"), lambda: mixing_error(at_2_1(np.nan))),
    (("finite, got", "at (2, 1)"), lambda: mixing_error(torch.from_numpy(at_2_1(-np.inf)))),
    *each(SHAPE, mixing_error, SHARES[:2], SHARES[0], np.zeros((3, 0)), torch.zeros(3, 2, 2)),
    ("`statistics`, or `model` and `batch_size`, must be given, got none", lambda: predicted()),
    ("`batch_size` must be given with `model`, got None", lambda: predicted(model=MODEL)),
    ("`model` must be given with `batch_size`, got None", lambda: predicted(batch_size=8)),
    ("`batch_size` must be at least 1", lambda: predicted(model=MODEL, batch_size=0)),
    ("`statistics` must be of the 10 nodes of `clients`", lambda: predicted(FEWER, **MEASURED)),
    ("`model` must be left out with `statistics`", lambda: predicted(model=MODEL, **MEASURED)),
    (
        "`directions` must be gradients of the n=12 nodes of `clients`, got those of 4 nodes",
        lambda: bent(replace(MEASURED["statistics"], means=MEASURED["statistics"].means[:4])),
    ),
    ("`curvature` must be given with `lr`, got None", lambda: predicted(**MEASURED, lr=0.1)),
    ("`lr` must be given with `curvature`, got None", lambda: predicted(**MEASURED, curvature=1)),
    border("`lr` times `curvature` must be at most 1, got 1.5", with_rate, 1.5, 1.0),
    border("`curvature` must be a finite number above 0", with_rate, 0.0, 0.1),
    ("must be 'labels' or 'gradients' for 5 nodes whose label shares have rank 5", few_nodes),
    (
        "`by` must be one of 'labels', 'labels+residual', 'gradients'",
        lambda: predicted(**MEASURED, by="residual"),
    ),
    border("`hops` must be at most the 4 rounds examined of", of_drawn_rounds, 5, 4),
    border("`minibatches` must be at least 2", lambda m: statistics(minibatches=m), 1, 2),
    (("`label_counts`", "nodes 1, 3 have none"), lambda: label_distributions([[1], [0], [2], [0]])),
    ("nodes 0, 1, 2, 3, 4 and 3 more have", lambda: label_distributions(np.zeros((8, 2), int))),
    *each("`label_counts`", label_distributions, [1, 2], [[1, -1]], np.zeros((0, 3), int)),
    ("groups 1 have none", lambda: skew(EMPTY, weighting="pooled")),
    border("nodes 1 have none", lambda w: skew(EMPTY, [(0, 1, 2)], w), "uniform", "pooled"),
    *each("`topology_or_groups`", lambda g: skew(COUNTS, g), [], [()], [(0, 3)], [(-1,)], [(0.5,)]),
    ("`topology_or_groups`", lambda: skew(COUNTS, [0, 1])),
    ("`label_counts`", lambda: skew(COUNTS, from_edges([], 4, groups=[(0,)]))),
    ("`weighting` must be one of 'uniform', 'pooled'", lambda: skew(COUNTS, weighting="pool")),
    (DISTANCE, lambda: clique_skew([(0,)], COUNTS, distance="hellingr")),
    ("one row per node: got 3 rows", lambda: neighbor_label_distance(RING, COUNTS)),
    ("fewer than the 3 nodes", lambda: label_separation([[0], [1], [2]], COUNTS)),
    ("must hold nodes 0..2, group 1 has others", lambda: separation([[0, 1], [2, 3]])),
    *each("every node 0..2 exactly once", separation, [[0, 1]], [[0, 1], [1, 2]]),
    *each("non-empty sequences of nodes", separation, [[0.9, 1.2], [2.7]], ["012"], [0, 1, 2]),
    ("`groups` must hold non-empty sequences of nodes", lambda: separation([[0, 1, 2], []])),
    border("`seed`", lambda seed: communities(RING, seed=seed), -1, 0),
    ("'edges', 'pairs', got 'pair'; did you mean 'pairs'", lambda: reciprocity(RING, over="pair")),
    ("`u` and `v` must be two nodes", lambda: effective_resistance(RING, 1)),
    border("`v` must be between 0 and 5, got 6", lambda v: effective_resistance(RING, 0, v), 6, 5),
    ("did you mean 'sliding'", lambda: b_connectivity(RING, windows="slidin")),
    border("between 1 and 12, got 13", lambda r: push_sum_constants(RECORDED, rounds=r), 13, 12),
    border("`dimension` must be at least 1", lambda d: push_sum_constants(RING, dimension=d), 0, 1),
    ("one name per graph: got 1 names for 2", lambda: compare([RING, RING], names=["ring"])),
    ("5 rows, ring(n=6) has n=6", lambda: compare([RING], label_counts=counts_of(5))),
    border("`n_parameters`", lambda size: compare([RING], n_parameters=size), 0, 1),
    ("must be given, not both", lambda: compare([RING], model=MODEL, n_parameters=3)),
    ((" 'structure'", "did you mean 'paths'"), lambda: compare([RING], about=["path"])),
    (LABELS, lambda: compare([RING], about="paths", metrics="neighborhood heterogeneity")),
    (HARDWARE, lambda: compare([RING], about="paths", metrics="seconds per round")),
    ("for all nodes, n=6, got shape (2,)", lambda: compare([RING], hardware={"compute": [1, 2]})),
    ("`factor` of `compute` must return", lambda: compare([RING], hardware={"compute": FAILING})),
    border("`rounds` must be between 1 and", recorded_rounds, 13, 12),
    border("`rounds` must be between 1 and", recorded_rounds, 0, 1),
    border("`rounds` must be between 0 and", recorded_rounds, [12], [11]),
    border("`rounds` must be between 0 and", recorded_rounds, [-1], [0]),
    *each("one or more different", recorded_rounds, [], [1, 1]),
    ("`gradient_mixing` must have n=6", lambda: round_cost(MATRIX, 1, gradient_mixing=SWAP)),
    border("`n_parameters`", lambda size: round_cost(MATRIX, size), 0, 1),
    border("`itemsize`", lambda size: round_cost(MATRIX, 1, itemsize=size), 0, 1),
    ("one of 'exact', 'paper'", lambda: round_cost(MATRIX, 1, accounting="papers")),
    ("one of 'messages', 'all-reduce'", lambda: round_cost(MATRIX, 1, groups="cheapest")),
    border("`directions` must have one number for each of the 650", bent, np.ones((2, 65)), ROW),
    border("`directions` must have one number for each of the 650", bent, ROW[0], ROW),
    border("`directions` must have an entry other than 0, got none; where", bent, 0 * ROW, ROW),
    border("`directions` must be finite", bent, ROW * np.inf, ROW),
    (("`model` must have second derivatives", "; attention has"), lambda: bent(ROW, ONCE)),
    ("`model` must take the inputs of `clients`", lambda: bent(np.ones((1, 4)), SMALL)),
    (("`hardware` must only have the keys", "got 'delay'"), lambda: seconds({"delay": 1.0})),
    ("`hardware` must have the key compute", lambda: seconds({"latency": 1.0})),
    ("`hardware` must be such as Hardware", lambda: seconds("Hardware(speed=3)")),
    ("`within` must be given if a region repeats", lambda: azure_latency(["Japan East"] * 2)),
    (("`regions` must be one of", "did you mean 'East US'"), lambda: azure_latency(["East USA"])),
    border("`steps` must be", lambda count: steps(steps=count), 0, 1),
    ("one of the two, got none", lambda: seconds(n_parameters=None)),
    ("not both, got both; leave out one", lambda: seconds(model=MODEL)),
    ("`waiting` must be one of 'all', 'neighbors'", lambda: seconds(waiting="nobody")),
    ("`rounds` must be left out, since its rounds repeat", lambda: seconds(rounds=3)),
    border("`steps` must be", lambda count: seconds(steps=count), -1, 0),
    border("`exchanges` must be", lambda count: seconds(exchanges=count), 0, 1),
    ("`compute` must be for all nodes, n=6, got", lambda: seconds({"compute": [1.0] * 3})),
    ("`latency` must be for all nodes, n=6", lambda: seconds(TABLE_OF_3)),
    ("`placement` must be for all nodes, n=6", lambda: seconds(PLACED)),
    ("`seed` must be given if times are drawn", lambda: seconds(DRAWN, waiting="neighbors")),
    border("1 and the length=12, got 13", lambda r: seconds(graph=RECORDED, rounds=r), 13, 12),
    ("`n_parameters` must be left out for a Hist", lambda: seconds(graph=history_of(DSGD))),
]

TOPOLOGY_ERRORS = [
    ("column-stochastic in all", lambda: slem(BOTH)),
    border("column-stochastic in all", lambda r: measured(TURNED, r, burn_in=0), 4, 3),
    (("random_out", "has no period", "measured_contraction"), lambda: slem(ENDLESS)),
    ("undirected", lambda: slem(CYCLE, weights=mixing.metropolis_hastings)),
    ("doubly stochastic", lambda: sigma(CYCLE)),
    ("is not symmetric; use metrics.slem", lambda: smallest_eigenvalue(CYCLE)),
    ("is row stochastic; use metrics.dobrushin", lambda: product_contraction(CYCLE, rounds=2)),
    border(("`rounds` must be given", "has no period"), lambda r: gap(ENDLESS, r), None, 1),
    ("column stochastic; use metrics.push_sum", lambda: gap(ENDLESS, 3, weights=push)),
    ("node 1 became 0 in round 0", lambda: measured(MixingSequence(2, lambda t: TAKEN), 2)),
    ("the weight of node 1 tends to 0", lambda: measured(TAKEN, 2)),
    ("`rounds` is needed: dobrushin(sequence, rounds", lambda: dobrushin(ENDLESS)),
    ("must be row-stochastic in all rounds, or column", lambda: dobrushin(BOTH)),
    border(LARGE_STAR, lambda n: dobrushin(topologies.star(n)), 2001, 2000),
    ("up to n=2,000", lambda: dobrushin(ONE_PEER(2048), rounds=11)),
    ("column stochastic; use mixing.uniform", lambda: neighbors(weights=push)),
    (("up to n=2,000", "n=2,001"), lambda: neighbors(topologies.ring(2001))),
    ("is not unique: 2 groups", lambda: mixing_time(from_edges([(0, 1)], 3))),
    (("node 2 of", "has Perron weight 0"), lambda: pi_weighted_gap(pull(OUTSIDE))),
    ("not unique: 3 groups of nodes never receive from each other", lambda: perron_vector(APART)),
    *each("weight of node 0 tends to 0", slem, LOSING, [LOSING] * 2, [LOSING] * 3),
    *each("strongly connected, or use pull", measured, LOSING, [LOSING] * 2),
    ("no period", lambda: accumulated_noise(ENDLESS, "inf", rounds=9)),
    (("`lr` and `curvature` need weights whose rows and columns", "leave out"), pulled_with_rate),
    border("would be lost in rounding, since some nodes do not", alone_with_rate, 1e-14, 1e-9),
    ("weight of node 0 tends to 0", lambda: heterogeneity(LINE, COUNTS, weights=push)),
    ("needs symmetric weights", lambda: heterogeneity_spectrum(pull(CYCLE), counts_of(6))),
    ("uniform(line, direction='push') is column", lambda: mixing_error(SHARES, LINE, push)),
    ("path has none", lambda: clique_skew(PATH, COUNTS)),
    ("needs edges", lambda: neighbor_label_distance(from_edges([], 3), COUNTS)),
    (("edge connectivity of ring", *FLOWS), lambda: edge_connectivity(topologies.ring(50_000))),
    (("node connectivity of ring", *FLOWS), lambda: node_connectivity(topologies.ring(50_000))),
    ("undirected graph, digraph is directed", lambda: kirchhoff_index(CYCLE)),
    (("up to n=3,000", "n=3,001; use Topology."), lambda: kirchhoff_index(topologies.ring(3001))),
    *each("differ too much for its resistance", lambda w: kirchhoff_index(chain(w)), 1e-20, 1e-200),
    ("differ too much for its resistance", lambda: effective_resistance(chain(1e-310), 1, 2)),
    ("needs rows that sum to 1", lambda: kemeny_constant(push(CYCLE))),
    ("needs a strongly connected graph", lambda: kemeny_constant(APART)),
    ("is dominated by rounding errors", lambda: kemeny_constant(SLOW)),
    ("column-stochastic in all; use one", lambda: push_sum_constants(BOTH)),
    ("`rounds` must be given", lambda: over_rounds(ENDLESS)),
    ("`latency` must be one number with a server", lambda: seconds(TABLE, server=True)),
    ("`server_bandwidth` must be given", lambda: seconds(LINKS, server=True)),
    ("`x` must be a synchronous run, got one of ad_psgd", lambda: seconds_of(AD_PSGD)),
    ("`x` must have recorded the links of its messages", lambda: seconds_of(AVERAGING, CLIQUES)),
]

ROWS = [
    *((TypeError, *row) for row in TYPE_ERRORS),
    *((ValueError, *row) for row in VALUE_ERRORS),
    *((TopologyError, *row) for row in TOPOLOGY_ERRORS),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compute": 0.0}, "`compute` must be finite seconds above 0, got 0"),
        ({"compute": np.eye(3)}, "`compute` must be one number or one per node"),
        ({"latency": -1}, "`latency` must be"),
        ({"latency": [1.0, 2.0]}, "`latency` must be one number or one per pair"),
        ({"latency": [[0, 1], [-2, 0]]}, "got -2 at (1, 0); give 0 where no messages travel"),
        ({"latency": [[0, np.inf], [0, 0]]}, "finite numbers of at least 0, got inf at (0, 1)"),
        ({"bandwidth": [5.0, 0.0]}, "got 0 for machine 1; give infinity where nothing limits"),
        ({"bandwidth": [5.0, np.nan]}, "above 0, got nan for machine 1"),
        ({"bandwidth": -np.inf}, "`bandwidth` must be a number above 0, or infinity, got -inf"),
        ({"bandwidth": np.eye(3)}, "got shape (3, 3); a table of pairs is path_bandwidth"),
        ({"path_bandwidth": np.ones((2, 3))}, "shape (m, m), got shape (2, 3)"),
        ({"path_bandwidth": [[1, np.nan], [1, 1]]}, "must be numbers above 0, got nan at (0, 1)"),
        ({"server_bandwidth": np.nan}, "above 0, or infinity, got nan"),
        ({"server_bandwidth": 0}, "`server_bandwidth` must be"),
        ({"overhead": -1}, "`overhead` must be"),
        ({"messages": "both"}, "`messages` must be one of 'serial', 'parallel'"),
        ({"copies": "edge"}, "`copies` must be one of 'node', 'machine'"),
        ({"groups": "ring"}, "`groups` must be one of 'messages', 'all-reduce', 'cheapest', got"),
        ({"processors": 0}, "`processors` must be at least 1"),
        ({"placement": []}, "`placement` must have one machine per node"),
        ({"placement": [0, -1]}, "`placement` must be in 0"),
        ({"latency": np.eye(3), "bandwidth": [1.0, 2.0]}, "`bandwidth` must be one number or a"),
        ({"latency": np.eye(2), "placement": [0, 2]}, "or a table for all 3 machines"),
    ],
)
def test_hardware_refuses(given, message):
    refused(ValueError, message, lambda: Hardware(**{"compute": 1} | given))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "value", "message", "call", "graphs"),
    [
        ("_rounds.PRODUCT_LIMIT", 7, PRODUCTS, perron_vector, [ONE_PEER(8), ONE_PEER(7)]),
        ("_rounds.PRODUCT_LIMIT", 5, PRODUCTS, squared, [RING, topologies.ring(5)]),
        ("DENSE_LIMIT", 5, "the mixing time is computed up to n=5", mixing_time, SIX_AND_FIVE),
        ("DENSE_LIMIT", 5, "n=6; metrics.b_connectivity and", push_sum_constants, SIX_AND_FIVE),
        ("DENSE_LIMIT", 10, "exact up to n=10", perron_vector, [pull(halving(60)), RING]),
        ("walks.WALK_LIMIT", 5, "is computed up to n=5", kemeny_constant, SIX_AND_FIVE),
        ("averaging.ENTRY_LIMIT", 20_000, TOO_LARGE, dobrushin, [ONE_PEER(2048), ONE_PEER(2000)]),
    ],
)
def test_large_graphs_are_refused(limit, value, message, call, graphs, monkeypatch):
    module = f"topofl.metrics.{limit}" if "." in limit else f"topofl._linalg.spectral.{limit}"
    monkeypatch.setattr(module, value)
    refused(TopologyError, *border(message, call, *graphs))
