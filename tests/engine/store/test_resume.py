"""Resumed runs equal those that were never stopped; also by signals; times of checkpoints."""

import json
import os
import signal

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.train.test_divergence import clients_with_extremes
from tests.history.helpers import assert_same
from tests.rows.stored import stopped, trained
from topofl.engine import saving as schedule
from topofl.engine.checkpoint import rounds_in


@pytest.mark.parametrize("at", range(1, 7))
def test_every_round_can_be_resumed_from(whole, tmp_path, at):
    stopped(tmp_path, at, checkpoints=1)
    assert rounds_in(tmp_path)[-1] == at, "the checkpoint that was due is written first"
    assert_same(trained(tmp_path, resume=True), whole)


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_divergence_is_restored(tmp_path, policy):
    diverging = {"clients": clients_with_extremes(), "on_divergence": policy}
    without = trained(**diverging)
    assert without.meta["diverged"]
    stopped(tmp_path, 4, **diverging)
    assert_same(trained(tmp_path, resume=True, **diverging), without)


@pytest.mark.parametrize(
    "more",
    [
        {"checkpoints": 1},
        {"checkpoints": 3},
        {"every": 1, "before_exchange": True},
        {"every": 100, "progress": True},
        {"callbacks": [problems.each_round(lambda t, models: None)]},
    ],
    ids=["every round", "every third", "evaluated", "with a bar", "with a hook"],
)
def test_checkpoints_and_callbacks_do_not_change_models(whole, tmp_path, more, capfd):
    history = trained(tmp_path, **more)
    assert torch.equal(history.models.flat, whole.models.flat)
    np.testing.assert_array_equal(history["train_loss"], whole["train_loss"])


def stop_by(number, at):
    """Return a callback that sends this process a signal in some round."""
    return lambda event: (
        os.kill(os.getpid(), number) if (event.kind, event.round) == ("round", at) else None
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_round_and_saves(whole, tmp_path, number):
    events, before = [], signal.getsignal(number)
    callbacks = [stop_by(number, 2), lambda event: events.append((event.kind, event.round))]
    message = (
        r"interrupted after round 2 of 7; continue with "
        r"run\(..., saving=Saving\('.*', resume=True\)\)"
    )
    with pytest.raises(topofl.Interrupted, match=message) as stopped:
        trained(tmp_path, checkpoints="auto", callbacks=callbacks)
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert (stopped.value.done, stopped.value.rounds, stopped.value.saved) == (2, 7, 2)
    assert events[-3:] == [("round", 2), ("checkpoint", 2), ("interrupt", 2)]
    assert signal.getsignal(number) is before
    assert_same(trained(tmp_path, resume=True), whole)


def test_a_second_signal_stops_at_once(tmp_path):
    def twice(event):
        if event.kind == "round":
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        trained(tmp_path, callbacks=[twice])
    assert not isinstance(stopped.value, topofl.Interrupted)
    assert rounds_in(tmp_path) == []
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("kind", "at"), [("evaluation", 0), ("round", 7)])
def test_a_signal_before_the_first_round_and_in_the_last(whole, tmp_path, kind, at):
    def stop(event):
        if (event.kind, event.round) == (kind, at):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(topofl.Interrupted, match=f"after round {at} of 7"):
        trained(tmp_path, callbacks=[stop])
    assert_same(trained(tmp_path, resume=True), whole)


def test_without_a_folder_a_signal_interrupts_immediately():
    with pytest.raises(KeyboardInterrupt) as stopped:
        trained(callbacks=[stop_by(signal.SIGINT, 2)])
    assert not isinstance(stopped.value, topofl.Interrupted)


def test_events_contain_the_values_of_the_history(tmp_path):
    events = []
    how = {"checkpoints": 3, "every": 2, "callbacks": [events.append]}
    history = trained(tmp_path, rounds=5, **how)
    kinds = [(event.kind, event.round) for event in events if event.kind != "round"]
    assert kinds == [
        *(("start", 0), ("evaluation", 0), ("evaluation", 2), ("checkpoint", 3)),
        *(("evaluation", 4), ("evaluation", 5), ("checkpoint", 5), ("end", 5)),
    ]
    table = history.to_pandas()
    for event in events:
        json.dumps(dict(event.values))
        if event.kind in ("round", "evaluation"):
            for name in set(event.values) - {"seconds", "round"}:
                np.testing.assert_equal(event.values[name], table[name][event.round])
    assert events[0].values | {"diverged": []} == {**history.meta, "resumed_at": 0}
    events.clear()
    trained(tmp_path, rounds=6, resume=True, **how)
    assert (events[0].kind, events[0].values["resumed_at"], events[1].round) == ("start", 5, 6)


class Clock:
    """Seconds that pass only when a round ends or a checkpoint is written."""

    def __init__(self, monkeypatch, round_seconds, write_seconds):
        self.now, self.round_seconds = 0.0, round_seconds
        monkeypatch.setattr(schedule, "clock", lambda: self.now)
        save = schedule.write_checkpoint

        def slow(*args):
            self.now += write_seconds
            return save(*args)

        monkeypatch.setattr(schedule, "write_checkpoint", slow)

    def __call__(self, event):
        self.now += self.round_seconds if event.kind == "round" else 0


@pytest.mark.parametrize(
    ("round_seconds", "write_seconds", "wanted"),
    [
        (1.0, 0.0, [5, 10, 15, 20, 25, 30, 35, 40]),  # no more often than every 5 seconds
        (1.0, 1.0, [5, 24, 40]),  # 19 seconds of training for one of writing
        (700.0, 90.0, list(range(1, 41))),  # at least every 10 minutes, or every round
        (0.1, 0.1, [40]),  # the last round always
    ],
)
def test_checkpoints_by_time(tmp_path, monkeypatch, round_seconds, write_seconds, wanted):
    written, clock = [], Clock(monkeypatch, round_seconds, write_seconds)

    def note(event):
        if event.kind == "checkpoint":
            written.append(event.round)

    trained(tmp_path, checkpoints="auto", rounds=40, callbacks=[clock, note])
    assert written == wanted
