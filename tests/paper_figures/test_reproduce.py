"""The functions behind ``topofl reproduce``: what is made anew, left out, planned, and told."""

import json
import os
import re
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from paper_figures import Failed, command, planned, reproduce
from paper_figures.command import PAPERS, figures_named
from paper_figures.dcliques import PAPER as DCLIQUES
from paper_figures.kit import reproduce as kit_reproduce
from paper_figures.kit.claims import UNDECIDED
from paper_figures.kit.comparison import arm
from paper_figures.kit.paper import MARKERS, Figure, Setting, available, make_setting, trained
from paper_figures.kit.store import Store, keyed
from paper_figures.time_rounds import FIGURES as SAMPLED_FIGURES
from paper_figures.time_rounds import (
    HERE,
    IMAGES,
    SAMPLE,
    sample_arms,
    sample_table,
    sample_times,
    seconds_per_round,
    tables_at_paper_scale,
    time_rounds,
)
from paper_figures.time_rounds import main as time_rounds_command
from tests.rows.papers import DIR, FIGURES, reproduced
from topofl import config
from topofl.engine.plan import Plan
from topofl.engine.probe import Timing
from topofl.runs.identity import Run

probe_module = import_module("topofl.runs.probe")
SMOKE = Setting("smoke", (0,))


@pytest.fixture(scope="module")
def whole():
    """Return the folder and the results by id of a whole paper."""
    return reproduced("dcliques")[:2]


@pytest.mark.slow
def test_trained_figures_have_a_table_for_every_panel_and_curves_of_their_runs(whole):
    out, results = whole
    for result in results.values():
        assert len(result.tables) == (len(result.data) if result.runs else 0)
    assert sum(result.runs > 0 for result in results.values()) == 12
    result = results["dcliques-fig09"]
    run = result.figure.runs(result.setting)[0]
    history, note = Store(out / "runs").load(run)
    curve = result.data["MNIST"]["fully-connected"]
    assert curve["epochs"] == pytest.approx(history["round"] / note["rounds_per_epoch"])
    assert curve["mean"][0] == pytest.approx(100 * history["accuracy"].mean(axis=1))
    assert curve["high"][0] == pytest.approx(100 * history["accuracy"].max(axis=1))


@pytest.mark.slow
def test_other_seeds_and_damaged_files_are_made_anew(tmp_path):
    def made(**options):
        how = {"scale": "smoke", "out": tmp_path, "progress": False} | options
        (result,) = reproduce("dcliques-fig09", **how)
        return result

    (one, two) = made(seeds=1), made()
    assert (one.runs, two.runs) == (3, 6)
    assert {claim.verdict for claim in one.claims} == {UNDECIDED}
    path = tmp_path / "smoke" / "dcliques-fig09.json"
    path.write_text(path.read_text()[:50])
    assert made().claims == two.claims
    told = json.loads(path.read_text())
    assert told["data"]["MNIST"]
    tables = told["runs"].values()
    assert {(own["algorithm"]["name"], own["topology"]["name"]) for own in tables} == {
        ("dsgd", "fully_connected"),
        ("dsgd", "dcliques"),
        ("clique_averaging", "dcliques"),
    }


def test_only_small_images_are_said_to_be_small(tmp_path):
    for name in ("train-images-idx3-ubyte", "data_batch_1"):
        (tmp_path / name).touch()
    setting = make_setting("quick", root=tmp_path)
    for name in ("dcliques-fig10", "dcliques-fig08", "dcliques-fig16"):
        assert any("16 x 16 pixels" in text for text in FIGURES[name].differences(setting))


@pytest.mark.slow
def test_a_panel_without_its_data_is_told_in_the_report(tmp_path):
    options = {"scale": "smoke", "seeds": 1, "datasets": "mnist", "out": tmp_path}
    reproduce("dcliques-fig08", report=True, progress=False, **options)
    for kind in ("html", "md"):
        text = (tmp_path / "smoke" / f"dcliques-fig08-report.{kind}").read_text()
        assert "the panels of cifar10, which was not available or not selected" in text
    assert "| verdict |" in (tmp_path / "smoke" / "dcliques-fig08.md").read_text()


def test_data_are_found_below_a_folder_and_where_the_variable_says(tmp_path, monkeypatch):
    deep = tmp_path / "mnist" / "raw"
    deep.mkdir(parents=True)
    assert available(tmp_path) == ()
    (deep / f"{MARKERS['mnist']}.gz").touch()
    assert available(tmp_path) == ("mnist",)
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path))
    setting = make_setting("quick")
    assert setting.datasets == ("mnist",)
    assert setting.root_of("mnist") == str(deep)
    assert make_setting("quick", root=tmp_path / "mnist").root == tmp_path / "mnist"
    assert make_setting("smoke", seeds=np.int64(2)).seeds == (0, 1)


def test_missing_data_leave_figures_out_and_say_so(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    figures = [FIGURES["dcliques-fig05"], FIGURES["dcliques-fig10"]]
    setting = make_setting("quick")
    made, left_out = command.reproduce_each(figures, setting, out=tmp_path, progress=False)
    assert isinstance(made, command.Result)
    assert left_out.reason.startswith("needs the files of cifar10")
    assert not left_out.failed
    table = planned("dpfl", out=tmp_path)
    reasons = {row[0]: {str(cell.reason) for cell in row[1:]} for row in table.rows[:-1]}
    assert set(reasons) == {figure.id for figure in figures_named("dpfl")[1]}
    needs = "needs the files of cifar10; give the folder that contains them with --data"
    assert reasons["dpfl-tab01"] == {needs}
    assert table.rows[-1] == ("all", 0, 0, 0, 0.0)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is refused to a superuser")
def test_a_folder_that_cannot_be_written_to_is_refused_before_any_run(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        reproduce("dcliques-fig05", scale="smoke", out=tmp_path / "out")


def test_a_figure_whose_runs_fail_is_told_and_the_others_are_made(tmp_path, monkeypatch):
    run = {
        "data": {"name": "digits", "partition": "shards", "n": 6, "seed": 0},
        "topology": {"name": "ring"},
        "algorithm": {"name": "dsgd", "lr": 1e38, "batch_size": 64},
        "run": {"rounds": 5, "seed": 0},
    }
    code = trained(lambda setting: {"panel": {"arm": [Run(run)]}}, draw=None, claims=None)
    both = (Figure("bad", "diverges", **code), FIGURES["dcliques-fig05"])
    monkeypatch.setattr(command, "figures_named", lambda name: (DCLIQUES, both))
    told, how = [], {"scale": "smoke", "out": tmp_path, "report": True, "progress": False}
    with pytest.raises(Failed, match="bad: 1 of 1 runs failed"):
        reproduce("dcliques", show=told.append, **how)
    assert told[0].startswith("bad: failed: 1 of 1 runs failed")
    assert (tmp_path / "smoke" / "dcliques-fig05.png").exists()
    assert "bad" in (tmp_path / "smoke" / "dcliques-report.md").read_text()


def test_a_plan_counts_runs_once_and_those_that_are_done_not_at_all(tmp_path, monkeypatch):
    probed = []
    monkeypatch.setattr(kit_reproduce, "probe", lambda run: probed.append(run) or (60.0, 100.0))
    setting = Setting("smoke", (0, 1))
    figures = [FIGURES[f"dcliques-{name}"] for name in ("fig05", "fig09", "fig19")]
    table = kit_reproduce.plan(figures, setting, Store(tmp_path))
    assert table.rows == (
        ("dcliques-fig05", 0, 0, 0, 0.0),
        ("dcliques-fig09", 6, 6, 6.0, 100.0),
        ("dcliques-fig19", 12, 8, 8.0, 100.0),  # two arms on MNIST are those of figure 9
        ("all", 14, 14, 14.0, 100.0),
    )
    assert len(probed) == 7  # one of each kind
    monkeypatch.setattr(Store, "has", lambda store, run: True)
    done = kit_reproduce.plan(figures, setting, Store(tmp_path))
    assert done.rows[-1] == ("all", 14, 0, 0.0, 0.0)


def test_a_plan_stores_nothing(tmp_path):
    table = planned("dcliques-fig09", scale="smoke", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert re.search(r"dcliques-fig09 +6 +6", str(table))


def test_a_probe_foretells_what_rounds_and_evaluations_cost(monkeypatch):
    run = FIGURES["dcliques-fig09"].runs(SMOKE)[1]
    longer = {"run": {**run.tables["run"], "rounds": 1000}}
    long = Run({**run.tables, **longer, "evaluation": {"every": 16, "examples": None}})
    # once, a round, and an evaluation of as many examples as are probed; there is no fine-tuning
    timing = Timing(Plan("looped", 1, 1, 1), 30.0, 0.5, 2.0)
    monkeypatch.setattr(probe_module, "timed", lambda *_: timing)
    monkeypatch.setattr(probe_module, "PROBED_EXAMPLES", 75)  # a quarter of the 300 test digits
    foretold, megabytes = probe_module.probe(long.tables)
    # ... and the seconds of preparation
    assert foretold == pytest.approx(30 + 0.5 * 1000 + 4 * 2.0 * (1 + 63), abs=5)
    assert megabytes > 50


def _tuned(runs):
    return next(run for run in runs if run.tables["evaluation"].get("fine_tune_every"))


@pytest.mark.parametrize(
    ("name", "chosen", "probes"),
    [
        ("dcliques-fig09", lambda runs: runs[1], [(6, 3, 10)]),
        ("dfedpgp-tab01", _tuned, [(6, 3, None), (1, 1, None)]),  # clients are tested on their own
        ("dpfl-study", lambda runs: runs[0], [(6, 3, None)]),
    ],
)
def test_a_probe_runs_what_it_times(name, chosen, probes, monkeypatch):
    asked, told = [], config.Experiment.run

    def watched(self, **how):
        found = self.options["evaluation"]
        asked.append((self.options["rounds"], found.every, found.examples))
        assert found.fine_tune_every is None
        return told(self, **how)

    monkeypatch.setattr(config.Experiment, "run", watched)
    run = chosen(list(keyed(FIGURES[name].runs(SMOKE)).values()))
    seconds, _ = kit_reproduce.probe(run.tables)
    assert asked == probes
    assert 0 < seconds < 60


def test_the_paper_decides_on_the_number_of_seeds(tmp_path, monkeypatch):
    (tmp_path / "data_batch_1").touch()
    asked = []
    monkeypatch.setattr(
        "paper_figures.command.reproduce_each",
        lambda figures, setting, **_: asked.append(len(setting.seeds)) or (),
    )
    for name, seeds in (("dfedpgp", None), ("dcliques", None), ("dfedpgp", 4)):
        reproduce(name, scale="paper", seeds=seeds, data=tmp_path, out=tmp_path / "out")
    assert asked == [3, 5, 4]


def test_an_original_dataset_is_asked_for_with_a_remedy(cifar10_subset):
    said = "--scale quick also accepts a subset of CIFAR-10, and --datasets mnist leaves CIFAR-10 "
    with pytest.raises(ValueError, match=said):
        planned("dcliques-fig10", scale="paper", data=cifar10_subset)


def test_figures_are_listed_with_their_data_and_those_that_are_absent():
    assert figures_named("dcliques-fig9") == figures_named("dcliques-fig09")
    assert [paper.id for paper in PAPERS] == ["dcliques", "dfedpgp", "pfeddst", "dpfl"]
    told = dict(zip(*(command.listed().column(name) for name in ("name", "data")), strict=True))
    papers = [(paper.id, *(figure.id for figure in paper.figures)) for paper in PAPERS]
    assert list(told) == [name for names in papers for name in names]
    assert told["dcliques-fig05"] == "-"
    assert told["dcliques-fig08"] == "mnist, cifar10"
    assert told["dcliques-fig17"] == "mnist (optional)"
    assert dict(command.absent().rows) == {k: v for p in PAPERS for k, v in p.absent.items()}


def test_a_figure_without_runs_is_computed_again_for_other_data(tmp_path, monkeypatch):
    (tmp_path / "data_batch_1").touch()
    computed, there = [], {"hash": "a"}
    monkeypatch.setattr(kit_reproduce, "content", lambda name, root, verify: there["hash"])
    figure = replace(
        DCLIQUES.figures[0],
        compute=lambda setting, store: computed.append(there["hash"]) or {},
        arms=None,
        datasets=(),
        optional=("cifar10",),
    )
    setting = Setting("quick", (0,), tmp_path, datasets=("cifar10",))
    for there["hash"] in "aab":
        kit_reproduce.computed(figure, setting, Store(tmp_path), tmp_path / "figure.json", {})
    assert computed == ["a", "b"]


def test_rounds_at_the_papers_scale_are_timed_and_scaled_up(tmp_path):
    (tmp_path / "data_batch_1").touch()
    tables = tables_at_paper_scale("dfedpgp-tab01", "dfedpgp", tmp_path)
    assert tables["model"] == {"name": "resnet18_gn"}
    data, algorithm = tables["data"], tables["algorithm"]
    assert (data["n"], data["verify"], tables["run"]["rounds"]) == (100, False, 500)
    assert (algorithm["epochs"], algorithm["batch_size"]) == (5, 128)
    (run,) = arm(SMOKE, DIR, "DFedPGP")
    shorter = {**run.tables, "algorithm": {**run.tables["algorithm"], "epochs": 2}}
    rows = dict(time_rounds(shorter, 3, 1).rows)
    seconds = [value for name, value in rows.items() if name.startswith("seconds of round")]
    assert len(seconds) == 3
    assert all(0 < value < 30 for value in seconds)
    (days,) = [value for name, value in rows.items() if name.startswith("days")]
    images = IMAGES * sum(seconds) / 3 * 2 * 2 / 86_400 / days
    assert images == pytest.approx(sum(map(len, config.build(run.tables).clients.train)))
    before = rows["memory before the run, GiB"]
    assert rows["peak memory, GiB"] > 0.99 * before > 0.05  # the kernel's counts are not exact


def test_a_sample_has_arms_of_every_paper(tmp_path):
    for name in ("data_batch_1", "train-images-idx3-ubyte"):
        (tmp_path / name).touch()
    arms = sample_arms(tmp_path)
    assert tuple(arms) == SAMPLE
    assert len(set(SAMPLE)) == 6
    assert {paper for paper, _, _ in SAMPLE} == {name.partition("-")[0] for name in SAMPLED_FIGURES}
    for (_, algorithm, dataset), (tables, rounds) in arms.items():
        assert (tables["algorithm"]["name"], tables["data"]["name"]) == (algorithm, dataset)
        assert rounds >= 3 * tables["run"]["rounds"]


def test_a_sample_weights_arms_by_their_rounds():
    one, other = ("a", "dsgd", "mnist"), ("b", "dpfl", "mnist")
    times = {one: [[1.0, 0.5], [2.0, 1.0]], other: [[1.0, 2.0], [1.0, 2.0]]}
    rows = {row[0]: row[1:] for row in sample_table(times, {one: 3, other: 1}).rows}
    assert rows["a, dsgd, mnist"] == (3, 1.5, 0.75, "0.500 [0.500, 0.500]")
    assert rows["b, dpfl, mnist"] == (1, 1.0, 2.0, "2.000 [2.000, 2.000]")
    assert rows["all"] == (4, 1.375, 1.0625, "0.795 [0.714, 0.875]")


@pytest.mark.slow
def test_rounds_are_timed_with_the_topofl_of_a_checkout(tmp_path):
    (run,) = arm(SMOKE, DIR, "DFedPGP")
    times = sample_times(HERE, {("a", "b", "c"): (run.tables, 1)}, 1, 1)
    ((before, now),) = times[("a", "b", "c")]
    assert min(before, now) > 0
    (tmp_path / "topofl.py").write_text("raise ValueError('too old')\n")
    with pytest.raises(RuntimeError, match=r"cannot train an arm: (.|\n)*too old"):
        seconds_per_round(tmp_path, run.tables, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--before", "nothing"], "--before must be a folder that contains topofl, got nothing"),
        (["--before", HERE, "--turns", 0], "--rounds and --turns must be at least 1"),
    ],
)
def test_a_sample_is_refused(words, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        time_rounds_command(["sample", "--data", str(tmp_path), *map(str, words)])
    assert message in capsys.readouterr().err


def test_a_paper_without_any_data_is_an_error_and_no_empty_report(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="every figure of dpfl needs the files of cifar10"):
        reproduce("dpfl", scale="quick", out=tmp_path, report=True, progress=False)
    assert not list(tmp_path.rglob("*report*"))
