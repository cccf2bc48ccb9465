"""Probes train some nodes to predict the run time, and correct memory."""

import statistics
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.estimate.helpers import ESTIMATE, need
from topofl import algorithms
from topofl.callbacks import Event
from topofl.engine import probe
from topofl.engine.plan import SHARED_WORK, Plan, Sizes
from topofl.engine.population import Held, Layout, Population
from topofl.engine.ranks import one_process

MODELS = Population.alone(torch.zeros(2, 6), Layout.of(nn.Linear(2, 2)))
LOOPED = probe.Timing(Plan("looped", 1, 1, 1), 0.0, 1.0, 1.0)


def test_runs_that_do_not_fit_are_not_probed(monkeypatch):
    monkeypatch.setattr(ESTIMATE, "free_memory", lambda device: 1)
    monkeypatch.setattr(probe, "run", lambda *args, **kwargs: pytest.fail("trained"))
    result = need(algorithms.dsgd(0.1), probe=True)
    assert result.seconds_per_round is None
    assert "DOES NOT FIT; " in str(result)


@pytest.mark.parametrize("name", ["dsgd", "clique_averaging", "centralized"])
def test_a_probe_trains_and_changes_nothing(name):
    model, clients = problems.linear(), problems.equal_clients()
    before = [p.clone() for p in model.parameters()]
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=4)
    result = need(algorithm, clients, model=model, executor="auto", probe=True, nodes=1, examples=5)
    assert result.executor == "batched"
    assert result.seconds_per_round > 0
    assert result.seconds_per_evaluation > 0
    assert "per evaluation" in str(result)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_probe_names_columns_that_cost_much_of_a_round(monkeypatch):
    seconds = {"consensus_distance": 0.2, "gradient_diversity": 0.01}
    timing = probe.Timing(Plan("looped", 1, 1, 1), 0.0, 1.0, 1.0, seconds)
    monkeypatch.setattr(probe, "_trial", lambda setup, nodes: timing)
    result = need(algorithms.dsgd(0.1), probe=True, nodes=1, executor="looped")
    found = result.seconds_of_columns
    assert found["consensus_distance"] == pytest.approx(20 * found["gradient_diversity"])
    assert "Evaluation(without=('consensus_distance',)) leaves out" in str(result)
    assert "gradient_diversity" not in str(result)


def test_columns_that_are_left_out_cost_nothing():
    result = need(algorithms.dsgd(0.1), probe=True, nodes=1, without="consensus_distance")
    assert list(result.seconds_of_columns) == ["gradient_diversity"]
    assert "consensus_distance" not in str(result)


@pytest.mark.parametrize("rounds", [2, 6, 7, 8, 61, None])
def test_only_rounds_without_an_evaluation_are_timed_as_plain(rounds):
    def train(length, note):
        plan = {"executor": "looped", "chunk": 1, "workers": 1, "threads": 1}
        note(Event("start", 0, plan, MODELS))
        for t in range(1, length + 1):
            evaluated = t % probe.EVERY == 0 or t == length
            note(Event("round", t, {"seconds": 1.0 + 5.0 * evaluated}, MODELS))
            if evaluated:
                note(Event("evaluation", t, {"seconds": 3.0}, MODELS))

    found = probe.timed(train, rounds)
    assert (found.round, found.evaluation, found.columns["gradient_diversity"]) == (1.0, 3.0, 2.0)


@pytest.mark.parametrize("equal", [True, False])
def test_the_distance_of_equal_models_that_are_stored_once_is_not_timed(equal, monkeypatch):
    seen = []
    monkeypatch.setattr(probe, "consensus_distance", seen.append)
    held = Held.equal(torch.zeros(1, 6), 4) if equal else Held(torch.zeros(4, 6))
    ranks = one_process(4, torch.device("cpu"))
    probe._seconds_of_distance(Population(held, Layout.of(nn.Linear(2, 2)), ranks))
    assert len(seen) == (not equal)


def test_a_probe_is_extrapolated_in_proportion(monkeypatch):
    trials = []

    def trial(setup, nodes):
        trials.append(nodes)
        return probe.Timing(Plan("looped", 1, 1, 1), 0.0, 0.04 * nodes, 0.5 * nodes)

    monkeypatch.setattr(probe, "_trial", trial)
    monkeypatch.setattr(probe, "_seconds_of_mixing", lambda *arguments: 1.0)
    result = need(algorithms.dsgd(0.1), probe=True, nodes=3, executor="looped")
    assert trials == [4]  # 0.16 s are enough
    assert (result.seconds_per_round, result.seconds_per_evaluation) == (
        pytest.approx(0.24 + 1),
        pytest.approx(1.5),
    )


def test_a_probe_has_the_nodes_that_are_trained_at_once():
    sizes = Sizes(1000, 10_000, 20, 0)
    assert probe.fewest_nodes(Plan("looped", 1, 1, 1), sizes) == 4
    assert probe.fewest_nodes(Plan("batched", 30, 1, 1), sizes) == 30
    assert probe.fewest_nodes(Plan("looped", 1, 2, 1), sizes) * 10_000 * 20 >= SHARED_WORK
    assert probe.fewest_nodes(Plan("batched", 30, 2, 1), sizes) == 60


@pytest.mark.parametrize("grown", [0, 2**30, None])
def test_a_probe_corrects_memory_by_its_growth(grown, monkeypatch):
    @contextmanager
    def watched(wanted):
        yield lambda: grown if wanted else None

    monkeypatch.setattr(ESTIMATE, "watched_growth", watched)
    monkeypatch.setattr(probe, "_trial", lambda *arguments: LOOPED)
    monkeypatch.setattr(probe, "_seconds_of_mixing", lambda *arguments: 0.0)
    options = {"model": problems.convolutional(), "executor": "looped"}
    algorithm = algorithms.dsgd(0.1, momentum=0.9)
    plain, probed = need(algorithm, **options), need(algorithm, **options, probe=True)
    assert plain.beyond == 0
    if grown is None:
        assert probed.beyond == 0
        return
    two_nodes = 2 * 2 * plain.d * 4  # 6 nodes, of which the probe has 4: models and momentum
    assert probed.added == pytest.approx(
        max(grown + two_nodes, -probed.held), abs=2 * 10 * plain.d * 8
    )
    assert ("a probe took" in str(probed)) == (probed.beyond != 0)
    assert ("a probe took more" in str(probed)) == (probed.beyond > 0)


def test_a_probe_may_choose_to_loop_in_spite_of_a_chunk(monkeypatch):
    monkeypatch.setattr(probe, "_trial", lambda *arguments: LOOPED)
    result = need(
        algorithms.dsgd(0.1), model=problems.convolutional(), executor="auto", chunk=4, probe=True
    )
    assert (result.executor, result.chunk) == ("looped", 1)


@pytest.mark.parametrize(
    ("patience", "probed"),
    [(100.0, [*range(1, 3 * probe.PROBED_ROUNDS // 2 + 2)]), (0.0, [1, 2, 3])],
)
def test_a_probe_times_rounds_for_a_while_and_ends_after_an_evaluation(
    monkeypatch, patience, probed
):
    events, clients = [], problems.equal_clients()

    def train(rounds, note):
        topofl.run(
            algorithms.dsgd(0.1),
            model=problems.linear(),
            clients=clients,
            topology=problems.cliques(clients),
            rounds=rounds,
            seed=0,
            evaluation=probe.EVERY,
            callbacks=[events.append, note],
        )

    monkeypatch.setattr(probe, "PROBED_SECONDS", patience)
    found = probe.timed(train, 1000)
    rounds = [event for event in events if event.kind == "round"]
    assert [event.round for event in rounds] == probed
    plain = [event.values["seconds"] for event in rounds if event.round % 3]
    assert min(plain[1:]) <= found.round <= max(plain[1:])  # the first of them warms up
    assert found.once >= max(plain[0] - found.round, 0.0)
    scored = [event.values["seconds"] for event in events if event.kind == "evaluation"][1:]
    assert found.evaluation == statistics.median(scored)
    assert found.plan.executor in ("batched", "looped")
