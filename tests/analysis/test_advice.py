"""The calibration of advice from records, and its validation on other partitions."""

import json
from functools import partial

import numpy as np
import pytest

from analysis import advice
from analysis.study import calibration, statistics
from analysis.study.runs import Records
from analysis.study.scenarios import (
    GRAPHS,
    PARTITIONS,
    RATES,
    TUNING_GRAPH,
    TUNING_SEED,
    Cell,
    Source,
    about,
    default_scenarios,
)
from topofl import data


def test_curve_of_noisy_monotone_data_is_monotone_and_near_them():
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(np.log(1e-3), 0, 2000))
    y = 2 * np.sqrt(x)
    at, values = calibration.fitted(x, y + 0.3 * rng.standard_normal(2000))
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(values[1:], 2 * np.sqrt(np.exp(at[1:])), atol=0.15)
    assert (np.exp(at[0]), values[0]) == (pytest.approx(calibration.SMALLEST), 0)


ZETA2, NOISE = 13.0, 0.65


def synthetic(folder):
    """Return results of the digits with 30 nodes whose rounds are 10 (1 + H_10).

    Stored curves have five decimals; those in memory are exact.
    """
    scenario = default_scenarios()["digits 30"]
    records = Records(folder, partial(about, Source()))
    partition = scenario.partitions[0]
    rounds = list(range(0, 124, 4))
    for lr in RATES:
        cell = Cell(scenario.name, partition, "D-SGD", TUNING_SEED, TUNING_GRAPH)
        store(records, cell, lr, rounds, [lr] * len(rounds))
        records.ran[records.key(cell, lr)] = {"curve": [lr]}
    for seed in scenario.seeds:
        for k, graph in enumerate(GRAPHS):
            h, n = 0.05 * k, 1.0 + (k * k % 7)
            needed = 10 * (1 + h)
            before = {"H_10": h, "N_10": n, "H_20": 1.5 * h, "N_20": 2 * n}
            for hops in (10, 20):
                value = ZETA2 * before[f"H_{hops}"] + NOISE * before[f"N_{hops}"]
                before[f"predicted deviation ({hops})"] = value
            cell = Cell(scenario.name, partition, "D-SGD", seed, graph)
            curve = [0.9 * t / needed if t <= 96 else 1.0 for t in rounds]
            store(records, cell, max(RATES), rounds, curve)
            run = {"curve": curve, "rounds": rounds, "final": 1.0, "bytes": rounds}
            records.ran[records.key(cell, max(RATES))] = run
            records.add(Cell(scenario.name, partition, "", seed, graph), before)
    return records


def store(records, cell, lr, rounds, accuracy):
    """Store a made-up run."""
    records.store.create()
    folder = records.store.folder(records.key(cell, lr))
    folder.mkdir()
    scores = {"accuracy": dict.fromkeys(("mean", "worst", "std"), accuracy)}
    curves = {"round": rounds, "bytes": rounds, "scores": scores}
    (folder / "run.json").write_text(json.dumps({"tables": {}, "curves": curves, "consensus": 0.0}))


def test_calibration_from_records(tmp_path):
    records = synthetic(tmp_path)
    (first, *_) = cells = calibration.runs_of(records, ["digits 30"], Source())
    assert len(cells) == 3
    steps = np.arange(len(GRAPHS))
    h, n = 0.05 * steps, 1.0 + (steps**2 % 7)
    for kind, ratio in (("default", calibration.NOISE_RATIO), ("measured", NOISE / ZETA2)):
        np.testing.assert_allclose(first.deviation[kind, 10], h + ratio * n)
        np.testing.assert_allclose(first.deviation[kind, 20], 1.5 * h + ratio * 2 * n)
    reached = first.reached
    np.testing.assert_allclose(np.exp(first.log_ratio[reached]), 1 + h[reached], rtol=1e-9)
    out = tmp_path / "calibration.json"
    assert calibration.main([str(tmp_path), "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["fitted_to"]["n"] == [30, 30]
    assert found["fitted_to"]["lr"] == [0.5, 0.5]
    assert found["fitted_to"]["batch_size"] == [8, 8]
    for curve in found["curves"]:
        for name in ("deviation", "ratio", "low", "high"):
            assert (np.diff(curve[name]) >= 0).all()
        assert (np.array(curve["low"]) <= curve["ratio"]).all()


def cell(scenario, partition, log_ratio, deviation=None):
    """Return a made-up cell for one kind of deviation."""
    log_ratio = np.asarray(log_ratio, dtype=float)
    x = np.linspace(0.1, 1, len(log_ratio)) if deviation is None else np.asarray(deviation)
    return calibration.Runs(
        *(scenario, partition, 60, 0.5, 8, 0.5),
        deviation={("default", 10): x},
        log_ratio=log_ratio,
        reached=np.full(len(x), True),
    )


def test_partitions_are_left_out_of_all_scenarios():
    # The two partitions differ by 3 in logarithms, the scenarios do not differ.
    cells = [cell(n, p, np.full(6, v)) for n in ("30", "60") for p, v in (("a", 1), ("b", 4))]
    _, residuals = calibration._held_out(cells, ("default", 10))
    np.testing.assert_allclose(sorted(residuals), [-3.0] * 12 + [3.0] * 12)


def test_a_curve_of_predictions_that_tie_has_an_interval():
    cells = [cell("60", p, np.full(30, v)) for p, v in (("a", 1.0), ("b", 1.2))]
    found = calibration._curve(cells, ("default", 10))
    assert all(np.isfinite(found[name]).all() for name in ("ratio", "low", "high"))
    assert (np.array(found["low"]) <= found["ratio"]).all()


def test_cells_that_start_at_the_target_or_have_no_heterogeneity_are_left_out(tmp_path):
    records = synthetic(tmp_path / "a")
    for found in records.ran.values():
        if "rounds" in found:  # those of tuning stay as they are
            found["curve"] = [1.0] * len(found["curve"])
    assert len(statistics.cell_tables(records, ["digits 30"])) == 3
    assert calibration.runs_of(records, ["digits 30"], Source()) == []
    records = synthetic(tmp_path / "b")
    for values in records.predicted.values():
        for k in (10, 20):
            values[f"predicted deviation ({k})"] = NOISE * values[f"N_{k}"]
    assert calibration.runs_of(records, ["digits 30"], Source()) == []


def test_cases_are_held_out_of_the_study():
    known = {
        (scenario.name.split()[0], scenario.n, partition)
        for scenario in default_scenarios().values()
        for partition in scenario.partitions
    }
    assert "2 shards" in PARTITIONS
    spelled = {(name, n, p.replace("2 shards", "shards 2")) for name, n, p in known}
    spelled = {(name, n, p.replace("1 class", "shards 1")) for name, n, p in spelled}
    assert len(advice.CASES) >= 12
    assert len({case.name for case in advice.CASES}) == len(advice.CASES)
    for case in advice.CASES:
        assert (case.dataset, case.n, case.partition) not in spelled


@pytest.mark.slow
def test_outcome_of_a_small_case(tmp_path, monkeypatch):
    case = advice.Case("digits", 8, "shards 2", {"max_degree": 2, "static": True})
    digits = data.digits()
    records = advice.records_of(tmp_path, [case], {"digits": digits})
    for seed in advice.SEEDS:
        advice.compute(case, digits, 0.5, seed, records)
    monkeypatch.setattr(advice, "train", None)
    again = advice.records_of(tmp_path, [case], {"digits": digits})
    for seed in advice.SEEDS:
        advice.compute(case, digits, 0.5, seed, again)
    found = advice.outcome(case, 0.5, again)
    assert found.rounds.keys() == advice.outcome(case, 0.5, records).rounds.keys()
    assert found.best in found.common
    assert found.ratio([found.best] * 3) == pytest.approx(1)
    assert found.ratio(found.first) >= 1 or set(found.first) - set(found.common)
    assert found.median >= 1
    assert -1 <= found.correlation <= 1
    assert 0 <= found.covered <= 1
    row = advice.table([found]).rows[0]
    assert row[0] == case.name
    assert row[5] == found.ratio(found.first)
