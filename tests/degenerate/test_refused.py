"""Inputs that have broken other libraries: each is refused by name or handled correctly.

`ROWS` names the tests of each kind of input, in this file or, by their path in ``tests``, in
others.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.degenerate.inputs import DISCONNECTED, Applied, clients_of, linear_with, run
from topofl import algorithms, data, metrics, mixing, topologies

ROWS = {
    "all-zero example counts": ["test_refused"],
    "empty client": [
        "test_refused",
        "data/partitioners/test_allocations.py::test_repaired_moves_from_the_largest_node_and_its_most_frequent_class",
    ],
    "endless retry": [
        "test_refused",
        "data/partitioners/test_allocations.py::test_dirichlet_finishes_where_redrawing_until_it_fits_does_not",
    ],
    "one example, tiny minibatch": [
        "degenerate/test_training.py::test_small_clients_train_as_the_naive_loop",
        "degenerate/test_training.py::test_a_remainder_of_one_example_is_a_minibatch_of_one",
        "degenerate/test_models.py::test_models_are_refused_by_name",
    ],
    "single-class client": [
        "degenerate/test_training.py::test_single_class_clients_learn_their_class",
        "degenerate/test_training.py::test_clients_without_test_examples_have_no_score",
    ],
    "unlabeled client": ["test_refused"],
    "disconnected random graph": [
        "test_refused",
        "degenerate/test_training.py::test_disconnected_parts_train_separately_if_allowed",
    ],
    "non-stochastic weights": ["test_refused", "mixing/test_matrix.py::test_bad_weights"],
    "one node, no neighbors": [
        "degenerate/test_training.py::test_one_node_is_plain_sgd",
        "degenerate/test_training.py::test_isolated_nodes_train_as_without_a_graph_bit_for_bit",
    ],
    "node labels": ["degenerate/test_training.py::test_node_labels_are_kept_and_change_nothing"],
    "lost direction": ["degenerate/test_training.py::test_asymmetric_weights_are_not_symmetrized"],
    "unnoticed batch norm and dropout": [
        "degenerate/test_models.py::test_models_are_refused_by_name",
        "degenerate/test_models.py::test_unusual_models_train_as_the_naive_loop",
        "degenerate/test_models.py::test_checks_of_random_models_do_not_change_the_global_generator",
    ],
    "bad arguments": [
        "test_refused",
        "degenerate/test_training.py::test_integer_images_are_pixels",
        "degenerate/test_models.py::test_models_may_have_more_outputs_than_classes",
        "engine/test_refused_runs.py::test_bad_input_is_refused_before_training",
        "engine/test_refused_evaluations.py::test_bad_input_is_refused_before_training",
        "test_fuzz.py::test_run_runs_or_names_the_argument",
    ],
    "corrupt or partial files": [
        "data/readers/test_readers.py::test_read_idx_of_any_bytes_gives_an_array_or_a_value_error",
        "data/readers/test_cifar_pickles.py::test_any_bytes_give_a_dataset_or_a_value_error",
        "contracts/test_stored.py::test_a_file_that_is_missing_is_named",
        "contracts/test_stored.py::test_damaged_files_are_read_or_refused_by_name",
        "engine/store/test_checkpoint.py::test_a_damaged_checkpoint_falls_back_to_the_one_before",
        "engine/store/test_checkpoint.py::test_other_versions_warn",
    ],
    "nan or infinity": [
        "test_refused",
        "engine/test_run_evaluations.py::test_nan_loss_names_node_round_and_learning_rate",
        "engine/test_run_evaluations.py::test_divergence_by_learning_rate",
        "engine/train/test_divergence.py::test_the_first_node_is_named",
        "engine/train/test_divergence.py::test_recorded_divergence_does_not_stop_the_run_or_damage_its_history",
    ],
    "crash while writing": [
        "cli/test_run_folders.py::test_results_that_cannot_be_saved_are_refused_before_training",
        "cli/test_run.py::test_interruption_and_exhaustion",
        "history/test_saving.py::test_an_exchange_that_fails_leaves_the_older_history",
        "engine/store/test_resume.py::test_every_round_can_be_resumed_from",
        "contracts/test_stores.py::test_a_disk_that_is_really_full",
        "contracts/test_stores.py::test_a_folder_that_is_not_writable_is_an_error_before_training",
    ],
    "wrong spectral number": ["degenerate/test_training.py::test_spectra_of_disconnected_graphs"],
}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_its_tests(row):
    for test in ROWS[row]:
        file, _, name = test.rpartition("::")
        path = Path(__file__).parents[1] / file if file else Path(__file__)
        assert f"def {name}(" in path.read_text(), test
    assert ("test_refused" in ROWS[row]) == (row in REFUSED)


REFUSED = {
    "all-zero example counts": {
        "for cliques": (
            lambda: topologies.dcliques(np.zeros((6, 3), int), clique_size=3, seed=0),
            (
                "`label_counts` must give every node at least one example, but node 0 has none "
                "(6 such nodes)"
            ),
        ),
        "for heterogeneity": (
            lambda: metrics.neighborhood_heterogeneity(
                topologies.ring(3), np.array([[1, 0], [0, 1], [0, 0]])
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
        "one client": (
            lambda: clients_of([0, 1], [], [2]),
            "`train` must hold at least one example for every node, [1] of 3 nodes have none",
        ),
        "no clients": (
            lambda: clients_of(),
            "`train` must hold at least one example for every node",
        ),
    },
    "endless retry": {
        "an unreachable minimum": (
            lambda: data.dirichlet_per_class(
                problems.dataset(), 20, alpha=0.01, seed=0, min_size=9
            ),
            (
                "`min_size` must be at most 3 for n=20 nodes and 63 training examples, got 9; use "
                "min_size=3 or n=7"
            ),
        ),
    },
    "unlabeled client": {
        "for cliques": (
            lambda: topologies.dcliques(np.array([[1, 0]] * 5 + [[0, 0]]), clique_size=3, seed=0),
            "`label_counts` must give every node at least one example, but node 5 has none",
        ),
        "no labels": (
            lambda: data.from_arrays(np.eye(3), [None] * 3),
            "`y` must have a value for every example",
        ),
    },
    "disconnected random graph": {
        "in a run": (
            lambda: run(topology=DISCONNECTED),
            "`topology` must be connected for nodes to agree",
        ),
        "in a sequence": (
            lambda: run(topology=[DISCONNECTED, DISCONNECTED]),
            "`topology` must be connected for nodes to agree",
        ),
        "never connected": (
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
        "weights off the edges": (
            lambda: run(mixing=mixing.metropolis_hastings(topologies.fully_connected(6))),
            "`weights` must be 0 off the edges",
        ),
        "column-stochastic": (
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
        "a callback that is no function": (
            lambda: run(callbacks=[3]),
            "`callbacks` must be a list of functions that take an Event, got [3]",
        ),
        "an array instead of a name": (
            lambda: run(executor=np.array(["auto", "auto"])),
            "`executor` must be one of 'auto'",
        ),
        "a dtype of 8 bits": (
            lambda: run(dtype=torch.float8_e5m2),
            "`dtype` must be a floating-point type",
        ),
        "a device without values": (lambda: run(device="meta"), "`device` must be such as 'cpu'"),
        "an unavailable device": (
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
        "as float32": (
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
            lambda: run(model=linear_with(np.nan), init="given"),
            "`model` must start with finite parameters, '1.weight' contains nan",
        ),
        "in a model, as float16": (
            lambda: run(model=linear_with(1e30), init="given", dtype=torch.float16),
            "`model` must start with finite parameters, '1.weight' contains inf as torch.float16",
        ),
    },
}


@pytest.mark.parametrize(
    ("row", "case"), [(row, case) for row, cases in REFUSED.items() for case in cases]
)
def test_refused(row, case):
    call, message = REFUSED[row][case]
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()
