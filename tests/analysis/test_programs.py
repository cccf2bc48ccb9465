"""The smaller programs measure and judge what they say, and their checks can fail."""

import dataclasses
import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import topofl
from analysis import (
    architecture,
    cost_in_seconds,
    deviation,
    gallery,
    group_averages,
    kill_and_resume,
    larger_than_memory,
    rank_checkpoints,
    ranks,
    rotating_partitions,
    scale,
    soak,
    start_up,
)
from analysis.peak_memory import SETTINGS, MemoryCase, cohort_table, estimate_of, peak_of
from analysis.ranks import CASES, Way, clients_of, graph_of, predicted
from analysis.soak import MIB, Sample
from analysis.sweep_benchmark import Repeats, kills
from tests import markup
from topofl import data, metrics, topologies
from topofl._drawing.layout import layout
from topofl._support.calls import parse_spec
from topofl.cli import commands
from topofl.cli import main as command
from topofl.engine.joining import place
from topofl.metrics._rounds import as_rounds
from topofl.metrics.deviation import coherent
from topofl.mixing.matrix import component_means
from topofl.runs.folder import RUNNING

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def test_the_picture_of_the_architecture_is_that_of_the_code():
    drawn = architecture.PICTURE.read_text(encoding="utf-8")
    assert drawn == architecture.picture(), "run python -m analysis.architecture"
    found = architecture.rooms()
    assert found.has_edge("engine", "algorithms")
    assert not found.has_edge("algorithms", "engine")


def test_the_table_of_start_up_times_subtracts_torch():
    found = {label: [(3.0, 4.0), (1.0, 9.0), (2.0, 5.0)] for label in start_up.CASES}
    found["import torch"] = [(1.5, 2.0)]
    rows = {row[0]: row[1:] for row in start_up.table(found, dict.fromkeys(found, 7)).rows}
    assert rows["import topofl"] == (2.0, 1.0, 0.5, 5.0, 7)
    assert rows["import torch"] == (1.5, 1.5, 0.0, 2.0, 7)
    few, more = (start_up.modules_loaded_by(("-c", code)) for code in ("pass", "import wave"))
    assert 0 < few < more


def test_start_up_times_are_compared_with_aims_and_with_another_version():
    now = {label: [(1.0, 2.0), (3.0, 2.0), (2.0, 2.0)] for label in start_up.CASES}
    now |= {"python": [(0.1, 0.1)] * 3, start_up.IMPORT: [(0.1, 0.19)] * 3}
    first, second = start_up.judged(now)
    assert first == "import topofl, beyond python: 0.09 s; met: at most 0.1 s."
    assert second.startswith("topofl run, 1 round: 2.00 s; met: at most 1.3 times import torch")
    assert second.endswith("which is 3.60 s.")
    slow = start_up.judged(now | {start_up.IMPORT: [(1, 0.3)], start_up.ROUND: [(1, 3.7)]})
    assert all("; not met: " in line for line in slow)
    before = now | {"topofl list": [(2.0, 1.0), (2.0, 1.0), (2.0, 4.0)]}
    rows = {row[0]: row[1:] for row in start_up.ratios(before, now).rows}
    assert rows["topofl list"][:3] == (2.0, 2.0, "1.000 [0.500, 1.500]")
    assert rows["topofl list"][3:] == (1.0, 2.0, "2.000 [0.500, 2.000]")


def test_start_up_knows_every_command():
    assert set(start_up.COMMANDS) == set(commands.COMMANDS)


def test_modules_are_compiled_before_start_up_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert not start_up.is_compiled(tmp_path)
    module = tmp_path / "topofl" / "part" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("x = 1\n")
    assert start_up.is_compiled(tmp_path)
    assert list(tmp_path.rglob("__pycache__/module*.pyc"))
    module.write_text("x = = 1\n")
    os.utime(module, (0, 0))
    assert not start_up.is_compiled(tmp_path)


@pytest.mark.slow
def test_each_version_is_started_in_turns(tmp_path, monkeypatch):
    (tmp_path / "topofl.py").write_text("import time\ntime.sleep(0.5)\n")
    cases = {"python": ("-c", "pass"), start_up.IMPORT: ("-c", "import topofl")}
    monkeypatch.setattr(start_up, "CASES", cases)
    now, before = start_up.measure(1, [start_up.HERE, tmp_path])
    assert {label: len(starts) for label, starts in now.items()} == dict.fromkeys(cases, 1)
    ((_, wall),) = before[start_up.IMPORT]
    ((cpu, _),) = before["python"]
    assert wall > 0.5
    assert cpu > 0
    (tmp_path / "topofl.py").write_text("raise ValueError\n")
    with pytest.raises(RuntimeError, match=r"import topofl of .* failed: (.|\n)*ValueError"):
        start_up.measure(1, [tmp_path])


@pytest.mark.slow
def test_a_round_is_trained_in_a_new_process():
    assert start_up.modules_loaded_by(start_up.CASES[start_up.ROUND]) > 1000


# The gallery


def test_the_gallery_has_an_example_of_every_generator():
    assert sorted(gallery.EXAMPLES) == sorted(topologies.__all__)
    for name, example in gallery.EXAMPLES.items():
        is_spec = isinstance(example, str)
        made = parse_spec(example).name if is_spec else example().name.partition("(")[0]
        assert made == name
    assert gallery.caption(lambda: topologies.ring(5)) == "ring(n=5)"


@pytest.mark.parametrize(
    "spec",
    [*gallery.EXAMPLES.values(), *gallery.MORE, *gallery.STRIP.values()],
    ids=gallery.caption,
)
def test_every_example_is_small_and_can_be_drawn(spec):
    graph = gallery.example(spec)
    assert graph.n <= (100 if isinstance(graph, topofl.Topology) else 16), "four small panels"
    for t in range(min(graph.period or 2, 2)):
        assert np.isfinite(layout(graph.at(t))).all()
    assert graph._repr_svg_() is not None


@pytest.mark.slow
def test_the_gallery_is_a_page_a_strip_and_an_index(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gallery, "MORE", ())
    assert gallery.main(["--out", str(tmp_path)]) == 0
    assert "gallery.png" in capsys.readouterr().out
    assert (tmp_path / "gallery.png").stat().st_size > 50_000
    assert (tmp_path / "strip.png").stat().st_size > 10_000
    text = (tmp_path / "index.md").read_text()
    assert all(f"- `{name}` (" in text for name in topologies.__all__)
    assert "Return the cycle 0 - 1" in text


# Runs that are killed


def test_killed_runs_lose_no_bit(monkeypatch, capsys):
    monkeypatch.setattr(kill_and_resume, "ROUNDS", 12)
    assert kill_and_resume.main(["--kills", "3"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("3 processes killed in ")
    assert "every bit is the same" in shown.err


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
    whole = kill_and_resume._read(tmp_path / "whole")

    def lossy(place):
        train(place)
        lose(place)

    found = kill_and_resume._trial(lossy, tmp_path / "a", whole, 0, lambda: 0.0)
    assert found == ([], wanted)


KEYS = ["0" * 16, "1" * 16]


def test_beginning_a_finished_run_is_noticed(tmp_path):
    (tmp_path / KEYS[0]).mkdir()
    (tmp_path / KEYS[0] / "run.json").write_text("{}")
    left = tmp_path / RUNNING / f"{KEYS[0]}+1+a+b+c"  # of a process that was killed after storing
    left.mkdir(parents=True)
    (left / "run.json").write_text("{}")
    again = Repeats(tmp_path)
    begun = tmp_path / RUNNING / f"{KEYS[1]}+here+1"
    begun.mkdir()
    (begun / "run.json").write_text("{}")
    again.look()
    assert again.found == set()
    begun.rename(begun.with_name(f"{KEYS[0]}+here+1"))
    sleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    again.watch(sleep, None)
    assert again.found == {KEYS[0]}


@pytest.mark.slow
def test_a_killed_sweep_repeats_nothing():
    assert kills(2, 20, 1) | {"killed": 0} == {"killed": 0, "repeated": 0, "equal": True}


# Memory


@linux
@pytest.mark.slow
def test_a_peak_is_predicted_within_20_percent():
    sizes = {"shape": (1, 28, 28), "examples": 14_000}
    setting = MemoryCase("logistic_regression", 100, 128, "auto", clique_averaging=True, **sizes)
    assert estimate_of(setting).added == pytest.approx(peak_of(setting), rel=0.2)
    assert len({setting.label for setting in SETTINGS}) == len(SETTINGS)


@linux
def test_models_in_a_file_and_in_memory_train_alike(tmp_path):
    case = larger_than_memory.CASES["smoke"][0]
    found = [larger_than_memory.train(*case, place) for place in (str(tmp_path), None)]
    assert [one["place"] for one in found] == ["file", "memory"]
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-6)
    assert found[0]["models"] == 4 * 20 * 85_354
    assert all(one["seconds"] > 0 and one["peak"] > one["models"] for one in found)


def test_tables_of_memory_have_medians():
    times = {"file": (3.0, 5.0, 9.0), "memory": (1.0, 2.0, 2.0)}
    found = [
        {"case": "one", "place": place, "seconds": seconds, "peak": 2**31, "models": 2**30}
        for place, some in times.items()
        for seconds in some
    ]
    assert larger_than_memory.table(found).rows == (
        ("one", "file", 1.0, 2.0, 5.0, 2.5),
        ("one", "memory", 1.0, 2.0, 2.0, 1.0),
    )

    def measured(rank, saved, peak, seconds):
        row = {"rank": rank, "saved": saved, "peak": peak * 2**20, "models": 2**30}
        return row | {"seconds": seconds, "bytes": 2**21}

    turns = [(130, 1.0), (110, 2.0), (120, 9.0)]
    rows = [measured(rank, False, 100 + rank, None) for rank in (0, 1)]
    rows += [measured(rank, True, *turn) for rank in (0, 1) for turn in turns]
    assert rank_checkpoints.table(rows).rows == (
        (0, 1024.0, 100.0, 120.0, 20.0, 2.0, 2.0),
        (1, 1024.0, 101.0, 120.0, 19.0, "-", "-"),
    )


@linux
@pytest.mark.slow
def test_the_commands_of_memory_print_tables(capsys, tmp_path):
    larger_than_memory.main(["--preset", "smoke", "--scratch", str(tmp_path)])
    assert capsys.readouterr().out.count("gn_lenet x 20, batch 2") == 2
    rank_checkpoints.main(["--preset", "smoke", "--turns", "1"])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["0", "1"]
    for row in rows:
        assert float(row[2]) == pytest.approx(4 * 20 * 85_354 / 2**20, rel=1e-3)
    assert float(rows[0][7]) > float(rows[0][2])


# Ranks


def test_predictions_use_the_placement_of_the_run():
    """Cliques of ten stay on one rank, so a rank that trains two of them is the slowest."""
    case = {"topology": "D-Cliques of 10", "model": "gn_lenet", "n": 40, "batch_size": 2}
    owner, method = place(graph_of(case, clients_of(case)), 3)
    assert sorted(np.bincount(owner)) == [10, 10, 20] or method != "groups"
    found = predicted(case, Way(3, 1), 0.01, (1e-9, 2e-9), cores=3)
    assert found == pytest.approx(np.bincount(owner).max() * 0.01, rel=1e-3)


@pytest.mark.parametrize(("count", "steps"), [(1, 0.06), (2, 0.03), (3, 1.5 * 0.02)])
def test_predictions_are_steps_and_messages(count, steps):
    """On a ring, each rank trains its nodes, and sends two rows and receives two."""
    model, messages = 85_354 * 4, (1e-4, 1e-4 + 2**22 / 1e8)  # 100 MB/s
    (case,) = CASES["smoke"]
    sent = 1e-4 + 2 * model / 1e8 if count > 1 else 0.0
    found = predicted(case, Way(count, 1), 0.01, messages, cores=2)
    assert found == pytest.approx(steps + sent)
    assert ranks.ways(4) == [Way(1, 1), Way(1, 4), Way(2, 1), Way(3, 1)]
    assert ranks.ways(1) == [Way(1, 1), Way(2, 1)]


def test_a_run_gives_the_seconds_of_rounds_without_evaluation():
    found = ranks.train(CASES["smoke"][0], 2)
    assert len(found["seconds"]) == 2
    assert min(found["seconds"]) > 0
    assert (found["bytes"], found["nodes"]) == (0.0, [6])


@pytest.mark.slow
def test_messages_between_two_processes_are_timed():
    found = ranks.of_first_rank(Way(2, 1), ranks.link, (1, 2**16, 2**20), 5)
    assert len(found) == 3
    assert min(found) > 0


def test_tables_of_ranks_have_ratios_where_there_are_predictions():
    row = {"case": CASES["smoke"][0], "seconds": 0.03, "bytes": 2**21, "cores": 2}
    row |= {"step": 0.01, "messages": (1e-9, 2e-9), "turns": [0.03, 0.02, 0.04]}
    alone = {"way": {"ranks": 1, "threads": 1}, "seconds": 0.12, "turns": [0.12, 0.06, 0.14]}
    more = [{"way": {"ranks": 1, "threads": 2}}, {"way": {"ranks": 2, "threads": 1}}]
    rows = json.loads(json.dumps([row | alone, *(row | one for one in more)]))
    near = partial(pytest.approx, rel=1e-3)
    assert ranks.table(rows).rows == (
        ("ring", "1 rank of 1 thread", 0.12, "3.5 (3 to 4)", 2.0, near(0.5), "-"),
        ("ring", "1 rank of 2 threads", 0.03, "1", 2.0, "-", "-"),
        ("ring", "2 ranks of 1 thread", 0.03, "1 (1 to 1)", 2.0, near(1.0), near(2.0)),
    )


# Scale and costs


@pytest.mark.slow
def test_scale_measures_training_and_graphs(tmp_path):
    assert scale.main(["--preset", "small", "--threads", "1", "--out", str(tmp_path)]) == 0
    records = json.loads((tmp_path / "records.json").read_text())
    assert [one["n"] for one in records["training"]] == [20, 40]
    for one in records["training"]:
        assert len(one["seconds"]) == 2
        assert one["bytes"] > 4 * 650 * one["n"]  # the models themselves
    found = {(one["family"], one["name"]): one for one in records["graphs"]}
    assert found["ring", "messages per round"]["value"] == 120
    assert found["fully connected", "H_10"]["value"] == 0
    gap = (1 - np.cos(2 * np.pi / 60)) * 2 / 3
    assert found["ring", "spectral gap"]["value"] == pytest.approx(gap)
    assert "TopologySequence" in found["one-peer exponential", "heterogeneity spectrum"]["reason"]
    text = (tmp_path / "report.md").read_text()
    assert "Slopes in logarithms" in text
    assert "| fully connected | 60 | seconds per round |" in text


def test_slopes_and_graphs_that_are_left_out():
    assert scale.fitted_slope([1, 10, 100], [5, 50, 500]) == pytest.approx(1)
    assert scale.fitted_slope([1, 10], [7, 7]) == pytest.approx(0)
    assert "slow above 1,000 nodes" in cost_in_seconds.cost_of("designed, degree 6", 2000)["reason"]
    assert "n^2 messages" in cost_in_seconds.cost_of("fully connected", 6000)["reason"]


@pytest.mark.slow
def test_costs_in_seconds(tmp_path):
    words = ["--nodes", "30", "--simulated", "30", "--out", str(tmp_path)]
    assert cost_in_seconds.main(words) == 0
    records = json.loads((tmp_path / "records.json").read_text())
    by_family = {record["family"]: record for record in records["costs"]}
    assert (by_family["ring"]["busiest"], by_family["star"]["busiest"]) == (2, 29)
    model, links = cost_in_seconds.MODELS[0], cost_in_seconds.HARDWARE["homes"]
    cells = by_family["random 6-regular"]["cells"]
    message = 4 * model["n_parameters"] / links["bandwidth"]
    expected = model["compute"] + links["latency"] + 6 * message
    seconds = next(one["seconds"] for one in cells if one["hardware"] == "homes")
    assert seconds == pytest.approx(expected)
    for record in records["regions"]:
        assert 0 < record["neighbors"] <= record["all"] + 1e-12
    before = (tmp_path / "report.md").read_text()
    assert cost_in_seconds.main(["--draw", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text() == before
    for name in ("seconds", "regimes", "stragglers"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


# The soak test

GOOD = (True, "resuming changes nothing: ")


def samples(growth=0.0, noise=0.05, count=40, **later):
    """Return samples that grow by `growth` MiB in 10,000 rounds after a warm-up, with noise."""
    rounds = 500 * np.arange(1, count + 1)
    resident = 300 + growth * rounds / soak.PER + noise * (-1) ** np.arange(count)
    resident[: count // 4] -= 30 * np.linspace(1, 0.1, count // 4)
    found = zip(rounds.tolist(), resident, strict=True)
    made = [Sample(t, int(r * MIB), 8, 4, 10_000) for t, r in found]
    return (*made[:-1], dataclasses.replace(made[-1], **later))


@pytest.mark.parametrize(
    ("made", "history_bytes", "expected"),
    [
        (samples(), 0.0, [True] * 4),  # flat, though it warms up
        (samples(1.2), 0.0, [False, True, True, True]),
        (samples(1.2), 0.5 * MIB / soak.PER, [True] * 4),  # only the history may grow
        (samples(noise=20.0), 0.0, [False, True, True, True]),  # too noisy to tell
        (samples(descriptors=9), 0.0, [True, False, True, True]),
        (samples(files=5), 0.0, [True, True, False, True]),
    ],
)
def test_memory_must_be_flat_and_files_must_not_get_more(made, history_bytes, expected):
    assert [holds for holds, _ in soak.checks(made, history_bytes, GOOD)] == expected


def test_slope_is_that_of_the_line_and_its_interval_that_of_students_t():
    assert soak.slope(samples(growth=3.0, noise=0.0)) == pytest.approx((3, 3, 3), abs=1e-3)
    points = [(0, 99), (10_000, 1), (20_000, 2), (30_000, 2)]
    estimate, low, high = soak.slope([Sample(t, r * MIB, 1, 1, 1) for t, r in points])
    # Of 1, 2, 2: slope 1/2, residuals -1/6, 1/3, -1/6, standard error sqrt(1/12), t 12.706.
    width = 2 * 12.706 * np.sqrt(1 / 12)
    assert (estimate, high - low) == pytest.approx((0.5, width), rel=1e-4)


def test_a_short_run_is_watched_and_resumed():
    made, history_bytes, (holds, said) = measured = soak.measure(24, every=3)
    assert [s.round for s in made] == list(range(3, 25, 3))
    assert all(s.resident > MIB and s.descriptors > 2 and s.folder > 0 for s in made)
    assert len(soak.table(made).rows) == 8
    assert holds, said
    assert "nothing: from round 21: models equal, losses equal" in said
    per_round = 8 * soak.N + 8 + 7 * 8  # node losses, matrix of the round, seven columns
    assert per_round <= history_bytes < 3 * per_round
    assert [holds for holds, _ in soak.checks(*measured)][1:] == [True] * 3


@pytest.mark.parametrize(("growth", "code"), [(0.0, 0), (5.0, 1)])
def test_the_soak_test_fails_on_what_grows(growth, code, monkeypatch, capsys, tmp_path):
    asked = []

    def measured(rounds, *, every):
        asked.append((rounds, every))
        return samples(growth), 100.0, GOOD

    monkeypatch.setattr(soak, "measure", measured)
    out = tmp_path / "deep" / "soak.md"
    assert soak.main(["--out", str(out)]) == code
    assert asked == [(20_000, 500)]
    first = "HOLDS  memory is flat" if code == 0 else "FAILS  memory is flat"
    assert first in capsys.readouterr().out
    assert f"- {first}" in out.read_text()


# The spectral report


@pytest.mark.slow
def test_the_command_on_a_page_writes_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graphs = ["ring:10", "random_regular:10,k=3", "--rounds", "5"]
    for words in ([], ["--data", "digits"]):
        assert command(["spectral", *graphs, *words, "--html", "report.html"]) == 0
        first = (tmp_path / "report.html").read_text()
        page = markup.read(first)
        (shown,) = [code.text for code in page.all("pre")]
        assert command(shown.split()[1:]) == 0  # the command on the page
        assert (tmp_path / "report.html").read_text() == first
        assert "no `seed` given; 0 is used" in page.text
        headings = [heading.text for heading in page.all("th")]
        assert ("label heterogeneity" in headings) == bool(words)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@linux
@pytest.mark.slow
def test_clients_that_do_not_take_part_take_no_memory():
    (all_users, _, whole, dense), (_, cohort, alone, own) = cohort_table("smoke").rows
    assert (all_users, cohort) == (60, 3)
    assert own == pytest.approx(3 * 4 * 1_626_442 / 2**20)
    assert alone > own, "they take at least their models"
    assert whole < alone + dense / 4


def test_nearly_equal_weights_send_rows_and_change_little():
    graph = topologies.rotating_cliques(n=12, clique_size=4, steps=10, seed=0).at(0)
    equal, nearly = topofl.mixing.uniform(graph), group_averages.nearly_equal(graph)
    assert component_means(equal) is not None
    assert component_means(nearly) is None
    assert 0 < np.abs((equal.weights - nearly.weights).toarray()).max() < 1.1e-6


def test_tables_of_group_averages_have_medians():
    row = {"clique_size": 4, "ranks": 2, "way": "rows of nodes", "bytes": 2.0**21}
    found = group_averages.table([row | {"seconds": [3.0, 1.0, 7.0]}]).rows
    assert found == ((4, 2, "rows of nodes", 2.0, 3.0, 1.0, 7.0),)


@pytest.mark.slow
def test_sums_of_groups_are_fewer_bytes_and_the_same_training(capsys):
    rows = group_averages.measure("smoke", turns=1)
    sums, models = (row["bytes"] for row in rows)
    assert 0 < sums < models
    assert rows[0]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-4)


def test_replays_of_a_quadratic_are_its_training():
    rng, graph = np.random.default_rng(0), topofl.mixing.metropolis_hastings(topologies.path(6))
    hessian, start = np.diag([0.2, 0.7, 1.1]), np.zeros((6, 3))
    initial = rng.standard_normal((6, 3))
    found, incoherent = deviation.train(graph, start, lambda x: initial + x @ hessian, 0.5)
    weights, total = graph.weights.toarray() - 1 / 6, np.zeros((6, 3))
    for k in range(1, deviation.ROUNDS + 1):
        decayed = initial @ np.linalg.matrix_power(np.eye(3) - 0.5 * hessian, k - 1)
        total += np.linalg.matrix_power(weights, k) @ decayed
    assert found == pytest.approx(np.square(total).sum() / 6, rel=1e-12)
    frozen = deviation.train(graph, start, lambda x: initial, 0.5)[1]
    ten = metrics.neighborhood_heterogeneity(graph, gradients=initial, hops=deviation.ROUNDS)
    assert frozen == pytest.approx(ten, rel=1e-12)
    assert incoherent < frozen


@pytest.mark.slow
def test_hessians_of_nodes_are_derivatives_of_their_gradients():
    clients = data.shards(data.digits(), n=5, per_node=2, seed=0)
    problem = deviation.problem_of(clients, seed=0)
    start = problem.start()
    step = 1e-6 * np.random.default_rng(0).standard_normal(start.shape)
    found = problem.trained(start + step) - problem.trained(start - step)
    wanted = 2 * np.einsum("ij,ijk->ik", step, problem.hessians())
    np.testing.assert_allclose(found, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.slow
def test_the_replay_in_the_span_has_a_discount_per_ritz_vector():
    clients = data.shards(data.digits(), n=8, per_node=2, seed=0)
    problem = deviation.problem_of(clients, seed=0)
    weights = topofl.mixing.uniform(topologies.ring(8))
    start, hessians = problem.start(), problem.hessians()
    apart = deviation.centered(problem.trained(start))
    basis = np.linalg.svd(apart)[2][:7]
    curvatures, turned = np.linalg.eigh(basis @ hessians.mean(axis=0) @ basis.T)
    wanted = coherent(as_rounds(weights), apart @ basis.T @ turned, 10, 1 - 0.5 * curvatures)
    within = deviation.in_span(hessians.mean(axis=0), apart)
    replay = deviation.replays_of(problem.trained(start), start, hessians, within)["in the span"]
    assert deviation.train(weights, start, replay, 0.5)[0] == pytest.approx(wanted, rel=1e-9)
    rho = 1 - 0.5 * curvatures[0]
    how = {"gradients": apart, "hops": 10, "discount": rho}
    summed = metrics.neighborhood_heterogeneity(weights, **how)
    bound = deviation.bound_of(weights, apart, within, 0.5)
    assert bound == pytest.approx((1 - rho**10) / (1 - rho) * summed, rel=1e-9)
    with pytest.raises(ValueError, match="`lr` must be at most"):
        deviation.bound_of(weights, apart, within, 1.1 / curvatures[-1])


@pytest.mark.slow
def test_deviation_is_training_over_each_prediction(capsys, tmp_path):
    deviation.main(["--preset", "smoke", "--out", str(tmp_path)])
    assert (tmp_path / "deviation.md").read_text().strip() == capsys.readouterr().out.strip()
    rows = json.loads((tmp_path / "deviation.json").read_text())
    assert len(rows) == 18
    for row in rows:
        product = row["size"] * row["alignment"]
        assert product == pytest.approx(row["by H_10"] / row["H_10 with residual"], rel=1e-9)
        assert 0 < row["over 10 H_10"] <= row["over the bound"] <= 1
    errors = {row["graph"]: abs(np.log(row["own Hessians"])) for row in rows if row["lr"] < 0.1}
    assert max(errors.values()) < 0.5, "linear gradients are nearly right at a small rate"


def test_partitions_of_lines_of_a_grid_leave_nothing():
    lines = [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    graphs = [topofl.topology.from_edges(one, n=4) for one in lines]
    grid = topofl.topology.TopologySequence(4, lambda t: graphs[t], "grid", period=2)
    assert rotating_partitions.left_per_round(grid) == pytest.approx(0, abs=1e-12)
    assert rotating_partitions.links(grid, 1) == 1
    assert rotating_partitions.links(grid, 9) == 2
    alone = topologies.rotating_cliques(n=12, clique_size=4, partitions=1, steps=10, seed=0)
    assert rotating_partitions.left_per_round(alone) == pytest.approx(1)


def test_rows_of_partitions_have_paired_differences():
    two = [[40.0, 79.0, 50.0, 8, 0.1], [62.0, 79.0, 53.0, 8, 0.3]]
    new = [[42.0, 80.0, 50.0, 8, 0.1], [62.0, 80.0, 54.0, 7, 0.3]]
    rows = [
        {"clique_size": 5, "partitions": count, "seeds": seeds}
        for count, seeds in ((2, two), (None, new))
    ]
    first, second = rotating_partitions.table(rows).rows
    assert first[:8] == (5, 2, "51.0", "79.0", "51.5", "", "", "")
    apart = "+1.00 ± 12.71", "+1.00 ± 0.00", "+0.50 ± 6.35"
    assert second == (5, "None", "52.0", "80.0", "52.0", *apart, 8, pytest.approx(0.2))
