"""Probes: enough rounds, apart from evaluations and fine-tuning."""

from importlib import import_module

from tests.runs.conftest import BASE
from topofl import config
from topofl.runs.probe import PROBED_ROUNDS, _timed

module = import_module("topofl.runs.probe")

LONG = {**BASE, "run": {"rounds": 1000}}


def test_a_probe_of_short_rounds_times_many_of_them(monkeypatch):
    events = []
    run = config.Experiment.run

    def noted(self, *, callbacks=(), **how):
        return run(self, callbacks=[events.append, *callbacks], **how)

    monkeypatch.setattr(config.Experiment, "run", noted)
    monkeypatch.setattr(module, "PROBED_SECONDS", 100.0)
    timed = _timed(config.build(LONG))
    rounds = [event for event in events if event.kind == "round"]
    plain = [event.values["seconds"] for event in rounds if event.round % 3]
    assert len(plain) == PROBED_ROUNDS + 1  # the first of them warms up
    assert min(plain[1:]) <= timed.round <= max(plain[1:])
    assert timed.fine_tuning == 0


def test_a_probe_of_long_rounds_ends_after_an_evaluation(monkeypatch):
    seen = []
    run = config.Experiment.run

    def noted(self, *, callbacks=(), **how):
        return run(self, callbacks=[seen.append, *callbacks], **how)

    monkeypatch.setattr(config.Experiment, "run", noted)
    monkeypatch.setattr(module, "PROBED_SECONDS", 0.0)
    _timed(config.build(LONG))
    assert [event.round for event in seen if event.kind == "round"] == [1, 2, 3]


def test_fine_tuning_is_timed_apart():
    tables = {**LONG, "algorithm": "per_fedavg,lr=0.1,fine_tune_epochs=30"}
    assert _timed(config.build(tables)).fine_tuning > 0
