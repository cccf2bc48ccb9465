"""The race: what is read from drivers, how rows are made and judged, and what is refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.benchmark import command
from analysis.peers import environments, page, race, settings
from analysis.peers.environments import Failed, parsed
from topofl import NotApplicable

ROOT = Path(race.__file__).parents[2]

SMALL = {
    "A": {"n": 5, "cohort": 2, "examples": 50, "test": 20},
    "B": {"n": 5, "cohort": 2, "examples": 50, "test": 20, "epochs": 2},
    "C": {"n": 6, "examples": 246, "test": 20},
    "D100": {"n": 20, "examples": 400, "test": 50},
    "D1000": {"n": 20, "examples": 400, "test": 50},
    "E": {"n": 8},
    "F": {"n": 10, "cohort": 2, "examples": 60, "test": 20, "epochs": 1},
}


def small(setting):
    return replace(setting, rounds=3, **SMALL[setting.label])


def measured(loss, later=1.0, **more):
    return {"rounds": [5.0, later, later], "peak": 2**30, "cpu": 6.0, "loss": loss, **more}


# Drivers


def test_a_result_is_the_last_one_among_the_lines_of_a_peer():
    assert parsed('noise\nRESULT {"loss": 1}\nRESULT {"loss": 2}\nbye\n', "warning") == {"loss": 2}
    with pytest.raises(Failed, match=r"^ImportError: no torch$"):
        parsed("noise\n", "Traceback\nImportError: no torch\n\n")
    with pytest.raises(Failed, match="no output"):
        parsed("", "")


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.label)
def test_every_client_has_examples_of_its_own(setting, tmp_path):
    tiny = small(setting)
    with np.load(settings.write_arrays(tiny, tmp_path, None)) as arrays:
        owned = arrays["owned"]
        assert len(owned) == tiny.n
        assert len(np.unique(owned)) == owned.size
        if tiny.model:
            assert owned.size == len(arrays["x"]) == tiny.examples
            assert len(arrays["x_test"]) == len(arrays["y_test"]) == tiny.test
        if not tiny.cohort:
            assert np.allclose(arrays["weights"].sum(1), 1)


def test_settings_are_those_of_their_sources():
    sizes = {setting.label: setting.examples // setting.n for setting in settings.SETTINGS}
    assert sizes == {"A": 50, "B": 600, "C": 41, "D100": 500, "D1000": 50, "E": 0, "F": 60}
    pinned = {peer for setting in settings.SETTINGS for peer in setting.peers} - {"topofl"}
    assert pinned <= set(environments.DISTRIBUTION)
    for peer in pinned:
        assert environments.version(peer)
        assert (Path(environments.__file__).parent / "drivers" / f"run_{peer}.py").exists()


@pytest.mark.parametrize("label", ["B", "C", "E"])
@pytest.mark.slow
def test_our_driver_learns(label, tmp_path):
    (setting,) = (small(setting) for setting in settings.SETTINGS if setting.label == label)
    arrays = settings.write_arrays(setting, tmp_path, None)
    results = []
    for rounds in (1, 8):
        spec = setting.spec(0) | {"rounds": rounds, "lr": 0.05}
        results.append(environments.run("topofl", sys.executable, spec, arrays, 100))
    before, after = results
    assert len(after["rounds"]) == 8
    assert after["loss"] < before["loss"]
    assert min(after["rounds"]) > 0
    assert after["cpu"] > 0
    assert after["peak"] > 2**20


def without_chance(setting):
    """Return a small setting in which all clients take part, each with copies of one example."""

    def arrays(*arguments):
        made = setting.arrays(*arguments)
        if setting.model:
            for key in "xy":
                made[key][made["owned"]] = made[key][made["owned"][:, :1]]
        return made

    one = replace(small(setting), arrays=arrays, batch=min(setting.batch, 4))
    no_dropout = "3072-30-10" if one.model == "cnn" else one.model
    lr = 0.1 if one.model else one.lr
    return replace(one, cohort=one.n if one.cohort else 0, model=no_dropout, lr=lr)


PAIRS = [
    pytest.param(peer, setting, id=f"{peer} {setting.label}")
    for setting in settings.SETTINGS
    if setting.label not in ("D1000", "F")  # which are D100 and B when they are small
    for peer in setting.peers
    if peer != "topofl"
]


@pytest.mark.parametrize(("peer", "setting"), PAIRS)
def test_a_driver_does_the_work_of_ours(peer, setting, tmp_path):
    python = environments.installed(peer, race.CACHE)
    if python is None:
        pytest.skip(f"there is no environment of {peer}; the race makes it")
    sources = race.CACHE / "sources"
    if peer == "gossipy" and not environments.from_sources(peer, sources):
        pytest.skip("the release of gossipy lacks all-to-all gossip, and its sources are not there")
    setting = without_chance(setting)
    arrays = settings.write_arrays(setting, tmp_path, None)
    spec = setting.spec(0)
    untrained, ours, theirs = (
        environments.run(name, where, spec | changed, arrays, 300, sources)
        for name, where, changed in (
            ("topofl", sys.executable, {"lr": 1e-9}),
            ("topofl", sys.executable, {}),
            (peer, python, {}),
        )
    )
    assert len(theirs["rounds"]) == len(ours["rounds"])
    assert untrained["loss"] != pytest.approx(ours["loss"], rel=0.02)
    assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-4)


def test_sources_of_another_commit_are_refused(tmp_path):
    package = tmp_path / "gossipy" / "gossipy"
    package.mkdir(parents=True)
    (package / "core.py").write_text("pass\n")
    assert environments.from_sources("gossipy", tmp_path)
    assert not environments.from_sources("pfl", tmp_path)
    with pytest.raises(Failed, match="are not those of commit ea85ab1"):
        environments.run("gossipy", sys.executable, {}, tmp_path / "E.npz", 1, tmp_path)


COUNTS = """
import protocol, time
def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
clock = protocol.Clock()
for seconds in (0.5, 0.2, 0.2):
    spin(seconds)
    clock.tick()
protocol.score = lambda arrays, models: {}
protocol.report(clock, {"model": ""}, {}, [])
"""


@pytest.mark.slow
def test_cpu_seconds_are_those_of_a_later_round():
    drivers = Path(environments.__file__).parent / "drivers"
    ran = subprocess.run(
        [sys.executable, "-c", COUNTS], cwd=drivers, capture_output=True, text=True, check=True
    )
    assert parsed(ran.stdout, ran.stderr)["cpu"] == pytest.approx(0.2, abs=0.05)


def test_a_driver_that_takes_too_long_is_stopped(tmp_path):
    setting = small(settings.SETTINGS[1])
    arrays = settings.write_arrays(setting, tmp_path, None)
    with pytest.raises(Failed, match="did not end within 0 seconds"):
        environments.run("topofl", sys.executable, setting.spec(0), arrays, 0.01)


def test_a_python_that_is_not_there_is_named():
    own = "%d.%d" % sys.version_info[:2]  # noqa: UP031
    assert environments.interpreter(own)
    with pytest.raises(Failed, match=r"needs Python 2\.1, which"):
        environments.interpreter("2.1")


@pytest.mark.slow
def test_an_environment_is_made_once_and_a_failure_is_a_reason(tmp_path, monkeypatch):
    pinned = tmp_path / "pinned.txt"
    pinned.write_text("# nothing\n")
    monkeypatch.setattr(environments, "requirements", lambda peer: pinned)
    monkeypatch.setattr(environments, "PYTHON", {})
    made = environments.environment("pfl", tmp_path)
    stamp = Path(made).lstat().st_mtime_ns
    assert environments.environment("pfl", tmp_path) == made
    assert Path(made).lstat().st_mtime_ns == stamp
    pinned.write_text("./missing.whl\n")
    with pytest.raises(Failed, match="cannot be installed"):
        environments.environment("pfl", tmp_path)


# Rows


def test_losses_agree_differ_or_leave_that_undecided():
    ours = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert page.agreement(ours, ours) == "same"
    assert page.agreement(ours, [x + 1e-9 for x in ours]) == "same"
    noisy = [x + dx for x, dx in zip(ours, [0.3, -0.3, 0.2, -0.2, 0.1], strict=True)]
    assert page.agreement(ours, noisy).startswith("undecided: loss +0.02 ± 0.5")
    slightly = [x + dx for x, dx in zip(ours, [0.004, 0.006, 0.005, 0.004, 0.006], strict=True)]
    assert page.agreement(ours, slightly) == "same"
    assert page.agreement(ours, [x + 0.2 for x in ours]).startswith("differs: loss +0.2")
    assert page.agreement(ours[:1], [5.0]) == "one run: unknown"


FACTS = {
    "machine": "a machine", "date": "2026-01-01", "turns": 5, "threads": None, "digits": "MNIST",
    "load": 0.1, "quiet": True,
}  # fmt: skip


def record(runs, **facts):
    names = {peer: f"{peer} 1.0" for peer in runs}
    return {"title": "a title", "names": names, "runs": runs, "facts": FACTS | facts}


def test_a_row_has_medians_first_rounds_apart_and_paired_ratios():
    ours = [measured(1.0, 1.0), measured(1.1, 2.0), measured(1.2, 3.0)]
    theirs = [measured(1.0, 2.0), measured(1.1, 2.0), measured(1.2, 2.0)]
    table = page.table_of(record({"topofl": ours, "pfl": theirs, "fluke": "ImportError: no"}))
    mine, pfl, fluke = table.rows
    assert mine[:4] == ("topofl 1.0", "5 [5, 5]", "2 [1, 3]", "")
    assert pfl[3:6] == ("1 [0.5, 1.5]", "6 [6, 6]", "1 [1, 1]")
    assert pfl[-1] == "same"
    assert fluke[1] == NotApplicable("ImportError: no")


def test_facts_of_all_settings_are_told_once():
    runs = {"topofl": [measured(1.0)] * 5}
    alike = page.page({"A": record(runs), "B": record(runs)})
    assert alike.count("2026-01-01; between runs, others used at most 0.1 cores.") == 1
    unlike = page.page({"A": record(runs), "B": record(runs, date="2026-01-02", load=0.12)})
    first, second = unlike.split("2026-01-01; between runs, others used at most 0.1 cores.")
    assert first.count("| peer |") == 1
    assert "2026-01-02; between runs, others used at most 0.12 cores." in second
    assert unlike.count("a machine. 5 turns") == 1
    assert "No result" not in unlike


def test_the_page_is_made_of_the_stored_numbers():
    folder = ROOT / "analysis" / "results" / "peers"
    records = json.loads((folder / "peers.json").read_text())
    assert list(records) == [setting.label for setting in settings.SETTINGS]
    assert (folder / "peers.md").read_text() == page.page(records)


# Load


def test_a_busy_machine_is_refused_unless_it_is_allowed(monkeypatch):
    monkeypatch.setattr(race, "busy_cores", lambda: 0.5)
    with pytest.raises(race.Busy, match=r"other processes use 0\.5 cores"):
        race.check_quiet(allowed=False)
    assert race.check_quiet(allowed=True) == 0.5
    found = [0.5, 0.4, 0.05]
    monkeypatch.setattr(race, "busy_cores", lambda: found.pop(0))
    assert race.check_quiet(allowed=False) == 0.05


def test_the_load_of_other_processes_is_seen():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        used = race.busy_cores(0.5)
        spinning.kill()
    assert used > 0.5


@pytest.fixture
def fakes(monkeypatch):
    """Return the calls of a race of two small settings, in which fluke fails."""
    called = []

    def run(peer, python, spec, arrays, limit, sources):
        called.append((spec["label"], peer, spec["seed"]))
        if peer == "fluke":
            raise Failed("no")
        return measured(1.0 + spec["seed"], accuracy=0.5)

    monkeypatch.setattr(race, "SETTINGS", [small(settings.SETTINGS[k]) for k in (1, 2)])
    monkeypatch.setattr(race, "environment", lambda peer, cache: peer)
    monkeypatch.setattr(race, "run", run)
    monkeypatch.setattr(race, "busy_cores", lambda: 0.5)
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    return called


def test_a_race_of_fakes_runs_in_turns_and_is_written(fakes, tmp_path, capsys):
    words = ["peers", "--peers", "pfl,fluke", "--repeats", "2", "--out", str(tmp_path)]
    assert command.main(words) == 2
    assert "must be quiet" in capsys.readouterr().err
    assert command.main([*words, "--busy", "--only", "B"]) == 0
    turns = [("topofl", 0), ("pfl", 0), ("fluke", 0), ("pfl", 1), ("topofl", 1)]
    assert fakes == [("B", *turn) for turn in turns]
    written = (tmp_path / "peers.md").read_text()
    assert written == capsys.readouterr().out
    assert "others used at most 0.5 cores" in written
    assert "The machine was busy. No result." in written
    raw = json.loads((tmp_path / "peers.json").read_text())
    assert raw["B"]["runs"]["fluke"] == "no"
    assert len(raw["B"]["runs"]["pfl"]) == 2
    assert command.main(["peers", "--only", "B,X"]) == 2
    assert "--only must be among B, C, got X" in capsys.readouterr().err


def test_a_setting_is_raced_again_and_the_others_are_kept(fakes, tmp_path, monkeypatch, capsys):
    words = ["peers", "--busy", "--out", str(tmp_path), "--repeats"]
    assert command.main([*words, "1", "--only", "C"]) == 0
    assert command.main([*words, "1", "--only", "B"]) == 0
    monkeypatch.setattr(race, "title", lambda: "another machine")
    assert command.main([*words, "2", "--only", "B"]) == 0
    raw = json.loads((tmp_path / "peers.json").read_text())
    assert [(label, one["facts"]["turns"]) for label, one in raw.items()] == [("B", 2), ("C", 1)]
    written = (tmp_path / "peers.md").read_text()
    assert written == page.page(raw)
    assert written.count("another machine") == 1

    def busy(allowed):
        if fakes[-1][0] == "C":
            raise race.Busy("busy")
        return 0.0

    monkeypatch.setattr(race, "check_quiet", busy)
    assert command.main([*words, "3"]) == 2
    raw = json.loads((tmp_path / "peers.json").read_text())
    assert [one["facts"]["turns"] for one in raw.values()] == [3, 1]


@pytest.mark.parametrize("text", ["{", "{}", '{"facts": [], "settings": {}, "runs": {}}'])
def test_other_numbers_are_not_overwritten(fakes, tmp_path, capsys, text):
    (tmp_path / "peers.json").write_text(text)
    assert command.main(["peers", "--busy", "--out", str(tmp_path)]) == 2
    assert "--out must be a folder without a peers.json" in capsys.readouterr().err
    assert (tmp_path / "peers.json").read_text() == text
    assert fakes == []


def test_each_node_of_setting_c_averages_with_20_neighbors():
    (setting,) = (setting for setting in settings.SETTINGS if setting.label == "C")
    weights = setting.arrays(setting, None, np.random.default_rng(0))["weights"]
    assert set((weights > 0).sum(1)) == {21}
    assert np.allclose(weights[weights > 0], 1 / 21)
    assert np.array_equal(weights, weights.T)
