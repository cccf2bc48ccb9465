"""Numbers of an earlier report stand for the runs that they came from, and for no others."""

import json
import shutil
from dataclasses import replace

import pytest

from paper_figures import reproduce
from paper_figures.command import figures_named
from paper_figures.kit.comparison import METHODS
from paper_figures.kit.paper import Setting
from paper_figures.kit.reproduce import computed, needed, plan
from paper_figures.kit.store import Store, load_earlier_report
from topofl.runs import execute as execution
from topofl.runs.identity import Run

FIGURE, FOREIGN = "dcliques-fig09", "pfeddst-fig03"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Return the folder of an earlier report, without its runs, and its results by figure."""
    out = tmp_path_factory.mktemp("earlier")
    results = {
        name: reproduce(name, scale="smoke", out=out, progress=False)[0]
        for name in (FIGURE, FOREIGN)
    }
    shutil.rmtree(out / "runs")
    return out / "smoke", results


@pytest.fixture
def performed(monkeypatch):
    """Return the list of the runs that are done from now on."""
    done, perform = [], execution.perform
    monkeypatch.setattr(
        execution, "perform", lambda job, root: done.append(job) or perform(job, root)
    )
    return done


@pytest.mark.parametrize("name", [FIGURE, FOREIGN])
@pytest.mark.slow
def test_what_has_not_changed_is_not_run_again(earlier, performed, tmp_path, name):
    folder, before = earlier
    (again,) = reproduce(
        name, scale="smoke", out=tmp_path, kept=folder, report=True, progress=False
    )
    assert not performed
    first = before[name]
    assert (again.data, again.claims, again.made) == (first.data, first.claims, first.made)
    assert (again.runs, again.kept, again.untimed, again.unnoted) == (first.runs, first.runs, 0, 0)
    assert again.seconds == pytest.approx(first.seconds)
    said = f"the numbers of {first.runs} of these runs, which had the same settings"
    assert said in (tmp_path / "smoke" / f"{name}-report.md").read_text()


@pytest.mark.slow
def test_of_changed_arms_only_these_are_run(earlier, performed, tmp_path, monkeypatch):
    folder, before = earlier
    ours = METHODS["PFedDST"]
    changed = dict(METHODS) | {"PFedDST": replace(ours, more={**ours.more, "alpha": 0.25})}
    monkeypatch.setattr("paper_figures.kit.comparison.METHODS", changed)
    (again,) = reproduce(FOREIGN, scale="smoke", out=tmp_path, kept=folder, progress=False)
    assert [run.tables["algorithm"]["name"] for run in performed] == ["pfeddst"]
    (title,) = again.data["panels"]
    was, now = before[FOREIGN].data["panels"][title], again.data["panels"][title]
    assert {label: now[label] for label in now if label != "PFedDST"} == {
        label: was[label] for label in was if label != "PFedDST"
    }
    seconds = [one["PFedDST"]["after training"]["numbers"]["seconds"] for one in (was, now)]
    assert seconds[0] != seconds[1]
    assert (again.runs, again.kept) == (7, 6)
    told = json.loads((tmp_path / "smoke" / f"{FOREIGN}.json").read_text())
    # The next report can be made of this one.
    assert set(told["notes"]) == set(told["runs"])
    assert load_earlier_report(tmp_path / "smoke").notes.keys() == told["runs"].keys()


@pytest.mark.slow
def test_figures_that_look_at_the_runs_themselves_have_them_done(earlier, tmp_path):
    setting = Setting("smoke", (0,), datasets=("cifar10",))
    store = Store(tmp_path, load_earlier_report(earlier[0]))
    ((figure,), (curves,)) = (figures_named(name)[1] for name in ("pfeddst-fig02a", FOREIGN))
    assert len(needed(figure, setting, store)) == 1
    assert not needed(curves, setting, store)
    assert plan([curves], setting, store).rows[-1] == ("all", 7, 0, 0.0, 0.0)


@pytest.mark.slow
def test_finished_runs_come_before_kept_numbers(earlier, tmp_path):
    (figure,) = figures_named(FIGURE)[1]
    setting = Setting("smoke", (0, 1), datasets=("mnist", "cifar10", "cifar100"))
    store = Store(tmp_path / "runs", load_earlier_report(earlier[0]))
    arm = figure.arms(setting)["MNIST"]["fully-connected"]
    assert store.earlier_curves(arm) == earlier[1][FIGURE].data["MNIST"]["fully-connected"]
    assert store.earlier_curves(arm[::-1]) is None
    other = Run({**arm[0].tables, "run": {**arm[0].tables["run"], "rounds": 3}})
    assert store.earlier_curves([other, arm[1]]) is None
    for run in arm:
        store.folder(run).mkdir(parents=True)
        (store.folder(run) / "run.json").write_text("{}")
    assert store.earlier_curves(arm) is None


@pytest.mark.slow
def test_files_that_do_not_say_time_are_taken_and_this_is_told(earlier, performed, tmp_path):
    folder = tmp_path / "older"
    folder.mkdir()
    told = json.loads((earlier[0] / f"{FIGURE}.json").read_text())
    del told["notes"]
    (folder / f"{FIGURE}.json").write_text(json.dumps(told))
    (again,) = reproduce(FIGURE, scale="smoke", out=tmp_path / "a", kept=folder, progress=False)
    assert again.seconds == pytest.approx(earlier[1][FIGURE].seconds, rel=1e-3), "as curves have it"
    assert (again.untimed, again.unnoted, again.made) == (0, again.runs, ())
    for arms in told["data"].values():
        for curve in arms.values():
            curve["numbers"] = {}
    (folder / f"{FIGURE}.json").write_text(json.dumps(told))
    (again,) = reproduce(
        FIGURE, scale="smoke", out=tmp_path / "b", kept=folder, report=True, progress=False
    )
    assert (again.kept, again.untimed) == (again.runs, again.runs)
    told = (tmp_path / "b" / "smoke" / f"{FIGURE}-report.md").read_text()
    missing = "time and memory of 6 of these are unknown; the environment of 6 of these was not"
    assert missing in told
    assert not performed


@pytest.mark.slow
def test_a_figure_with_a_page_is_read_without_it(earlier, tmp_path):
    setting = Setting("smoke", (0, 1), datasets=("mnist", "cifar10", "cifar100"))
    (figure,) = figures_named(FIGURE)[1]
    paged = replace(figure, from_curves=False, page=lambda setting, store: "page")
    store = Store(tmp_path / "runs", load_earlier_report(earlier[0]))
    assert not needed(paged, setting, store)
    keyed = {run.key: run for run in paged.runs(setting)}
    (tmp_path / paged.page_name).write_text("page of other runs")
    record = computed(paged, setting, store, tmp_path / f"{FIGURE}.json", keyed)
    assert record["data"] == earlier[1][FIGURE].data
    assert not (tmp_path / paged.page_name).exists()
