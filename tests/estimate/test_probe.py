"""Probes train some nodes to predict the run time, and correct memory."""

from contextlib import contextmanager

import pytest
import torch

from tests import problems
from tests.estimate.helpers import ESTIMATE, need
from topofl import algorithms
from topofl.engine.plan import SHARED_WORK, Plan, Sizes


def test_runs_that_do_not_fit_are_not_probed(monkeypatch):
    monkeypatch.setattr(ESTIMATE, "free_memory", lambda device: 1)
    monkeypatch.setattr(ESTIMATE, "run", lambda *args, **kwargs: pytest.fail("trained"))
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


def test_a_probe_is_extrapolated_in_proportion(monkeypatch):
    trials = []

    def trial(setup, nodes):
        trials.append(nodes)
        return Plan("looped", 1, 1, 1), 0.04 * nodes, 0.5 * nodes

    monkeypatch.setattr(ESTIMATE, "_trial", trial)
    monkeypatch.setattr(ESTIMATE, "_seconds_of_mixing", lambda *arguments: 1.0)
    result = need(algorithms.dsgd(0.1), probe=True, nodes=3, executor="looped")
    assert trials == [4]  # 0.16 s are enough
    assert (result.seconds_per_round, result.seconds_per_evaluation) == (
        pytest.approx(0.24 + 1),
        pytest.approx(1.5),
    )


def test_a_probe_has_the_nodes_that_are_trained_at_once():
    sizes = Sizes(1000, 10_000, 20, 0)
    assert ESTIMATE._fewest_nodes(Plan("looped", 1, 1, 1), sizes) == 4
    assert ESTIMATE._fewest_nodes(Plan("batched", 30, 1, 1), sizes) == 30
    assert ESTIMATE._fewest_nodes(Plan("looped", 1, 2, 1), sizes) * 10_000 * 20 >= SHARED_WORK
    assert ESTIMATE._fewest_nodes(Plan("batched", 30, 2, 1), sizes) == 60


@pytest.mark.parametrize("grown", [0, 2**30, None])
def test_a_probe_corrects_memory_by_its_growth(grown, monkeypatch):
    @contextmanager
    def watched(wanted):
        yield lambda: grown if wanted else None

    monkeypatch.setattr(ESTIMATE, "watched_growth", watched)
    monkeypatch.setattr(ESTIMATE, "_trial", lambda *arguments: (Plan("looped", 1, 1, 1), 1.0, 1.0))
    monkeypatch.setattr(ESTIMATE, "_seconds_of_mixing", lambda *arguments: 0.0)
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
    monkeypatch.setattr(ESTIMATE, "_trial", lambda *arguments: (Plan("looped", 1, 1, 1), 1.0, 1.0))
    result = need(
        algorithms.dsgd(0.1), model=problems.convolutional(), executor="auto", chunk=4, probe=True
    )
    assert (result.executor, result.chunk) == ("looped", 1)
