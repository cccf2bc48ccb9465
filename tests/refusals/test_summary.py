"""What summaries of runs, and their plots, refuse."""

from dataclasses import replace

import numpy as np
import pytest

import topofl
from tests.refusals import named, refused, rows
from tests.summary.samples import of_name, older, runs_of, stored
from topofl import mixing, summarize
from topofl.runs import Failure
from topofl.summary import plot_band, plot_heat_map, plot_nodes, plot_pareto, plot_violin
from topofl.summary.figures import KINDS
from topofl.summary.verdicts import mean_interval

RUNS = runs_of(topology=["ring", "star"], alpha=[0.1, 1.0])
CORNERS = runs_of(topology=["ring"], alpha=[0.1]) + runs_of(topology=["star"], alpha=[1.0])
OTHERS = runs_of(topology=["ring"]) + runs_of(topology=["star"], low_is_good=True)
PLACES = {"topology": "ring", "alpha": 1.0}
FAILED = Failure("0", {"run": {"seed": 7}}, "ValueError: no")


def grouped(**how):
    return summarize(runs_of(topology=["ring", "star"]), **{"by": "topology"} | how)


def all_of(by=None, **how):
    return summarize(RUNS, by, **how)


def of(*settings, **how):
    return summarize([stored(one, 0.5) for one in settings], **how)


def of_seeds(**seeds):
    """Summarize runs of each topology with its seeds."""
    settings = [{"topology.name": name, "run.seed": k} for name, own in seeds.items() for k in own]
    return of(*settings, by="topology", baseline="ring")


def of_sizes(by):
    runs = [{"topology.name": "dcliques", "topology.size": size, "run.seed": 0} for size in (5, 10)]
    return of(*runs, {"topology.name": "ring", "run.seed": 0}, by=by)


def of_alphas(count):
    return runs_of(topology=["ring", "star"], alpha=range(1, count + 1), seeds=1)


def mine(*runs):
    return summarize({"mine": runs})


def copy():
    """Return a run with the settings and seed of the first, trained again."""
    return of_name.__wrapped__()


def of_meta(history, **meta):
    return replace(history, meta={**history.meta, **meta})


def unnamed():
    scores = {"round": np.array([0]), "accuracy": np.full((1, 2), 0.5)}
    return topofl.History({}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))


def without_scores():
    runs = runs_of(seeds=2)
    runs[1].history.evaluations["accuracy"][-1] = np.nan
    return runs


def unfinished(path):
    (path / "config.toml").write_text("")
    return summarize(path)


def on_data(seed, **how):
    return [of_name(of_data=seed, seed=k, **how) for k in (0, 1)]


def chosen(*columns):
    return summarize(runs_of()).select(columns)


VALUE_ERRORS = {
    ("`by` must name settings ", "'topolgy'; did you mean 'topology'"): lambda: all_of("topolgy"),
    ("`by` must name settings ", " got 'alfa'; did you mean 'alpha'"): lambda: all_of(["alfa"]),
    "'name' may be any of data.name, topology.name; give the full name": lambda: all_of("name"),
    "`over` must name settings of the runs, got 'alfa'": lambda: grouped(over="alfa"),
    "one of 'accuracy', got 'acuracy'; did you mean": lambda: grouped(column="acuracy"),
    ("`baseline` must be among the groups, ", " 'rong'; did you mean 'ri"): (
        lambda: grouped(baseline="rong"),
        lambda: grouped(baseline="ring"),
    ),
    ("`equal` must be one of 'rounds', 'megabytes', 'seconds', 'messages', got", "'megabytes'"): (
        lambda: grouped(equal="megabyte"),
        lambda: grouped(equal="megabytes"),
    ),
    (
        "`equal` must be recorded by all runs, 6 of",
        "have no seconds",
        "take 'rounds', or give `hardware`",
    ): (
        lambda: grouped(equal="seconds"),
        lambda: grouped(equal="rounds"),
    ),
    "must have settings of `by`, topology": lambda: grouped(baseline={"topolgy": "ring"}),
    "must have a value of topology, ring, st": lambda: grouped(baseline={"topology": "rong"}),
    "must have a value of at least one setting, got {}": lambda: grouped(baseline={}),
    "must have settings of `by`, topology, got 1": lambda: grouped(baseline={1: "ring"}),
    "2 is a value of a and b; give {'a': 2}": lambda: of(
        *({"data.a": a, "data.b": b, "run.seed": 0} for a in (1, 2) for b in (2, 3)),
        by=["a", "b"],
        baseline=2,
    ),
    ("`baseline` must be a group, no runs have ", " together"): lambda: summarize(
        CORNERS, by=["topology", "alpha"], baseline=PLACES
    ),
    ("`baseline` must have seeds in common ", " ring has run.seed 0, 1, star has"): (
        lambda: of_seeds(ring=(0, 1), star=(2, 3)),
        lambda: of_seeds(ring=(0, 1), star=(1, 2)),
    ),
    "`target` must be between 0 and 1, got 80": (
        lambda: grouped(target=80),
        lambda: grouped(target=1),
    ),
    ("`by` must name every ", " differ in data.alpha: 0.1, 1.0"): (
        lambda: all_of("topology"),
        lambda: all_of("topology", over="alpha"),
    ),
    "differ in data.alpha: 1, 2, 3, 4; add it": lambda: summarize(of_alphas(4), by="topology"),
    "data.alpha: 1, 2, 3, 4, ... (5 values); add": lambda: summarize(of_alphas(5), by="topology"),
    "runs of a group differ in topology.size: 5, 10, -; add": (
        lambda: of_sizes("topology.name"),
        lambda: of_sizes("topology"),
    ),
    ("`columns` must be one of ", " got 'worst'"): lambda: chosen("worst"),
    "must be one of 'runs', 'std', got 'accu": lambda: chosen("runs", "std").select("accuracy"),
    ("named as in the printed table, ", " take 'accuracy'"): lambda: chosen("runs", "accuracy low"),
    ("named as in the printed table, ", " take 'std'"): lambda: chosen("accuracy std"),
    # runs
    "at least one finished run, got none; 1 run failed": lambda: summarize([FAILED]),
    "`runs` must contain at least one finished run, got none": lambda: summarize([]),
    "finished run, got none": lambda: summarize({"ring": []}),
    ("3 of 6 lack 'accuracy' (", "no score is in all runs"): lambda: summarize(OTHERS),
    "`runs` must have different runs under each name, got the same one under 'a' and 'b'": (
        lambda: summarize({"a": [of_name()], "b": [of_name()]}),
        lambda: summarize({"a": [of_name()], "b": [of_name(seed=1)]}),
    ),
    "got the same one under 'a' and 'b'": lambda: summarize({"a": of_name(), "b": copy()}),
    ("differ in a setting or a seed, ", " (1 such run)"): lambda: summarize([*RUNS, RUNS[0]]),
    "`runs['b']` must have a different seed": lambda: summarize(
        {"a": [of_name(), of_name(seed=1)], "b": [of_name(lr=1.0)] * 2}
    ),
    "its items 0 and 1 do not; leave copies out": lambda: mine(*[of_name()] * 3),
    "items 0 and 1 do not; leave copies out": lambda: mine(of_name(), copy()),
    "0 and 1 do not; leave copies out": lambda: mine(older(of_name()), older(copy())),
    "1 do not; leave copies out": lambda: mine(*[unnamed()] * 2),
    ("`runs['mine']` ", " differ in algorithm.lr: 1, 2; give"): lambda: mine(
        *(stored({"algorithm.lr": k, "run.seed": k}, 0.5) for k in (1, 2))
    ),
    ("differ in model: Sequential #", ", Other #12345678"): lambda: mine(
        of_name(), of_meta(of_name(seed=1), model="Other #12345678")
    ),
    "model.parameters: 650, 610": (
        lambda: mine(older(of_name()), older(of_name(hidden=8, seed=1))),
        lambda: mine(older(of_name()), older(of_name(seed=1))),
    ),
    ("must have seeds in common ", "data.seed 0", "data.seed 5"): lambda: summarize(
        {"a": on_data(0), "b": on_data(5, lr=1.0)}, baseline="a"
    ),
    # plots
    ("one of 'band', ", "'heat_map', got 'bands'; did you mean 'band'"): (
        lambda: summarize(runs_of()).plot("bands")
    ),
    ("`x` must be one of 'rounds', ", " got 'time'"): lambda: plot_band(runs_of(), x="time"),
    "recorded by all runs, 3 of 3 have no seconds": lambda: plot_pareto(runs_of(), x="seconds"),
    "must be one of 'interval', 'range', got 'std'": lambda: plot_nodes(runs_of(), band="std"),
    ("`by` must have two settings, ", " got ['data.alpha']"): (
        lambda: plot_heat_map(runs_of(alpha=[0.1, 1.0])),
        lambda: plot_heat_map(RUNS),
    ),
    "`runs` must have nodes with a final accuracy": lambda: plot_violin(without_scores()),
}

TYPE_ERRORS = {
    "`target` must be a number, got 'much'": lambda: grouped(target="much"),
    "`by` must be the name of a setting or a list of names, got 3": lambda: all_of(3),
    "`by` must contain names of settings, got 3": lambda: all_of([3]),
    "`column` must be the name of a score, got 3": lambda: grouped(column=3),
    ("`runs` must be runs of a sweep ", " got 3"): lambda: summarize(3),
    ("`runs` must be runs of a sweep ", " got an item 3"): lambda: summarize([3]),
    "`runs['a']` must be a History or a list of them, got 3": lambda: summarize({"a": 3}),
    "`runs['a']` must contain histories, got 3": lambda: summarize({"a": [3]}),
}

MISSING_FILES = {
    "which does not exist": lambda path: summarize(path / "none"),
    "has no history; finish it with topofl resume": unfinished,
}

CLASHES = {
    "algorithm.local.lr: 0.1, 1.0": {"lr": 1.0},
    "data.name: dirichlet_per_client(digits, n=4, alpha=1), dirichlet_per_": {"alpha": 10.0},
    "model": {"hidden": 8},
    "run.rounds: 2, 3": {"rounds": 3},
    "mixing.name: metropolis_hastings, max_degree": {"weights": mixing.max_degree},
}
"""Settings in which runs of a name differ, and what is said of them."""

SEVERAL = [
    (
        ValueError,
        ("`runs['mine']` must contain ", " differ in ", said, "; give each setting a name"),
        lambda draw=draw, other=other, seed=seed: draw(
            {"mine": [of_name(), of_name(**other, seed=seed)], "other": [of_name(lr=0.2)]}
        ),
    )
    for draw, seed in ((summarize, 0), (summarize, 1), (plot_band, 1))
    for said, other in CLASHES.items()
]
SEVERAL += [
    (ValueError, "`values` must be finite numbers, one per seed", lambda x=x: mean_interval(x))
    for x in ([], [np.nan], [1.0, np.inf], [[1.0]])
]
SEVERAL += [
    (
        TypeError,
        "`ax` must be the Axes to draw on",
        lambda draw=draw: draw(RUNS, ["topology", "alpha"], ax="here"),
    )
    for draw in KINDS.values()
]

ROWS = {ValueError: VALUE_ERRORS, TypeError: TYPE_ERRORS, FileNotFoundError: MISSING_FILES}


@pytest.mark.parametrize("row", rows(ROWS, *SEVERAL), ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
