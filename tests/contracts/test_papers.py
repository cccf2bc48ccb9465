"""What holds for every figure of every paper: it is computed, drawn, judged, and can fail."""

import dataclasses
import json
import textwrap

import numpy as np
import pytest

from paper_figures import reproduce
from paper_figures.command import PAPERS
from paper_figures.dfedpgp.claims import ACCURACIES, ROUNDS
from paper_figures.dpfl.arms import BASELINES
from paper_figures.kit.claims import (
    FAILS,
    HOLDS,
    OUR_QUESTION,
    PAPER,
    UNDECIDED,
    ordering_of,
    shown_statement,
)
from paper_figures.kit.curves import Curve
from paper_figures.kit.paper import LOOKS, Setting, make_setting
from paper_figures.kit.store import keyed
from paper_figures.pfeddst import LABELS
from tests.rows import papers
from tests.rows.papers import BUDGETS, C10, D10, DIR, FIGURES, JUDGED, PAT, PATHO, UNSHOWN
from tests.rows.turned import TURNED
from topofl.runs import RunStore
from topofl.runs import execute as execution

IDS = [paper.id for paper in PAPERS]
CHANGES = [(name, words, change) for name, rows in TURNED.items() for words, change in rows]


@pytest.fixture
def root(tmp_path):
    """Return a folder with the names of files of all datasets."""
    for name in ("data_batch_1", "cifar-100-python", "train-images-idx3-ubyte"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", IDS)
def test_every_figure_is_computed_drawn_and_judged(name):
    folder, results, told, _ = papers.reproduced(name)
    paper = next(paper for paper in PAPERS if paper.id == name)
    assert list(results) == [f.id for f in paper.figures if f.id not in papers.LACKING]
    shown, known = "\n".join(map(str, told)), {}
    for result in results.values():
        own, runs = result.figure.id, keyed(result.figure.runs(result.setting))
        known |= runs
        assert result.picture == folder / "smoke" / f"{own}.png"
        assert result.picture.read_bytes().startswith(b"\x89PNG")
        assert result.picture.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        assert str(result.picture) in shown
        assert bool(result.claims) == (own not in papers.SILENT)
        for claim in result.claims:
            assert f"  {claim.verdict:<10}{textwrap.wrap(shown_statement(claim), 105)[0]}" in shown
        assert {claim.verdict for claim in result.claims} <= {HOLDS, FAILS, UNDECIDED}
        assert (result.runs, result.seconds > 0, result.megabytes > 50) == (len(runs), True, True)
        data = json.loads((folder / "smoke" / f"{own}.json").read_text())
        seeds = list(result.setting.seeds)
        assert (data["figure"], data["scale"], data["seeds"]) == (own, "smoke", seeds)
        assert set(data["runs"]) == set(runs)
    assert {run.key for run in RunStore(folder / "runs").runs()} == set(known)
    assert max(map(len, shown.splitlines())) <= 120 + len(str(folder))
    for kind in ("html", "md"):
        text = (folder / "smoke" / f"{name}-report.{kind}").read_text()
        assert all(figure in text for figure in [*results, *paper.absent])
        assert f"topofl reproduce {name} --scale smoke --seeds" in text


@pytest.mark.parametrize("name", ["dcliques-fig01", "dcliques-fig17", "dfedpgp-tab04"])
@pytest.mark.slow
def test_nothing_is_done_twice_and_the_files_stay_the_same(name, monkeypatch):
    folder, results, *_ = papers.reproduced(name.partition("-")[0])
    files = {path: path.read_bytes() for path in (folder / "smoke").glob(f"{name}.*")}
    assert len(files) == 4
    monkeypatch.setattr(execution, "perform", lambda *_: pytest.fail("a run was done again"))
    (again,) = reproduce(name, scale="smoke", out=folder, progress=False)
    assert (again.claims, again.seconds) == (results[name].claims, results[name].seconds)
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize("name", FIGURES)
def test_all_arms_of_a_seed_share_data_model_and_minibatches(name, root):
    figure, setting = FIGURES[name], Setting("smoke", (3, 4), datasets=("mnist", "cifar10"))
    runs = figure.runs(setting) if name not in papers.LACKING else ()
    for run in runs:
        data, graph = run.tables["data"], run.tables.get("topology", {})
        seeds = {table.get("seed", run.seed) for table in (graph, graph.get("base", {}))}
        assert {data["seed"], data["split_seed"], run.tables["run"]["seed"], *seeds} == {run.seed}
    assert {run.seed for run in runs} <= {3, 4}


WHOLE = {
    "dcliques": [f"fig{k:02}" for k in range(1, 20)],
    "dfedpgp": ["fig01", "fig02", "fig03a", "fig03b", "tab01", "tab02", "tab03", "tab04"]
    + [f"appendix-{part}" for part in ("partitions", "accuracy", "rounds")],
    "pfeddst": ["fig01", "fig02a", "fig02b", "fig03", "fig04", "tab01"],
    "dpfl": ["fig01", "fig02", "fig03", "fig04a", "fig04b", "tab01", "tab02", "tab03", "expA"]
    + [f"fig{k:02}" for k in range(5, 16)],
}
"""Every figure and table of the papers, those of which we only know that they are there too."""


@pytest.mark.parametrize("paper", PAPERS, ids=IDS)
def test_every_figure_and_table_of_a_paper_is_reproduced_or_said_to_be_absent(paper):
    here = {figure.id for figure in paper.figures}
    assert len(here) == len(paper.figures)
    assert not here & set(paper.absent)
    assert {f"{paper.id}-{name}" for name in WHOLE[paper.id]} <= here | set(paper.absent)
    for name, why in paper.absent.items():
        assert name.startswith(f"{paper.id}-")
        assert len(why) > 20


DFEDPGP = {"run.rounds": {500}, "data.n": {100}, "data.name": {"cifar10", "cifar100"}}
DFEDPGP |= {"model.name": {"resnet18_gn"}, "topology.k": {10}, "algorithm.participation": {10}}
DFEDPGP |= {"algorithm.momentum": {0.9}, "algorithm.lr_decay": {0.99}}
PFEDDST = {"data.n": {100}, "run.rounds": {500}, "data.classes_per_node": {2}}
PFEDDST |= {"data.partition": {"pathological_shared"}}

MNIST14 = {"data.name": {"mnist"}, "data.downscale": {2}, "model.name": {"mlp"}}
MNIST1D = {"data.name": {"mnist1d"}, "model.name": {"mnist1d_cnn"}, "model.channels": {16}}
DFEDPGP_LOOK = {"data.n": {20}, "algorithm.momentum": {0.9}, "algorithm.lr_decay": {0.99}}
DFEDPGP_LOOK |= {"algorithm.batch_size": {25}, "algorithm.clip": {10.0}}

SETTINGS = {
    ("dcliques-fig13", "quick"): (15, {"data.n": {1000}, "algorithm.batch_size": {13}}),
    ("dcliques-fig13", "paper"): (25, {"algorithm.lr": {0.1}, "algorithm.batch_size": {13}}),
    ("dcliques-fig10", "quick"): (18, {"data.n": {100}, "algorithm.batch_size": {5}}),
    ("dcliques-fig10", "paper"): (30, {"data.n": {100}, "algorithm.batch_size": {20}}),
    ("dfedpgp-tab01", "quick"): (90, {"algorithm.momentum": {0.9}, "algorithm.lr_decay": {0.99}}),
    ("dfedpgp-tab01", "paper"): (240, DFEDPGP),
    ("dfedpgp-fig03a", "paper"): (15, {"topology.k": {2, 5, 10, 20, 40}}),
    ("pfeddst-fig03", "paper"): (21, PFEDDST),
    ("dpfl-tab01", "paper"): (90, {"algorithm.batch_size": {16}, "algorithm.budget": {20, 10, 5}}),
    ("dpfl-tab03", "paper"): (48, {"algorithm.every": {5, 10, 20}}),
    ("dcliques-fig10", "mnist14"): (120, MNIST14 | {"algorithm.batch_size": {20}}),
    ("dfedpgp-tab01", "mnist14"): (400, MNIST14 | DFEDPGP_LOOK),
    ("dfedpgp-tab01", "mnist1d"): (400, MNIST1D | DFEDPGP_LOOK),
    ("pfeddst-fig03", "mnist1d"): (140, MNIST1D | {"data.classes_per_node": {2}}),
    ("dpfl-tab01", "mnist1d"): (600, MNIST1D | {"algorithm.budget": {4, 2, 1}}),
}
"""Number of runs by figure and scale, and all values of their settings."""


@pytest.mark.parametrize(("name", "scale"), SETTINGS)
def test_settings_are_the_papers(name, scale, root):
    count, expected = SETTINGS[name, scale]
    paper = next(paper for paper in PAPERS if paper.id == name.partition("-")[0])
    runs = FIGURES[name].runs(make_setting(scale, root=root, seeds=paper.seeds.get(scale)))
    assert len(runs) == count
    for place, values in expected.items():
        table, key = place.split(".")
        tables = [run.tables.get(table, {}) for run in runs]
        assert {own[key] for own in tables if key in own} == values


DPFL = ["neither normalized by channel", "nor randomly cropped or flipped"]
DPFL += ["clips gradients at norm 20", "a budget counts other clients only"]
DPFL += ["two convolutions and three linear layers"]
SAID = [
    # papers, scale, words, words that must be absent
    ("dcliques", "smoke", ["digits"], ["100 epochs", "20 seeds"]),
    ("dcliques", "paper", ["100 epochs (the paper does not say how many)"], []),
    ("dcliques", "paper", ["all nodes start from the same model (the paper does not"], []),
    ("dfedpgp", "smoke", ["digits"], []),
    ("dcliques", "mnist14", ["another data set than the paper's: MNIST"], ["GN-LeNet with"]),
    ("dfedpgp", "mnist14", ["another data set than the paper's: MNIST at 14"], ["quick"]),
    ("dpfl", "mnist1d", ["another data set than the paper's: MNIST-1D"], []),
    ("dfedpgp", "quick", ["neither normalized by channel nor randomly cropped or flipped"], []),
    ("dfedpgp", "paper", ["also subtracts each channel's mean"], []),
    ("dfedpgp", "paper", ["without a delay, which makes it SGP", "DFedPGP pulls"], []),
    ("dfedpgp", "quick", ["all clients start with one mask", "scripts regrow at random"], []),
    ("dpfl", "quick", DPFL, []),
    ("dpfl", "paper", DPFL, []),
]
ORDERING = [name for paper in PAPERS for name in paper.ordering]
UNLIKE = {"dcliques-reference", "dpfl-study", "dpfl-expA"}


@pytest.mark.parametrize(("paper", "scale", "words", "absent"), SAID)
def test_differences_are_said_beside_every_figure_with_runs(paper, scale, words, absent, root):
    both = paper == "dcliques" and scale not in LOOKS
    setting = Setting(scale, (0,), root, datasets=("mnist", "cifar10") if both else ("cifar10",))
    for name, figure in FIGURES.items():
        if scale in LOOKS and name not in ORDERING:
            continue
        if name.startswith(paper) and name not in UNLIKE and figure.runs(setting):
            said = " ".join(figure.differences(setting))
            assert [text for text in words if text not in said] == [], name
            assert [text for text in absent if text in said] == [], name


@pytest.mark.parametrize("name", ORDERING)
def test_figures_of_the_second_look_have_orderings_that_hold_in_the_paper(name):
    row = JUDGED[{"dpfl-fig01": "dpfl-fig07"}.get(name, name)]  # the same claims
    orderings = list(filter(None, map(ordering_of, row.claims())))
    assert orderings
    slips = {one.statement for one in orderings if any(word in one.statement for word in row.slips)}
    assert {one.statement for one in orderings if one.verdict != HOLDS} <= slips


def matching(claims, words):
    """Return the statements with one of some words, each of which must be in one."""
    words = (words,) if isinstance(words, str) else words
    found = [{c.statement for c in claims if word in c.statement} for word in words]
    assert all(found), words
    return set().union(*found)


@pytest.mark.parametrize("name", JUDGED)
def test_every_claim_holds_on_what_the_paper_prints(name):
    row = JUDGED[name]
    claims = row.claims()
    assert claims
    failed = {claim.statement: claim for claim in claims if claim.verdict != HOLDS}
    assert set(failed) == matching(claims, row.slips), failed


@pytest.mark.parametrize(("name", "words", "change"), CHANGES)
def test_claims_fail_where_their_numbers_are_turned_round_and_no_others(name, words, change):
    row = JUDGED[name]
    claims = row.claims(change)
    failed = {c.statement: c.verdict for c in claims if c.verdict != HOLDS}
    assert set(failed) == matching(claims, words) | matching(claims, row.slips)
    assert set(failed.values()) <= {FAILS}


@pytest.mark.parametrize("name", JUDGED)
def test_every_claim_is_seen_to_fail(name):
    row = JUDGED[name]
    missing = {claim.statement for claim in row.claims()}
    for words, change in TURNED[name]:
        missing -= matching(row.claims(change), words)
    assert missing == set()


def is_of_seeds(name):
    """Whether seeds decide the claims of a figure, in data that have them."""
    return JUDGED[name].made is not papers.as_it_is


@pytest.mark.parametrize("name", [*filter(is_of_seeds, JUDGED)])
def test_one_seed_decides_nothing(name):
    assert {claim.verdict for claim in JUDGED[name].claims(seeds=1)} == {UNDECIDED}


def joined(one, other):
    """Return data with the seeds of one and of the other."""
    if isinstance(one, dict):
        return {key: joined(one[key], other[key]) for key in one}
    if isinstance(one, np.ndarray):
        return np.concatenate([one, other])
    if isinstance(one, list):
        return [*one, *other]
    if not dataclasses.is_dataclass(one):
        return one
    both = {key: joined(value, vars(other)[key]) for key, value in vars(one).items()}
    return type(one)(**both | ({"epochs": one.epochs} if isinstance(one, Curve) else {}))


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize(("name", "words", "change"), CHANGES)
def test_a_claim_is_undecided_if_half_of_the_seeds_say_yes_and_half_no(name, words, change, each):
    row = JUDGED[name]
    if not is_of_seeds(name) or name in ("dcliques-reference", "pfeddst-tab01"):
        return
    claims = row.judge(joined(row.data(seeds=each), row.data(change, seeds=each)))
    found = matching(claims, words) - matching(claims, row.slips)
    assert {claim.verdict for claim in claims if claim.statement in found} <= {UNDECIDED}


ELSEWHERE = [
    ("dcliques-fig08", "MNIST", "MNIST"),
    ("dcliques-fig11", "CIFAR-10", "CIFAR-10"),
    ("dfedpgp-tab01", DIR, "MNIST, Dir(0.3)"),
    ("dfedpgp-fig02", DIR, "MNIST, Dir(0.3)"),
    ("dfedpgp-tab02", DIR, "MNIST, Dir(0.3)"),
    ("pfeddst-tab01", C10, "MNIST, Dir(0.3)"),
    ("dpfl-tab01", D10, "MNIST, Dir(0.1)"),
    ("dpfl-fig07", PATHO, "MNIST, Dir(0.1)"),
]
"""A panel of a figure, and a title under which it is shown alone."""


@pytest.mark.parametrize(("name", "title", "new"), ELSEWHERE)
def test_panels_are_judged_alone_and_what_the_paper_lacks_without_its_numbers(name, title, new):
    row = JUDGED[name]
    own = [claim for claim in row.claims() if claim.statement.startswith(f"{title}: ")]
    alone = [c for c in row.judge({new: row.data()[title]}) if c.statement.startswith(f"{new}: ")]
    assert own
    assert {claim.kind for claim in own} == {PAPER}
    assert {claim.kind for claim in alone} == {PAPER if new == title else OUR_QUESTION}
    without = [claim.statement.removeprefix(title) for claim in own]
    assert [claim.statement.removeprefix(new) for claim in alone] == without
    assert new == title or {claim.paper for claim in alone} == {""}


PRINTED = {
    "dfedpgp-tab01": [
        ((DIR, "most accurate"), "+1.11 points", "≥ 0"),
        ((PAT, "most accurate"), "-0.02 points", "≥ 0"),
        (("loses less",), "+1.04 points", "≥ 0"),
    ],
    "dfedpgp-tab02": [((DIR, "fewer rounds"), "1.44", "≥ 1")],  # 189 of FedRep over 131
    "dfedpgp-tab03": [(("DFedPGP is the most accurate",), "+0.82 points", "≥ 0")],
    "dfedpgp-tab04": [
        ((DIR, "most accurate"), "+0.92 points", "≥ 0"),
        ((DIR, "on undirected graphs"), "+2.20 points", "≥ 1.1:"),
        ((DIR, "on directed graphs"), "+2.47 points", "≥ 1.235:"),
        ((DIR, "where whole models travel"), "+0.65 points", "≥ 0"),
        ((DIR, "where bodies travel"), "+0.92 points", "≥ 0"),
    ],
    "pfeddst-tab01": [
        (("PFedDST reaches",), "1.29", "≥ 1"),
        (("DFedPGP reaches",), "1.35", "≥ 1.174, each: “much better”"),
    ],
    "dpfl-tab01": [
        ((D10, "than all baselines"), "+1.29 points", "≥ 0"),
        ((D10, "training alone"), "+4.01 points", "≥ 1.5"),
        ((D10, "than FedAvg"), "+37.17 points", "≥ 18.5"),
        ((D10, "a small budget"), "+1.48 points", "≤ 2"),
    ],
    "dpfl-fig07": [((D10, "more accurate"), "-0.19 points", "≥ 0")],
}
"""Words of a claim, the paper's number, and the start of the threshold, by figure."""


@pytest.mark.parametrize("name", PRINTED)
def test_claims_show_the_papers_numbers_and_thresholds(name):
    claims = JUDGED[name].claims()
    for words, number, threshold in PRINTED[name]:
        (claim,) = (c for c in claims if all(word in c.statement for word in words))
        assert (claim.paper, claim.threshold.startswith(threshold)) == (number, True), claim


ALIKE = {"fully-connected and grid", "fully-connected and ring", "grid and ring"}
SERVED = {"FedAvg", "FedPer", "FedBABU", "Ditto"}
PARTS = {
    ("dcliques-fig01", "very significant"): {"ring", "grid"},
    ("dcliques-fig01", "negligible"): ALIKE,
    ("dcliques-fig10", "fastest"): {"neither", "Clique Averaging", "momentum"},
    ("dfedpgp-tab01", f"{DIR}: DFedPGP"): set(ACCURACIES) - {"DFedPGP"},
    ("dfedpgp-fig02", "fastest"): set(ROUNDS) - {"DFedPGP"},
    ("dfedpgp-tab02", f"{DIR}: DFedPGP reaches"): set(ROUNDS) - {"DFedPGP"},
    ("dfedpgp-tab03", "FedRep"): SERVED,
    ("dfedpgp-fig03b", "higher accuracy"): {
        f"{few} clients and {many} clients" for few in (5, 10) for many in (50, 100, 200)
    },
    ("pfeddst-tab01", "DFedPGP reaches"): set(LABELS) - {"PFedDST", "DFedPGP"},
    ("dpfl-fig07", f"{PATHO}: with every budget DPFL is more"): {
        f"{budget} and {other}" for budget in BUDGETS for other in set(BASELINES) - set(UNSHOWN)
    },
}
"""The comparisons of a claim on several arms: with each of them, not with the extreme of a seed."""


@pytest.mark.parametrize(("name", "words"), PARTS)
def test_claims_on_several_arms_are_judged_by_each(name, words):
    (claim,) = (claim for claim in JUDGED[name].claims() if words in claim.statement)
    assert {part.name for part in claim.parts} == PARTS[name, words]
