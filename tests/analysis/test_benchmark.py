"""The benchmark's floors compute what the engine computes; timing is not part of the suite."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import topofl
from analysis.benchmark import choice, report, timing
from analysis.benchmark import floor as floor_steps
from analysis.benchmark.cases import (
    GN_LENET,
    LOGISTIC,
    TRAINING,
    Case,
    clients_of,
    matrix_cases,
    on_few_nodes,
    setting,
)
from analysis.benchmark.floor import Floor, floors
from analysis.benchmark.timing import EXECUTORS, Plan, engine_steps, measure
from analysis.program import in_turns
from tests import problems
from topofl import NotApplicable

CPU = torch.device("cpu")
QUICK = Plan(CPU, rounds=1, repeats=1, naive_nodes=0, memory=False)


def small(case, n=20, batch_size=4, **changes):
    return on_few_nodes(replace(case, batch_size=batch_size, **changes), n, same_graph=True)


TINY = small(TRAINING[1], 4)

STEPS = {
    "D-Cliques + CA": small(TRAINING[0]),
    "more than one chunk": small(TRAINING[0], 110),
    "complete graph": small(TRAINING[1], 8),
    "exponential graph": small(matrix_cases()[0], 8),
    "GN-LeNet with momentum + CA": small(TRAINING[4], batch_size=2),
    "GN-LeNet on an exponential graph": small(Case("", GN_LENET, 4, 2), 4, 2),
}


def ways(case):
    stacked = floors(case, "batched", CPU) | {
        "10": floor_steps._stacked(10, floor_steps._mapped_gradients)
    }
    looped = floors(case, "looped", CPU) | {"2 Python threads": floor_steps._threads(2)}
    return stacked | looped


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS.keys())
@pytest.mark.slow
def test_floors_do_the_work_of_the_engine(case):
    clients = clients_of(case)
    graph, algorithm = setting(case, clients)
    after = {}
    topofl.run(
        algorithm,
        model=case.network.build(),
        clients=clients,
        topology=graph,
        rounds=2,
        evaluation=topofl.Evaluation(every=2, examples=1),
        compute="cpu",
        seed=0,
        init="given",
        progress=False,
        callbacks=[problems.each_round(lambda t, models: after.update({t: models.flat.clone()}))],
    )
    start = torch.nn.utils.parameters_to_vector(case.network.build().parameters()).detach()
    moved = (after[2] - start).abs().max()
    for name, opened in ways(case).items():
        floor_state = Floor.build(case, clients, CPU)
        assert_close(floor_state.models(), start.expand(case.n, -1))
        with opened(floor_state) as step:
            for t in (0, 1):
                step(t)
                worst = (floor_state.models() - after[t + 1]).abs().max()
                assert worst < 1e-3 * moved, (name, t)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with floor_steps._threads(2)(Floor.build(TINY, clients_of(TINY), CPU)) as step:
            step(0)
            assert torch.get_num_threads() == 2
        assert "2 Python threads" in floors(TINY, "looped", CPU)
    finally:
        torch.set_num_threads(before)


def test_floor_in_bf16_is_near_that_in_fp32_but_coarser():
    flats = []
    for precision in ("fp32", "bf16"):
        case = replace(TINY, precision=precision)
        floor_state = Floor.build(case, clients_of(case), CPU)
        with floor_steps._looped(floor_state) as step:
            step(0)
        flats.append(floor_state.flat - Floor.build(case, clients_of(case), CPU).flat)
    exact, coarse = flats
    assert 1e-4 < (exact - coarse).norm() / exact.norm() < 3e-2


@pytest.mark.parametrize(("n", "reason"), [(20, "cliques of"), (7, "equally many")])
def test_settings_without_a_floor(n, reason, monkeypatch):
    case = replace(
        TINY, network=replace(LOGISTIC, examples=4 * n - 2 if n == 7 else 40), n=n, batch_size=2
    )
    clients = clients_of(case)
    if n == 20:
        case = replace(case, graph="dcliques", clique_averaging=True)
        groups = topofl.topologies.dcliques(clients.label_counts, clique_size=6, seed=0)
        monkeypatch.setattr(floor_steps, "setting", lambda *_: (groups, None))
    with pytest.raises(ValueError, match=reason):
        Floor.build(case, clients, CPU)


def test_fastest_way_is_one_of_them():
    case = STEPS["GN-LeNet with momentum + CA"]
    assert floor_steps.fastest(case, "batched", clients_of(case), CPU) in floors(
        case, "batched", CPU
    )


def test_order_alternates_from_turn_to_turn():
    called = []
    found = in_turns(
        {name: lambda name=name: called.append(name) or [len(called)] for name in "abc"}, 3
    )
    assert "".join(called) == "abccbaabc"
    assert found == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


def test_ours_are_the_seconds_of_as_many_rounds_as_asked():
    seconds, history = engine_steps(TINY, clients_of(TINY), 3, CPU, "looped")
    assert len(seconds) == 3
    assert min(seconds) > 0
    assert (history.meta["executor"], history.meta["rounds"]) == ("looped", 5)


def test_every_way_is_timed():
    measured = measure(TINY, replace(QUICK, naive_nodes=2))
    assert set(measured.seconds) == {*EXECUTORS, "floor batched", "floor looped"}
    assert set(measured.chosen) == set(measured.seconds)
    assert measured.skipped == {}
    assert (measured.naive_nodes, measured.naive > 0) == (2, True)
    assert measured.chosen["auto"] == "batched, chunk 4"


def test_what_ran_is_described():
    meta = {"executor": "looped", "workers": 2, "chunk": 1}
    assert timing._described(meta) == "looped, 2 workers, chunk 1"
    assert timing._described(meta | {"workers": 1}) == "looped, chunk 1"


SECONDS = {
    "batched": [3.0, 1.0, 2.0],
    "looped": [4.0],
    "auto": [2.5],
    "floor batched": [1.0],
    "floor looped": [5.0],
}


def test_everything_that_ran_in_some_turn_is_recorded(monkeypatch):
    metas = iter(["batched", "looped", "batched"])

    def timed(*given):
        return [1.0], SimpleNamespace(meta={"executor": next(metas), "workers": 1, "chunk": 1})

    monkeypatch.setattr(timing, "engine_steps", timed)
    chosen = {}
    for _ in range(3):
        timing._timer(TINY, None, QUICK, "auto", 1.0, chosen)
    assert chosen == {"auto": "batched, chunk 1 or looped, chunk 1"}


def test_bf16_is_left_out_where_it_is_emulated(monkeypatch):
    case = replace(TINY, precision="bf16")
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: False)
    measured = measure(case, QUICK)
    assert measured.seconds == {}
    assert "--force-bf16" in measured.step("auto").reason
    assert timing.refusal(case, replace(QUICK, force_bf16=True)) == ""
    monkeypatch.setattr(timing, "has_fast_bf16", lambda device: True)
    assert timing.refusal(case, QUICK) == ""


def test_what_does_not_fit_into_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(timing, "free_memory", lambda device: 2**20)
    row = report.matrix_table([measure(replace(TINY, n=1000), QUICK)]).rows[0]
    reasons = {cell.reason for cell in row if isinstance(cell, NotApplicable)}
    assert len(reasons) == 1
    assert "GiB" in reasons.pop()


def test_what_takes_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(
        timing, "_node_seconds", lambda case, way, device: 9 if way == "looped" else 1e-9
    )
    measured = measure(TINY, replace(QUICK, budget=100))
    assert set(measured.seconds) == {"batched", "auto", "floor batched"}
    assert (
        measured.step("looped").reason
        == "a step takes about 40 s, 3 of them more than the 100 s of --budget"
    )
    assert measured.ratio("auto") > 0
    assert measured.auto_over_better() == measured.step("looped")


def test_what_runs_out_of_memory_is_left_out(monkeypatch):
    def too_large(opened, floor, steps):
        raise torch.OutOfMemoryError("tried to allocate 1 TiB\nand so on")

    monkeypatch.setattr(timing, "_node_seconds", lambda *_: 1e-9)
    monkeypatch.setattr(timing, "steps_of", too_large)
    measured = measure(TINY, replace(QUICK, repeats=2))
    assert set(measured.seconds) == set(EXECUTORS)
    assert measured.ratio("looped").reason == "out of memory: tried to allocate 1 TiB"


def test_floor_that_runs_out_of_memory_is_not_the_fastest(monkeypatch):
    case = STEPS["GN-LeNet with momentum + CA"]

    def tried(opened, floor, steps):
        if opened == "large":
            raise torch.OutOfMemoryError
        return [1.0]

    monkeypatch.setattr(floor_steps, "steps_of", tried)
    monkeypatch.setattr(floor_steps, "floors", lambda *_: {"a": "large", "b": "small"})
    assert floor_steps.fastest(case, "batched", clients_of(case), CPU) == "b"


def test_naive_loop_on_some_nodes_is_scaled_up(monkeypatch):
    seconds = iter([1.0, 10.0])
    monkeypatch.setattr(timing, "seconds_of", lambda function, device: function() or next(seconds))
    assert timing.naive_step(TINY, clients_of(TINY), 2) == 1.0 * 2 + 10.0 * 4


@pytest.mark.parametrize("case", [TINY, STEPS["D-Cliques + CA"]])
def test_naive_loop_on_all_nodes(case):
    assert timing.naive_step(case, clients_of(case), case.n) > 0


def test_bytes_kept_for_the_backward_pass():
    minibatch, log_softmax, labels = 4 * 784 * 4, 4 * 10 * 4, 4 * 8
    assert (
        timing.saved_bytes(TINY) == minibatch + log_softmax + labels + 4
    )  # one float: the sum of weights
    data = 40 * (784 * 4 + 8)
    floats = timing.lower_bound(TINY, nodes=3, stored=4)
    assert floats == 4 * 7850 * 4 + 3 * timing.saved_bytes(TINY) + data
    bound = timing.lower_bound(TINY, nodes=3)
    assert floats - bound == 40 * 784 * 3, (
        "pixels are stored as bytes, as in the benchmark's own data"
    )
    assert clients_of(TINY).dataset.inputs.dtype == torch.uint8
    with_momentum = timing.lower_bound(replace(TINY, momentum=0.9), nodes=3)
    assert with_momentum - bound == 4 * 7850 * 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports peak memory")
@pytest.mark.slow
def test_peak_memory_holds_the_data():
    case = replace(TINY, network=replace(LOGISTIC, examples=20_000))
    assert timing.peak_bytes(case, "auto", CPU) > 20_000 * 784


def test_unknown_peak_memory_has_a_reason(monkeypatch):
    def unknown(case, executor, device):
        raise OSError("no such file")

    monkeypatch.setattr(timing, "peak_bytes", unknown)
    cell = timing._memory_of(TINY, "auto", QUICK, {"auto": "batched, chunk 4"})
    assert cell.reason == "peak memory is not available here: no such file"


def test_as_many_models_are_tried_by_a_choice_as_are_counted():
    scale = choice.ChoiceSizes(n=4, validation=6, budgets=(None, 1), threads=1, repeats=1)
    table = choice.measure(scale)
    tried = table.column("models tried")
    assert tried[0] == 4 * (2 * 3 + 2)
    assert 4 * 4 <= tried[1] <= tried[0]
    assert all(ratio > 0 for ratio in table.column("choice / bare"))
