"""Histories of runs that diverged."""

import json

import numpy as np
import pytest

import topofl


@pytest.fixture
def diverged(history):
    """Return a run in which node 0 became NaN or infinite, and finally all nodes."""
    evaluations = {name: column.copy() for name, column in history.evaluations.items()}
    for name, value in (("loss", np.inf), ("accuracy", np.nan)):
        evaluations[name][1:, 0] = value
        evaluations[name][-1] = np.nan
    evaluations["loss"][2, :2] = np.inf, -np.inf
    evaluations["consensus_distance"][-1] = np.inf
    rounds = dict(history.rounds) | {
        "train_loss": np.array([2.0, 1.0, np.inf, np.nan, np.nan, np.nan, np.nan])
    }
    return topofl.History(
        history.meta,
        rounds,
        evaluations,
        history.node_loss * np.nan,
        history.matrices,
        history.matrix_of_round,
    )


def test_a_run_that_diverged_is_saved_and_loaded(diverged, tmp_path):
    path = diverged.save(tmp_path / "run")
    records = [
        json.loads(line, parse_constant=pytest.fail)
        for line in (path / "rounds.jsonl").read_text().splitlines()
    ]
    assert [record.get("train_loss") for record in records] == [
        None,
        2.0,
        1.0,
        None,
        None,
        None,
        None,
        None,
    ]
    assert records[3]["loss_max"] is None
    assert records[3]["accuracy_mean"] == pytest.approx(np.nanmean(diverged["accuracy"][1]))
    assert {records[7][name] for name in ("accuracy_mean", "loss_min", "consensus_distance")} == {
        None
    }
    loaded = topofl.History.load(path)
    np.testing.assert_array_equal(loaded["train_loss"], np.array([2.0, 1.0] + 5 * [np.nan]))
    assert loaded["train_loss"].dtype == np.float64
    assert loaded["messages"].dtype == diverged["messages"].dtype
    for name in diverged.evaluations:
        np.testing.assert_array_equal(loaded[name], diverged[name])


def test_a_run_that_diverged_can_be_tabulated_and_plotted(diverged):
    assert "final accuracy nan" in repr(diverged)
    assert diverged.rounds_to(0.0) == 0
    table = diverged.to_pandas()
    assert table["loss_max"][3] == np.inf
    assert np.isnan(table["accuracy_mean"][7])
    assert table["train_loss"].dtype == np.float64
    assert len(diverged.to_pandas(per="node")) == 24
    for column in ("accuracy", "loss", "train_loss", "consensus_distance"):
        diverged.plot(column).figure.canvas.draw()
