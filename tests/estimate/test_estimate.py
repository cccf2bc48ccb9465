"""Estimates equal numbers that were counted by hand, and what runs record."""

import inspect
import sys
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.algorithms.table import ALGORITHMS
from topofl import _matrices, algorithms, data, mixing, models, topologies
from topofl.engine.memory.footprint import in_gib
from topofl.engine.memory.parts import TRAINED
from topofl.engine.train.plan import SHARED_WORK, Plan, Sizes
from topofl.estimate import Estimate
from topofl.estimate.probe import fewest_nodes
from topofl.topology import TopologySequence

PREDICT = sys.modules["topofl.estimate.predict"]  # topofl.estimate itself is the function
PROBE = sys.modules["topofl.estimate.probe"]
TRAFFIC = sys.modules["topofl.estimate.traffic"]


def need(algorithm, clients=None, graph=None, model=None, **options):
    clients = problems.equal_clients() if clients is None else clients
    graph = problems.cliques(clients) if graph is None else graph
    return topofl.estimate(
        algorithm,
        model=model or problems.linear(),
        clients=clients,
        topology=graph,
        **problems.options(**options),
    )


def test_logistic_regression_by_hand():
    clients = data.iid(data.digits(), 10, seed=0)
    result = topofl.estimate(
        algorithms.dsgd(lr=0.1, batch_size=32),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.ring(10),
    )
    d = 64 * 10 + 10
    assert (result.n, result.d) == (10, d)
    assert result.parameters == 10 * d * 4
    assert result.state == 0
    assert result.gradients == 10 * d * 4
    assert result.minibatches == 10 * 32 * (64 * 4 + 8)
    assert result.mixing == 10 * d * 4
    assert result.data == result.held == 1797 * (64 * 4 + 8)
    logits = 300 * 10 * 10 * 4  # and as much for their exponentials
    numbers = (
        300 * 10 * (3 * 4 + 8)
    )  # the largest logit and that of the label, the sum, and the class that is predicted
    assert result.evaluation == 10 * d * 4 + 2 * logits + numbers
    assert (
        result.matrices == 30 * 12 + 10 * 10 * 4
    )  # two neighbors and the own model; not below the density for sparse
    assert result.activations == 10 * 32 * (2 * 10 + 3) * 4
    lasting = result.parameters + result.minibatches + result.matrices + result.data + result.torch
    training = result.gradients + result.activations + result.statistics + result.float64
    assert result.statistics == 8 * d
    assert (
        result.float64 == 8 * 10 * d
    )  # of the consensus distance: more than 8 * 10 * 640 of the gradients
    assert (
        result.total == lasting + result.evaluation + training + result.mixing
    )  # buffers that are kept
    assert result.added == result.total - result.held
    assert (result.executor, result.chunk, result.workers) == ("batched", 10, 1)
    assert (result.messages, result.bytes) == (20, 20 * d * 4)
    assert (result.messages_paper, result.bytes_paper) == (20, 20 * d * 4)
    assert (result.busiest_messages, result.busiest_bytes) == (4, 4 * d * 4)


def test_momentum_is_one_more_copy():
    plain, heavy = need(algorithms.dsgd(0.1)), need(algorithms.dsgd(0.1, momentum=0.9))
    assert plain.state == 0
    assert heavy.state == heavy.parameters
    assert heavy.total - plain.total == plain.parameters


def test_float64_doubles_all_numbers_but_labels():
    single, double = need(algorithms.dsgd(0.1)), need(algorithms.dsgd(0.1), dtype=torch.float64)
    assert double.parameters == 2 * single.parameters
    assert double.gradients == 2 * single.gradients
    assert double.evaluation == 2 * single.evaluation - 18 * 6 * 8  # predicted labels
    assert double.bytes == 2 * single.bytes
    assert double.data == 2 * single.data - 90 * 8
    assert double.held == 90 * 8  # the examples are copied


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_stay_bytes(dtype):
    pixels = np.zeros((90, 1, 6, 6), np.uint8)
    clients = data.iid(data.from_arrays(pixels, np.arange(90) % 3, test=0.2), 6, seed=0)
    result = need(algorithms.dsgd(0.1, batch_size=10), clients, dtype=dtype)
    assert result.data == 90 * (36 + 8)
    assert result.minibatches == 6 * 10 * (
        36 * (1 + dtype.itemsize) + 8
    )  # gathered, and as models see them


def test_chunks_and_executors():
    whole, chunked, looped = (
        need(algorithms.dsgd(0.1), **options)
        for options in ({}, {"chunk": 2, "executor": "batched"}, {"executor": "looped"})
    )
    assert whole.activations == 3 * chunked.activations
    for part in ("gradients", "minibatches"):
        assert getattr(whole, part) == 3 * getattr(chunked, part) == 6 * getattr(looped, part)
    assert [(e.executor, e.chunk) for e in (whole, chunked, looped)] == [
        ("batched", 6),
        ("batched", 2),
        ("looped", 1),
    ]
    assert (
        need(algorithms.dsgd(0.1), chunk=100)
        == whole
        == need(algorithms.dsgd(0.1), executor="auto")
    )


def test_mixed_gradients_exist_at_once_or_in_means():
    whole, chunked = (need(algorithms.clique_averaging(0.1), chunk=chunk) for chunk in (6, 1))
    assert whole.gradients == 2 * whole.parameters  # those of a chunk, and those that are mixed
    assert (
        chunked.gradients == (1 + 2 + 1) * whole.d * 4
    )  # one, the means of two cliques, and one that is mixed


def test_minibatches_are_no_larger_than_the_data():
    clients = problems.equal_clients()
    largest = max(clients.sizes)
    assert need(algorithms.dsgd(0.1, batch_size=10_000)).minibatches == 6 * largest * (36 * 4 + 8)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_convolutions_keep_what_backward_needs(executor):
    result = need(
        algorithms.dsgd(0.1, batch_size=2),
        model=problems.convolutional(),
        executor=executor,
        chunk=1,
    )
    kept = (
        4 * 6 * 6 * 2 + 4 * 3 * 3 * 3 + 3
    )  # convolution and ReLU; pooling and its indices (int64); logits
    assert 2 * kept * 4 < result.activations / TRAINED < 2 * 2 * kept * 4


def test_layers_that_return_tuples():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.cell(x[:, 0])[0][:, -1])

    result = need(algorithms.dsgd(0.1, batch_size=1), model=Recurrent(), executor="looped")
    assert result.activations > 6 * 5 * 4


def test_chunks_follow_free_memory(monkeypatch):
    algorithm = algorithms.dsgd(0.1, batch_size=4)
    free = need(algorithm).added - 1
    monkeypatch.setattr(PREDICT, "free_memory", lambda device: free)
    whole, auto = need(algorithm, chunk=6, executor="batched"), need(algorithm)
    assert (whole.fits, auto.fits, auto.chunk) == (
        False,
        True,
        3,
    )  # 5 would fit, but 3 and 3 are equal shares
    assert f"DOES NOT FIT; chunk=5 would need {in_gib(free)}" in str(whole)
    assert "DOES NOT FIT" not in str(auto)


def test_what_does_not_fit_is_not_probed(monkeypatch):
    monkeypatch.setattr(PREDICT, "free_memory", lambda device: 1)
    monkeypatch.setattr(PROBE, "run", lambda *args, **kwargs: pytest.fail("trained"))
    result = need(algorithms.dsgd(0.1), probe=True)
    assert result.seconds_per_round is None
    assert "DOES NOT FIT; " in str(result)


@pytest.mark.parametrize("executor", ["auto", "batched", "looped"])
def test_plans_are_those_of_the_run(executor):
    clients = problems.equal_clients()
    options = {
        "model": problems.linear(),
        "clients": clients,
        "topology": problems.cliques(clients),
    }
    result = topofl.estimate(algorithms.dsgd(0.1), **problems.options(executor=executor, **options))
    meta = topofl.run(
        algorithms.dsgd(0.1), **problems.options(executor=executor, **options), rounds=1, seed=0
    ).meta
    assert all(getattr(result, name) == meta[name] for name in ("executor", "chunk", "workers"))


@pytest.mark.parametrize("name", ["dsgd", "clique_averaging", "centralized"])
def test_a_probe_trains_and_changes_nothing(name):
    model, clients = problems.linear(), problems.equal_clients()
    before = [p.clone() for p in model.parameters()]
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=4)
    result = need(algorithm, clients, model=model, executor="auto", probe=True, nodes=1, examples=5)
    assert result.executor == "batched"
    assert result.seconds_per_round > 0
    assert result.seconds_per_evaluation > 0
    assert "per evaluation" in str(result)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_probe_is_extrapolated_in_proportion(monkeypatch):
    trials = []

    def trial(setup, clients, graph):
        trials.append((clients.n, graph.n))
        return Plan("looped", 1, 1, 1), 0.04 * clients.n, 0.5 * clients.n

    monkeypatch.setattr(PROBE, "_trial", trial)
    monkeypatch.setattr(PROBE, "_seconds_of_mixing", lambda *arguments: 1.0)
    result = need(algorithms.dsgd(0.1), probe=True, nodes=3, executor="looped")
    assert trials == [(4, 4)]  # 0.16 s are enough
    assert (result.seconds_per_round, result.seconds_per_evaluation) == (
        pytest.approx(0.24 + 1),
        pytest.approx(1.5),
    )


def test_a_probe_has_the_nodes_that_are_trained_at_once():
    sizes = Sizes(1000, 10_000, 20, 0)
    assert fewest_nodes(Plan("looped", 1, 1, 1), sizes) == 4
    assert fewest_nodes(Plan("batched", 30, 1, 1), sizes) == 30
    assert fewest_nodes(Plan("looped", 1, 2, 1), sizes) * 10_000 * 20 >= SHARED_WORK
    assert fewest_nodes(Plan("batched", 30, 2, 1), sizes) == 60


@pytest.mark.parametrize("grown", [0, 2**30, None])
def test_a_probe_corrects_memory_by_what_it_took(grown, monkeypatch):
    @contextmanager
    def watched(wanted):
        yield lambda: grown if wanted else None

    monkeypatch.setattr(PREDICT, "watched_growth", watched)
    monkeypatch.setattr(PROBE, "_trial", lambda *arguments: (Plan("looped", 1, 1, 1), 1.0, 1.0))
    monkeypatch.setattr(PROBE, "_seconds_of_mixing", lambda *arguments: 0.0)
    options = {"model": problems.convolutional(), "executor": "looped"}
    algorithm = algorithms.dsgd(0.1, momentum=0.9)
    plain, probed = need(algorithm, **options), need(algorithm, **options, probe=True)
    assert plain.beyond == 0
    if grown is None:
        assert probed.beyond == 0
        return
    two_nodes = 2 * 2 * plain.d * 4  # 6 nodes, of which the probe has 4: models and momentum
    assert probed.added == pytest.approx(
        max(grown + two_nodes, -probed.held), abs=2 * 10 * plain.d * 8
    )
    assert ("by a probe" in str(probed)) == (probed.beyond != 0)


@pytest.mark.parametrize(
    "name", [name for name, row in ALGORITHMS.items() if not row.random_messages]
)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}])
def test_messages_equal_what_a_run_records(name, options):
    clients = problems.equal_clients()
    graph = problems.cliques(clients)
    arguments = inspect.signature(getattr(algorithms, name)).parameters
    options = {key: value for key, value in options.items() if key in arguments}
    options |= ALGORITHMS[name].required
    named = "head" in arguments
    if named:
        options["head"] = "5"
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=4, **options)
    model = problems.convolutional() if named else problems.linear()
    history = topofl.run(algorithm, model=model, clients=clients, topology=graph, rounds=2, seed=0)
    check_against(need(algorithm, clients, graph, model=model), history)


def check_against(result, history):
    for column in ("messages", "bytes", "messages_paper", "bytes_paper"):
        assert getattr(result, column) == history[column].mean(), column
    for column in ("busiest_messages", "busiest_bytes"):
        assert getattr(result, column) == history[column].max(), column


def held(history):
    """Bytes of all arrays of a history."""
    arrays = [
        *history.rounds.values(),
        *history.evaluations.values(),
        history.node_loss,
        history.matrix_of_round,
    ]
    return sum(array.nbytes for array in arrays) + sum(
        map(_matrices.bytes_of, history.matrices.kept)
    )


@pytest.mark.parametrize(
    ("algorithm", "options", "topology"),
    [
        (algorithms.fedavg(lr=0.1, epochs=1, participation=0.1), {}, None),
        (
            algorithms.fedavg(lr=0.1, epochs=1, participation=0.1, fine_tune_epochs=1),
            {"before_exchange": True},
            None,
        ),
        (algorithms.dsgd(lr=0.1), {"on": ("test", "val")}, topologies.ring(400)),
        (algorithms.dsgd(lr=0.1), {"every": 1}, topologies.one_peer_exponential(400)),
        (algorithms.osgp(lr=0.1, epochs=1), {}, topologies.exponential(400)),
        (algorithms.dsgd(lr=0.1), {}, lambda t: topologies.random_regular(400, 4, seed=t)),
        (algorithms.local_only(lr=0.1), {}, None),
    ],
)
@pytest.mark.parametrize("rounds", [1, 7, 40])
def test_what_the_history_will_hold_is_counted_over_all_rounds(
    algorithm, options, topology, rounds
):
    clients = data.iid(problems.dataset(n_examples=800), 400, seed=0)
    how = {
        "model": problems.linear(),
        "clients": clients,
        "topology": topology,
        "rounds": rounds,
    } | options
    need = topofl.estimate(algorithm, **problems.options(**how))
    history = topofl.run(
        algorithm,
        **problems.options(executor="batched", on_disconnected="allow", **how),
        seed=0,
        progress=False,
    )
    exact = rounds == 1 and topology is not None and not callable(topology)
    assert need.history == pytest.approx(held(history), rel=0.001 if exact else 0.2)
    without = topofl.estimate(
        algorithm,
        **problems.options(**{key: value for key, value in how.items() if key != "rounds"}),
    )
    assert (without.history, need.total - without.total) == (0, need.history)


@pytest.mark.parametrize("participation", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("n", [20, 50])
def test_rows_of_small_servers_are_counted_and_kept_once(n, participation):
    algorithm = algorithms.fedavg(lr=0.1, epochs=1, participation=participation)
    clients = data.iid(problems.dataset(n_examples=2 * n), n, seed=0)
    how = {"model": problems.linear(), "clients": clients, "rounds": 20}
    history = topofl.run(
        algorithm, **problems.options(executor="batched", **how), seed=0, progress=False
    )
    assert topofl.estimate(algorithm, **problems.options(**how)).history == pytest.approx(
        held(history), rel=0.2
    )
    assert sum(map(_matrices.bytes_of, history.matrices.kept)) <= 20 * 2**13


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "`rounds` must be at least 1, got 0"),
        ({"every": 0}, "`every` must be at least 1"),
        ({"before_exchange": "none"}, "`before_exchange` must be True or False"),
    ],
)
def test_rounds_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        topofl.estimate(
            algorithms.local_only(lr=0.1),
            model=problems.linear(),
            clients=problems.equal_clients(),
            **problems.options(**change),
        )


def test_changing_graphs_are_averaged_over_their_period():
    clients = problems.equal_clients()
    ring, star = topologies.ring(6), topologies.star(6)
    algorithm = algorithms.dsgd(0.1)
    history = topofl.run(
        algorithm,
        model=problems.linear(),
        clients=clients,
        topology=[ring, star],
        rounds=4,
        seed=0,
        compute=topofl.Compute(executor="looped"),
    )
    result = need(algorithm, clients, [ring, star])
    assert result.messages == 11
    check_against(result, history)
    endless = TopologySequence(6, lambda t: ring if t % 2 else star)
    assert need(algorithm, clients, endless).messages == 11


def test_fixed_weights_and_own_rules():
    ring = topologies.ring(6)
    assert (
        need(algorithms.dsgd(0.1), graph=ring, mixing=mixing.metropolis_hastings(ring)).messages
        == 12
    )
    assert need(algorithms.dsgd(0.1), graph=ring, mixing=mixing.max_degree).messages == 12
    with pytest.raises(ValueError, match="must be 0 off the edges"):
        need(
            algorithms.dsgd(0.1), graph=ring, mixing=mixing.metropolis_hastings(topologies.star(6))
        )


def test_pooled_and_silent_algorithms():
    clients = problems.equal_clients()
    pooled = topofl.estimate(algorithms.centralized(0.1), model=problems.linear(), clients=clients)
    assert (pooled.n, pooled.messages, pooled.busiest_bytes) == (1, 0, 0)
    silent = topofl.estimate(algorithms.local_only(0.1), model=problems.linear(), clients=clients)
    assert (silent.n, silent.messages) == (6, 0)


def test_nothing_is_changed_or_kept():
    model = problems.linear()
    before = [p.clone() for p in model.parameters()]
    torch_state = torch.get_rng_state()
    need(algorithms.dsgd(0.1), model=model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not any(layer._forward_hooks for layer in model.modules())
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_a_million_models_need_no_memory_here():
    clients = data.iid(data.digits(), 1497, seed=0)
    huge = nn.Sequential(nn.Flatten(), nn.Linear(64, 5_000), nn.Linear(5_000, 10))
    result = topofl.estimate(
        algorithms.dsgd(0.1, momentum=0.9),
        model=huge,
        clients=clients,
        topology=topologies.ring(1497),
    )
    assert result.total > 4 * 1497 * 370_000 * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "fast"}, "`executor` must be one of"),
        ({"chunk": 0}, "`chunk` must be at least 1"),
        ({"executor": "looped", "chunk": 8}, '`chunk` must be "auto" or 1 with executor="looped"'),
        ({"precision": "fp16"}, "`precision` must be one of"),
        (
            {"precision": "bf16", "dtype": torch.float64},
            "`dtype` must be torch.float32 with precision='bf16'",
        ),
        ({"device": "tpu"}, "`device` must be such as"),
        ({"device": "meta"}, "`device` must be such as"),
        ({"dtype": torch.int64}, "`dtype` must be a floating point type"),
        ({"nodes": 0}, "`nodes` must be at least 1"),
        ({"examples": 10**6}, "`evaluation.examples` must be between 1 and"),
        ({"graph": topologies.ring(7)}, "`topology` must have one node a client"),
        ({"model": nn.Linear(5, 3)}, "`model` cannot take examples"),
        ({"model": nn.BatchNorm1d(3)}, "`model` must not contain BatchNorm1d"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        need(algorithms.dsgd(0.1), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float32"}, "`dtype` must be a torch dtype"),
        ({"chunk": "Auto"}, "`chunk` must be an integer or \"auto\", got 'Auto'"),
        ({"clients": [1, 2]}, "`clients` must be a Partition"),
    ],
)
def test_arguments_of_bad_types(options, message):
    with pytest.raises(TypeError, match=message):
        topofl.estimate(
            algorithms.dsgd(0.1),
            **problems.options(
                **{
                    "model": problems.linear(),
                    "clients": problems.equal_clients(),
                    "topology": topologies.ring(6),
                }
                | options
            ),
        )


def test_exchanging_algorithms_need_a_topology():
    with pytest.raises(TypeError, match="`topology` must be given"):
        topofl.estimate(
            algorithms.dsgd(0.1), model=problems.linear(), clients=problems.equal_clients()
        )


def test_text():
    values = {
        field.name: 2**20 for field in fields(Estimate) if not field.name.startswith("seconds")
    }
    known = {
        "name": "dsgd on ring",
        "n": 100,
        "d": 7850,
        "executor": "batched",
        "chunk": 8,
        "workers": 2,
        "remedy": "",
        "returned": False,
        "beyond": -(2**20),
        "drawn": None,
    }
    text = str(Estimate(**values | known | {"messages": 200, "bytes": 3 * 2**20, "free": 2**34}))
    assert text.splitlines() == [
        "dsgd on ring: n=100 models of d=7,850 parameters, batched, chunk=8, workers=2",
        "memory            MiB",
        "----------------  ---",
        "parameters          1",
        "state               1",
        "fine_tuning         1",
        "gradients           1",
        "minibatches         1",
        "activations         1",
        "statistics          1",
        "float64             1",
        "phases              1",
        "mixing              1",
        "evaluation          1",
        "matrices            1",
        "data                1",
        "torch               1",
        "history             1",
        "by a probe         -1",
        "at once, at most   14",
        "",
        "adds 13 MiB of 16.0 GiB free",
        "",
        "per round                                  messages  MiB",
        "----------------------------------------  ---------  ---",
        "all nodes                                       200    3",
        "all nodes, as the D-Cliques paper counts  1,048,576    1",
        "busiest node, in and out                  1,048,576    1",
    ]


def test_numbers_are_plain():
    result = need(algorithms.clique_averaging(0.1))
    for field in fields(Estimate):
        assert type(getattr(result, field.name)) in (bool, int, str, type(None)), field.name
    assert not isinstance(result.total, np.generic)


@pytest.mark.parametrize("walks", [1, 6])
@pytest.mark.parametrize("graph", [topologies.star(12), topologies.ring(12)], ids=["star", "ring"])
def test_messages_of_random_walks_are_means_over_many_rounds(graph, walks):
    """A walk stays at its first leaf of a star for some rounds: round 0 differs from others."""
    clients = data.iid(problems.dataset(n_examples=120), 12, seed=0)
    how = {"model": problems.linear(), "clients": clients, "topology": graph}
    algorithm = algorithms.random_walks(0.1, walks=walks, batch_size=4)
    need = topofl.estimate(algorithm, rounds=100, evaluation=50, **how)
    history = topofl.run(algorithm, rounds=100, evaluation=50, seed=7, **how)
    for column in ("messages", "bytes"):
        assert getattr(need, column) == pytest.approx(history[column].mean(), rel=0.2)
    rounds, fewest, most = need.drawn
    assert rounds == 100
    assert fewest < need.messages < most
    assert (
        f"means over 100 rounds, with {fewest} to {most} messages each; a run draws others"
        in str(need)
    )


def test_messages_that_are_not_drawn_are_said_without_a_range():
    clients = problems.equal_clients()
    how = {"model": problems.linear(), "clients": clients, "topology": problems.cliques(clients)}
    for algorithm in (algorithms.dsgd(0.1), algorithms.choco_sgd(0.1, compressor="random_k(0.5)")):
        need = topofl.estimate(algorithm, **how)
        assert need.drawn is None
        assert "drawn at random" not in str(need)


@pytest.mark.parametrize("members", [10, 12, None], ids=["period 10", "period 12", "no period"])
def test_random_messages_are_recognized_on_changing_graphs(members):
    """By a second seed, since rounds of a period cannot be compared with each other."""
    graphs = [topologies.ring(6), topologies.star(6)] * 6
    graph = TopologySequence(6, lambda t: graphs[t % 2]) if members is None else graphs[:members]
    clients = problems.equal_clients()
    found = need(algorithms.random_walks(0.1, walks=2, batch_size=4), clients, graph)
    rounds, fewest, most = found.drawn
    assert rounds == {10: 100, 12: 108, None: 100}[members], "whole periods"
    assert fewest < found.messages < most
    assert need(algorithms.dsgd(0.1), clients, graph).drawn is None


def every_fifth_round(models, state, round):
    """Draw numbers that decide nothing, and exchange in rounds 4, 9, ..."""
    round.rng("unused").random()
    if round.t % 5 == 4:
        round.mix(round.weights, models.flat)
    return state


def test_messages_of_some_rounds_are_averaged_and_not_called_random():
    phase = algorithms.Phase(lambda models: {}, every_fifth_round)
    found = need(algorithms.chain("lazy", lazy=phase), graph=topologies.ring(6))
    assert found.drawn is None
    assert found.messages == 12 / 5
    two = need(algorithms.chain("lazy", lazy=phase), graph=[topologies.ring(6), topologies.star(6)])
    assert (two.drawn, two.messages) == (None, (12 + 10) / 10)


def test_large_random_estimates_stop_when_their_mean_is_precise(monkeypatch):
    rounds, play = [], TRAFFIC.play_rounds

    def counted(played, count):
        for round in play(played, count):
            rounds.append(round.t)
            yield round

    for module in (TRAFFIC, PREDICT):
        monkeypatch.setattr(module, "play_rounds", counted)
    clients = data.iid(problems.dataset(n_examples=6000), 3000, seed=0)
    found = need(algorithms.random_walks(0.1, batch_size=1), clients, topologies.ring(3000))
    assert found.drawn[0] == 3
    assert sorted(rounds) == [0, 0, 1, 2]
    assert found.messages == pytest.approx(2000, rel=0.03)


def test_random_senders_of_equally_many_messages_are_told_without_a_range():
    clock = {"compute": "exponential(1.0)"}
    found = need(algorithms.ad_psgd(0.1, clock=clock), graph=topologies.ring(6))
    assert found.drawn == (10, 12, 12)
    assert "which nodes send messages is drawn at random: maxima are those of 10 rounds" in str(
        found
    )
    assert "12 to 12" not in str(found)


@pytest.mark.parametrize(
    ("build", "tolerance"),
    [(algorithms.ad_psgd, 0.03), (algorithms.random_walks, 0)],
    ids=["ad_psgd", "random_walks"],
)
def test_what_asynchronous_runs_record_is_counted(build, tolerance):
    """Exactly, but for matrices that differ from round to round."""
    clients = data.iid(problems.dataset(n_examples=120), 12, seed=0)
    how = {
        "model": problems.linear(),
        "clients": clients,
        "topology": topologies.ring(12),
        "evaluation": 50,
    }
    algorithm = build(0.1, batch_size=4, clock={"compute": "exponential(1.0)"})
    history = topofl.run(algorithm, rounds=100, seed=0, **how)
    arrays = [
        *history.rounds.values(),
        *history.evaluations.values(),
        history.node_loss,
        history.matrix_of_round,
    ]
    arrays += [
        getattr(one.weights, part)
        for one in history.matrices
        for part in ("data", "indices", "indptr")
    ]
    assert topofl.estimate(algorithm, rounds=100, **how).history == pytest.approx(
        sum(one.nbytes for one in arrays), rel=tolerance
    )
