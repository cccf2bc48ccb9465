"""Inputs that have broken other libraries: each is refused by name or handled correctly.

`ROWS` names the test of each input, in this file or in another.
"""

import copy
import re
import threading
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from topofl import algorithms, data, metrics, mixing, topologies
from topofl.engine.checks.model import check_output
from topofl.engine.train.batches import Batches

ROWS = {
    "all-zero example counts": ["test_refused"],
    "empty client": [
        "test_refused",
        "data/test_partition.py::test_repaired_moves_from_the_largest_node",
    ],
    "endless retry": [
        "test_refused",
        "data/test_partition.py::test_dirichlet_finishes_where_redrawing",
    ],
    "one sample, tiny batch": [
        "test_small_clients_train_as_the_naive_loop",
        "test_a_client_larger_than_a_batch_by_one_has_a_batch_of_one",
        "test_models_are_refused_by_name",
    ],
    "single-class client": [
        "test_single_class_clients_learn_their_class",
        "test_no_own_examples_no_score",
    ],
    "unlabelled client": ["test_refused"],
    "disconnected random graph": [
        "test_refused",
        "test_parts_that_are_allowed_to_be_apart_train_apart",
    ],
    "non-stochastic weights": ["test_refused", "test_mixing.py::test_bad_weights"],
    "one node, no neighbours": [
        "test_one_node_is_plain_sgd",
        "test_isolated_nodes_train_alone_bit_for_bit",
    ],
    "labels of nodes": ["test_labels_of_nodes_are_kept_and_change_nothing"],
    "direction lost": ["test_asymmetric_weights_are_used_as_they_are"],
    "silent batch norm and dropout": [
        "test_models_are_refused_by_name",
        "test_models_that_look_odd_but_are_fine",
        "test_random_models_leave_the_global_generator_alone",
    ],
    "bad arguments": [
        "test_refused",
        "test_integer_images_are_pixels",
        "test_more_outputs_than_classes_are_fine",
        "engine/test_run.py::test_bad_input_is_refused_before_work_is_done",
        "test_fuzz.py::test_run_runs_or_names_the_argument",
    ],
    "corrupt or partial files": [
        "data/test_readers.py::test_read_idx_of_any_bytes",
        "data/test_cifar.py::test_any_bytes",
        "history/test_damaged.py::test_half_written_history_is_refused",
        "test_fuzz.py::test_damaged_datasets_are_read_or_refused_by_file",
        "test_fuzz.py::test_damaged_histories_are_refused_by_file",
        "engine/store/test_checkpoint.py::test_a_damaged_checkpoint_falls_back_to_the_one_before",
        "engine/store/test_checkpoint.py::test_other_versions_warn_and_another_format_is_refused",
    ],
    "nan or infinity": [
        "test_refused",
        "engine/test_run.py::test_nan_loss_names_node_round_and_learning_rate",
        "engine/test_run.py::test_divergence_by_learning_rate",
        "engine/train/test_divergence.py::test_the_first_node_is_named",
        "engine/train/test_divergence.py::test_recorded_divergence_does_not_stop_the_run_or_damage_its_history",
    ],
    "crash while writing": [
        "test_cli.py::test_results_that_cannot_be_saved_are_refused_before_training",
        "test_cli.py::test_interruption_and_exhaustion",
        "history/test_saving.py::test_saving_replaces_an_older_history_and_nothing_else",
        "engine/store/test_resume.py::test_killed_and_resumed_equals_never_stopped",
        "engine/store/test_full_disk.py::test_a_disk_that_is_really_full",
        "engine/store/test_full_disk.py::test_a_folder_that_is_not_writable_is_an_error_before_training",
    ],
    "wrong spectral number": ["test_spectra_say_where_they_do_not_apply"],
}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_its_tests(row):
    for place in ROWS[row]:
        file, _, name = place.rpartition("::")
        path = Path(__file__).parent / file if file else Path(__file__)
        assert f"def {name}" in path.read_text(), place
    assert ("test_refused" in ROWS[row]) == (row in REFUSED)


def run(algorithm=None, **changes):
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 3,
        "every": 3,
        "seed": 0,
    }
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        **problems.options(**(settings | changes)),
    )


def models_of(algorithm=None, **changes):
    """Return all nodes' models after a run in float64 from the model's own values, (n, d)."""
    kept = []
    options = {
        "init": "given",
        "dtype": torch.float64,
        "callbacks": [problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
    }
    run(algorithm, **(options | changes))
    return kept[-1]


def naive_nodes(clients, model, batch_size=4):
    modules = [copy.deepcopy(model).double() for _ in range(clients.n)]
    blobs = clients.dataset
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, batch_size, 0)


def clients_of(*train, **held):
    """Clients with these training examples, given by their places among all."""
    blobs = problems.dataset()
    return data.Partition(blobs, [blobs.train[places] for places in train], name="mine", **held)


def counts(*rows):
    return np.array(rows)


apart = nx.Graph([(0, 1), (1, 2), (2, 0)])
apart.add_nodes_from(range(6))

REFUSED = {
    "all-zero example counts": {
        "for cliques": (
            lambda: topologies.dcliques(np.zeros((6, 3), int), clique_size=3, seed=0),
            (
                "`label_counts` must give every node at least one example, node 0 has none (6 such "
                "nodes)"
            ),
        ),
        "for heterogeneity": (
            lambda: metrics.neighborhood_heterogeneity(
                topologies.ring(3), counts([1, 0], [0, 1], [0, 0])
            ),
            "`label_counts` must have at least one example per node, nodes 2 have none",
        ),
        "no examples at all": (
            lambda: data.from_arrays(np.zeros((0, 3)), []),
            "`x` must have shape (N, features...)",
        ),
        "none left to train on": (
            lambda: data.from_arrays(np.eye(2), [0, 1], test=0.9),
            "`test` must leave an example",
        ),
    },
    "empty client": {
        "a client": (
            lambda: clients_of([0, 1], [], [2]),
            "`train` must hold at least one example for every node, [1] of 3 nodes have none",
        ),
        "no client": (
            lambda: clients_of(),
            "`train` must hold at least one example for every node",
        ),
    },
    "endless retry": {
        "a size that cannot be": (
            lambda: data.dirichlet_per_class(
                problems.dataset(), 20, alpha=0.01, seed=0, min_size=9
            ),
            (
                "`min_size` must be at most 3 for n=20 nodes and 63 training examples, got 9; use "
                "min_size=3 or n=7"
            ),
        ),
    },
    "unlabelled client": {
        "by cliques": (
            lambda: topologies.dcliques(counts(*[[1, 0]] * 5, [0, 0]), clique_size=3, seed=0),
            "`label_counts` must give every node at least one example, node 5 has none",
        ),
        "no labels": (lambda: data.from_arrays(np.eye(3), [None] * 3), "`y` must be integers"),
    },
    "disconnected random graph": {
        "a run on it": (
            lambda: run(topology=apart),
            "`topology` must be connected for nodes to agree",
        ),
        "a sequence of it": (
            lambda: run(topology=[apart, apart]),
            "`topology` must be connected for nodes to agree",
        ),
        "one that must be": (
            lambda: topologies.random_regular(6, k=1, seed=0),
            "`k` must be at least 2 to connect n=6 nodes",
        ),
    },
    "non-stochastic weights": {
        "neither rows nor columns": (
            lambda: mixing.from_weights([[0.5, 0.5, 0], [0.5, 0.25, 0.2], [0, 0.3, 0.7]]),
            (
                "`weights` must have rows or columns that sum to 1; row 1 sums to 0.95 and column "
                "2 to 0.9"
            ),
        ),
        "a negative weight": (
            lambda: mixing.from_weights([[1.5, -0.5], [0, 1]]),
            "`weights` must have no negative entry, got -0.5 at (0, 1)",
        ),
        "off the edges": (
            lambda: run(mixing=mixing.metropolis_hastings(topologies.fully_connected(6))),
            "`weights` must be 0 off the edges",
        ),
        "columns only": (
            lambda: run(
                topology=topologies.star(6), mixing=lambda g: mixing.uniform(g, direction="push")
            ),
            "`mixing` must have rows that sum to 1 to average models",
        ),
    },
    "bad arguments": {
        "labels as floats": (
            lambda: data.from_arrays(np.eye(3), [0.0, 1.0, 2.0]),
            "`y` must be integers, got dtype",
        ),
        "labels below 0": (
            lambda: data.from_arrays(np.eye(2), [0, -1]),
            "`y` must be non-negative, got -1 at index 1",
        ),
        "labels beyond the classes": (
            lambda: data.from_arrays(np.eye(3), [0, 1, 5], n_classes=3),
            "`labels` must be in 0..2, got 5 at index 2",
        ),
        "integer images in a Dataset": (
            lambda: data.Dataset(
                torch.zeros(2, 4, dtype=torch.int16), torch.tensor([0, 1]), 2, "x", [0, 1], [], []
            ),
            "`inputs` must be a tensor of torch.float32 or torch.uint8 or torch.int32 or "
            "torch.int64, got torch.int16; data.from_arrays converts",
        ),
        "fewer outputs than classes": (
            lambda: run(model=nn.Sequential(nn.Flatten(), nn.Linear(36, 2))),
            "`model` must return at least n_classes=3 logits per example, got shape (1, 2)",
        ),
        "another shape": (
            lambda: run(model=nn.Sequential(nn.Flatten(), nn.Linear(35, 3))),
            "`model` cannot take examples of shape (1, 6, 6): RuntimeError",
        ),
        "a graph of another size": (
            lambda: run(topology=topologies.ring(5)),
            "`topology` must have one node per client: ring(n=5) has n=5, `clients` has n=6",
        ),
        "no function": (
            lambda: run(callbacks=[3]),
            "`callbacks` must be a list of functions that take an Event, got [3]",
        ),
        "an array for a word": (
            lambda: run(executor=np.array(["auto", "auto"])),
            "`executor` must be one of 'auto'",
        ),
        "a type of eight bits": (
            lambda: run(dtype=torch.float8_e5m2),
            "`dtype` must be a floating-point type",
        ),
        "a device without numbers": (lambda: run(device="meta"), "`device` must be such as 'cpu'"),
        "a device that is not there": (
            lambda: run(device="xla"),
            "`device` must be available, got 'xla'",
        ),
        "a model that cannot be batched": (
            lambda: run(
                model=Applied(lambda x: x if x.isfinite().all() else 2 * x), executor="batched"
            ),
            "`executor` must be 'looped' or 'auto' for this model, since torch.func cannot batch",
        ),
    },
    "nan or infinity": {
        "in data": (
            lambda: data.from_arrays([[0, 1], [np.nan, 1]], [0, 1]),
            "`inputs` must be finite, got nan at (1, 0) (1 such entries)",
        ),
        "of float32 only": (
            lambda: data.from_arrays([[0, 1e300]], [0]),
            "`inputs` must be finite, got inf at (0, 1)",
        ),
        "in weights": (
            lambda: mixing.from_weights([[np.nan, 1], [0, 1]]),
            "`weights` must be finite, got nan at (0, 0)",
        ),
        "in a graph": (
            lambda: topofl.as_topology(np.array([[0, np.inf], [1, 0]])),
            "must be finite, got inf at (0, 1)",
        ),
        "in a learning rate": (
            lambda: algorithms.dsgd(lr=np.nan),
            "`lr` must be a finite number above 0, got nan",
        ),
        "in a model": (
            lambda: run(model=with_value(np.nan), init="given"),
            "`model` must start with finite parameters, '1.weight' contains nan",
        ),
        "in a model, as float16": (
            lambda: run(model=with_value(1e30), init="given", dtype=torch.float16),
            "`model` must start with finite parameters, '1.weight' contains inf as torch.float16",
        ),
    },
}


def with_value(value):
    """Return a linear model one of whose weights is this."""
    model = problems.linear()
    with torch.no_grad():
        model[1].weight[1, 2] = value
    return model


class Applied(nn.Module):
    """A linear layer, and what a function makes of its input or its output."""

    def __init__(self, after=lambda x: x, before=lambda x: x, **parts):
        super().__init__()
        self.layer, self.before, self.after = nn.Linear(36, 3), before, after
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.after(self.layer(self.before(x.flatten(1))))


@pytest.mark.parametrize(
    ("row", "case"), [(row, case) for row, cases in REFUSED.items() for case in cases]
)
def test_refused(row, case):
    call, message = REFUSED[row][case]
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


# One sample, tiny batch

SMALL = ([0], [1, 2, 3, 4, 5], range(6, 14))


@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_small_clients_train_as_the_naive_loop(executor, model):
    clients = clients_of(*SMALL)
    nodes = naive_nodes(clients, model())
    naive.local_only(nodes, 5, lr=0.1)
    got = models_of(
        algorithms.local_only(lr=0.1, batch_size=4),
        clients=clients,
        topology=None,
        rounds=5,
        model=model(),
        executor=executor,
    )
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-12)


def test_a_client_larger_than_a_batch_by_one_has_a_batch_of_one():
    batches = Batches(clients_of(*SMALL).train, seed=0)
    steps = [batches.at(step, 4, "local") for step in range(4)]
    assert [batch.counts.tolist() for batch in steps] == [
        [1, 4, 4],
        [1, 1, 4],
        [1, 4, 4],
        [1, 1, 4],
    ]
    for first, last in (steps[:2], steps[2:]):
        assert sorted([*first.indices[1], last.indices[1, 0]]) == sorted(
            clients_of(*SMALL).train[1]
        )


# Single-class clients


def test_single_class_clients_learn_their_class():
    clients = data.one_class_per_node(problems.dataset(), 6, seed=0)
    assert ((clients.label_counts > 0).sum(1) == 1).all()
    history = run(
        algorithms.local_only(lr=1.0, batch_size=4), clients=clients, topology=None, rounds=60
    )
    assert all(np.isfinite(history[name]).all() for name in ("accuracy", "loss", "train_loss"))
    assert history["train_loss"][-1] < 0.1 * history["train_loss"][0]


def test_no_own_examples_no_score():
    blobs = problems.dataset()
    clients = clients_of([0], [1, 2], [3, 4], test=[[], blobs.test[:2], blobs.test[2:3]])
    history = run(clients=clients, topology=topologies.ring(3), on="own_test")
    assert np.isnan(history["accuracy"]).tolist() == [[True, False, False]] * 2
    frame = history.to_pandas()
    assert np.isfinite(frame["accuracy_mean"].iloc[-1])


# Graphs: in parts, of one node, with labels, with directions


def test_parts_that_are_allowed_to_be_apart_train_apart():
    parts = nx.Graph([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    clients = problems.equal_clients()
    together = models_of(topology=parts, on_disconnected="allow")
    nodes = naive_nodes(clients, problems.linear())
    naive.dsgd(nodes, np.kron(np.eye(2), np.full((3, 3), 1 / 3)), 3, lr=0.1)
    torch.testing.assert_close(together, nodes.flat(), rtol=0, atol=1e-12)
    assert metrics.compare([parts]).rows


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_node_is_plain_sgd(momentum):
    clients = data.iid(problems.dataset(), 1, seed=0)
    algorithm = algorithms.dsgd(lr=0.1, batch_size=1000, momentum=momentum)
    got = models_of(algorithm, clients=clients, topology=topologies.ring(1), rounds=5)
    model, blobs = problems.linear().double(), problems.dataset()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    everything = torch.tensor(clients.train[0])
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(
            model(blobs.inputs[everything].double()), blobs.labels[everything]
        ).backward()
        optimizer.step()
    wanted = nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(got[0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_isolated_nodes_train_alone_bit_for_bit(executor):
    options = {"dtype": torch.float32, "init": "common", "executor": executor}
    among = models_of(topology=apart, on_disconnected="allow", **options)
    alone = models_of(algorithms.local_only(lr=0.1, batch_size=4), topology=None, **options)
    assert torch.equal(among[3:], alone[3:])
    assert not torch.equal(among[:3], alone[:3])


def test_labels_of_nodes_are_kept_and_change_nothing():
    names = ["d", "b", ("a", 1), 7, "f", "e"]
    graph = nx.relabel_nodes(nx.cycle_graph(6), dict(enumerate(names)))
    assert topofl.as_topology(graph).nodes == tuple(names)
    assert torch.equal(models_of(topology=graph), models_of(topology=topologies.ring(6)))


def test_asymmetric_weights_are_used_as_they_are():
    adjacency = np.zeros((6, 6))
    for i in range(6):
        adjacency[i, (i + 1) % 6] = 0.1 * (i + 1)  # i tells i + 1, which gives it this weight
    adjacency[0, 3] = 0.25
    for rule in (mixing.own_weights, mixing.uniform):
        weights = run(topology=adjacency, mixing=rule).mixing(0).weights.toarray()
        received = weights - np.diag(np.diag(weights))
        wanted = (
            adjacency.T
            if rule is mixing.own_weights
            else adjacency.T.astype(bool) * np.diag(weights)[:, None]
        )
        np.testing.assert_allclose(received, wanted)
        nodes = naive_nodes(problems.equal_clients(), problems.linear())
        naive.dsgd(nodes, weights, 3, lr=0.1)
        got = models_of(topology=adjacency, mixing=rule)
        torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-12)


# Models


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, dropout=0.0):
        super().__init__()
        self.recurrent, self.head = (
            kind(6, 5, num_layers=2, dropout=dropout, batch_first=True),
            nn.Linear(5, 3),
        )

    def forward(self, x):
        return self.head(self.recurrent(x.flatten(1, 2))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.attention, self.head = (
            nn.MultiheadAttention(6, 2, dropout=dropout, batch_first=True),
            nn.Linear(36, 3),
        )

    def forward(self, x):
        x = x.flatten(1, 2)
        return self.head(self.attention(x, x, x, need_weights=False)[0].flatten(1))


class Tied(nn.Module):
    """Two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x.flatten(1)).tanh()))


class Buffered(nn.Module):
    """A linear layer after the subtraction of a buffer, which may move."""

    def __init__(self, share):
        super().__init__()
        self.layer, self.share = nn.Linear(36, 3), share
        self.register_buffer("mean", torch.full((36,), 0.5))

    def forward(self, x):
        x = x.flatten(1)
        if self.share:
            self.mean.mul_(1 - self.share).add_(x.detach().mean(0), alpha=self.share)
        return self.layer(x - self.mean)


class WithNothing(Applied):
    """A linear layer, and a parameter without numbers."""

    def __init__(self):
        super().__init__(own=nn.Parameter(torch.zeros(0)))

    def forward(self, x):
        return super().forward(x) + self.own.sum()


def dense(*layers):
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(36, 3))


OWN = np.random.default_rng(0)
FIXED = nn.utils.parametrizations
MODELS_REFUSED = {
    "dropout": (
        lambda: dense(nn.Dropout(0.5)),
        "`model` must not contain Dropout (layer '1'): it draws random numbers",
    ),
    "dropout when evaluating": (
        lambda: dense(nn.Dropout(0.5)).eval(),
        "must not contain Dropout (layer '1')",
    ),
    "dropout of channels": (
        lambda: nn.Sequential(nn.Dropout2d(0.1), *dense()),
        "must not contain Dropout2d (layer '0')",
    ),
    "alpha dropout": (lambda: dense(nn.AlphaDropout(0.1)), "must not contain AlphaDropout"),
    "random slopes": (lambda: dense(nn.RReLU()), "must not contain RReLU"),
    "dropout between layers": (
        lambda: Recurrent(dropout=0.5),
        "must not contain LSTM (layer 'recurrent'): it draws",
    ),
    "of units": (
        lambda: Recurrent(nn.GRU, dropout=0.5),
        "must not contain GRU (layer 'recurrent'): it draws",
    ),
    "dropout of attention": (
        lambda: Attentive(0.5),
        "must not contain MultiheadAttention (layer 'attention')",
    ),
    "hidden dropout": (
        lambda: Applied(before=functional.dropout),
        "`model` must return the same output for the same input",
    ),
    "noise": (
        lambda: Applied(after=lambda x: x + torch.randn(3)),
        "`model` must return the same output for the same input",
    ),
    "noise without effect": (
        lambda: Applied(after=lambda x: x + 0 * torch.rand(3)),
        "`model` must return the same output for the same input",
    ),
    "noise of numpy": (
        lambda: Applied(after=lambda x: x * OWN.random()),
        "`model` must return the same output for the same input",
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.BatchNorm2d(1), *dense()),
        "must not contain BatchNorm2d (layer '0')",
    ),
    "batch norm without statistics": (
        lambda: dense(nn.BatchNorm1d(36, track_running_stats=False)),
        "must not contain BatchNorm1d (layer '1')",
    ),
    "batch norm of processes": (
        lambda: nn.Sequential(nn.SyncBatchNorm(1), *dense()),
        "must not contain SyncBatchNorm",
    ),
    "instance norm with statistics": (
        lambda: nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), *dense()),
        "must not contain InstanceNorm2d (layer '0'): it keeps running statistics",
    ),
    "hidden batch norm": (
        lambda: Applied(
            before=lambda x: (
                functional.batch_norm(x, None, None, training=True) if len(x) > 1 else x
            )
        ),
        "`model` must treat the examples of a minibatch independently",
    ),
    "batch means": (
        lambda: Applied(before=lambda x: x - x.mean(0)),
        "`model` must treat the examples of a minibatch",
    ),
    "a buffer that moves": (
        lambda: Buffered(0.1),
        "`model` must not change its buffers, 'mean' changed",
    ),
    "spectral norm": (
        lambda: dense(FIXED.spectral_norm(nn.Linear(36, 36))),
        "`model` must not change its buffers",
    ),
    "weight norm of old": (
        lambda: Applied(part=Computed()),
        "it holds a computed tensor ('twice')",
    ),
    "no sizes yet": (
        lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
        "'1.weight' has none yet; apply a lazy",
    ),
    "no values": (
        lambda: dense().to("meta"),
        "`model` must have values in all its parameters, '1.weight' has none",
    ),
    "complex numbers": (
        lambda: Applied(own=nn.Parameter(torch.zeros(1, dtype=torch.complex64))),
        "`model` must have real parameters, 'own' is of torch.complex64",
    ),
    "several outputs": (
        lambda: Applied(lambda x: (x, x)),
        "`model` must return a tensor of logits, got tuple",
    ),
    "no output": (
        lambda: Applied(lambda x: None),
        "`model` must return a tensor of logits, got NoneType",
    ),
    "named outputs": (
        lambda: Applied(lambda x: {"logits": x}),
        "`model` must return a tensor of logits, got dict",
    ),
    "one number": (lambda: Applied(lambda x: x.sum()), "logits per example, got shape ()"),
    "no batch": (lambda: Applied(lambda x: x.squeeze()), "logits per example, got shape (3,)"),
    "classes": (
        lambda: Applied(lambda x: x.argmax(1, keepdim=True).expand(-1, 3)),
        "real logits that can be",
    ),
    "detached": (
        lambda: Applied(lambda x: x.detach()),
        "logits that can be differentiated, got torch.float32 with req",
    ),
    "mistakes": (
        lambda: Applied(lambda x: x["logits"]),
        "`model` cannot take examples of shape (1, 6, 6): IndexError",
    ),
    "own refusals": (
        lambda: Applied(int),
        "`model` cannot take examples of shape (1, 6, 6): ValueError",
    ),
    "not called": (
        lambda: nn.ModuleList([nn.Linear(36, 3)]),
        "`model` cannot take examples of shape",
    ),
    "copies on devices": (
        lambda: nn.DataParallel(dense()),
        "must not contain DataParallel (layer ''): it wraps",
    ),
    "no copies": (
        lambda: Applied(own=threading.Lock()),
        "`model` must be a module that copy.deepcopy can copy",
    ),
}


class Computed(nn.Module):
    """Keeps a tensor that was computed from its parameter, as torch.nn.utils.weight_norm does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.twice = 2 * self.weight


@pytest.mark.parametrize("executor", ["auto", "looped"])
@pytest.mark.parametrize("case", MODELS_REFUSED)
def test_models_are_refused_by_name(case, executor):
    build, message = MODELS_REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        run(model=build(), executor=executor)


def test_random_models_leave_the_global_generator_alone():
    model, before = Applied(before=functional.dropout), torch.get_rng_state()
    with pytest.raises(ValueError, match="random numbers"):
        check_output(model, torch.ones(3, 36), 3)
    assert torch.equal(before, torch.get_rng_state())


def fixed(build):
    """Return a model of the same values each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


MODELS = {
    "no dropout": (lambda: dense(nn.Dropout(0.0)), "batched"),
    "instance norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 1, 3, padding=1), nn.InstanceNorm2d(1, affine=True), *dense()
        ),
        "batched",
    ),
    "layers without dropout": (Recurrent, "looped"),
    "attention without dropout": (Attentive, "looped"),
    "tied weights": (Tied, "batched"),
    "a buffer that stays": (lambda: Buffered(0), "batched"),
    "evaluation mode": (lambda: problems.convolutional().eval(), "batched"),
    "no numbers in a parameter": (lambda: WithNothing(), "batched"),
    "half precision": (lambda: problems.linear().half(), "batched"),
    "a lazy one that was applied": (
        lambda: applied(nn.Sequential(nn.Flatten(), nn.LazyLinear(3))),
        "batched",
    ),
}


def applied(model):
    model(problems.dataset().inputs[:1])
    return model


@pytest.mark.parametrize("case", MODELS)
def test_models_that_look_odd_but_are_fine(case):
    build, executor = MODELS[case]
    model, clients = fixed(build), problems.equal_clients()
    nodes = naive_nodes(clients, model)
    naive.dsgd(nodes, mixing.metropolis_hastings(topologies.ring(6)).weights.toarray(), 3, lr=0.1)
    for one in {executor, "looped"}:
        torch.testing.assert_close(
            models_of(model=model, executor=one), nodes.flat(), rtol=0, atol=1e-10
        )


def test_more_outputs_than_classes_are_fine():
    history = run(model=nn.Sequential(nn.Flatten(), nn.Linear(36, 7)), rounds=30, every=30)
    assert history["accuracy"][-1].min() > 0.9


# Data


def test_integer_images_are_pixels():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    pixels = (80 * labels[:, None, None, None] + rng.integers(0, 60, (60, 1, 6, 6))).astype(
        np.uint8
    )
    inputs = [pixels, torch.from_numpy(pixels), (pixels / np.float32(255))]
    found = [
        models_of(clients=data.iid(data.from_arrays(x, labels, test=0.2), 6, seed=0))
        for x in inputs
    ]
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=1e-6)


# Spectra


def test_spectra_say_where_they_do_not_apply():
    table = metrics.compare([apart])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["spectral gap"], row["algebraic connectivity"], row["effective resistance"]) == (
        0,
        0,
        np.inf,
    )
    assert row["diameter"].reason == "some nodes cannot reach each other"
    assert "n/a" in str(table)
