"""Memory by hand-counted bytes, its refusals, and what is free by made-up files of the kernel."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import topofl
from tests import problems
from topofl import algorithms, mixing, models, topologies
from topofl._support.threads import Buffers
from topofl.engine import state
from topofl.engine.footprint import Footprint, footprint, groups_of, in_gib, peak
from topofl.engine.gradients import linear_gradients
from topofl.engine.memory import AllocationTrace
from topofl.engine.plan import Plan, Sizes, choose_plan, least_plans, most_nodes
from topofl.engine.population import Layout, Population
from topofl.engine.recorder import NUMBERS

MIB = 2**20
FACTS = Footprint(
    sizes=Sizes(n=100, d=MIB, batch=20, batch_bytes=8000, step_bytes=12 * MIB),
    models=100,
    model=4 * MIB,
    largest=MIB // 2,
    minibatch=MIB,
    looped=10 * MIB,
    groups=0,
    of_nodes={"state": 0, "fine_tuning": 0, "gradients": 0, "phases": 0, "matrices": 3},
    of_run={"data": 70 * MIB, "torch": 30 * MIB, "history": 0},
    of_worker={"mixing": 5 * MIB, "evaluation": 50 * MIB},
    held=70 * MIB,
    returned=True,
)
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


def test_parts_by_hand():
    assert FACTS.parts(batched(8)) == {
        "parameters": 400 * MIB,
        "state": 0,
        "fine_tuning": 0,
        "gradients": 32 * MIB,
        "minibatches": 8 * MIB,
        "activations": 64 * MIB,
        "statistics": 8 * MIB,
        "float64": 2 * MIB,
        "phases": 0,
        "mixing": 5 * MIB,
        "evaluation": 50 * MIB,
        "matrices": 3,
        "data": 70 * MIB,
        "torch": 30 * MIB,
        "history": 0,
    }
    looped = FACTS.parts(Plan("looped", 1, 2, 1))
    assert (looped["gradients"], looped["minibatches"], looped["activations"]) == (
        8 * MIB,
        2 * MIB,
        12 * MIB,
    )
    assert FACTS.parts(batched(100)) == FACTS.parts(batched(1000))


def test_sums_of_gradients_are_float64_block_by_block():
    def count(plan, **changes):
        return changed(d=1, **changes).parts(plan)["float64"]

    assert count(batched(8)) == 8 * NUMBERS
    assert count(batched(8, workers=3)) == 3 * 8 * NUMBERS
    assert count(batched(8, workers=3), largest=1000) == 3 * 8 * 8 * 1000  # all of a chunk


def test_every_worker_has_a_chunk_and_buffers():
    one, two = FACTS.parts(batched(8)), FACTS.parts(batched(8, workers=2))
    for part in ("gradients", "minibatches", "activations", "mixing", "evaluation"):
        assert two[part] == 2 * one[part], part
    assert (
        FACTS.parts(batched(80, workers=2))["minibatches"] == 100 * MIB
    )  # there are no more nodes


def test_mixed_gradients_are_all_kept():
    mixing = changed(groups=100)
    for plan, together in ((batched(8), 8), (LOOPED, 1), (batched(100), 100)):
        assert mixing.parts(plan)["gradients"] == (100 + together) * 4 * MIB


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
def test_means_of_gradients_are_kept_where_they_are_fewer(plan, kept):
    together = min(plan.workers * plan.chunk, 100)
    assert changed(groups=10).parts(plan)["gradients"] == (together + kept) * 4 * MIB


def test_groups_are_counted():
    cliques = problems.cliques(problems.equal_clients(12))

    def count(algorithm, graphs=cliques, device="cpu", dtype=torch.float32):
        clients = problems.equal_clients(12)
        setup = problems.resolved(algorithm, problems.linear(), clients, graphs, dtype)
        return groups_of(replace(setup, device=torch.device(device)))

    assert count(algorithms.dsgd(0.1)) == 0
    assert count(algorithms.clique_averaging(0.1)) == 4
    assert count(algorithms.clique_averaging(0.1), device="cuda") == 12
    assert count(algorithms.clique_averaging(0.1), dtype=torch.bfloat16) == 12
    later = topofl.TopologySequence(12, lambda t: cliques)
    assert count(algorithms.clique_averaging(0.1), later) == 12, (
        "groups of later rounds are not known"
    )
    assert (
        count(
            algorithms.chain(
                "all",
                local=algorithms.train(algorithms.descend(lr=0.1), gradient=mixing.max_degree),
            )
        )
        == 12
    )


def test_training_and_evaluation_take_turns_or_add_up():
    # training takes 32 + 8 + 64 MiB, of which 64 turns with 2, evaluation 50
    parts = FACTS.parts(batched(8))
    lasting = (400 + 8 + 70 + 30) * MIB + 3
    assert peak(parts, returned=True) == lasting + 104 * MIB
    assert peak(parts | {"float64": 65 * MIB}, returned=True) == lasting + 105 * MIB
    assert (
        peak(parts | {"evaluation": 2**40}, returned=True) == lasting + 32 * MIB + 2**40
    )  # gradients stay
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
    facts = changed(
        n=n, d=d, model=4 * d, step_bytes=size, evaluation=evaluation, groups=min(groups, n)
    )
    assert facts.needed(batched(chunk, workers)) <= facts.needed(batched(chunk + 1, workers))
    assert facts.needed(batched(chunk, workers)) <= facts.needed(batched(chunk, workers + 1))
    found = most_nodes(n, 1, facts.fits_into(free))
    assert 0 <= found <= n
    assert found == 0 or facts.needed(batched(found)) <= free
    assert found == n or facts.needed(batched(found + 1)) > free


def test_linear_steps_are_counted_to_the_byte():
    facts = facts_for(problems.linear(), batch_size=7)
    function = linear_gradients(Buffers(torch.device("cpu")))
    parameters, inputs, labels = (
        [torch.zeros(5, 3, 36), torch.zeros(5, 3)],
        torch.zeros(5, 7, 36),
        torch.zeros(5, 7),
    )
    with AllocationTrace() as allocations:
        function(parameters, inputs, labels.long(), None)
    assert 5 * facts.sizes.step_bytes == pytest.approx(allocations.peak, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("n", [6, 300])
def test_linear_evaluations_are_counted(n, dtype):
    model = models.logistic_regression(36, 3).to(dtype)
    population = Population.alone(torch.randn(n, 111, dtype=dtype), Layout.of(model))
    inputs, labels, on = (
        torch.zeros(900, 36, dtype=dtype),
        torch.zeros(900).long(),
        torch.arange(900),
    )
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
    steps = sorted((-(-clients.sizes // 4)).tolist(), reverse=True)

    def found(algorithm):
        return facts_for(model, clients=clients, algorithm=algorithm).sizes.steps

    tuned = algorithms.chain(
        "tuned", local=algorithms.sgd(0.1), fine_tune=algorithms.sgd(0.1, epochs=5)
    )
    assert found(tuned) == ((1,) * 6,)
    both = algorithms.chain(
        "both", a=algorithms.sgd(0.1, steps=3), b=algorithms.sgd(0.1, batch_size=4, epochs=2)
    )
    assert found(both) == ((3,) * 6, tuple(2 * step for step in steps))
    each = algorithms.local_only(0.1, batch_size=4, epochs=[1] * 5 + [10])
    assert found(each) == (
        tuple(
            sorted([*(-(-clients.sizes[:5] // 4)), 10 * -(-clients.sizes[5] // 4)], reverse=True)
        ),
    )


@pytest.mark.parametrize("executor", ["batched", "looped", "auto"])
@pytest.mark.parametrize("chunk", [100, 8, "auto"])
def test_what_fits_is_not_refused(executor, chunk):
    FACTS.check(least(executor, chunk), FACTS.needed(batched(100)))
    FACTS.check(least(executor, chunk), None)


def test_errors_name_the_settings_that_would_fit():
    free = FACTS.needed(batched(7))
    with pytest.raises(ValueError, match="must fit into memory") as caught:
        FACTS.check(least("batched", 100), free)
    assert str(caught.value) == (
        f"the run must fit into memory, but needs {in_gib(FACTS.needed(batched(100)))} (batched, "
        f"chunk=100) and {in_gib(free)} are free; chunk=7 would need {in_gib(free)}"
    )
    FACTS.check(least("batched", 7), free)
    FACTS.check(least("batched"), free)
    FACTS.check(least("auto", 50), FACTS.needed(LOOPED))
    with pytest.raises(ValueError, match=r'executor="looped" would need \d+ MiB'):
        (little := changed(evaluation=0)).check(least("batched"), little.needed(LOOPED))
    with pytest.raises(ValueError, match="chunk=7 would"):  # a resumed run keeps its plan
        FACTS.check([batched(7, workers=2)], free)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, "parameters alone take 400 MiB with either executor: use fewer nodes"),
        ({"state": 2**33}, "state alone take 8.0 GiB with either executor: use no momentum"),
        (
            {"looped": 2**33, "step_bytes": 2**33},
            "activations alone take 8.0 GiB .* lower batch_size",
        ),
        ({"evaluation": 2**33}, "evaluation alone take 8.0 GiB"),
        ({"data": 2**33, "held": 0}, "data alone take 8.0 GiB .* as uint8"),
    ],
)
@pytest.mark.parametrize("executor", ["batched", "looped", "auto"])
def test_errors_name_the_largest_part(changes, what, executor):
    with pytest.raises(ValueError, match=f"1 MiB are free; {what}"):
        changed(**changes).check(least(executor, 1), MIB)


def test_plans_fit_or_have_fewer_workers(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for free in np.linspace(FACTS.needed(LOOPED), FACTS.needed(batched(100)), 30):
        for linear, executor in (
            (True, "auto"),
            (True, "looped"),
            (False, "looped"),
            (False, "auto"),
        ):
            plan = choose_plan(
                compute(executor), linear, FACTS.sizes, None, FACTS.fits_into(int(free))
            )
            assert FACTS.needed(plan) <= free, plan
    assert (
        choose_plan(
            compute("looped"), False, FACTS.sizes, None, FACTS.fits_into(FACTS.needed(LOOPED))
        ).workers
        == 1
    )


def refused(monkeypatch, free, **options):
    """Return what a run says where so much is free; it must not get as far as making its models."""
    monkeypatch.setattr(state, "free_memory", lambda device: free)
    monkeypatch.setattr(
        state, "initial_population", lambda *args, **kwargs: pytest.fail("models were made")
    )
    clients = problems.equal_clients()
    with pytest.raises(ValueError, match="must fit into memory") as caught:
        topofl.run(
            algorithms.dsgd(0.1, batch_size=4), model=problems.convolutional(), clients=clients,
            topology=problems.cliques(clients), rounds=1, seed=0, **problems.options(**options),
        )  # fmt: skip
    return str(caught.value)


def test_processes_of_one_machine_share_its_memory(monkeypatch):
    """What is free is enough for one process, and not for a thousand of them."""
    clients, free = problems.equal_clients(), 10**8
    monkeypatch.setattr(state, "free_memory", lambda device: free)
    topofl.run(
        algorithms.dsgd(0.1, batch_size=4), model=problems.convolutional(), clients=clients,
        topology=problems.cliques(clients), rounds=1, seed=0,
    )  # fmt: skip
    for name, value in {"RANK": 0, "WORLD_SIZE": 1000, "LOCAL_WORLD_SIZE": 1000}.items():
        monkeypatch.setenv(name, str(value))
    refused(monkeypatch, free)


def test_runs_are_refused_before_anything_is_made(monkeypatch):
    clients = problems.equal_clients()
    options = {
        "model": problems.convolutional(),
        "clients": clients,
        "topology": problems.cliques(clients),
    }
    algorithm = algorithms.dsgd(0.1, batch_size=4)
    size = {
        (executor, chunk): topofl.estimate(
            algorithm, **problems.options(executor=executor, chunk=chunk, **options)
        ).added
        for executor, chunk in (("batched", 6), ("batched", 4), ("batched", 1), ("looped", 1))
    }
    text = refused(monkeypatch, size["batched", 4], executor="batched", chunk=6)
    assert "chunk=4 would need" in text
    assert "\n" not in text
    if size["looped", 1] < size["batched", 1]:
        text = refused(monkeypatch, size["batched", 1] - 1, executor="batched")
        assert 'executor="looped" would need' in text
    assert "with either executor: " in refused(monkeypatch, 1)
