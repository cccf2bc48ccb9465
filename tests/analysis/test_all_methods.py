"""The table of all methods has all of them, and is what its file and the library say."""

import json
import math
from dataclasses import replace

import pytest

from analysis import all_methods, all_methods_cells, all_methods_page
from analysis.all_methods_cells import COMMITTED, GRAPHLESS, PRESETS, ROWS, Cell
from topofl import algorithms
from topofl.leaderboard import tasks

FULL, SMALL = PRESETS["full"], PRESETS["small"]
COMMAND = "python -m analysis.all_methods --methods"


@pytest.fixture(scope="module")
def committed():
    return all_methods_cells.read_cells(COMMITTED)


def test_every_public_method_has_a_row():
    missing = set(algorithms.__all__) - set(ROWS)
    assert not missing, (
        f"add a row to analysis/all_methods.toml for each of {', '.join(sorted(missing))}, then "
        f"run: {COMMAND} {' '.join(sorted(missing))}"
    )
    assert set(ROWS) == set(algorithms.__all__), "rows of methods that are gone"


def test_every_method_has_a_committed_cell_of_its_present_settings_on_every_task(committed):
    keys = all_methods_cells.missing(committed, FULL, list(ROWS))
    names = sorted({name for name, _ in keys})
    assert not keys, f"results are missing or of other settings; run: {COMMAND} {' '.join(names)}"
    assert set(committed) == {(name, task.key) for name in ROWS for task in FULL.tasks}


def test_the_committed_page_is_what_the_file_and_the_library_say(committed):
    page = (COMMITTED / "table.md").read_text(encoding="utf-8")
    assert page == all_methods_page.page(committed, FULL), (
        "run: python -m analysis.all_methods --page"
    )
    assert "not run" not in page
    for name in algorithms.__all__:
        assert page.count(f"| `{name}` ") >= 1 + len(FULL.tasks), name
    for task in FULL.tasks:
        assert (COMMITTED / f"curves-{task.key}.png").stat().st_size > 10_000


def test_the_committed_grid_holds_the_rates_of_the_task_and_the_best_of_what_was_tried(committed):
    known = {task.key: task for task in FULL.tasks}
    for (name, key), cell in committed.items():
        if cell.refused:
            assert math.isnan(cell.lr)
            continue
        tried = {float(lr): -1.0 if mean is None else mean for lr, mean in cell.tried.items()}
        assert set(known[key].rates) <= set(tried), (name, key)
        assert len(tried) <= len(known[key].rates) + FULL.beyond
        assert tried[cell.lr] == max(tried.values())
        assert len(cell.learning) == len(cell.final) == len(known[key].seeds)
        assert len(cell.rounds) == len(cell.curve)
        assert cell.rounds[-1] == known[key].tables["run"]["rounds"]


def test_methods_without_a_result_are_few_and_the_page_says_why(committed):
    refused = {key: cell for key, cell in committed.items() if cell.refused}
    page = (COMMITTED / "table.md").read_text(encoding="utf-8")
    for (name, key), cell in refused.items():
        assert "must" in cell.refused or "diverges" in cell.refused, (name, key)
        assert cell.refused in page
    with_result = {name for name, key in committed if (name, key) not in refused}
    assert with_result == set(ROWS), "a method without any learning curve"


SERVED = ("fedproto", "pfedgraph", "fedasync", "fedbuff")
"""Methods with a server whose phases have other names."""


def test_rows_say_what_takes_the_place_of_a_graph(committed):
    for (name, key), cell in committed.items():
        if cell.refused:
            continue
        graph = ROWS[name].graph
        assert ("topology" in cell.settings) == (graph not in GRAPHLESS), (name, key)
        assert (cell.messages == 0) == (graph == "none"), (name, key)
        row = ROWS[name].for_task(FULL.tasks[0])
        phases = getattr(algorithms, name)(lr=0.1, **row.arguments).phases
        served = {"server", "servers"} & set(phases) or name in SERVED
        assert bool(served) == (graph == "server"), (name, key)


def test_what_rows_call_a_model_has_the_bytes_of_a_model(committed):
    """Words of ``exchanges`` against the bytes that were counted."""
    size, key = 4 * (64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10), "digits-mlp"
    models = {"model": 1, "model, up and down": 1, "model, both ways": 1}
    models |= {"model and tracked gradient": 2, "model and tracked momentum": 2}
    models |= {"model and direction": 2, "model and control variate, up and down": 2}
    models |= {"model and share of tracked gradient": 2}
    checked = 0
    for name, row in ROWS.items():
        cell = committed[name, key]
        if row.exchanges in models and not (row.model or cell.refused):
            per_message = cell.bytes / cell.messages / size
            assert per_message == pytest.approx(models[row.exchanges], rel=1e-3), name
            checked += 1
    assert checked > 30


def test_public_code_is_that_of_the_page_of_comparisons():
    found = all_methods_page.public_code()
    assert found["extra"] == (("decent-bench", "2.8e-15", True),)
    assert [one.code for one in found["choco_sgd"]] == ["liboyue/beer", "epfml/ChocoSGD"]
    assert {one.is_equal for one in found["sab"]} == {True, False}
    assert found["fedadam"][0].code == "Flower"
    assert not {"scaffold", "dsgt", "fedprox", "ditto", "osgp", "dispfl", "dfedpgp"} & set(found)


def test_needs_are_shortened_from_those_that_runs_check():
    def told(name):
        row = ROWS[name].for_task(FULL.tasks[0])
        return all_methods_page._needs(row), all_methods_page._directed(row)

    assert told("dsgd") == ("any", "weighted")
    assert told("dsgt") == ("doubly stochastic", "regular")
    assert told("push_diging") == ("strongly connected", "yes")
    assert told("relay_sgd") == ("static, undirected, strongly connected", "no")
    assert told("fedavg") == ("server", "")


@pytest.mark.slow
def test_a_small_run_is_resumed_and_its_tuned_settings_give_the_same_again(tmp_path, capsys):
    words = ["--preset", "small", "--out", str(tmp_path / "out"), "--store", str(tmp_path / "runs")]
    words += ["--methods", "dsgd", "fedbn"]
    assert all_methods.main(words) == 0
    cells = all_methods_cells.read_cells(tmp_path / "out")
    assert set(cells) == {(name, task.key) for name in ("dsgd", "fedbn") for task in SMALL.tasks}
    assert "must name parameters" in cells["fedbn", "digits-shards"].refused
    before = (tmp_path / "out" / "results.json").read_bytes()
    assert all_methods_cells.missing(cells, SMALL, ["dsgd", "fedbn"]) == []
    assert all_methods.main([*words, "--check"]) == 0
    assert "5 cells are equal to the file, 0 differ" in capsys.readouterr().out
    assert (tmp_path / "out" / "results.json").read_bytes() == before
    assert "| `extra` | random_regular,k=4 | not run" in (tmp_path / "out" / "table.md").read_text()
    wrong = replace(cells["dsgd", "digits-mlp"], learning=[0.9], final=[0.9])
    all_methods_cells.write_cells(tmp_path / "out", cells | {("dsgd", "digits-mlp"): wrong}, SMALL)
    assert all_methods.main([*words, "--check"]) == 1
    said = capsys.readouterr().out
    assert "dsgd on digits-mlp: accuracy over rounds" in said
    assert "instead of 90.0 %" in said


def test_cells_of_other_settings_are_run_again():
    row, (task, *_) = ROWS["dsgd"], SMALL.tasks
    digest = all_methods_cells.plan(row, task, 0).digest
    for changed in (replace(row, graph="ring"), replace(row, arguments={"momentum": 0.9})):
        assert all_methods_cells.plan(changed, task, 0).digest != digest
    assert all_methods_cells.plan(row, replace(task, seeds=(7,)), 0).digest != digest
    assert all_methods_cells.plan(row, task, 1).digest != digest
    assert all_methods_cells.plan(replace(row, note="in other words"), task, 0).digest == digest


def test_the_rate_of_a_cell_is_kept_if_only_the_seeds_that_count_differ():
    row, task = ROWS["dsgd"], SMALL.tasks[0]
    key, other = ("dsgd", task.key), replace(task, seeds=(0, 7))
    tuning = all_methods_cells.plan(row, task, 0).tuning
    cell = Cell(*key, {}, "", tuning=tuning, lr=0.3, tried={"0.3": 0.5, "1": 0.4}, learning=[0.6])
    kept = all_methods_cells.tuned({key: cell}, replace(SMALL, tasks=(other,)), [key])
    assert kept == {key: 0.3}
    again = replace(cell, learning=[0.6, 0.7], tried={})
    assert all_methods_cells.with_tuning(again, {key: cell}, kept) == replace(
        again, tried=cell.tried
    )
    assert all_methods_cells.with_tuning(again, {key: cell}, {}) == again
    for changed in (replace(task, rates=(0.3,)), replace(task, tuning_seeds=(101,))):
        assert all_methods_cells.tuned({key: cell}, replace(SMALL, tasks=(changed,)), [key]) == {}
    assert all_methods_cells.tuned({key: cell}, replace(SMALL, beyond=3), [key]) == {}
    refused = replace(cell, refused="diverges")
    assert all_methods_cells.tuned({key: refused}, SMALL, [key]) == {}


def test_seeds_that_count_are_none_on_which_rates_are_chosen():
    for task in FULL.tasks:
        assert task.seeds
        assert not set(task.seeds) & set(task.tuning_seeds)


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ({}, "equal"),
        ({"learning": (0.505, 0.6), "final": (0.6, 0.6)}, "close"),
        ({"learning": (0.9, 0.9)}, "accuracy over rounds 90.0 % instead of 55.0 %"),
        ({"refused": "`head` must be there"}, "now without a result: `head` must be there"),
    ],
)
def test_agreement_of_a_cell_with_the_same_again(again, said):
    cell = Cell("a", "b", {}, "", lr=1.0, learning=(0.5, 0.6), final=(0.7, 0.7))
    assert all_methods_cells.agreement(cell, replace(cell, **again)) == said


def test_curves_are_drawn_from_0_to_1():
    assert all_methods_page.sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert len(all_methods_page.sparkline([0.1] * 21)) == all_methods_page.POINTS


def test_the_personalized_task_judges_nodes_on_examples_of_their_own():
    (task,) = tasks(["digits-own"])
    assert task.tables["evaluation"]["on"] == "own_test"
    assert json.loads((COMMITTED / "results.json").read_text())["tasks"]["digits-own"][
        "digest"
    ] == (task.digest)
