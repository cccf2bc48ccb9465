"""Seeds are added where claims need them, in any number of commands, and decisions stay."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from paper_figures import Failed, command, planned, reproduce
from paper_figures.kit import decided
from paper_figures.kit import reproduce as kit_reproduce
from paper_figures.kit.claims import (
    FAILS,
    HOLDS,
    OUR_QUESTION,
    UNDECIDED,
    at_least,
    exactly,
    judge,
)
from paper_figures.kit.paper import Figure, Paper
from paper_figures.kit.reproduce import LeftOut
from paper_figures.kit.store import Failed as RunsFailed
from topofl import NotApplicable
from topofl.runs.identity import Run

SECONDS = 360.0
"""Time of a run: ten in an hour."""

LEADS = {"strong": 9.0, "steady": 1.0, "behind": -9.0, "alike": 0.0}
"""Leads over the baseline in standard deviations of their differences."""


def run(label, seed):
    tables = {"data": {"name": "digits", "seed": seed}, "algorithm": {"name": label}}
    return Run({**tables, "run": {"rounds": 1, "seed": seed}})


def value(run):
    """Return the result of a run: noise that its label and seed determine, and its lead."""
    label = run.tables["algorithm"]["name"]
    rng = np.random.default_rng([*label.encode(), run.seed])
    return LEADS.get(label, 0.0) + rng.standard_normal() / np.sqrt(2)


def arms(setting):
    labels = ("baseline", *LEADS)
    return {"panel": {label: [run(label, seed) for seed in setting.seeds] for label in labels}}


def compute(setting, store):
    return {
        label: [store.load_note(one)["value"] for one in runs]
        for label, runs in arms(setting)["panel"].items()
    }


ANY = at_least(0, "any")


def claims(data):
    leads = {label: np.array(data[label]) - data["baseline"] for label in LEADS}
    best = {label: leads[label] for label in ("strong", "steady")}
    return [
        *(judge(f"{label} is better.", "points", lead, ANY) for label, lead in leads.items()),
        judge("both are better.", "points", best, ANY),
        judge("all are better.", "points", leads, ANY, kind=OUR_QUESTION),
        judge("there are two.", "arms", 2, exactly(2, "two")),
    ]


def picture(data):
    from matplotlib.figure import Figure as Picture

    return Picture(figsize=(1, 1))


FIGURE = Figure("some-fig01", "leads", compute, picture, claims, arms=arms)
PAPER = Paper("some", "A paper", "Someone, 2026", (FIGURE,), seeds={"smoke": 1})


@pytest.fixture
def trained(monkeypatch):
    """Return the list of runs that are trained from now on; values and times are written at once.

    An entry of None stops the command before the run after it.
    """
    done, stops = [], []

    def train(runs, store, *, failed=None, **how):
        errors = {}
        for one in runs:
            if store.has(one):
                continue
            if stops and len(done) == stops[0]:
                stops.clear()
                raise KeyboardInterrupt
            if one.tables["algorithm"]["name"] in how.get("broken", ()):
                errors[one.key] = "diverged"
                continue
            done.append(one)
            folder = store.root / one.key
            folder.mkdir(parents=True)
            note = {"tables": one.tables, "seconds": SECONDS, "megabytes": 1.0, "value": value(one)}
            (folder / "run.json").write_text(json.dumps(note))
        if errors:
            raise RunsFailed("failed", errors)

    for module in (decided, kit_reproduce):
        monkeypatch.setattr(module, "compute_missing", train)
    monkeypatch.setattr(command, "figures_named", lambda name: (PAPER, (FIGURE,)))
    return done, stops, train


def made(path, **options):
    how = {"scale": "smoke", "until_decided": True, "progress": False} | options
    (result,) = reproduce("some-fig01", out=path, **how)
    return result


def progress_of(path):
    return json.loads((path / "smoke" / "some-fig01-decisions.json").read_text())


def decisions_of(path):
    return {tuple(names): (verdict, k) for *names, verdict, k in progress_of(path)["verdicts"]}


def seeds_of(done):
    counts = {}
    for one in done:
        label = one.tables["algorithm"]["name"]
        counts[label] = counts.get(label, 0) + 1
    return counts


def test_claims_are_decided_by_as_many_seeds_as_they_need(trained, tmp_path):
    done, *_ = trained
    result = made(tmp_path)
    found = {claim.statement: claim for claim in result.claims}
    verdicts = {statement: claim.verdict for statement, claim in found.items()}
    assert verdicts == {
        "strong is better.": HOLDS,
        "steady is better.": HOLDS,
        "behind is better.": FAILS,
        "alike is better.": UNDECIDED,
        "both are better.": HOLDS,
        "all are better.": FAILS,
        "there are two.": HOLDS,
    }
    decisions = decisions_of(tmp_path)
    assert decisions["some-fig01", "strong is better.", ""][1] < 6
    steady = decisions["some-fig01", "steady is better.", ""][1]
    assert 6 < steady < 40
    counts = seeds_of(done)
    assert counts["steady"] == counts["baseline"] >= steady
    assert max(counts["strong"], counts["behind"]) < 6, "no seeds where all is decided"
    # A claim of several comparisons is decided by their own numbers of seeds.
    both = {part.name: part for part in found["both are better."].parts}
    assert [part.verdict for part in both.values()] == [HOLDS, HOLDS]
    assert decisions["some-fig01", "both are better.", "strong"][1] < 6


def test_files_of_a_figure_say_how_many_seeds_its_verdicts_use(trained, tmp_path):
    made(tmp_path)
    folder, most = tmp_path / "smoke", max(seeds_of(trained[0]).values())
    record = json.loads((folder / "some-fig01.json").read_text())
    assert len(record["seeds"]) < most == record["seeds_of_verdicts"]
    text = (folder / "some-fig01.md").read_text()
    assert f"Verdicts use up to {most} seeds of an arm; picture and tables show" in text
    folder = tmp_path / "plain" / "smoke"
    made(tmp_path / "plain", until_decided=False)
    record = json.loads((folder / "some-fig01.json").read_text())
    assert len(record["seeds"]) == record["seeds_of_verdicts"] == 1
    assert "Verdicts use" not in (folder / "some-fig01.md").read_text()


def test_a_claim_that_would_need_too_many_seeds_is_counted_apart(trained, tmp_path):
    said = []
    made(tmp_path, report=True, show=said.append)
    (counts,) = [table for table in said if "Claims judged by intervals" in str(table)]
    assert "would need more than 40 seeds" in counts
    text = (tmp_path / "smoke" / "some-fig01-report.md").read_text()
    assert "## Seeds until decided" in text
    assert "--until-decided --max-seeds 40" in text
    moves = text.partition("## Seeds until decided")[2].partition("## some-fig01")[0].splitlines()
    (row,) = [line for line in moves if line.startswith("| steady is better.")]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    decided_with = int(cells[-3])
    assert cells[2] == UNDECIDED
    assert cells[-2] == HOLDS
    assert decided_with == decisions_of(tmp_path)["some-fig01", "steady is better.", ""][1]
    counted = next(line for line in moves if line.startswith("| the paper's"))
    assert [cell.strip() for cell in counted.split("|")[1:-1]] == [
        "the paper's",
        "3",
        "1",
        "0",
        "1",
    ]
    page = (tmp_path / "smoke" / "some-fig01-report.html").read_text()
    assert 'id="report:moves"' in page


@pytest.mark.parametrize("after", [7, 15, 16, 17, 21])
def test_an_interrupted_command_goes_on_as_if_it_had_not_been(trained, tmp_path, after):
    done, stops, _ = trained
    made(tmp_path / "whole")
    count = len(done)
    stops.append(count + after)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "parts")
    made(tmp_path / "parts")
    assert len(done) == 2 * count
    assert progress_of(tmp_path / "parts") == progress_of(tmp_path / "whole")


def test_what_is_decided_stays_decided(trained, tmp_path, monkeypatch):
    """Later seeds of its arms, which other claims need, contradict the first ones."""
    strong, told = LEADS["strong"], value

    def turned(run):
        late = run.tables["algorithm"]["name"] == "strong" and run.seed > 6
        return told(run) - (99 + strong if late else 0)

    monkeypatch.setitem(globals(), "value", turned)
    first = made(tmp_path)
    kept = decisions_of(tmp_path)["some-fig01", "strong is better.", ""]
    assert kept[0] == HOLDS

    def more(data):
        wave = 1 + 1.5 * (-1.0) ** np.arange(len(data["strong"]))
        wave = wave + 1e-9 * (np.array(data["strong"]) - data["baseline"])
        return [*claims(data), judge("it needs more of them.", "points", wave, ANY)]

    figure = replace(FIGURE, claims=more)
    monkeypatch.setattr(command, "figures_named", lambda name: (PAPER, (figure,)))
    second = made(tmp_path)
    assert seeds_of(trained[0])["strong"] > 10, "else this shows nothing"
    assert decisions_of(tmp_path)["some-fig01", "strong is better.", ""] == kept
    assert second.claims[0] == first.claims[0]


def test_hours_are_kept_and_count_all_commands(trained, tmp_path):
    done, *_ = trained
    made(tmp_path, hours=0.5)
    count = len(done)
    assert 0 < progress_of(tmp_path)["seconds"] <= 1800
    assert count <= 15 + 5
    made(tmp_path, hours=0.5)
    assert len(done) == count
    made(tmp_path, hours=1)
    assert count < len(done) <= 15 + 10
    assert progress_of(tmp_path)["seconds"] == SECONDS * (len(done) - 15)


def test_no_arm_gets_more_seeds_than_allowed(trained, tmp_path):
    made(tmp_path, max_seeds=5)
    assert max(seeds_of(trained[0]).values()) <= 5


def test_a_plain_run_does_not_overwrite_what_was_decided(trained, tmp_path):
    made(tmp_path)
    path = tmp_path / "smoke" / "some-fig01.json"
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"`out` must be another folder, .*some-fig01.json has ver"
    ):
        made(tmp_path, until_decided=False)
    assert path.read_bytes() == before
    made(tmp_path)
    assert path.read_bytes() == before


def test_what_was_left_out_is_said_to_be_undecided(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    lines = list[str]()
    how = {"scale": "smoke", "until_decided": True, "progress": False, "show": lines.append}
    monkeypatch.setattr(
        command,
        "decide",
        lambda name, figures, setting, limits, **_: decided.Decided([(figures, setting)]),
    )
    left = LeftOut(command.PAPERS[0].figures[0], "no files")
    monkeypatch.setattr(command, "_outcomes", lambda *_, **__: [left])
    monkeypatch.setattr(command, "_without_data", lambda *_: {})
    assert reproduce("dcliques-fig06", out=tmp_path, **how) == []
    assert lines[-1] == (
        f"still undecided: all claims of {left.figure.id}, left out for the reasons above"
    )


def test_a_dry_run_predicts_decisions_and_stores_nothing(trained, tmp_path, monkeypatch):
    done, *_ = trained
    predict = partial(planned, "some-fig01", scale="smoke", out=tmp_path, until_decided=True)
    monkeypatch.setattr("paper_figures.kit.reproduce.probe", lambda tables: (SECONDS, 100.0))
    assert predict().rows[-1][:3] == ("all", 15, 15)
    assert not list(tmp_path.iterdir())
    made(tmp_path, hours=1e-6)
    count, before = len(done), progress_of(tmp_path)
    table = predict()
    assert (len(done), progress_of(tmp_path)) == (count, before)
    rows = {row[0]: row for row in table.rows}
    assert "alike is better." in rows
    assert isinstance(rows["alike is better."][4], NotApplicable)
    assert rows["steady is better."][3:5] == (HOLDS, pytest.approx(15, abs=12))
    hours = [row[5] for row in table.rows if not isinstance(row[5], NotApplicable)]
    assert hours == sorted(hours)
    # Both arms of the claim, one seed each per six minutes.
    seeds = rows["steady is better."][4]
    assert rows["steady is better."][5] >= 2 * (seeds - 3) * SECONDS / 3600
    assert predict(hours=0.01).title.startswith("0 of")


def test_a_dry_run_without_data_says_what_every_figure_needs(tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    rows = {row[0]: row for row in planned("dcliques", out=tmp_path, until_decided=True).rows}
    assert rows["dcliques-fig05"][1:] == (0, 0, 0.0, 0.0)
    assert "needs the files of mnist" in rows["dcliques-fig09"][1].reason


def test_arms_whose_runs_fail_get_no_more_seeds_and_the_others_go_on(
    trained, tmp_path, monkeypatch
):
    _, _, train = trained

    def failing(runs, store, **how):
        broken = ("steady",) if any(one.seed > 2 for one in runs) else ()
        train(runs, store, **how, broken=broken)

    monkeypatch.setattr(decided, "compute_missing", failing)
    with pytest.raises(Failed, match="diverged"):
        made(tmp_path)
    assert seeds_of(trained[0])["steady"] == 3
    decisions = decisions_of(tmp_path)
    assert decisions["some-fig01", "strong is better.", ""][0] == HOLDS
    assert decisions["some-fig01", "steady is better.", ""][0] == UNDECIDED


def test_progress_of_other_runs_is_not_continued(trained, tmp_path):
    made(tmp_path)
    path = tmp_path / "smoke" / "some-fig01-decisions.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"key": "other", "seconds": 1e9}))
    count = len(trained[0])
    made(tmp_path)
    assert len(trained[0]) == count
    assert progress_of(tmp_path)["verdicts"] == told["verdicts"]
