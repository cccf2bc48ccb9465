"""The studies of scale and of costs in seconds, on few nodes."""

import json

import numpy as np
import pytest

from analysis import cost_in_seconds, scale


@pytest.mark.slow
def test_scale_measures_training_and_graphs(tmp_path):
    assert scale.main(["--preset", "small", "--threads", "1", "--out", str(tmp_path)]) == 0
    records = json.loads((tmp_path / "records.json").read_text())
    assert [one["n"] for one in records["training"]] == [20, 40]
    for one in records["training"]:
        assert len(one["seconds"]) == 2
        assert min(one["seconds"]) > 0
        assert one["bytes"] > 4 * 650 * one["n"]  # the models themselves
    found = {(one["family"], one["name"]): one for one in records["graphs"]}
    assert found["ring", "messages per round"]["value"] == 120
    assert found["fully connected", "H_10"]["value"] == 0
    assert found["ring", "spectral gap"]["value"] == pytest.approx(
        (1 - np.cos(2 * np.pi / 60)) * 2 / 3
    )
    assert "TopologySequence" in found["one-peer exponential", "heterogeneity spectrum"]["reason"]
    text = (tmp_path / "report.md").read_text()
    assert "Slopes in logarithms" in text
    assert "| fully connected | 60 | seconds per round |" in text


def test_slopes():
    assert scale.fitted_slope([1, 10, 100], [5, 50, 500]) == pytest.approx(1)
    assert scale.fitted_slope([1, 10], [7, 7]) == pytest.approx(0)


@pytest.mark.slow
def test_costs_in_seconds(tmp_path):
    out = tmp_path / "cost"
    assert cost_in_seconds.main(["--nodes", "30", "--simulated", "30", "--out", str(out)]) == 0
    records = json.loads((out / "records.json").read_text())
    by_family = {record["family"]: record for record in records["costs"]}
    assert by_family["ring"]["busiest"] == 2
    assert by_family["star"]["busiest"] == 29
    model, links = cost_in_seconds.MODELS[0], cost_in_seconds.HARDWARE["homes"]
    cell = next(one for one in by_family["random 6-regular"]["cells"] if one["hardware"] == "homes")
    message = 4 * model.n_parameters / links["bandwidth"]
    assert cell["seconds"] == pytest.approx(model.compute + links["latency"] + 6 * message)
    for record in records["regions"]:
        assert 0 < record["neighbors"] <= record["all"] + 1e-12
    before = (out / "report.md").read_text()
    assert cost_in_seconds.main(["--draw", "--out", str(out)]) == 0
    assert (out / "report.md").read_text() == before
    for name in ("seconds", "regimes", "stragglers"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_left_out_graphs_have_reasons():
    assert "slow above 1,000 nodes" in cost_in_seconds.cost_of("designed, degree 6", 2000)["reason"]
    assert "n^2 messages" in cost_in_seconds.cost_of("fully connected", 6000)["reason"]
