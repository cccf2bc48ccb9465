"""What the figures of papers refuse."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paper_figures import planned, reproduce
from paper_figures.command import figures_named
from paper_figures.kit import report
from paper_figures.kit.claims import Claim, at_least, judge
from paper_figures.kit.curves import Curve, arms_table, average, spread
from paper_figures.kit.drawing import convergence, histogram
from paper_figures.kit.store import load_earlier_report
from paper_figures.kit.until_decided import load_progress
from paper_figures.time_rounds import tables_at_paper_scale
from tests.refusals import named, refused
from tests.rows.pages import some_report, some_results


def judged(values):
    return judge("it is so", "points", values, at_least(0, "any"))


MEAN = np.arange(4.0)[None]
CURVE = Curve(np.arange(1), np.arange(4.0), MEAN, MEAN, MEAN, {})
PANELS = {"MNIST": {"full": CURVE}}


def made(path, name="dcliques-fig01", **options):
    return reproduce(name, out=path / "out", progress=False, **{"scale": "smoke"} | options)


def in_place_of_the_folder(path):
    (path / "out").write_text("mine")
    made(path, "dcliques-fig05")


def lacking_a_picture(path):
    first, second = some_results(path)
    (path / "lost.png").unlink(missing_ok=True)
    lost = replace(second, picture=path / "lost.png")
    report.write(some_report([first, lost]), path, "a")


def earlier(path, seeds):
    arm = {"epochs": [0], "seeds": seeds, "numbers": {}}
    runs = {f"run {seed}": {"run": {"seed": seed}} for seed in (0, 1)}
    told = {"figure": "fig", "key": "key", "data": {"MNIST": {"arm": arm}}, "runs": runs}
    (path / "fig.json").write_text(json.dumps(told | {"seeds": [0, 1]}))
    return load_earlier_report(path)


def damaged(path):
    (path / "fig.json").write_text("{")
    load_earlier_report(path)


def damaged_progress(path):
    (path / "decisions.json").write_text("{")
    load_progress(path / "decisions.json", "key")


def paper_scale(path, algorithm):
    (path / "data_batch_1").touch()
    return tables_at_paper_scale("dfedpgp-tab01", algorithm, path)


FINITE = "`values` must be finite numbers"
ROWS = [
    (ValueError, "`values` must contain at least one statistic, got none", lambda: judged({})),
    (ValueError, FINITE, lambda: judged({"a": [np.nan]})),
    (ValueError, FINITE, lambda: judged([]), lambda: judged([1.0])),
    (ValueError, FINITE, lambda: judged([1.0, np.inf])),
    (ValueError, FINITE, lambda: judged([[1.0, 2.0]])),
    (ValueError, FINITE, lambda: judged(1.0)),
    (ValueError, "`kind` must be one of", lambda: Claim("s", "p", "t", 1.0, "", "HOLDS", "mine")),
    (ValueError, "epochs 3 and inf; the last one is at epoch 3", lambda: average(CURVE, 3)),
    (ValueError, "epochs 0.2 and 0.8; the last", lambda: spread(CURVE, 0.2, 0.8)),
    (ValueError, "epochs 2 and 1; the last", lambda: average(CURVE, 2, 1)),
    (ValueError, "`arms` must contain at least one curve", lambda: arms_table("MNIST", {})),
    (ValueError, "`panels` must contain data in every panel", lambda: convergence({})),
    (ValueError, "panel 'MNIST' is empty", lambda: convergence(PANELS, hidden=("full",))),
    (ValueError, "panel 'MNIST' is empty", lambda: histogram({"MNIST": {}})),
    (
        ValueError,
        "no figure 'dcliques-fg09'; did you mean 'dcliques-fig09'",
        lambda path: made(path, "dcliques-fg09"),
    ),
    (
        ValueError,
        ("dcliques-fig07 is not reproduced: ", "clique_averaging; topofl reproduce --"),
        lambda: figures_named("dcliques-fig7"),
    ),
    (ValueError, "`scale` must be one of", lambda path: made(path, scale="large")),
    (
        ValueError,
        "`datasets` must be left out at scale mnist1d, whose data are MNIST-1D, got mnist",
        lambda path: made(path, scale="mnist1d", datasets="mnist"),
    ),
    (
        ValueError,
        ("dpfl-tab02 has no claim about an ordering of methods", "mnist1d", "dpfl-tab01, "),
        lambda path: made(path, "dpfl-tab02", scale="mnist1d"),
    ),
    (
        FileNotFoundError,
        "files of mnist are needed",
        lambda path: made(path, "dcliques-fig08", scale="mnist14", data=path),
    ),
    (ValueError, "`seeds` must be at least 1", lambda path: made(path, seeds=0)),
    (TypeError, "`seeds` must be an integer", lambda path: made(path, seeds=1.5)),
    (ValueError, "`jobs` must be at least 1", lambda path: made(path, jobs=0)),
    (
        ValueError,
        ("`datasets` must be one of ", "did you mean 'mnist'"),
        lambda path: made(path, datasets="mnits"),
    ),
    (
        FileNotFoundError,
        "files of mnist are needed",
        lambda path: made(path, scale="quick", datasets="mnist", data=path),
    ),
    (
        FileNotFoundError,
        ("no folder /no/such/folder; ", " --data"),
        lambda path: made(path, data="/no/such/folder"),
    ),
    (
        FileNotFoundError,
        ("dcliques-fig10 needs the files of cifar10; ", "--data"),
        lambda path: planned("dcliques-fig10", data=path),
    ),
    (
        FileNotFoundError,
        ("dcliques-fig10 needs the files of cifar10; ", "--data"),
        lambda path: made(path, "dcliques-fig10", scale="quick", data=path),
    ),
    (
        ValueError,
        "`max_seeds` must be given with `until_decided`, got 9 without it; add",
        lambda path: made(path, max_seeds=9),
    ),
    (ValueError, "`hours` must be given with `until_decided`", lambda path: made(path, hours=1.0)),
    (
        ValueError,
        "`seeds` must be left out with `until_decided`, got 4: every arm starts with 3 seeds",
        lambda path: made(path, until_decided=True, seeds=4),
    ),
    (
        ValueError,
        "`kept` must be left out with `until_decided`",
        lambda path: made(path, until_decided=True, kept=path),
    ),
    (
        ValueError,
        "`max_seeds` must be between 3 and 40, got 41; verdicts are valid from 3 to 40 seeds",
        lambda path: made(path, until_decided=True, max_seeds=41),
    ),
    (
        ValueError,
        "`max_seeds` must be between 3 and 40, got 2",
        lambda path: made(path, until_decided=True, max_seeds=2),
    ),
    (
        ValueError,
        "`hours` must be a positive number, got 0; leave it out for no limit",
        lambda path: made(path, until_decided=True, hours=0),
    ),
    (
        ValueError,
        "`hours` must be a positive number, got nan",
        lambda path: planned("dcliques-fig05", scale="smoke", until_decided=True, hours=np.nan),
    ),
    (ValueError, "decisions.json is damaged", damaged_progress),
    (NotADirectoryError, "`--out` must be a writable folder", in_place_of_the_folder),
    (FileNotFoundError, "lost.png", lacking_a_picture),
    (
        FileNotFoundError,
        "`kept` must be a folder with the JSON files of an earlier report",
        lambda path: made(path, kept=path),
    ),
    (
        ValueError,
        "file of fig is damaged: the seeds of its runs and curves differ",
        lambda path: earlier(path, [1, 0]),
        lambda path: earlier(path, [0, 1]),
    ),
    (ValueError, "fig.json is damaged", damaged),
    (
        ValueError,
        ("`algorithm` must be one of dfedpgp-tab01's, dfedavgm, ", "got 'adam'"),
        lambda path: paper_scale(path, "adam"),
        lambda path: paper_scale(path, "dfedpgp"),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
    mine = tmp_path / "out"
    assert not mine.exists() or Path(mine).read_text() == "mine", "nothing is done before"
