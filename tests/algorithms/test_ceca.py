"""DSGD-CECA averages exactly in the fewest rounds, whatever the number of nodes."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from topofl import TopologyError, algorithms, topologies


def nothing_learned(round, step):
    """Return a learning rate of 0."""
    return 0.0


def models_after(rounds, n, *, one_port=False):
    """Return the models after some rounds without gradients, (n, d)."""
    if rounds == 0:
        modules = problems.modules_at_start(problems.linear(), n, init="independent")
        return np.stack([naive.vector_of(module).numpy() for module in modules])
    history = topofl.run(
        algorithms.dsgd_ceca(nothing_learned, one_port=one_port),
        model=problems.linear(),
        clients=problems.equal_clients(n),
        init="independent",
        rounds=rounds,
        seed=3,
        compute=topofl.Compute(dtype=torch.float64),
    )
    assert history.models is not None
    return history.models.flat.numpy()


@pytest.mark.parametrize(
    ("n", "one_port"),
    [*((n, False) for n in range(2, 14)), *((n, True) for n in range(2, 14, 2)), (33, False)],
)
def test_models_are_the_mean_after_a_period_and_not_before(n, one_port):
    period = int(np.ceil(np.log2(n)))
    start, before, end = (
        models_after(rounds, n, one_port=one_port) for rounds in (0, period - 1, period)
    )
    np.testing.assert_allclose(end, np.broadcast_to(start.mean(axis=0), end.shape), atol=1e-12)
    assert np.ptp(before, axis=0).max() > 0.01


def test_a_node_sends_one_model_per_round_whatever_the_graph():
    n = 5
    settings = {"model": problems.linear(), "clients": problems.equal_clients(n), "rounds": 3}
    free, ring = (
        topofl.run(algorithms.dsgd_ceca(0.1), topology=graph, seed=0, **settings)
        for graph in (None, topologies.ring(n))
    )
    parameters = 36 * 3 + 3
    assert free["messages"].tolist() == [n] * 3
    assert free["bytes"].tolist() == [4 * parameters * n] * 3
    np.testing.assert_array_equal(free["bytes"], ring["bytes"])
    np.testing.assert_array_equal(free["train_loss"], ring["train_loss"])


@pytest.mark.parametrize(
    ("n", "one_port", "said"), [(1, False, "at least 2 nodes"), (5, True, "an even number of")]
)
def test_numbers_of_nodes_that_have_no_exchange_are_refused(n, one_port, said):
    with pytest.raises(TopologyError, match=said):
        models_after(1, n, one_port=one_port)
