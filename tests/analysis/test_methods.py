"""The comparison of methods tunes, reports, resumes, and shows which cells did not run."""

import csv
import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import method_cells, methods
from analysis.method_cells import GRAPHS, LEFT_OUT, METHODS, NO_GRAPH
from topofl import algorithms

TINY = method_cells.ComparisonTask(n=10, steps=10, every=5, rates=(0.03, 0.3), seeds=(0, 1))
SOME = ["dsgd", "extra", "trimmed_mean", "fedavg"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("methods") / "cells.jsonl"
    return method_cells.compute(TINY, path, methods=SOME), path


def test_every_method_is_compared_or_left_out_for_a_reason():
    compared = {method.name for method in METHODS.values()}
    assert compared | set(LEFT_OUT) == set(algorithms.__all__)
    assert not compared & set(LEFT_OUT)


@pytest.mark.parametrize("title", METHODS)
def test_every_method_takes_the_steps_that_its_row_says(title):
    """Counted as gradients that are asked for, so that all have the same budget."""
    method = METHODS[title]
    if method.has_clock:
        assert method.steps == 1  # n events a round
        return
    settings = [phase.settings for phase in method.build(0.1, 60).phases.values()]
    said = [
        one["steps"] if one.get("epochs") is None else one["epochs"]
        for one in settings
        if "batch_size" in one
    ]
    assert said == [method.steps] or (title == "dp_dsgd" and method.steps == 1)
    assert TINY.every % method.steps == 0
    assert method_cells.ComparisonTask().every % method.steps == 0


def test_the_optimum_is_where_the_gradient_of_the_mean_loss_is_zero():
    theta = torch.tensor(method_cells.optimum(0.1), requires_grad=True)
    model, task = method_cells._Ridge().double(), method_cells._task(0.1)
    names = {"head.weight": theta[:640].reshape(10, 64), "head.bias": theta[640:]}
    clients = method_cells.clients_of(TINY, 3)
    losses = []
    for node in clients.train:
        index = torch.from_numpy(np.array(node))
        inputs = clients.dataset.inputs[index].double()
        outputs = torch.func.functional_call(model, names, (inputs,))
        losses.append(task.loss(outputs, clients.dataset.labels[index]).mean())
    torch.stack(losses).mean().backward()
    assert theta.grad is not None
    assert theta.grad.abs().max() < 1e-6
    assert len(set(clients.sizes.tolist())) == 1


@pytest.mark.slow
def test_a_method_without_bias_reaches_the_optimum_and_dsgd_does_not():
    setting = method_cells.ComparisonTask(n=10, steps=150, every=150)
    found = {
        name: method_cells._run(setting, METHODS[name], "exponential", 0.5, 0, "test")
        for name in ("dsgd", "d2")
    }
    assert found["d2"]["worst"] < 1e-3
    assert found["dsgd"]["worst"] > 100 * found["d2"]["worst"]
    assert found["dsgd"]["mean"] < found["dsgd"]["worst"]


@pytest.mark.slow
def test_rates_are_chosen_on_validation_data_of_another_seed(small, monkeypatch):
    cells, _ = small
    assert TINY.tuning not in TINY.seeds
    asked = []

    def watched(setting, method, graph, lr, seed, on):
        asked.append((lr, seed, on))
        accuracy = {0.03: 0.5, 0.3: 0.9}[lr]
        return {"accuracy": [accuracy], "loss": 1.0, "mean": lr, "worst": lr, "worst_accuracy": 0.1}

    monkeypatch.setattr(method_cells, "_run", watched)
    cell = method_cells.run_cell(TINY, "dsgd", "ring")
    assert (cell.lr, cell.bias_lr) == (0.3, 0.03)
    assert asked[:2] == [(0.03, 100, "val"), (0.3, 100, "val")]
    assert asked[2:] == [(0.3, 0, "test"), (0.3, 1, "test"), (0.03, 0, "test"), (0.03, 1, "test")]
    kept = cells["dsgd", "ring"]
    assert kept.tuned["0.3"]["accuracy"] > kept.tuned["0.03"]["accuracy"]
    assert kept.lr == 0.3


@pytest.mark.slow
def test_graphs_that_a_method_cannot_take_are_named(small):
    cells, _ = small
    assert cells["extra", "random directed"].refused == "must be static"
    assert "`topology` must be static for extra" in cells["extra", "random directed"].error
    few = "must give more than 2 * trim neighbors at each node"
    assert cells["trimmed_mean", "ring"].refused == few
    assert method_cells.run_cell(TINY, "clique_averaging", "ring").refused == "must have groups"
    row = methods.tables(cells, SOME)["accuracy"].rows[SOME.index("extra")]
    assert row[2 + list(GRAPHS).index("random directed")] == "n/a: must be static"
    assert row[-1] == ""  # not over no graph


def test_a_rate_that_diverges_is_not_chosen(monkeypatch):
    run = method_cells._run

    def diverging(setting, method, graph, lr, seed, on):
        return None if lr == 0.3 else run(setting, method, graph, lr, seed, on)

    monkeypatch.setattr(method_cells, "_run", diverging)
    cell = method_cells.run_cell(TINY, "dsgd", "exponential")
    assert cell.tuned["0.3"] is None
    assert (cell.lr, cell.bias_lr) == (0.03, 0.03)
    monkeypatch.setattr(method_cells, "_run", lambda *_: None)
    cell = method_cells.run_cell(TINY, "dsgd", "exponential")
    assert math.isnan(cell.lr)
    tables = methods.tables({("dsgd", "exponential"): cell}, ["dsgd"])
    assert "diverged" in tables["bias"].rows[0]


@pytest.mark.slow
def test_bytes_are_those_of_all_rounds_and_seconds_of_the_slowest_node(small):
    cells, _ = small
    run = cells["dsgd", "ring"].accurate[0]
    assert run["steps"] == [0, 5, 10]
    assert run["bytes"] == [0, 5 * 20 * 650 * 4, 10 * 20 * 650 * 4]
    assert run["seconds"] == pytest.approx([0, 5 * 4.25, 10 * 4.25])
    served = cells["fedavg", NO_GRAPH].accurate[0]
    assert served["steps"] == [0, 5, 10]
    assert served["seconds"] == pytest.approx([0, 20.5, 41.0])  # five steps, up and down


@pytest.mark.slow
def test_what_is_done_is_not_done_again(small, monkeypatch):
    cells, path = small
    monkeypatch.setattr(method_cells, "run_cell", None)  # may not be called
    again = method_cells.compute(TINY, path, methods=SOME)
    assert list(again) == list(method_cells.cells_of(SOME))
    assert methods.numbers(TINY, again).rows == methods.numbers(TINY, cells).rows
    assert not method_cells.kept_cells(dataclasses.replace(TINY, ridge=0.2), path)


@pytest.mark.slow
def test_cells_that_did_not_begin_are_shown_as_not_run(tmp_path, small):
    once, path = iter([True, False]), tmp_path / "cells.jsonl"
    cells = method_cells.compute(TINY, path, methods=["dsgd"], keep_going=once.__next__)
    assert list(cells) == [("dsgd", "ring")]
    (row,) = methods.tables(cells, ["dsgd"])["accuracy"].rows
    assert row[3:] == ("not run", "not run", "not run", "")
    for table in methods.tables(small[0]).values():
        rows = {row[0]: row[2:] for row in table.rows}
        assert list(rows) == list(METHODS)
        assert rows["d2"] == ("not run", "not run", "not run", "not run", "")
        assert rows["scaffold"] == ("", "", "", "", "not run")
        assert "not run" not in rows["dsgd"]


@pytest.mark.slow
def test_results_and_their_order_do_not_depend_on_the_number_of_jobs(tmp_path):
    setting = dataclasses.replace(TINY, steps=5, rates=(0.3,), seeds=(0,))
    threads, some = torch.get_num_threads(), ["dsgd", "fedavg"]
    one, two = (
        method_cells.compute(setting, tmp_path / f"{jobs}.jsonl", methods=some, jobs=jobs)
        for jobs in (1, 2)
    )
    assert torch.get_num_threads() == threads
    assert list(one) == list(two) == method_cells.cells_of(some)
    for key, cell in one.items():
        assert dataclasses.replace(cell, seconds=two[key].seconds) == two[key]
        assert cell.seconds > 0
    reversed_lines = (tmp_path / "1.jsonl").read_text().splitlines()[::-1]
    (tmp_path / "3.jsonl").write_text("\n".join(reversed_lines) + "\n")
    assert list(method_cells.compute(setting, tmp_path / "3.jsonl", methods=some)) == list(one)


def test_the_committed_tables_have_no_gaps_and_the_page_quotes_but_does_not_repeat_them():
    root = Path(__file__).parents[2]
    folder, setting = root / "analysis" / "results" / "methods", method_cells.ComparisonTask()
    cells = method_cells.kept_cells(setting, folder / "cells.jsonl")
    cells = {key: cells[key] for key in method_cells.cells_of()}  # raises if one is missing
    tables, page = (folder / "table.md").read_text(), (root / "docs" / "methods.md").read_text()
    assert tables == methods._page(setting, cells)
    assert "not run" not in tables
    assert "(../analysis/results/methods/table.md)" in page
    assert not set(tables.splitlines()) & set(page.splitlines()) - {""}
    quoted = set(re.findall(r"(\d\d\.\d) %", page))
    assert len(quoted) > 10
    assert quoted <= set(re.findall(r"\| (\d\d\.\d) \(", tables))


@pytest.mark.slow
def test_command_line_writes_tables_numbers_and_pictures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(methods, "QUICK", TINY)
    words = ["--quick", "--jobs", "1", "--methods", "dsgd", "fedavg", "--out", str(tmp_path)]
    assert methods.main(words) == 0
    assert "relative distance of the worst node" in capsys.readouterr().out
    page = (tmp_path / "table.md").read_text()
    assert "| dsgd " in page
    assert "The same learning rates are tried" in page
    with (tmp_path / "numbers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (len(GRAPHS) + 1) * len(TINY.seeds)
    assert {row["seed"] for row in rows} == {"0", "1"}
    for name in ("bias", "curves-ring", "curves-random-directed"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
