"""The script that kills runs and resumes them, and that it notices what is lost."""

from functools import partial

import numpy as np
import pytest

import topofl
from analysis import kill_and_resume
from analysis.kill_and_resume import main
from topofl import data


def test_killed_runs_lose_no_bit(monkeypatch, capsys):
    monkeypatch.setattr(kill_and_resume, "ROUNDS", 12)
    assert main(["--kills", "3"]) == 0
    assert capsys.readouterr().out.startswith("3 processes killed in ")


def models(place):
    values = np.load(place / "models.npy")
    values.view(np.int32)[0, 0] ^= 1
    np.save(place / "models.npy", values)


def history(place):
    changed = topofl.History.load(place)
    changed.node_loss[0, 0] += 1e-12
    changed.save(place / "history")


def leftover(place):
    (place / "checkpoints" / "round-00000001.partial").touch()


def crash(place):
    raise ZeroDivisionError(place)


@pytest.mark.parametrize(
    ("lose", "wanted"),
    [
        (models, "models differs"),
        (history, "node_loss differs"),
        (leftover, "round-00000001.partial is left"),
        (crash, "it could not be resumed: exit code 1"),
        (lambda place: None, ""),
    ],
)
def test_what_is_lost_is_noticed(monkeypatch, tmp_path, lose, wanted):
    monkeypatch.setattr(kill_and_resume, "ROUNDS", 2)
    train = partial(kill_and_resume._train, data.shards(data.digits(), n=16, per_node=2, seed=0))
    train(tmp_path / "whole")

    def lossy(place):
        train(place)
        lose(place)

    found = kill_and_resume._trial(
        lossy, tmp_path / "a", kill_and_resume._read(tmp_path / "whole"), 0, lambda: 0.0
    )
    assert (found.kills, found.wrong) == (0, wanted)
    assert (wanted or "every bit is the same") in str(found)
