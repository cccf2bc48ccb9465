"""Logs of a resumed run equal its history."""

import numpy as np
import pytest

import topofl
from tests import problems
from tests.callbacks.helpers import lines, read_events, series
from topofl import algorithms, callbacks, topologies


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the history and folder of an interrupted and resumed run with log and TensorBoard."""
    place = tmp_path_factory.mktemp("told")
    board, log = place / "board", place / "log.jsonl"

    def stop(event):
        if event.kind == "round" and event.round == 6:
            raise RuntimeError("pulled the plug")

    def train(*more, resume=False):
        return topofl.run(
            algorithms.dsgd(lr=0.1, batch_size=4),
            model=problems.linear(),
            clients=problems.equal_clients(),
            topology=topologies.one_peer_exponential(6),
            rounds=9,
            seed=0,
            evaluation=3,
            compute=topofl.Compute(executor="batched"),
            saving=topofl.Saving(place / "checkpoints", every=4, resume=resume),
            callbacks=[callbacks.tensorboard(board), callbacks.jsonl(log), *more],
        )

    with pytest.raises(RuntimeError, match="pulled the plug"):
        train(stop)
    return train(resume=True), place


def in_history(history):
    """Return the finite numbers of a history that trackers log: {name: {round: value}}."""
    t = history["round"].tolist()
    wanted = {
        f"round/{name}": dict(enumerate(column.tolist(), start=1))
        for name, column in history.rounds.items()
    }
    for name, column in history.evaluations.items():
        if column.ndim == 1 and name != "round":
            wanted[f"evaluation/{name}"] = dict(zip(t, column.tolist(), strict=True))
        elif column.ndim == 2:
            for key in ("mean", "min", "max"):
                wanted[f"evaluation/{name}_{key}"] = dict(
                    zip(t, getattr(column, key)(axis=1).tolist(), strict=True)
                )
    return {
        name: {t: v for t, v in points.items() if np.isfinite(v)} for name, points in wanted.items()
    }


def test_tensorboard_shows_the_history_of_a_resumed_run(told):
    history, place = told
    events = read_events(place / "board")
    wanted = in_history(history)
    assert {
        "round/train_loss",
        "round/bytes",
        "evaluation/accuracy_max",
        "evaluation/gradient_diversity",
    } <= set(wanted)
    for name, points in wanted.items():
        assert series(events, name) == [(t, np.float32(value)) for t, value in points.items()], name
    shown = {tag for tag in events.Tags()["scalars"] if not tag.endswith("/seconds")}
    assert shown == {*wanted, "checkpoint/bytes", "end/rounds"}


def test_a_log_contains_the_history_of_a_resumed_run(told):
    history, place = told
    records = lines(place / "log.jsonl")
    assert [record["kind"] for record in records if record["round"] == 0] == ["start", "evaluation"]
    assert [record["round"] for record in records if record["kind"] == "start"] == [0, 4]
    assert records[0]["values"]["topology"] == "one_peer_exponential(n=6)"
    for name, points in in_history(history).items():
        kind, key = name.split("/")
        known = [
            (r["round"], r["values"][key])
            for r in records
            if r["kind"] == kind and r["values"].get(key) is not None
        ]
        assert dict(known) == points, name
