"""Probes of runs, and the live table of a sweep."""

import io
import time
from importlib import import_module

from tests.runs.conftest import BASE
from topofl import config
from topofl.callbacks import Event
from topofl.runs.execute import Live
from topofl.runs.plan import prepare
from topofl.runs.probe import PROBED_ROUNDS, _timed
from topofl.runs.work import Outcome, Reporter, claimed_folder

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


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_live_table(tmp_path):
    first, second = (point.job for point in prepare(BASE, None, seeds=2))
    live = Live(tmp_path, 3, title="mine", labels={first.key: "seed=0\x1b[2J"})
    assert live.text() == ["mine: 0 of 3 runs done"]
    for job in (first, second):
        live.started(job)
    folder = claimed_folder(tmp_path, first.key)
    reporter = Reporter(folder, 40, _last=-1e9)
    reporter._score = 0.25
    reporter(Event("round", 7, {}))
    lines = live.text()
    assert lines[1] == "  seed=0\\x1b[2J: round 7 of 40, score 0.250"
    assert lines[2] == f"  {second.key}"
    live.ended(Outcome(first.key, "done"))
    live.ended(Outcome(second.key, "failed", "ValueError: no"))
    live._began = time.monotonic() - 8  # two runs have ended, so the third takes four seconds
    (head,) = live.text()
    assert head == "mine: 1 of 3 runs done, 1 failed, about 4 s left"


def test_the_live_table_is_drawn_on_terminals_only_and_erased(tmp_path):
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with Live(tmp_path, 3, stream=stream):
            deadline = time.monotonic() + 10
            while drawn and not stream.getvalue() and time.monotonic() < deadline:
                time.sleep(0.05)
        text = stream.getvalue()
        assert ("0 of 3 runs done\n" in text) is drawn
        assert text.endswith("\x1b[1F\x1b[J") is drawn
