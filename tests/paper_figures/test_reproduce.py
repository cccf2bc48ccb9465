"""A whole paper at scale ``smoke``, and refusals. Long, since all tests read it, made once."""

import json
import os
import re
import textwrap
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from paper_figures import Failed, command, planned, reproduce
from paper_figures.command import PAPERS, figures_named
from paper_figures.kit import reproduce as kit_reproduce
from paper_figures.kit.claims import FAILS, HOLDS, UNDECIDED, shown_statement
from paper_figures.kit.paper import MARKERS, Figure, Setting, available, make_setting, trained
from paper_figures.kit.report import command_of
from paper_figures.kit.store import Store
from topofl.runs import execute as execution
from topofl.runs.identity import Run

probe_module = import_module("topofl.runs.probe")
FIGURES = PAPERS[0].figures
IDS = [figure.id for figure in FIGURES]
PAPERS_IDS = [f"dcliques-fig{k:02}" for k in (1, 5, 6, *range(8, 20))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder, the results and what was shown, of the whole paper."""
    out, told = tmp_path_factory.mktemp("reproduce"), []
    results = reproduce(
        "dcliques", scale="smoke", out=out, report=True, progress=False, show=told.append
    )
    return out, results, told


def test_all_figures_of_the_paper_are_there():
    assert set(PAPERS_IDS) < set(IDS)
    assert len(set(IDS)) == len(IDS)


@pytest.mark.slow
def test_every_figure_is_computed_drawn_and_judged(whole):
    out, results, _ = whole
    assert [result.figure.id for result in results] == IDS
    for result in results:
        assert result.picture == out / "smoke" / f"{result.figure.id}.png"
        assert result.picture.read_bytes().startswith(b"\x89PNG")
        assert result.picture.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        assert {claim.verdict for claim in result.claims} <= {HOLDS, FAILS, UNDECIDED}
        assert result.seconds > 0
        assert result.megabytes > 50
    assert [result.figure.id for result in results if not result.claims] == [
        "dcliques-reference"
    ]  # from epoch 5 on


def test_trained_figures_have_runs_and_a_table_for_every_panel(whole):
    _, results, _ = whole
    for result in results:
        assert len(result.tables) == (len(result.data) if result.runs else 0)
        assert result.runs == len({run.key for run in result.figure.runs(result.setting)})
    assert sum(result.runs > 0 for result in results) == 12


def test_what_is_shown_has_every_verdict_and_picture(whole):
    _, results, told = whole
    text = "\n".join(map(str, told))
    for result in results:
        assert str(result.picture) in text
        for claim in result.claims:
            first = textwrap.wrap(shown_statement(claim), 105)[0]
            assert f"  {claim.verdict:<10}{first}" in text
    assert max(map(len, text.splitlines())) <= 120 + len(str(whole[0]))


def test_nothing_is_done_twice_and_the_files_stay_the_same(whole, monkeypatch):
    out, results, _ = whole
    kept = {
        p: p.read_bytes()
        for p in (out / "smoke").iterdir()
        if p.suffix in (".png", ".json", ".pdf")
    }
    monkeypatch.setattr(execution, "perform", lambda *_: pytest.fail("a run was done again"))
    names = ("dcliques-fig01", "dcliques-fig17")
    for name in names:
        (again,) = reproduce(name, scale="smoke", out=out, progress=False)
        (first,) = (result for result in results if result.figure.id == name)
        assert again.claims == first.claims
        assert again.seconds == first.seconds
    assert {path: path.read_bytes() for path in kept} == kept


def test_another_number_of_seeds_is_computed_anew(whole):
    out, _, _ = whole
    (one,) = reproduce("dcliques-fig09", scale="smoke", seeds=1, out=out, progress=False)
    assert one.runs == 3
    assert {claim.verdict for claim in one.claims} == {UNDECIDED}
    (two,) = reproduce("dcliques-fig09", scale="smoke", out=out, progress=False)
    assert two.runs == 6


def test_a_damaged_file_of_a_figure_is_made_anew(whole):
    out, _, _ = whole
    path = out / "smoke" / "dcliques-fig09.json"
    (before,) = reproduce("dcliques-fig09", scale="smoke", out=out, progress=False)
    path.write_text(path.read_text()[:50])
    (after,) = reproduce("dcliques-fig09", scale="smoke", out=out, progress=False)
    assert after.claims == before.claims
    assert json.loads(path.read_text())["data"]["MNIST"]


def test_the_report_has_all_of_it(whole):
    out, results, told = whole
    page, markdown = (out / "smoke" / f"dcliques-report.{kind}" for kind in ("html", "md"))
    assert told[-1] == f"wrote {page} and {markdown}"
    for text in (page.read_text(), markdown.read_text()):
        for result in results:
            assert result.figure.id in text
        assert "topofl reproduce dcliques --scale smoke --seeds 2 --report" in text


def test_curves_are_those_of_the_runs(whole):
    out, results, _ = whole
    (result,) = (result for result in results if result.figure.id == "dcliques-fig09")
    run = result.figure.runs(result.setting)[0]
    history, note = Store(out / "runs").load(run)
    curve = result.data["MNIST"]["fully-connected"]
    assert curve["epochs"] == pytest.approx(history["round"] / note["rounds_per_epoch"])
    assert curve["mean"][0] == pytest.approx(100 * history["accuracy"].mean(axis=1))
    assert curve["high"][0] == pytest.approx(100 * history["accuracy"].max(axis=1))


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_settings_are_the_papers(scale, tmp_path):
    for name in ("train-images-idx3-ubyte", "data_batch_1"):
        (tmp_path / name).touch()
    setting = make_setting(scale, root=tmp_path)
    (figure,) = figures_named("dcliques-fig13")[1]
    algorithms = [run.tables["algorithm"] for run in figure.runs(setting)]
    assert {a["batch_size"] for a in algorithms} == {13}
    assert {a["lr"] for a in algorithms} == {0.1}
    assert {run.tables["data"]["n"] for run in figure.runs(setting)} == {1000}
    (figure,) = figures_named("dcliques-fig10")[1]
    at_n = {run.tables["data"]["n"] for run in figure.runs(setting)}
    sizes = {run.tables["algorithm"]["batch_size"] for run in figure.runs(setting)}
    assert (at_n, sizes) == ({100}, {20} if scale == "paper" else {5})
    assert len(figure.runs(setting)) == 6 * {"quick": 3, "paper": 5}[scale]


def test_all_arms_of_a_seed_share_data_model_and_minibatches():
    setting = Setting("smoke", (3, 4))
    for figure in FIGURES:
        for run in figure.runs(setting):
            seeds = {
                run.tables["data"]["seed"],
                run.tables["data"]["split_seed"],
                run.tables["run"]["seed"],
            }
            assert seeds == {run.seed}
            assert _seeds_of(run.tables["topology"]) <= {run.seed}
        assert {run.seed for run in figure.runs(setting)} <= {3, 4}


def _seeds_of(table):
    inner = _seeds_of(table["base"]) if "base" in table else set()
    return inner | ({table["seed"]} if "seed" in table else set())


def test_differences_are_stated_at_every_scale(tmp_path):
    for name in ("train-images-idx3-ubyte", "data_batch_1"):
        (tmp_path / name).touch()
    for figure in FIGURES:
        if figure.runs(Setting("smoke", (0,))):
            said = " ".join(figure.differences(Setting("smoke", (0,))))
            assert "digits" in said
            assert "100 epochs" not in said
            assert "20 seeds" not in said
    setting = make_setting("quick", root=tmp_path)
    for name in ("dcliques-fig10", "dcliques-fig08", "dcliques-fig16"):
        (figure,) = figures_named(name)[1]
        assert any("16 x 16 pixels" in text for text in figure.differences(setting))


def test_choices_are_stated_at_the_papers_scale(tmp_path):
    for name in ("train-images-idx3-ubyte", "data_batch_1"):
        (tmp_path / name).touch()
    setting = make_setting("paper", root=tmp_path)
    for figure in FIGURES:
        if figure.runs(setting) and figure.id != "dcliques-reference":
            said = " ".join(figure.differences(setting))
            assert "100 epochs (the paper does not say how many)" in said
            assert "all nodes start from the same model (the paper does not specify this)" in said


def test_a_panel_without_its_data_is_told_in_the_report(tmp_path):
    reproduce(
        "dcliques-fig08",
        scale="smoke",
        seeds=1,
        datasets="mnist",
        out=tmp_path,
        report=True,
        progress=False,
    )
    for kind in ("html", "md"):
        text = (tmp_path / "smoke" / f"dcliques-fig08-report.{kind}").read_text()
        assert "the panels of cifar10, which was not available or not selected" in text
    assert "| verdict |" in (tmp_path / "smoke" / "dcliques-fig08.md").read_text().replace(
        "holds if | ours | paper", ""
    )


def test_the_variable_names_the_folder_of_data(tmp_path, monkeypatch):
    (tmp_path / "mnist" / "raw").mkdir(parents=True)
    (tmp_path / "mnist" / "raw" / f"{MARKERS['mnist']}.gz").touch()
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path))
    setting = make_setting("quick")
    assert setting.datasets == ("mnist",)
    assert setting.root_of("mnist") == str(tmp_path / "mnist" / "raw")
    assert make_setting("quick", root=tmp_path / "mnist").root == tmp_path / "mnist"


def test_missing_data_leave_figures_out_and_say_so(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    monkeypatch.setattr(command, "reproduce_each", lambda figures, setting, **_: iter(()))
    with pytest.raises(
        FileNotFoundError, match=r"dcliques-fig10 needs the files of cifar10; .* --data"
    ):
        reproduce("dcliques-fig10", out=tmp_path)
    monkeypatch.undo()
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    figures = [figure for figure in FIGURES if figure.id in ("dcliques-fig05", "dcliques-fig10")]
    outcomes = list(
        command.reproduce_each(figures, make_setting("quick"), out=tmp_path, progress=False)
    )
    assert isinstance(outcomes[0], command.Result)
    assert outcomes[1].reason.startswith("needs the files of cifar10")
    assert not outcomes[1].failed


def test_data_are_found_below_a_folder(tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert available(tmp_path) == ()
    (deep / f"{MARKERS['mnist']}.gz").touch()
    assert available(tmp_path) == ("mnist",)
    assert Setting("quick", (0,), tmp_path).root_of("mnist") == str(deep)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"name": "dcliques-fg09"},
            ValueError,
            "no figure 'dcliques-fg09'; did you mean 'dcliques-fig09'",
        ),
        ({"scale": "large"}, ValueError, "`scale` must be one of"),
        ({"seeds": 0}, ValueError, "`seeds` must be at least 1"),
        ({"jobs": 0}, ValueError, "`jobs` must be at least 1"),
        ({"datasets": "mnits"}, ValueError, "`datasets` must be one of .*did you mean 'mnist'"),
        ({"scale": "quick", "datasets": "mnist"}, FileNotFoundError, "files of mnist are needed"),
        ({"data": "/no/such/folder"}, FileNotFoundError, "no folder /no/such/folder; .* --data"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_done(arguments, error, message, tmp_path):
    given = {"name": "dcliques-fig01", "scale": "smoke", "out": tmp_path / "out"} | arguments
    with pytest.raises(error, match=message):
        reproduce(**given)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is refused to a superuser")
def test_a_folder_that_cannot_be_written_to_is_refused_before_any_run(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        reproduce("dcliques-fig05", scale="smoke", out=tmp_path / "out")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OSError, match="out"):
        reproduce("dcliques-fig05", scale="smoke", out=tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_figure_whose_runs_fail_is_told_and_the_others_are_made(tmp_path, monkeypatch):
    run = {
        "data": {"name": "digits", "partition": "shards", "n": 6, "seed": 0},
        "topology": {"name": "ring"},
        "algorithm": {"name": "dsgd", "lr": 1e38, "batch_size": 64},
        "run": {"rounds": 5, "seed": 0},
    }
    code = trained(lambda setting: {"panel": {"arm": [Run(run)]}}, draw=None, claims=None)
    bad = Figure("bad", "diverges", **code)
    (good,) = figures_named("dcliques-fig05")[1]
    monkeypatch.setattr(command, "figures_named", lambda name: (PAPERS[0], (bad, good)))
    told = []
    with pytest.raises(Failed, match="bad: 1 of 1 runs failed"):
        reproduce(
            "dcliques", scale="smoke", out=tmp_path, report=True, progress=False, show=told.append
        )
    assert told[0].startswith("bad: failed: 1 of 1 runs failed")
    assert (tmp_path / "smoke" / "dcliques-fig05.png").exists()
    assert "bad" in (tmp_path / "smoke" / "dcliques-report.md").read_text()


def test_a_plan_counts_runs_once_and_those_that_are_done_not_at_all(tmp_path, monkeypatch):
    probed = []
    monkeypatch.setattr(kit_reproduce, "probe", lambda run: probed.append(run) or (60.0, 100.0))
    setting = Setting("smoke", (0, 1))
    figures = [
        figure
        for figure in FIGURES
        if figure.id in ("dcliques-fig05", "dcliques-fig09", "dcliques-fig19")
    ]
    table = kit_reproduce.plan(figures, setting, Store(tmp_path))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["dcliques-fig05"] == (0, 0, 0, 0.0)
    assert rows["dcliques-fig09"] == (6, 6, 6.0, 100.0)
    assert rows["dcliques-fig19"] == (12, 8, 8.0, 100.0)  # two arms on MNIST are those of figure 9
    assert rows["all"] == (14, 14, 14.0, 100.0)
    assert len(probed) == 7  # one of each kind

    monkeypatch.setattr(Store, "has", lambda store, run: True)
    assert kit_reproduce.plan(figures, setting, Store(tmp_path)).rows[-1] == (
        "all",
        14,
        0,
        0.0,
        0.0,
    )


def test_a_probe_foretells_what_rounds_and_evaluations_cost(monkeypatch):
    (figure,) = figures_named("dcliques-fig09")[1]
    run = figure.runs(Setting("smoke", (0,)))[1]
    long = Run(
        {
            **run.tables,
            "run": {**run.tables["run"], "rounds": 1000},
            "evaluation": {"every": 16, "examples": None},
        }
    )

    # once, a round, an evaluation of as many examples as are probed, and no fine-tuning
    monkeypatch.setattr(
        probe_module, "_timed", lambda experiment: probe_module.Timed(30.0, 0.5, 2.0, 0.0)
    )
    monkeypatch.setattr(probe_module, "PROBED_EXAMPLES", 75)  # a quarter of the 300 test digits
    foretold, megabytes = probe_module.probe(long)
    assert foretold == pytest.approx(
        30 + 0.5 * 1000 + 4 * 2.0 * (1 + 63), abs=5
    )  # and the seconds of preparation
    assert megabytes > 50


def test_a_probe_runs_what_it_times(monkeypatch):
    (figure,) = figures_named("dcliques-fig09")[1]
    run = figure.runs(Setting("smoke", (0,)))[1]
    asked = []
    told = probe_module.config.Experiment.run
    monkeypatch.setattr(
        probe_module.config.Experiment,
        "run",
        lambda self, **how: asked.append(self.options) or told(self, **how),
    )
    seconds, _ = probe_module.probe(run)
    (options,) = asked
    assert options["rounds"] >= 6
    assert (options["evaluation"].every, options["evaluation"].examples) == (3, 10)
    assert 0 < seconds < 60


def test_a_plan_stores_nothing(tmp_path):
    table = planned("dcliques-fig09", scale="smoke", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert re.search(r"dcliques-fig09 +6 +6", str(table))


def test_a_plan_has_the_reason_of_every_figure_that_is_left_out(tmp_path):
    table = planned("dpfl", out=tmp_path)
    reasons = {row[0]: {str(cell.reason) for cell in row[1:]} for row in table.rows[:-1]}
    assert set(reasons) == {figure.id for figure in figures_named("dpfl")[1]}
    assert reasons["dpfl-tab01"] == {
        "needs the files of cifar10; give the folder that contains them with --data"
    }
    assert table.rows[-1] == ("all", 0, 0, 0, 0.0)
    with pytest.raises(FileNotFoundError, match=r"dcliques-fig10 needs the files of cifar10"):
        planned("dcliques-fig10", out=tmp_path)


def test_figures_can_be_named_without_a_zero():
    assert figures_named("dcliques-fig9") == figures_named("dcliques-fig09")


def test_data_of_a_figure_tell_what_they_are_of(whole):
    out, results, _ = whole
    (result,) = (result for result in results if result.figure.id == "dcliques-fig09")
    told = json.loads((out / "smoke" / "dcliques-fig09.json").read_text())
    assert (told["figure"], told["scale"], told["seeds"]) == ("dcliques-fig09", "smoke", [0, 1])
    assert set(told["runs"]) == {run.key for run in result.figure.runs(result.setting)}
    assert all((out / "runs" / key / "run.json").exists() for key in told["runs"])
    names = {
        (tables["algorithm"]["name"], tables["topology"]["name"])
        for tables in told["runs"].values()
    }
    assert names == {
        ("dsgd", "fully_connected"),
        ("dsgd", "dcliques"),
        ("clique_averaging", "dcliques"),
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            Setting("smoke", (0,), datasets=("mnist",)),
            "--scale smoke --seeds 1 --datasets mnist --report",
        ),
        (Setting("quick", (0, 1), datasets=()), "--scale quick --seeds 2 --report"),
        (
            Setting("paper", (0,), datasets=("mnist", "cifar10")),
            "--scale paper --seeds 1 --data DIR --report",
        ),
    ],
)
def test_the_command_in_the_report_repeats_it(setting, words):
    assert command_of("dcliques", FIGURES, setting) == f"topofl reproduce dcliques {words}"


def test_an_original_dataset_is_asked_for_with_a_remedy(cifar10_subset):
    with pytest.raises(
        ValueError,
        match="--scale quick also accepts a subset of CIFAR-10, "
        "and --datasets mnist leaves CIFAR-10 out",
    ):
        planned("dcliques-fig10", scale="paper", data=cifar10_subset)


def test_listed_names_all():
    names = command.listed().column("name")
    assert names == tuple(
        name for paper in PAPERS for name in (paper.id, *(figure.id for figure in paper.figures))
    )
    assert names[: 1 + len(IDS)] == ("dcliques", *IDS)


WHOLE = {
    "dcliques": [f"fig{k:02}" for k in range(1, 20)],
    "dfedpgp": [
        "fig01",
        "fig02",
        "fig03a",
        "fig03b",
        *(f"tab{k:02}" for k in range(1, 5)),
        "appendix-partitions",
        "appendix-accuracy",
        "appendix-rounds",
    ],
    "pfeddst": ["fig01", "fig02a", "fig02b", "fig03", "fig04", "tab01"],
    "dpfl": [
        "fig01",
        "fig02",
        "fig03",
        "fig04a",
        "fig04b",
        *(f"fig{k:02}" for k in range(5, 16)),
        "tab01",
        "tab02",
        "tab03",
        "expA",
    ],
}
"""Every figure and table of the papers, those of which we only know that they are there too."""


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.id)
def test_every_figure_and_table_of_a_paper_is_reproduced_or_said_to_be_absent(paper):
    here = {figure.id for figure in paper.figures}
    assert not here & set(paper.absent)
    assert {f"{paper.id}-{name}" for name in WHOLE[paper.id]} <= here | set(paper.absent)
    assert all(
        name.startswith(f"{paper.id}-") and len(why) > 20 for name, why in paper.absent.items()
    )


def test_what_is_absent_is_listed_and_told_when_it_is_asked_for(whole):
    told = dict(
        zip(*(command.absent().column(name) for name in command.absent().columns), strict=True)
    )
    assert told == {name: why for paper in PAPERS for name, why in paper.absent.items()}
    with pytest.raises(
        ValueError,
        match=r"dcliques-fig07 is not reproduced: .*clique_averaging; topofl reproduce --",
    ):
        figures_named("dcliques-fig7")
    text = (whole[0] / "smoke" / "dcliques-report.md").read_text()
    assert "**dcliques-fig02:** pseudocode of D-SGD" in text


def test_listed_names_the_data():
    told = dict(zip(*(command.listed().column(name) for name in ("name", "data")), strict=True))
    known = {
        "dcliques-fig05": "-",
        "dcliques-fig08": "mnist, cifar10",
        "dcliques-fig17": "mnist (optional)",
    }
    assert {name: told[name] for name in known} == known


def test_numbers_of_seeds_are_whole(tmp_path):
    with pytest.raises(TypeError, match="`seeds` must be an integer"):
        reproduce("dcliques-fig05", scale="smoke", seeds=1.5, out=tmp_path)
    assert make_setting("smoke", seeds=np.int64(2)).seeds == (0, 1)


def test_a_figure_without_runs_is_computed_again_for_other_data(tmp_path, monkeypatch):
    (tmp_path / "data_batch_1").touch()
    computed, there = [], {"hash": "a"}
    monkeypatch.setattr(kit_reproduce, "content", lambda name, root, verify: there["hash"])
    figure = replace(
        FIGURES[0],
        compute=lambda setting, store: computed.append(there["hash"]) or {},
        arms=None,
        datasets=(),
        optional=("cifar10",),
    )
    setting = Setting("quick", (0,), tmp_path, datasets=("cifar10",))
    for there["hash"] in "aab":
        kit_reproduce.computed(figure, setting, Store(tmp_path), tmp_path / "figure.json", {})
    assert computed == ["a", "b"]
