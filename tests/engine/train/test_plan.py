"""How a plan is chosen: by rule for linear models, by trials for others."""

import numpy as np
import pytest
from torch import nn

import topofl
from tests import problems
from tests.algorithms.test_objectives import contrast, starts
from topofl import algorithms
from topofl.engine import plan
from topofl.engine.executor import Executor
from topofl.engine.footprint import footprint
from topofl.engine.plan import Plan, Sizes, choose_plan
from topofl.topologies import ring

LARGE = Sizes(n=100, d=100_000, batch=20, batch_bytes=20 * 3072 * 4)


def fixed(looped=0.02, batched=0.01):
    """Return seconds a node of each executor."""
    return lambda executor, chunk: looped if executor == "looped" else batched


def gains_up_to(best):
    """Return seconds a node that fall up to `best` nodes a call, and rise after it."""
    return lambda executor, chunk: fixed(0.02, 0.01 * (1 + abs(chunk - best) / best))(executor, 0)


def unbatched(executor, chunk):
    if executor == "batched":
        raise RuntimeError("vmap cannot")
    return 0.01


def at_most(nodes, workers=2):
    """Return the check that so many nodes fit at once, of one worker or more."""
    return lambda plan: plan.workers * plan.chunk <= nodes and plan.workers <= workers


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

        found = choose_plan(topofl.Compute("cpu", **options), False, sizes, trial, fits)
        return found, set(calls)

    choose.nodes = []
    return choose


LOOPED = Plan("looped", 1, 2, 1)
BOTH = {("looped", 1), ("batched", 8)}
STEPS = (tuple([10] * 10 + [1] * 90),)
"""Of 100 nodes: one in ten takes ten times as many as the others."""

WAITING = LARGE._replace(steps=STEPS)

PLANS = {
    "looped where it is faster": (fixed(0.01, 0.02), {}, LOOPED, BOTH),
    "heavy models are looped without another trial": (fixed(1.0, 1.0), {}, LOOPED, {("looped", 1)}),
    "a given executor needs no trial": (None, {"executor": "looped"}, LOOPED, set()),
    "nor do executor and chunk": (
        None, {"executor": "batched", "chunk": 30}, Plan("batched", 30, 2, 1), set()
    ),
    "a given chunk is the only one tried": (
        gains_up_to(30), {"chunk": 30}, Plan("batched", 30, 2, 1), {("looped", 1), ("batched", 30)}
    ),
    "torch cannot batch": (unbatched, {}, LOOPED, BOTH),
    "one node has all threads within torch": (
        None, {"sizes": Sizes(1, 10_000_000, 128, 4096)}, Plan("looped", 1, 1, 2), set()
    ),
    "only looped fits": (
        gains_up_to(32), {"fits": lambda plan: plan.executor == "looped"}, LOOPED, set()
    ),
    "8 wait little": (fixed(0.02, 0.011), {"sizes": WAITING}, "batched", None),
    "nobody waits": (fixed(0.02, 0.018), {}, "batched", None),
    "many wait": (fixed(0.02, 0.018), {"sizes": WAITING}, "looped", None),
}  # fmt: skip
"""Seconds of trials and options; the plan, or its executor, and all that was tried."""


@pytest.mark.parametrize("case", PLANS)
def test_plans_follow_from_trials(tried, case):
    a_node, options, wanted, calls = PLANS[case]
    chosen, found = tried(a_node, **options)
    assert (chosen if isinstance(wanted, Plan) else chosen.executor) == wanted
    assert calls is None or found == calls


@pytest.mark.parametrize(("best", "wanted"), [(8, 8), (16, 13), (32, 25)])
def test_chunks_grow_while_they_gain(tried, best, wanted):
    chosen, calls = tried(gains_up_to(best))
    assert chosen == Plan("batched", wanted, 2, 1)
    largest = max(chunk for _, chunk in calls)
    assert largest <= min(2 * best, 50), "far larger chunks were tried, or more than a share"


SAMPLED = LARGE._replace(steps=((5,) * 20,))
"""Of 100 nodes, 20 train in a round."""


@pytest.mark.parametrize(("best", "wanted"), [(8, 5), (64, 10)])
def test_workers_share_the_nodes_of_a_sample(tried, best, wanted):
    chosen, calls = tried(gains_up_to(best), sizes=SAMPLED)
    assert chosen == Plan("batched", wanted, 2, 1)
    assert max(chunk for _, chunk in calls) <= 10, "more than a worker's share was tried"
    linear = choose_plan(topofl.Compute("cpu"), True, SAMPLED, None, lambda plan: True)
    assert (linear.chunk, linear.workers) == (10, 2)
    few, _ = tried(fixed(), sizes=SAMPLED, chunk=20)
    assert few == Plan("batched", 20, 1, 2), "one call has all threads within torch"


def test_a_sample_is_counted_in_the_sizes_of_a_run():
    how = {"model": Counted(), "clients": problems.equal_clients()}
    algorithm = algorithms.fedavg(0.1, batch_size=4, participation=2)
    sizes = footprint(problems.resolved(algorithm, **how), []).sizes
    assert (sizes.n, sizes.together) == (6, 2)
    assert sizes._replace(n=1).together == 1, "a rank has more nodes than it holds"


def test_chunks_and_workers_fit(tried):
    chosen, calls = tried(gains_up_to(32), fits=at_most(24))
    assert max(chunk for _, chunk in calls) == 12
    assert chosen == Plan("batched", 10, 2, 1)  # equal shares
    chosen, _ = tried(gains_up_to(32), fits=at_most(1))
    assert (chosen.chunk, chosen.workers, chosen.threads) == (1, 1, 2)
    chosen, _ = tried(fixed(), sizes=Sizes(10, 100, 8, 256))  # little work stays on one thread
    assert (chosen.workers, chosen.threads) == (1, 1)
    assert choose_plan(topofl.Compute("cpu"), False, LARGE, None, at_most(100)).chunk == 8
    assert choose_plan(topofl.Compute("cpu"), False, LARGE, None, at_most(5)).chunk <= 5


@pytest.mark.parametrize(
    ("step_bytes", "first"), [(0, 8), (4 * 2**20, 8), (10 * 2**20, 3), (2**30, 2)]
)
def test_the_first_trial_takes_little_memory(tried, step_bytes, first):
    sizes = LARGE._replace(step_bytes=step_bytes)
    _, calls = tried(lambda executor, chunk: 0.01 * chunk, sizes=sizes)
    assert min(chunk for executor, chunk in calls if executor == "batched") == first


@pytest.mark.parametrize(
    "options",
    [{}, {"chunk": 2}, {"sizes": Sizes(10, 10**6, 20, 99)}, {"sizes": Sizes(4, 10**6, 20, 99)}],
)
def test_what_a_trial_costs_besides_its_nodes_does_not_decide(tried, options):
    """Both executors are timed on as many nodes; a trial takes a node's time besides."""
    assert tried(fixed(0.009, 0.01), besides=0.01, **options)[0].executor == "looped"
    assert tried(fixed(0.01, 0.009), besides=0.01, **options)[0].executor == "batched"


def test_slow_models_are_tried_on_one_node_only(tried):
    tried(fixed(1.0, 1.0))
    assert set(tried.nodes) == {("looped", 1)}
    with pytest.raises(RuntimeError, match="vmap cannot"):
        tried(unbatched, executor="batched")


class Counted(nn.Module):
    """A small network that is not linear."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(36, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.second(self.first(x.flatten(1)).relu())


@pytest.fixture
def computed(monkeypatch):
    """Return the executor and the rows of all gradients that are computed."""
    found, gradients = [], Executor.gradients

    def noted(executor, worker, models, minibatches, rows, *rest):
        found.append((executor.plan.executor, rows, minibatches))
        noted.bounds.append(rest[1] if len(rest) > 1 else None)
        return gradients(executor, worker, models, minibatches, rows, *rest)

    noted.bounds = []
    monkeypatch.setattr(Executor, "gradients", noted)
    return found


@pytest.mark.parametrize("epochs", [2, [1, 5, 1, 0, 2, 1]])
@pytest.mark.parametrize("chunk", [1, 2, 4, 6])
def test_waiting_is_what_the_engine_computes(computed, chunk, epochs):
    how = {"model": Counted(), "clients": problems.ragged_clients()}
    algorithm = algorithms.local_only(0.1, batch_size=4, epochs=epochs)
    compute = topofl.Compute(executor="batched", chunk=chunk)
    topofl.run(algorithm, rounds=1, seed=0, compute=compute, **how)
    sizes = footprint(problems.resolved(algorithm, graphs=ring(6), **how), []).sizes
    taken = sum(map(sum, sizes.steps))
    assert taken == sum(np.asarray(epochs) * -(-how["clients"].sizes // 4))
    found = sum(len(minibatches.indices[rows]) for _, rows, minibatches in computed)
    assert found == pytest.approx(sizes.waiting_factor(chunk) * taken)


def test_trials_are_of_as_many_nodes_as_they_say(computed):
    """The first nodes are tried, by chunks; looped ones one after the other."""
    how = {"model": Counted(), "clients": problems.equal_clients(), "topology": ring(6)}
    compute = topofl.Compute(chunk=4)
    topofl.run(algorithms.dsgd(0.1, batch_size=4), rounds=1, seed=0, compute=compute, **how)
    looped = {("looped", k, k + 1) for k in range(6)}
    found = {(executor, rows.start, rows.stop) for executor, rows, _ in computed}
    assert found == looped | {("batched", 0, 4), ("batched", 4, 6)}


@pytest.mark.parametrize("also", [{}, {"own": algorithms.sgd(0.1, batch_size=4)}])
@pytest.mark.parametrize("model", [Counted, problems.linear])
def test_trials_differentiate_what_the_steps_do(computed, model, also):
    """Objectives, and the loss of the task if a phase takes steps on it; linear models, too."""
    layer = algorithms.part("second" if model is Counted else "1")
    objective = algorithms.Objective("contrast", contrast, layer, starts)
    local = algorithms.train(algorithms.descend(lr=0.1), objective=objective, batch_size=4)
    algorithm = algorithms.chain("own", local=local, **also)
    how = {"clients": problems.equal_clients(), "compute": topofl.Compute(chunk=3), "seed": 0}
    topofl.run(algorithm, model=model(), rounds=1, **how)
    found = Executor.gradients.bounds
    first, *_ = [k for k, one in enumerate(found) if one and one[1]["other"].any()]  # a step
    names = {bound and bound[0].name for bound in found[:first]}
    assert names == {"contrast", *([None] if also else [])}
    rows = {len(bound[1]["other"]) for bound in found[:first] if bound}
    assert rows == {1}, "trials make no copies of all nodes' models"


@pytest.mark.parametrize(
    ("n", "batch", "most", "chunk"),
    [(100, 128, 99, 10), (1000, 13, 999, 100), (3, 128, 99, 2), (1000, 13, 50, 25)],
)
def test_linear_models_take_chunks_that_stay_in_cache(monkeypatch, n, batch, most, chunk):
    monkeypatch.setattr(plan.torch, "get_num_threads", lambda: 2)
    sizes = Sizes(n, 7850, batch, batch * 784 * 4)
    chosen = choose_plan(topofl.Compute("cpu"), True, sizes, None, at_most(most))
    threads = 2 if n * 7850 * batch >= plan.SHARED_WORK else 1
    assert chosen.chunk == (chunk if threads == 2 else n)
    assert chosen.chunk * sizes.batch_bytes <= plan.RULE_BYTES
    assert chosen.workers == threads
