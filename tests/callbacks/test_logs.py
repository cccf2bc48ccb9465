"""Logs in files and as text contain the values of events."""

import io
from datetime import datetime, timedelta

import numpy as np
import pytest

from tests.callbacks.helpers import SETTINGS, lines, play, stream
from tests.full_disk import full_at
from topofl import callbacks
from topofl.callbacks import Event


@pytest.mark.parametrize(
    ("kind", "values", "numbers"),
    [
        ("start", {"n": 4, "rounds": 5}, {}),
        ("round", {"loss": np.float32(0.5), "n": np.int64(7)}, {"round/loss": 0.5, "round/n": 7}),
        ("evaluation", {"round": 3, "loss_mean": 1.5}, {"evaluation/loss_mean": 1.5}),
        ("evaluation", {"a": float("nan"), "b": float("inf"), "c": None}, {}),
        ("checkpoint", {"path": "runs/a", "bytes": 10}, {"checkpoint/bytes": 10}),
    ],
)
def test_scalars_are_the_finite_numbers_under_their_kind(kind, values, numbers):
    assert callbacks.scalars(Event(kind, 3, values)) == numbers


def test_a_log_has_one_object_per_event(tmp_path):
    path = tmp_path / "deep" / "log.jsonl"
    log = callbacks.jsonl(path)
    assert path.read_text() == "", "that it can be written is known before training"
    for count, event in enumerate(stream(4), start=1):
        log(event)
        records = lines(path)
        assert len(records) == count, "and each is there at once"
        assert (records[-1]["kind"], records[-1]["round"]) == (event.kind, event.round)
        assert list(records[-1]["values"]) == list(event.values)
        assert datetime.fromisoformat(records[-1]["time"]).utcoffset() == timedelta(0)
    assert records[0]["values"] == SETTINGS | {"rounds": 4, "resumed_at": 0}
    assert records[1]["values"] == {"round": 0, "accuracy_mean": 0.125, "gradient_diversity": None}


def test_a_log_is_strict_json_for_any_values(tmp_path):
    values = {
        "numpy": [np.float32(0.5), np.int64(3), np.bool_(True), np.float64("inf")],
        "array": np.array([1.0, np.nan]),
        "nested": {"tuple": (1, None, True), 5: "text\nof two lines"},
        "path": tmp_path,
    }
    callbacks.jsonl(tmp_path / "log")(Event("round", np.int64(1), values))
    assert lines(tmp_path / "log")[0]["values"] == {
        "numpy": [0.5, 3, True, None],
        "array": [1.0, None],
        "nested": {"tuple": [1, None, True], "5": "text\nof two lines"},
        "path": str(tmp_path),
    }


def test_a_resumed_run_appends_and_removes_an_incomplete_line(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b'{"tim')
    play(callbacks.jsonl(path), 3)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"time": "2026-')
    play(callbacks.jsonl(path), 4, 2)
    assert path.read_bytes().startswith(whole)
    said = lines(path)
    assert [record["kind"] for record in said[:3]] == ["start", "evaluation", "round"]
    assert [one["round"] for one in said if one["kind"] == "round"] == [1, 2, 3, 3, 4]
    assert [one["values"]["resumed_at"] for one in said if one["kind"] == "start"] == [0, 2]


@pytest.mark.parametrize("content", ["years of work", "{}\n"])
def test_a_log_does_not_replace_other_files(tmp_path, content):
    path = tmp_path / "thesis.tex"
    path.write_text(content)
    with pytest.raises(FileExistsError, match="`path` must be new or an older log"):
        callbacks.jsonl(path)
    assert path.read_text() == content


def test_text_has_one_line_per_event(capsys):
    own = io.StringIO()
    play(callbacks.text(own, every=3), 4)
    assert capsys.readouterr().err == ""
    said = own.getvalue().splitlines()
    assert said[0] == "round 0 start: algorithm dsgd, n 4, rounds 4, resumed_at 0"
    third = "round 3 round: train_loss 0.333333, bytes 96, seconds 0.5"
    assert [line for line in said if " round:" in line] == [third]
    play(callbacks.text(), 4, ending="interrupt")
    said = capsys.readouterr().err.splitlines()
    kinds = [f"round 4 {kind}" for kind in ("evaluation", "checkpoint", "interrupt")]
    assert [line.split(":")[0] for line in said[-3:]] == kinds
    assert not [line for line in said if " round:" in line]
    with pytest.raises(ValueError, match="`every` must be at least 1, got 0"):
        callbacks.text(every=0)


def test_a_log_on_a_full_disk_names_its_file(tmp_path):
    path = tmp_path / "log.jsonl"
    log = callbacks.jsonl(path)
    log(Event("round", 1, {"train_loss": 2.5}))
    with full_at(path.stat().st_size), pytest.raises(OSError, match=r"'.*/log\.jsonl'$"):
        log(Event("round", 2, {"train_loss": 2.5}))
