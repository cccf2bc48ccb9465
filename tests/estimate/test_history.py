"""Estimated memory of histories equals that of recorded ones."""

import pytest

import topofl
from tests import problems
from topofl import algorithms, data, topologies
from topofl.history.matrices import bytes_of


def held(history):
    """Return the bytes of all arrays of a history, and of its matrices as they are stored."""
    arrays = [*history.rounds.values(), *history.evaluations.values()]
    arrays += [history.node_loss, history.matrix_of_round]
    return sum(array.nbytes for array in arrays) + sum(map(bytes_of, history.matrices.kept))


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
def test_memory_of_the_history_includes_all_rounds(algorithm, options, topology, rounds):
    clients = data.iid(problems.dataset(n_examples=800), 400, seed=0)
    how = {"model": problems.linear(), "clients": clients, "topology": topology} | options
    need = topofl.estimate(algorithm, rounds=rounds, **problems.options(**how))
    run = problems.options(executor="batched", on_disconnected="allow", **how)
    history = topofl.run(algorithm, rounds=rounds, seed=0, **run)
    exact = rounds == 1 and topology is not None and not callable(topology)
    assert need.history == pytest.approx(held(history), rel=0.001 if exact else 0.2)
    without = topofl.estimate(algorithm, **problems.options(**how))
    assert (without.history, need.total - without.total) == (0, need.history)


@pytest.mark.parametrize("participation", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("n", [20, 50])
def test_equal_rows_of_small_servers_are_stored_once(n, participation):
    algorithm = algorithms.fedavg(lr=0.1, epochs=1, participation=participation)
    clients = data.iid(problems.dataset(n_examples=2 * n), n, seed=0)
    how = {"model": problems.linear(), "clients": clients, "rounds": 20}
    history = topofl.run(
        algorithm, **problems.options(executor="batched", **how), seed=0, progress=False
    )
    assert topofl.estimate(algorithm, **problems.options(**how)).history == pytest.approx(
        held(history), rel=0.2
    )
    assert sum(map(bytes_of, history.matrices.kept)) <= 20 * 2**13


@pytest.mark.parametrize(
    ("build", "tolerance"),
    [(algorithms.ad_psgd, 0.03), pytest.param(algorithms.random_walks, 0, marks=pytest.mark.slow)],
    ids=["ad_psgd", "random_walks"],
)
def test_memory_of_asynchronous_histories_is_counted(build, tolerance):
    """Exactly, but for matrices that differ from round to round."""
    clients = data.iid(problems.dataset(n_examples=120), 12, seed=0)
    how = {"model": problems.linear(), "clients": clients, "topology": topologies.ring(12)}
    how |= {"evaluation": 50}
    algorithm = build(0.1, batch_size=4, clock={"compute": "exponential(1.0)"})
    history = topofl.run(algorithm, rounds=100, seed=0, **how)
    assert topofl.estimate(algorithm, rounds=100, **how).history == pytest.approx(
        held(history), rel=tolerance
    )
