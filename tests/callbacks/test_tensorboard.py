"""TensorBoard gets the values of events."""

import numpy as np

from tests.callbacks.helpers import play, read_events, series, stream
from topofl import callbacks
from topofl.callbacks import Event


def test_tensorboard_reads_the_logged_values(tmp_path):
    play(callbacks.tensorboard(tmp_path), 5)
    events = read_events(tmp_path)
    assert series(events, "round/train_loss") == [(t, np.float32(1 / t)) for t in range(1, 6)]
    assert series(events, "evaluation/accuracy_mean") == [
        (t, t / 8 if t else 0.125) for t in (0, 2, 4)
    ]
    assert series(events, "evaluation/gradient_diversity") == [(2, 0.25), (4, 0.25)]
    assert series(events, "checkpoint/bytes") == [(2, 1000), (4, 1000)]
    (note,) = events.Tensors("settings/text_summary")
    assert '"lr": 0.1' in note.tensor_proto.string_val[0].decode()


def test_tensorboard_is_flushed_with_every_evaluation_and_closed_at_the_end(tmp_path, monkeypatch):
    from torch.utils.tensorboard import SummaryWriter

    done = []
    for name in ("flush", "close"):
        original = getattr(SummaryWriter, name)
        monkeypatch.setattr(
            SummaryWriter,
            name,
            lambda self, name=name, original=original: (done.append(name), original(self))[1],
        )
    board = callbacks.tensorboard(tmp_path)
    for event in stream(3, ending="interrupt"):
        done.clear()
        board(event)
        assert ("flush" in done) == (event.kind != "round")
        assert ("close" in done) == (event.kind == "interrupt")
    done.clear()
    board(Event("end", 3, {"seconds": 1.0}))
    assert done == [], "what follows the end is nobody's"


def test_tensorboard_of_a_resumed_run_has_every_round_once(tmp_path):
    killed = callbacks.tensorboard(tmp_path)
    for event in list(stream(6))[:-1]:
        killed(event)
    play(callbacks.tensorboard(tmp_path), 8, 4)
    events = read_events(tmp_path)
    assert [step for step, _ in series(events, "round/train_loss")] == list(range(1, 9))
    assert [step for step, _ in series(events, "evaluation/accuracy_mean")] == [0, 2, 4, 6, 8]


def test_a_new_run_takes_the_place_of_an_older_one_in_tensorboard(tmp_path):
    play(callbacks.tensorboard(tmp_path), 5)
    play(callbacks.tensorboard(tmp_path), 3)
    assert [step for step, _ in series(read_events(tmp_path), "round/train_loss")] == [1, 2, 3]
