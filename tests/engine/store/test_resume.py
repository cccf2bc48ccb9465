"""A run that was stopped and resumed equals one that never was, to the last bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.train.test_divergence import clients_with_extremes
from topofl import algorithms, mixing, topologies
from topofl.engine.rounds import EngineRound
from topofl.engine.store import schedule
from topofl.engine.store.checkpoint import rounds_in

ROOT = Path(__file__).resolve().parents[3]


def arguments(**changes):
    return killed.settings("dsgd over a period") | changes


@pytest.fixture(scope="module")
def whole():
    return killed.trained(arguments())


@pytest.fixture(scope="module")
def verdicts():
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.killed"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("case", killed.CASES)
def test_killed_and_resumed_equals_never_stopped(verdicts, case):
    assert verdicts[case] == []


@pytest.mark.parametrize("stop", range(1, 7))
def test_every_round_can_be_resumed_from(whole, tmp_path, stop):
    class Stop(Exception):
        pass

    def callback(event):
        if (event.kind, event.round) == ("round", stop):
            raise Stop

    with pytest.raises(Stop):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, every=1), **arguments()),
            callbacks=[callback],
        )
    assert rounds_in(tmp_path)[-1] == stop, "the checkpoint that was due is written first"
    assert (
        killed.differences(
            killed.trained(arguments(), saving=topofl.Saving(tmp_path, resume=True)), whole
        )
        == []
    )


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_what_diverged_stays_so(tmp_path, policy):
    clients = clients_with_extremes()
    diverging = arguments(clients=clients, topology=problems.cliques(clients), on_divergence=policy)
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
def test_saving_and_looking_change_no_bit_of_the_models(whole, tmp_path, more, capfd):
    saving = topofl.Saving(tmp_path, every=more.get("saving", "auto"))
    history, models = killed.trained(arguments(**more | {"saving": saving}))
    assert torch.equal(models, whole[1])
    np.testing.assert_array_equal(history["train_loss"], whole[0]["train_loss"])


@pytest.mark.parametrize("first", [3, 4, 6])
def test_more_rounds_are_as_if_asked_for_at_once(whole, tmp_path, first):
    short, _ = killed.trained(arguments(rounds=first), saving=tmp_path)
    assert short["round"][-1] == first
    longer = killed.trained(arguments(), saving=topofl.Saving(tmp_path, resume=True))
    assert killed.differences(longer, whole) == []
    assert list(longer[0]["round"]) == [0, 3, 6, 7]


def test_a_finished_run_is_returned_at_once(whole, tmp_path, monkeypatch):
    killed.trained(arguments(), saving=tmp_path)
    monkeypatch.setattr(EngineRound, "train", lambda *a, **k: pytest.fail("trained"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert (
        killed.differences(
            killed.trained(arguments(), saving=topofl.Saving(tmp_path, resume=True)), whole
        )
        == []
    )
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_rounds_cannot_be_fewer_than_are_done(tmp_path):
    killed.trained(arguments(rounds=4), saving=tmp_path)
    with pytest.raises(ValueError, match="`rounds` must be at least 4, which are done"):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, resume=True), **arguments(rounds=3))
        )
    stopped = tmp_path / "stopped"
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(saving=topofl.Saving(stopped, every=4), **arguments()),
            callbacks=[lambda e: 1 / (e.round - 4)],
        )
    with pytest.raises(
        ValueError,
        match=r"`rounds` must be at least 5, got 4: so many are done .* was not evaluated",
    ):
        topofl.run(
            **problems.options(saving=topofl.Saving(stopped, resume=True), **arguments(rounds=4))
        )


def looser(clients):
    return problems.data.Partition(clients.dataset, clients.train[::-1], name=clients.name)


def brighter(clients):
    blobs = problems.dataset()
    blobs.inputs[3] += 1
    return problems.data.Partition(blobs, clients.train, name=clients.name)


OTHER = {
    "seed": ({"seed": 1}, "seed was 0, is 1"),
    "algorithm": (
        {"algorithm": algorithms.local_only(lr=0.1)},
        "algorithm was dsgd: local -> exchange, is local_only",
    ),
    "setting": (
        {"algorithm": algorithms.dsgd(lr=0.2, batch_size=4, momentum=0.9, local_steps=2)},
        "local.lr was 0.1, is 0.2; start",
    ),
    "topology": ({"topology": topologies.ring(6)}, "topology was one_peer_exponential"),
    "edges of one name": (
        {"topology": topologies.star(6).renamed("ring(n=6)")},
        "topology was ring",
    ),
    "mixing": ({"mixing": topofl.mixing.from_weights(np.eye(6))}, "mixing was uniform"),
    "clients": ({"clients": looser(problems.equal_clients())}, "clients was iid"),
    "data": ({"clients": brighter(problems.equal_clients())}, "dataset was blobs"),
    "model": ({"model": problems.convolutional(), "executor": "batched"}, "model was Sequential"),
    "init": ({"init": "common"}, "init was independent, is common"),
    "dtype": ({"dtype": torch.float64}, "compute.dtype was torch.float32, is torch.float64"),
    "every": ({"every": 2}, "evaluation.every was 3, is 2"),
    "precision": ({"precision": "bf16"}, "compute.precision was fp32, is bf16"),
    "executor": ({"executor": "looped"}, "executor was batched, is looped"),
    "chunk": ({"chunk": 2}, "chunk was 6, is 2"),
}


@pytest.mark.parametrize("case", OTHER)
def test_another_run_is_refused_naming_the_difference(tmp_path, case):
    changes, message = OTHER[case]
    start = {"topology": topologies.ring(6)} if case == "edges of one name" else {}
    topofl.run(**problems.options(saving=tmp_path, **arguments(rounds=1, **start)))
    with pytest.raises(ValueError, match=f"`resume` must continue the same run: .*{message}"):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, resume=True), **arguments(**changes))
        )


def steps_by(*terms, lr=0.1):
    """Return the algorithm of local steps by some terms."""
    return algorithms.chain(
        "own", local=algorithms.train(algorithms.descend(*terms, lr=lr), batch_size=4)
    )


def signed(strength):
    return algorithms.Term("signed", lambda g, theta, own, step: g + strength * g.sign())


def shrinking(apply):
    return algorithms.chain(
        "own",
        local=algorithms.sgd(0.1, batch_size=4),
        last=algorithms.Phase(lambda models: {}, apply),
    )


def shrink(models, state, round):
    models.flat.mul_(0.5)
    return {}


def shrink_less(models, state, round):
    models.flat.mul_(0.75)
    return {}


shrink_less.__name__ = shrink_less.__qualname__ = "shrink"


def hearing(share):
    def choose(models, state, round):
        return algorithms.Choice(mixing.from_weights((1 - share) * np.eye(6) + share / 6))

    return algorithms.chain(
        "own", exchange=algorithms.average_over_peers(algorithms.Policy(choose))
    )


clip, decay = algorithms.clip(1.0), algorithms.weight_decay(0.1)
UNLIKE = {
    "eps of Adam": (steps_by(algorithms.adam()), steps_by(algorithms.adam(eps=1e-3))),
    "end of a cosine": [
        steps_by(lr=algorithms.cosine(0.1, rounds=9, end=end)) for end in (0.0, 0.05)
    ],
    "seventh digit of a rate": [
        steps_by(lr=algorithms.exponential(lr, 0.5)) for lr in (0.1, 0.10000001)
    ],
    "order of terms": (steps_by(clip, decay), steps_by(decay, clip)),
    "a rate of one's own": (steps_by(lr=lambda t, k: 0.1), steps_by(lr=lambda t, k: 0.2)),
    "a number that a term holds": (steps_by(signed(0.1)), steps_by(signed(0.2))),
    "a number that a policy holds": (hearing(0.1), hearing(0.2)),
    "code of a phase": (shrinking(shrink), shrinking(shrink_less)),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_another_method_of_the_same_name_is_refused(tmp_path, case):
    one, other = UNLIKE[case]
    how = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "seed": 0,
        "compute": "cpu",
    }
    topofl.run(one, rounds=1, saving=tmp_path, **how)
    with pytest.raises(ValueError, match="`resume` must continue the same run: "):
        topofl.run(other, rounds=2, saving=topofl.Saving(tmp_path, resume=True), **how)
    assert (
        topofl.run(one, rounds=2, saving=topofl.Saving(tmp_path, resume=True), **how).n_rounds == 2
    )


def test_a_loss_that_was_edited_is_another(tmp_path):
    def task(power):
        return topofl.Task("own", lambda outputs, targets: (outputs[:, 0] - targets).abs() ** power)

    how = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "seed": 0,
        "compute": "cpu",
    }
    topofl.run(steps_by(), rounds=1, saving=tmp_path, task=task(2), **how)
    with pytest.raises(ValueError, match=r"`resume` must continue the same run: .*task\.code was"):
        topofl.run(
            steps_by(), rounds=2, saving=topofl.Saving(tmp_path, resume=True), task=task(3), **how
        )


def test_values_of_the_model_matter_where_they_are_used(tmp_path):
    other = problems.linear()
    with torch.no_grad():
        other[1].bias += 1
    for init in ("common", "given"):
        topofl.run(**problems.options(saving=tmp_path / init, **arguments(rounds=1, init=init)))
    topofl.run(
        **problems.options(
            saving=topofl.Saving(tmp_path / "common", resume=True),
            **arguments(rounds=1, init="common", model=other),
        )
    )
    with pytest.raises(ValueError, match="model was Sequential"):
        topofl.run(
            **problems.options(
                saving=topofl.Saving(tmp_path / "given", resume=True),
                **arguments(rounds=1, init="given", model=other),
            )
        )


@pytest.mark.parametrize(
    "asked", [{"executor": "auto"}, {"executor": "auto", "chunk": 4}, {"executor": "looped"}]
)
def test_the_executor_is_not_chosen_anew(tmp_path, monkeypatch, asked):
    monkeypatch.setattr("topofl.engine.train.plan._fastest", lambda *a: ("looped", 1))
    settings = arguments(model=problems.convolutional(), rounds=2) | asked
    topofl.run(**problems.options(saving=tmp_path, **settings))
    monkeypatch.setattr("topofl.engine.train.plan._fastest", lambda *a: ("batched", 4))
    resumed = topofl.run(
        **problems.options(saving=topofl.Saving(tmp_path, resume=True), **settings | {"rounds": 3})
    )
    assert resumed.meta["executor"] == "looped"


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
        topofl.run(**problems.options(saving=tmp_path, **arguments()), callbacks=callbacks)
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert (stopped.value.done, stopped.value.rounds, stopped.value.saved) == (2, 7, 2)
    assert events[-3:] == [("round", 2), ("checkpoint", 2), ("interrupt", 2)]
    assert signal.getsignal(number) is before
    assert (
        killed.differences(
            killed.trained(arguments(), saving=topofl.Saving(tmp_path, resume=True)), whole
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
        topofl.run(**problems.options(saving=tmp_path, **arguments()), callbacks=[twice])
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
            topofl.run(**problems.options(saving=tmp_path / str(at), **arguments()), callbacks=stop)
        resumed = killed.trained(arguments(), saving=topofl.Saving(tmp_path / str(at), resume=True))
        assert killed.differences(resumed, whole) == []


def test_without_a_folder_a_signal_interrupts_as_ever():
    with pytest.raises(KeyboardInterrupt) as stopped:
        topofl.run(**problems.options(**arguments()), callbacks=[stop_by(signal.SIGINT, 2)])
    assert not isinstance(stopped.value, topofl.Interrupted)


def test_events_tell_what_the_history_says(tmp_path):
    events = []
    how = {"saving": topofl.Saving(tmp_path, every=3), "callbacks": [events.append]}
    history = topofl.run(**problems.options(**arguments(rounds=5, every=2), **how))
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
    topofl.run(**problems.options(**arguments(rounds=6, every=2), **how))
    assert (events[0].kind, events[0].values["resumed_at"], events[1].round) == ("start", 5, 6)


class Clock:
    """Seconds that pass only when a round ends or a checkpoint is written."""

    def __init__(self, monkeypatch, round_seconds, write_seconds):
        self.now, self.round_seconds = 0.0, round_seconds
        monkeypatch.setattr(schedule, "clock", lambda: self.now)
        save = schedule.save

        def slow(*args):
            self.now += write_seconds
            return save(*args)

        monkeypatch.setattr(schedule, "save", slow)

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
    topofl.run(**problems.options(saving=tmp_path, **arguments(rounds=40)), callbacks=callbacks)
    assert written == wanted
