"""Two and three ranks give the results of one process, and continue each other's checkpoints."""

import os

import numpy as np
import pytest
import torch

from tests.engine.distributed import cases, same_results
from tests.new_process import results_of
from topofl import algorithms
from topofl._support.seeding import stream
from topofl.engine.minibatches import Batches


@pytest.fixture(scope="module")
def verdicts():
    return results_of("tests.engine.distributed.same_results", timeout=1000)


def test_all_algorithms_are_cases():
    assert set(algorithms.__all__) < set(cases.CASES)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("case", cases.CASES)
@pytest.mark.slow
def test_results_do_not_depend_on_ranks(verdicts, case):
    assert verdicts[case] == {"2 ranks": [], "3 ranks": [], "alone after 3 ranks": []}


def test_differences_are_found():
    history = same_results.run("dsgd")
    assert same_results.differences(history, history, 1e-10) == []
    assert same_results.differences(same_results.run("dsgd", seed=1), history, 1e-10)
    history.rounds["train_loss"][0] += 1e-6
    assert same_results.differences(history, same_results.run("dsgd"), 1e-10) == [
        "rounds.train_loss: 1e-06"
    ]


def examples_of(batch):
    """Count the examples in each node's minibatch."""
    real = torch.ones(batch.indices.shape) if batch.weights is None else batch.weights > 0
    return real.sum(1)


def test_minibatches_of_some_nodes_are_bitwise_those_of_all():
    rng = stream(0, "members", 0)
    members = [rng.permutation(90)[:size] for size in (3, 11, 7, 20)]
    everyone, some = Batches(members, 5), Batches(members[1::2], 5, nodes=np.array([1, 3]))
    for step in range(9):
        for size in (1, 4):
            whole, part = (one.at(step, size, "local") for one in (everyone, some))
            assert examples_of(part).tolist() == examples_of(whole)[1::2].tolist()
            for row, of_all in zip(part.indices, whole.indices[1::2], strict=True):
                width = len(row)
                assert row.tolist() == of_all[:width].tolist()
