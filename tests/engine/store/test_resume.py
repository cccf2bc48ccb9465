"""Resumed runs equal those that were never stopped."""

import json
import os
import signal

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.store.helpers import dsgd_arguments
from tests.engine.train.test_divergence import clients_with_extremes
from topofl.engine import saving as schedule
from topofl.engine.checkpoint import rounds_in
from topofl.engine.round import Round


@pytest.fixture(scope="module")
def whole():
    return killed.trained(dsgd_arguments())


@pytest.mark.parametrize("stop", range(1, 7))
def test_every_round_can_be_resumed_from(whole, tmp_path, stop):
    class Stop(Exception):
        pass

    def callback(event):
        if (event.kind, event.round) == ("round", stop):
            raise Stop

    with pytest.raises(Stop):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, every=1), **dsgd_arguments()),
            callbacks=[callback],
        )
    assert rounds_in(tmp_path)[-1] == stop, "the checkpoint that was due is written first"
    assert (
        killed.differences(
            killed.trained(dsgd_arguments(), saving=topofl.Saving(tmp_path, resume=True)), whole
        )
        == []
    )


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_divergence_is_restored(tmp_path, policy):
    clients = clients_with_extremes()
    diverging = dsgd_arguments(
        clients=clients, topology=problems.cliques(clients), on_divergence=policy
    )
    without = killed.trained(diverging)
    assert without[0].meta["diverged"]
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, every=2), **diverging),
            callbacks=[lambda e: 1 / (e.round - 4)],
        )
    assert (
        killed.differences(
            killed.trained(diverging, saving=topofl.Saving(tmp_path, resume=True)), without
        )
        == []
    )


@pytest.mark.parametrize(
    "more",
    [
        {"saving": 1},
        {"saving": 3},
        {"every": 1, "before_exchange": True},
        {"every": 100, "progress": True},
        {"callbacks": [problems.each_round(lambda t, models: None)]},
    ],
    ids=["every round", "every third", "evaluated", "with a bar", "with a hook"],
)
def test_checkpoints_and_callbacks_do_not_change_models(whole, tmp_path, more, capfd):
    saving = topofl.Saving(tmp_path, every=more.get("saving", "auto"))
    history, models = killed.trained(dsgd_arguments(**more | {"saving": saving}))
    assert torch.equal(models, whole[1])
    np.testing.assert_array_equal(history["train_loss"], whole[0]["train_loss"])


@pytest.mark.parametrize("first", [3, 4, 6])
def test_additional_rounds_equal_a_longer_run(whole, tmp_path, first):
    short, _ = killed.trained(dsgd_arguments(rounds=first), saving=tmp_path)
    assert short["round"][-1] == first
    longer = killed.trained(dsgd_arguments(), saving=topofl.Saving(tmp_path, resume=True))
    assert killed.differences(longer, whole) == []
    assert list(longer[0]["round"]) == [0, 3, 6, 7]


def test_a_finished_run_is_returned_at_once(whole, tmp_path, monkeypatch):
    killed.trained(dsgd_arguments(), saving=tmp_path)
    monkeypatch.setattr(Round, "_train", lambda *a, **k: pytest.fail("trained"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert (
        killed.differences(
            killed.trained(dsgd_arguments(), saving=topofl.Saving(tmp_path, resume=True)), whole
        )
        == []
    )
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_rounds_cannot_be_fewer_than_completed(tmp_path):
    killed.trained(dsgd_arguments(rounds=4), saving=tmp_path)
    with pytest.raises(
        ValueError,
        match=r"`rounds` must be at least 4, the number completed in .*, got 3; start a shorter",
    ):
        topofl.run(
            **problems.options(
                saving=topofl.Saving(tmp_path, resume=True), **dsgd_arguments(rounds=3)
            )
        )
    stopped = tmp_path / "stopped"
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(saving=topofl.Saving(stopped, every=4), **dsgd_arguments()),
            callbacks=[lambda e: 1 / (e.round - 4)],
        )
    with pytest.raises(
        ValueError,
        match=r"`rounds` must be at least 5, got 4: .* round 4, after which models were not eval",
    ):
        topofl.run(
            **problems.options(
                saving=topofl.Saving(stopped, resume=True), **dsgd_arguments(rounds=4)
            )
        )


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
        topofl.run(**problems.options(saving=tmp_path, **dsgd_arguments()), callbacks=callbacks)
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert (stopped.value.done, stopped.value.rounds, stopped.value.saved) == (2, 7, 2)
    assert events[-3:] == [("round", 2), ("checkpoint", 2), ("interrupt", 2)]
    assert signal.getsignal(number) is before
    assert (
        killed.differences(
            killed.trained(dsgd_arguments(), saving=topofl.Saving(tmp_path, resume=True)), whole
        )
        == []
    )


def test_a_second_signal_stops_at_once(tmp_path):
    def twice(event):
        if event.kind == "round":
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        topofl.run(**problems.options(saving=tmp_path, **dsgd_arguments()), callbacks=[twice])
    assert not isinstance(stopped.value, topofl.Interrupted)
    assert rounds_in(tmp_path) == []
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_before_the_first_round_and_in_the_last(whole, tmp_path):
    for at in (0, 7):
        kind = "evaluation" if at == 0 else "round"
        stop = [
            lambda e, k=kind, t=at: (
                signal.raise_signal(signal.SIGINT) if (e.kind, e.round) == (k, t) else None
            )
        ]
        with pytest.raises(topofl.Interrupted, match=f"after round {at} of 7"):
            topofl.run(
                **problems.options(saving=tmp_path / str(at), **dsgd_arguments()), callbacks=stop
            )
        resumed = killed.trained(
            dsgd_arguments(), saving=topofl.Saving(tmp_path / str(at), resume=True)
        )
        assert killed.differences(resumed, whole) == []


def test_without_a_folder_a_signal_interrupts_immediately():
    with pytest.raises(KeyboardInterrupt) as stopped:
        topofl.run(**problems.options(**dsgd_arguments()), callbacks=[stop_by(signal.SIGINT, 2)])
    assert not isinstance(stopped.value, topofl.Interrupted)


def test_events_contain_the_values_of_the_history(tmp_path):
    events = []
    how = {"saving": topofl.Saving(tmp_path, every=3), "callbacks": [events.append]}
    history = topofl.run(**problems.options(**dsgd_arguments(rounds=5, every=2), **how))
    kinds = [(event.kind, event.round) for event in events if event.kind != "round"]
    assert kinds == [
        ("start", 0),
        ("evaluation", 0),
        ("evaluation", 2),
        ("checkpoint", 3),
        ("evaluation", 4),
        ("evaluation", 5),
        ("checkpoint", 5),
        ("end", 5),
    ]
    table = history.to_pandas()
    for event in events:
        json.dumps(dict(event.values))
        if event.kind in ("round", "evaluation"):
            for name in set(event.values) - {"seconds", "round"}:
                assert event.values[name] == table[name][event.round] or np.isnan(
                    event.values[name]
                )
    assert events[0].values | {"diverged": []} == {**history.meta, "resumed_at": 0}
    events.clear()
    how |= {"saving": topofl.Saving(tmp_path, every=3, resume=True)}
    topofl.run(**problems.options(**dsgd_arguments(rounds=6, every=2), **how))
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
    callbacks = [
        clock,
        lambda event: written.append(event.round) if event.kind == "checkpoint" else None,
    ]
    topofl.run(
        **problems.options(saving=tmp_path, **dsgd_arguments(rounds=40)), callbacks=callbacks
    )
    assert written == wanted
