"""Memory by hand-counted bytes, its refusals, and what is free by made-up files of the kernel."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import topofl
from tests import problems
from tests.algorithms.harness import HEAD
from tests.algorithms.test_objectives import contrast, starts
from tests.algorithms.test_objectives import of_task as loss_alone
from topofl import algorithms, mixing, models, topologies
from topofl._support.threads import Buffers
from topofl.engine import state
from topofl.engine.footprint import Footprint, footprint, groups_of, peak
from topofl.engine.gradients import dense_gradients
from topofl.engine.memory import AllocationTrace
from topofl.engine.plan import Plan, Sizes, choose_plan, least_plans, most_nodes
from topofl.engine.population import Layout, Population
from topofl.engine.recorder import NUMBERS

MIB = 2**20
SIZES = Sizes(n=100, d=MIB, batch=20, batch_bytes=8000, step_bytes=12 * MIB)
NUMBERS_OF = {"models": 100, "model": 4 * MIB, "largest": MIB // 2, "minibatch": MIB, "groups": 0}
PARTS = {
    "of_nodes": {"state": 0, "fine_tuning": 0, "gradients": 0, "phases": 0, "matrices": 3},
    "of_run": {"data": 70 * MIB, "torch": 30 * MIB, "history": 0},
    "of_worker": {"mixing": 5 * MIB, "evaluation": 50 * MIB},
}
FACTS = Footprint(SIZES, **NUMBERS_OF, **PARTS, looped=10 * MIB, held=70 * MIB, returned=True)
LOOPED = Plan("looped", 1, 1, 1)


def changed(**changes):
    """Return the footprint with other numbers of nodes or parameters, or other sizes or parts."""
    sizes = {name: changes.pop(name) for name in ("n", "d", "step_bytes") if name in changes}
    models = sizes.get("n", FACTS.models)
    kinds = {kind: dict(getattr(FACTS, kind)) for kind in ("of_nodes", "of_run", "of_worker")}
    for own in kinds.values():
        own.update({name: changes.pop(name) for name in own if name in changes})
    return replace(FACTS, sizes=FACTS.sizes._replace(**sizes), models=models, **kinds, **changes)


def batched(chunk, workers=1):
    return Plan("batched", chunk, workers, 1)


def compute(executor="auto", chunk="auto"):
    chunk = "auto" if executor == "looped" else chunk
    return topofl.Compute("cpu", executor=executor, chunk=chunk)


def least(executor="auto", chunk="auto"):
    return least_plans(compute(executor, chunk), 100)


def test_sums_of_gradients_are_float64_block_by_block():
    def count(plan, **changes):
        return changed(d=1, **changes).parts(plan)["float64"]

    assert count(batched(8)) == 8 * NUMBERS
    assert count(batched(8, workers=3)) == 3 * 8 * NUMBERS
    assert count(batched(8, workers=3), largest=1000) == 3 * 8 * 8 * 1000  # all of a chunk


@pytest.mark.parametrize("groups", [10, 100])
@pytest.mark.parametrize(
    ("plan", "kept"),
    [
        (batched(8), 10 + 8),
        (batched(8, workers=2), 2 * (10 + 8)),
        (LOOPED, 11),
        (batched(90), 100),
        (batched(500), 100),
    ],
)
def test_means_of_gradients_are_kept_where_they_are_fewer(plan, kept, groups):
    """Those of ten groups; of a hundred groups, all gradients are kept."""
    together, kept = min(plan.workers * plan.chunk, 100), kept if groups == 10 else 100
    assert changed(groups=groups).parts(plan)["gradients"] == (together + kept) * 4 * MIB


@pytest.mark.parametrize(
    ("groups", "changes"),
    [
        (0, {"algorithm": algorithms.dsgd(0.1)}),
        (4, {}),
        (12, {"device": "cuda"}),
        (12, {"dtype": torch.bfloat16}),
        (12, {"later": True}),  # groups of later rounds are not known
        (12, {"gradient": mixing.max_degree}),
    ],
)
def test_groups_are_counted(groups, changes):
    clients = problems.equal_clients(12)
    graphs, algorithm = problems.cliques(clients), algorithms.clique_averaging(0.1)
    if "gradient" in changes:
        training = algorithms.train(algorithms.descend(lr=0.1), gradient=changes["gradient"])
        algorithm = algorithms.chain("all", local=training)
    sequence = topofl.TopologySequence(12, lambda t: graphs)
    graphs_given = sequence if "later" in changes else graphs
    dtype = changes.get("dtype", torch.float32)
    algorithm = changes.get("algorithm", algorithm)
    setup = problems.resolved(algorithm, problems.linear(), clients, graphs_given, dtype)
    device = torch.device(changes.get("device", "cpu"))
    assert groups_of(replace(setup, device=device)) == groups


def test_training_and_evaluation_take_turns_or_add_up():
    # training takes 32 + 8 + 64 MiB, of which 64 turns with 2, evaluation 50
    parts = FACTS.parts(batched(8))
    lasting = (400 + 8 + 70 + 30) * MIB + 3
    assert peak(parts, returned=True) == lasting + 104 * MIB
    assert peak(parts | {"float64": 65 * MIB}, returned=True) == lasting + 105 * MIB
    # gradients stay
    assert peak(parts | {"evaluation": 2**40}, returned=True) == lasting + 32 * MIB + 2**40
    assert peak(parts | {"mixing": 2**40}, returned=True) == lasting + 32 * MIB + 2**40
    assert peak(parts, returned=False) == sum(parts.values())


@given(
    st.integers(1, 200),
    st.integers(1, 10**6),
    st.integers(0, 10**8),
    st.integers(0, 10**9),
    st.integers(0, 200),
    st.integers(1, 200),
    st.integers(1, 4),
    st.integers(0, 10**12),
)
def test_more_nodes_together_never_need_less(n, d, size, evaluation, groups, chunk, workers, free):
    sizes = {"step_bytes": size, "evaluation": evaluation, "groups": min(groups, n)}
    facts = changed(n=n, d=d, model=4 * d, **sizes)
    assert facts.needed(batched(chunk, workers)) <= facts.needed(batched(chunk + 1, workers))
    assert facts.needed(batched(chunk, workers)) <= facts.needed(batched(chunk, workers + 1))
    found = most_nodes(n, 1, facts.fits_into(free))
    assert 0 <= found <= n
    assert found == 0 or facts.needed(batched(found)) <= free
    assert found == n or facts.needed(batched(found + 1)) > free


def test_linear_steps_are_counted_to_the_byte():
    facts = facts_for(problems.linear(), batch_size=7)
    function = dense_gradients(Buffers(torch.device("cpu")))
    parameters = [torch.zeros(5, 3, 36), torch.zeros(5, 3)]
    inputs, labels = torch.zeros(5, 7, 36), torch.zeros(5, 7)
    with AllocationTrace() as allocations:
        function(parameters, (inputs, labels.long(), None))
    assert 5 * facts.sizes.step_bytes == pytest.approx(allocations.peak, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("n", [6, 300])
def test_linear_evaluations_are_counted(n, dtype):
    model = models.logistic_regression(36, 3).to(dtype)
    population = Population.alone(torch.randn(n, 111, dtype=dtype), Layout.of(model))
    inputs, on = torch.zeros(900, 36, dtype=dtype), torch.arange(900)
    labels = torch.zeros(900).long()
    with AllocationTrace() as allocations:
        problems.evaluated(model, population, inputs, labels, on)
    sets = problems.evaluated_on(on, range(n))
    counted = facts_for(model, sets=sets, dtype=dtype).of_worker["evaluation"]
    assert counted == pytest.approx(allocations.peak, rel=0.1)


def facts_for(model, batch_size=4, sets=None, clients=None, algorithm=None, dtype=torch.float32):
    clients = problems.equal_clients() if clients is None else clients
    sets = problems.evaluated_on(torch.arange(9), range(6)) if sets is None else sets
    algorithm = algorithm or algorithms.dsgd(0.1, batch_size=batch_size)
    setup = problems.resolved(algorithm, model, clients, topologies.ring(clients.n), dtype)
    return footprint(replace(setup, sets={"test": sets}), [])


def test_steps_of_every_phase_are_counted():
    clients, model = problems.ragged_clients(), models.logistic_regression(36, 3)
    each = -(-clients.sizes // 4)

    def found(algorithm):
        return facts_for(model, clients=clients, algorithm=algorithm).sizes.steps

    def falling(steps):
        return tuple(sorted(steps.tolist(), reverse=True))

    sgd, tune = algorithms.sgd(0.1), algorithms.sgd(0.1, epochs=5)
    assert found(algorithms.chain("tuned", local=sgd, fine_tune=tune)) == ((1,) * 6,)
    three, two = algorithms.sgd(0.1, steps=3), algorithms.sgd(0.1, batch_size=4, epochs=2)
    assert found(algorithms.chain("both", a=three, b=two)) == ((3,) * 6, falling(2 * each))
    last = algorithms.local_only(0.1, batch_size=4, epochs=[1] * 5 + [10])
    assert found(last) == (falling(each * [1, 1, 1, 1, 1, 10]),)


def test_objectives_are_counted_where_steps_have_one():
    """Another model is applied; a linear model is differentiated by autograd then."""
    objective = algorithms.Objective("contrast", contrast, algorithms.part(HEAD), starts)
    local = algorithms.train(algorithms.descend(lr=0.1), objective=objective, batch_size=4)
    plain = algorithms.sgd(0.1, batch_size=4)
    alone, both = (algorithms.chain("own", a=local), algorithms.chain("own", a=plain, b=local))
    tuned = algorithms.chain("own", a=plain, fine_tune=local)
    model = problems.convolutional()
    least, *more = (facts_for(model, algorithm=one) for one in (None, alone, both, tuned))
    assert all(facts.sizes.step_bytes > 1.05 * least.sizes.step_bytes for facts in more)
    assert all(facts.looped > 1.05 * least.looped for facts in more)

    objective = objective._replace(losses=loss_alone, features=algorithms.part("1"))
    local = algorithms.train(algorithms.descend(lr=0.1), objective=objective, batch_size=4)
    own = facts_for(problems.linear(), algorithm=algorithms.chain("own", a=local))
    linear = facts_for(problems.linear())
    assert (linear.returned, own.returned) == (False, True)
    assert own.sizes.step_bytes > linear.sizes.step_bytes


def test_plans_fit_or_have_fewer_workers(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)

    def chosen(executor, linear, free):
        fits = FACTS.fits_into(int(free))
        return choose_plan(compute(executor), linear, FACTS.sizes, None, fits)

    for free in np.linspace(FACTS.needed(LOOPED), FACTS.needed(batched(100)), 30):
        for linear, executor in product((True, False), ("auto", "looped")):
            assert FACTS.needed(chosen(executor, linear, free)) <= free
    assert chosen("looped", False, FACTS.needed(LOOPED)).workers == 1
    FACTS.check(least(), FACTS.needed(batched(100)))
    FACTS.check(least("auto", 50), FACTS.needed(LOOPED))
    FACTS.check(least(), None)


def train(**options):
    clients = problems.equal_clients()
    how = {"model": problems.convolutional(), "clients": clients, "rounds": 1, "seed": 0}
    how |= {"topology": problems.cliques(clients), **options}
    return topofl.run(algorithms.dsgd(0.1, batch_size=4), **problems.options(**how))


def refused(monkeypatch, free, **options):
    """Return what a run says where so much is free; it must not get as far as making its models."""
    made = "topofl.engine.state.initial_population"
    monkeypatch.setattr(state, "free_memory", lambda device: free)
    monkeypatch.setattr(made, lambda *args, **kwargs: pytest.fail("models were made"))
    with pytest.raises(ValueError, match="must fit into memory") as caught:
        train(**options)
    return str(caught.value)


def test_processes_of_one_machine_share_its_memory(monkeypatch):
    """What is free is enough for one process, and not for a thousand of them."""
    monkeypatch.setattr(state, "free_memory", lambda device: 10**8)
    train()
    for name, value in {"RANK": 0, "WORLD_SIZE": 1000, "LOCAL_WORLD_SIZE": 1000}.items():
        monkeypatch.setenv(name, str(value))
    refused(monkeypatch, 10**8)


def test_runs_are_refused_before_anything_is_made(monkeypatch):
    clients = problems.equal_clients()
    how = {"model": problems.convolutional(), "clients": clients}
    how |= {"topology": problems.cliques(clients)}

    def size(executor, chunk):
        options = problems.options(executor=executor, chunk=chunk, **how)
        return topofl.estimate(algorithms.dsgd(0.1, batch_size=4), **options).added

    one, four, looped = size("batched", 1), size("batched", 4), size("looped", 1)
    text = refused(monkeypatch, four, executor="batched", chunk=6)
    assert "chunk=4 would need" in text
    assert "\n" not in text
    if looped < one:
        text = refused(monkeypatch, one - 1, executor="batched")
        assert 'executor="looped" would need' in text
    assert "with either executor: " in refused(monkeypatch, 1)
