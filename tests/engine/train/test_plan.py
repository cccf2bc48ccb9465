"""How a plan is chosen: by rule for linear models, by trials for others."""

import numpy as np
import pytest
from torch import nn

import topofl
from tests import problems
from topofl import algorithms, run
from topofl.engine import plan, training
from topofl.engine.executor import Executor
from topofl.engine.footprint import footprint
from topofl.engine.plan import Plan, Sizes, choose_plan
from topofl.topologies import ring

LARGE = Sizes(n=100, d=100_000, batch=20, batch_bytes=20 * 3072 * 4)


def compute(**changes):
    return topofl.Compute("cpu", **changes)


@pytest.fixture
def tried(monkeypatch):
    """Return a chooser with trials of known duration: seconds by (executor, nodes a call)."""
    clock = [0.0]
    monkeypatch.setattr(plan.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(plan.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(plan.torch, "set_num_threads", lambda threads: None)

    def choose(a_node, sizes=LARGE, fits=lambda plan: True, besides=0.0, **options):
        calls = []

        def trial(executor, chunk, nodes):
            calls.append((executor, chunk))
            choose.nodes.append((executor, nodes))
            assert nodes <= sizes.n
            clock[0] += a_node(executor, chunk) * nodes + besides

        return choose_plan(compute(**options), False, sizes, trial, fits), calls

    choose.nodes = []
    return choose


def batched_gains_up_to(best):
    """Return seconds a node that fall up to `best` nodes a call, and rise after it."""
    return lambda executor, chunk: (
        0.02 if executor == "looped" else 0.01 * (1 + abs(chunk - best) / best)
    )


def test_looped_where_it_is_faster(tried):
    chosen, calls = tried(lambda executor, chunk: 0.01 if executor == "looped" else 0.02)
    assert chosen == Plan("looped", 1, 2, 1)
    assert set(calls) == {("looped", 1), ("batched", 8)}


@pytest.mark.parametrize(
    ("step_bytes", "first"), [(0, 8), (4 * 2**20, 8), (10 * 2**20, 3), (2**30, 2)]
)
def test_the_first_trial_takes_little_memory(tried, step_bytes, first):
    _, calls = tried(
        lambda executor, chunk: 0.01 * chunk, sizes=LARGE._replace(step_bytes=step_bytes)
    )
    assert next(chunk for executor, chunk in calls if executor == "batched") == first


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk": 2},
        {"sizes": Sizes(10, 1_000_000, 20, 99)},
        {"sizes": Sizes(4, 1_000_000, 20, 99)},
    ],
)
def test_what_a_trial_costs_besides_its_nodes_does_not_decide(tried, options):
    """Both executors are timed on as many nodes; a trial takes a node's time besides."""
    for faster in ("looped", "batched"):
        chosen, _ = tried(
            lambda executor, chunk, faster=faster: 0.009 if executor == faster else 0.01,
            besides=0.01,
            **options,
        )
        assert chosen.executor == faster


def test_slow_models_are_tried_on_one_node_only(tried):
    tried(lambda executor, chunk: 1.0)
    assert set(tried.nodes) == {("looped", 1)}


STEPS = tuple([10] * 10 + [1] * 90)
"""Of 100 nodes: one in ten takes ten times as many as the others."""


def test_batched_nodes_that_wait_for_others_count(tried):
    def a_node(executor, chunk):
        return 0.02 if executor == "looped" else 0.011

    def twice(executor, chunk):
        return 0.02 if executor == "looped" else 0.018

    assert tried(a_node, sizes=LARGE._replace(steps=(STEPS,)))[0].executor == "batched", (
        "8 wait little"
    )
    assert tried(twice)[0].executor == "batched"
    assert tried(twice, sizes=LARGE._replace(steps=(STEPS,)))[0].executor == "looped"


class Counted(nn.Module):
    """A small network that is not linear."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(36, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.second(self.first(x.flatten(1)).relu())


@pytest.mark.parametrize("epochs", [2, [1, 5, 1, 0, 2, 1]])
@pytest.mark.parametrize("chunk", [1, 2, 4, 6])
def test_waiting_is_what_the_engine_computes(monkeypatch, chunk, epochs):
    computed, gradients = [], Executor.gradients

    def counted(executor, worker, models, minibatches, rows, *rest):
        computed.append(len(minibatches.indices[rows]))
        return gradients(executor, worker, models, minibatches, rows, *rest)

    monkeypatch.setattr(Executor, "gradients", counted)
    clients, model = problems.ragged_clients(), Counted()
    algorithm = algorithms.local_only(0.1, batch_size=4, epochs=epochs)
    run(
        algorithm,
        model=model,
        clients=clients,
        rounds=1,
        seed=0,
        compute=topofl.Compute(executor="batched", chunk=chunk),
        progress=False,
    )
    setup = problems.resolved(algorithm, model, clients, ring(6))
    sizes = footprint(setup, []).sizes
    taken = sum(map(sum, sizes.steps))
    assert taken == sum(np.asarray(epochs) * -(-clients.sizes // 4))
    assert sum(computed) == pytest.approx(sizes.waiting_factor(chunk) * taken)


def test_trials_are_of_as_many_nodes_as_they_say(monkeypatch):
    """The first nodes are tried, by chunks; looped ones one after the other."""
    tried, gradients, train = set(), Executor.gradients, training.local_steps

    def noted(executor, worker, models, minibatches, rows, *rest):
        tried.add((executor.plan.executor, rows.start, rows.stop))
        return gradients(executor, worker, models, minibatches, rows, *rest)

    def after_trials(*given):
        monkeypatch.setattr(Executor, "gradients", gradients)
        return train(*given)

    monkeypatch.setattr(Executor, "gradients", noted)
    monkeypatch.setattr(training, "local_steps", after_trials)
    run(
        algorithms.dsgd(0.1, batch_size=4),
        model=Counted(),
        clients=problems.equal_clients(),
        topology=ring(6),
        rounds=1,
        seed=0,
        compute=topofl.Compute(chunk=4),
    )
    assert tried == {("looped", k, k + 1) for k in range(6)} | {
        ("batched", 0, 4),
        ("batched", 4, 6),
    }


@pytest.mark.parametrize(("best", "wanted"), [(8, 8), (16, 13), (32, 25)])
def test_chunks_grow_while_they_gain(tried, best, wanted):
    chosen, calls = tried(batched_gains_up_to(best))
    assert chosen == Plan("batched", wanted, 2, 1)
    assert max(chunk for _, chunk in calls) <= min(2 * best, 50), (
        "far larger chunks were tried, or more than a share"
    )


def test_given_executor_and_chunk_need_no_trial(tried):
    assert tried(None, executor="looped") == (Plan("looped", 1, 2, 1), [])
    assert tried(None, executor="batched", chunk=30) == (Plan("batched", 30, 2, 1), [])


def test_given_chunk_is_the_only_one_tried(tried):
    chosen, calls = tried(batched_gains_up_to(30), chunk=30)
    assert chosen == Plan("batched", 30, 2, 1)
    assert set(calls) == {("looped", 1), ("batched", 30)}


def test_models_that_torch_cannot_batch_are_looped_unless_asked_for(tried):
    def trial(executor, chunk):
        if executor == "batched":
            raise RuntimeError("vmap cannot")
        return 0.01

    assert tried(trial)[0].executor == "looped"
    with pytest.raises(RuntimeError, match="vmap cannot"):
        tried(trial, executor="batched")


def test_little_work_stays_on_one_thread(tried):
    chosen, _ = tried(lambda executor, chunk: 0.01, sizes=Sizes(10, 100, 8, 256))
    assert (chosen.workers, chosen.threads) == (1, 1)


def test_one_node_has_all_threads_within_torch(tried):
    assert tried(None, sizes=Sizes(1, 10_000_000, 128, 4096)) == (Plan("looped", 1, 1, 2), [])


@pytest.mark.parametrize(("n", "batch", "chunk"), [(100, 128, 10), (1000, 13, 100), (3, 128, 2)])
def test_linear_models_take_chunks_that_stay_in_cache(monkeypatch, n, batch, chunk):
    monkeypatch.setattr(plan.torch, "get_num_threads", lambda: 2)
    sizes = Sizes(n, 7850, batch, batch * 784 * 4)
    chosen = choose_plan(compute(), True, sizes, trial=None)
    threads = 2 if n * 7850 * batch >= plan.SHARED_WORK else 1
    assert chosen.chunk == (chunk if threads == 2 else n)
    assert chosen.chunk * sizes.batch_bytes <= plan.LINEAR_BYTES
    assert chosen.workers == threads


def at_most(nodes, workers=2):
    """Return the check that so many nodes fit at once, of one worker or more."""
    return lambda plan: plan.workers * plan.chunk <= nodes and plan.workers <= workers


def test_chunks_that_do_not_fit_are_not_tried(tried):
    chosen, calls = tried(batched_gains_up_to(32), fits=at_most(24))
    assert max(chunk for _, chunk in calls) == 12
    assert chosen == Plan("batched", 10, 2, 1)  # equal shares


def test_workers_are_fewer_where_not_even_a_node_each_fits(tried):
    chosen, _ = tried(batched_gains_up_to(32), fits=at_most(1))
    assert (chosen.chunk, chosen.workers, chosen.threads) == (1, 1, 2)


def test_what_torch_would_batch_is_looped_where_only_that_fits(tried):
    for chunk in ("auto", 30):
        found = tried(batched_gains_up_to(32), fits=lambda p: p.executor == "looped", chunk=chunk)
        assert found == (Plan("looped", 1, 2, 1), [])


def test_without_trials_the_first_is_taken():
    assert choose_plan(compute(), False, LARGE, None).chunk == 8
    assert choose_plan(compute(), False, LARGE, None, at_most(5)).chunk <= 5


def test_linear_chunks_fit(monkeypatch):
    monkeypatch.setattr(plan.torch, "get_num_threads", lambda: 2)
    chosen = choose_plan(compute(), True, Sizes(1000, 7850, 13, 13 * 784 * 4), None, at_most(50))
    assert (chosen.chunk, chosen.workers) == (25, 2)
