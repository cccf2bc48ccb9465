"""What summaries of runs, and their plots, refuse."""

from dataclasses import replace

import numpy as np
import pytest

import topofl
from tests.refusals import named, refused
from tests.summary.samples import of_name, runs_of, stored
from topofl import mixing, summarize
from topofl.runs import Failure
from topofl.summary import plot_band, plot_heat_map, plot_nodes, plot_pareto, plot_violin
from topofl.summary.figures import KINDS
from topofl.summary.verdicts import mean_interval

SEVERAL = runs_of(topology=["ring", "star"], alpha=[0.1, 1.0])


def by_topology(**how):
    return summarize(runs_of(topology=["ring", "star"]), by="topology", **how)


def with_settings(*settings):
    return [stored(one, 0.5) for one in settings]


def of_alphas(**topologies):
    """Return runs of each topology with its alphas."""
    return [
        run for name, alphas in topologies.items() for run in runs_of(topology=[name], alpha=alphas)
    ]


def of_seeds(**seeds):
    """Return runs of each topology with its seeds."""
    return [
        stored({"topology.name": name, "run.seed": seed}, 0.5)
        for name, own in seeds.items()
        for seed in own
    ]


def unnamed(final):
    scores = {"round": np.array([0]), "accuracy": np.full((1, 2), final)}
    return topofl.History({}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))


def without_scores():
    runs = runs_of(seeds=2)
    runs[1].history.evaluations["accuracy"][-1] = np.nan
    return runs


def stored_folder(path):
    (path / "config.toml").write_text("")
    return path


def sizes():
    runs = [{"topology.name": "dcliques", "topology.size": size, "run.seed": 0} for size in (5, 10)]
    return with_settings(*runs, {"topology.name": "ring", "run.seed": 0})


def older(history):
    """Return a history as versions wrote it that did not record partition and model."""
    meta = {key: x for key, x in history.meta.items() if key not in ("partition", "model")}
    return replace(history, meta=meta)


VALUES = (
    [
        (
            ValueError,
            ("`by` must name settings ", " got 'topolgy'; did you mean 'topology'"),
            lambda: summarize(SEVERAL, by="topolgy"),
        ),
        (
            ValueError,
            ("`by` must name settings ", " got 'alfa'; did you mean 'alpha'"),
            lambda: summarize(SEVERAL, by=["alfa"]),
        ),
        (
            ValueError,
            "'name' may be any of data.name, topology.name; give the full name",
            lambda: summarize(SEVERAL, by="name"),
        ),
        (
            ValueError,
            "`over` must name settings of the runs, got 'alfa'",
            lambda: by_topology(over="alfa"),
        ),
        (
            ValueError,
            "`column` must be one of 'accuracy', got 'acuracy'; did you mean",
            lambda: by_topology(column="acuracy"),
        ),
        (
            ValueError,
            ("`baseline` must be among the groups, ", " 'rong'; did you mean 'ri"),
            lambda: by_topology(baseline="rong"),
            lambda: by_topology(baseline="ring"),
        ),
        (
            ValueError,
            "`baseline` must have settings of `by`, topology",
            lambda: by_topology(baseline={"topolgy": "ring"}),
        ),
        (
            ValueError,
            "`baseline` must have a value of topology, ring, st",
            lambda: by_topology(baseline={"topology": "rong"}),
        ),
        (
            ValueError,
            "`baseline` must have a value of at least one setting, got {}",
            lambda: by_topology(baseline={}),
        ),
        (
            ValueError,
            "`baseline` must have settings of `by`, topology, got 1",
            lambda: by_topology(baseline={1: "ring"}),
        ),
        (
            ValueError,
            "2 is a value of a and b; give {'a': 2}",
            lambda: summarize(
                with_settings(
                    *({"data.a": a, "data.b": b, "run.seed": 0} for a in (1, 2) for b in (2, 3))
                ),
                by=["a", "b"],
                baseline=2,
            ),
        ),
        (
            ValueError,
            ("`baseline` must be a group, no runs have ", " together"),
            lambda: summarize(
                of_alphas(ring=[0.1], star=[1.0]),
                by=["topology", "alpha"],
                baseline={"topology": "ring", "alpha": 1.0},
            ),
        ),
        (
            ValueError,
            ("`baseline` must have seeds in common ", " ring has run.seed 0, 1, star has"),
            lambda: summarize(of_seeds(ring=(0, 1), star=(2, 3)), by="topology", baseline="ring"),
            lambda: summarize(of_seeds(ring=(0, 1), star=(1, 2)), by="topology", baseline="ring"),
        ),
        (
            ValueError,
            "`target` must be between 0 and 1, got 80",
            lambda: by_topology(target=80),
            lambda: by_topology(target=1),
        ),
        (
            ValueError,
            "`target` must be between 0 and 1, got nan",
            lambda: by_topology(target=float("nan")),
        ),
        (
            TypeError,
            "`target` must be a number, got 'much'",
            lambda: summarize(SEVERAL, target="much"),
        ),
        (
            TypeError,
            "`by` must be the name of a setting or a list of names, got 3",
            lambda: summarize(SEVERAL, by=3),
        ),
        (
            TypeError,
            "`by` must contain names of settings, got 3",
            lambda: summarize(SEVERAL, by=[3]),
        ),
        (
            TypeError,
            "`column` must be the name of a score, got 3",
            lambda: summarize(SEVERAL, column=3),
        ),
        (
            ValueError,
            ("`by` must name every ", " differ in data.alpha: 0.1, 1.0"),
            lambda: summarize(SEVERAL, by="topology"),
            lambda: summarize(SEVERAL, by="topology", over="alpha"),
        ),
        (
            ValueError,
            "runs of a group differ in topology.size: 5, 10, -; add",
            lambda: summarize(sizes(), by="topology.name"),
            lambda: summarize(sizes(), by="topology"),
        ),
        (
            ValueError,
            ("`columns` must be one of ", " got 'worst'"),
            lambda: summarize(runs_of()).select(["worst"]),
        ),
        (
            ValueError,
            "`columns` must be one of 'runs', 'std', got 'acc",
            lambda: summarize(runs_of()).select(["runs", "std"]).select(["accuracy"]),
        ),
        (
            ValueError,
            "`columns` must be one of 'runs', 'std', got 'acc",
            lambda: summarize(runs_of()).select(["runs", "std"]).table.select(["accuracy"]),
        ),
    ]
    + [
        (
            ValueError,
            ("`columns` must be named as in the printed table, ", f" take '{printed}'"),
            lambda wrong=name: summarize(runs_of()).select(wrong),
            lambda right=printed: summarize(runs_of()).select(right),
        )
        for name, printed in {
            "accuracy low": "accuracy",
            "accuracy std": "std",
            "worst node std": "worst node",
        }.items()
    ]
    + [
        (
            ValueError,
            "`values` must be finite numbers, one per seed",
            lambda wrong=wrong: mean_interval(wrong),
        )
        for wrong in ([], [np.nan], [1.0, np.inf], [[1.0]])
    ]
)

RUNS = (
    [
        (TypeError, ("`runs` must be runs of a sweep ", " got 3"), lambda: summarize(3)),
        (TypeError, ("`runs` must be runs of a sweep ", " got an item 3"), lambda: summarize([3])),
        (
            TypeError,
            "`runs['a']` must be a History or a list of them, got 3",
            lambda: summarize({"a": 3}),
        ),
        (TypeError, "`runs['a']` must contain histories, got 3", lambda: summarize({"a": [3]})),
        (
            ValueError,
            "`runs` must contain at least one finished run, got none; 1 run failed",
            lambda: summarize([Failure("0", {"run": {"seed": 7}}, "ValueError: no")]),
        ),
        (
            ValueError,
            ("3 of 6 lack 'accuracy' (", "no score is in all runs"),
            lambda: summarize(
                [*runs_of(topology=["ring"]), *runs_of(topology=["star"], low_is_good=True)]
            ),
        ),
        (
            ValueError,
            "`runs` must have different runs under each name, got the same one under 'a' and 'b'",
            lambda: summarize({"a": [of_name()], "b": [of_name()]}),
            lambda: summarize({"a": [of_name()], "b": [of_name(seed=1)]}),
        ),
        (
            ValueError,
            "got the same one under 'a' and 'b'",
            lambda: summarize({"a": of_name(), "b": replace(of_name(), meta=dict(of_name().meta))}),
        ),
        (
            ValueError,
            ("must differ in a setting or a seed, ", " (1 such run)"),
            lambda: summarize([*SEVERAL, SEVERAL[0]]),
        ),
        (
            ValueError,
            "`runs['b']` must have a different seed",
            lambda: summarize({"a": [of_name(), of_name(seed=1)], "b": [of_name(lr=1.0)] * 2}),
        ),
        (
            ValueError,
            "its items 0 and 1 do not; leave copies out",
            lambda: summarize({"mine": [of_name()] * 2}),
        ),
        (
            ValueError,
            "its items 0 and 1 do not; leave copies out",
            lambda: summarize({"mine": [of_name()] * 3}),
        ),
        (
            ValueError,
            "its items 0 and 1 do not",
            lambda: summarize({"a": [of_name(), of_name.__wrapped__()]}),
        ),
        (
            ValueError,
            "its items 0 and 1 do not",
            lambda: summarize({"a": [older(of_name()), older(of_name.__wrapped__())]}),
        ),
        (ValueError, "its items 0 and 1 do not", lambda: summarize({"ring": [unnamed(0.5)] * 2})),
        (FileNotFoundError, "which does not exist", lambda path: summarize(path / "none")),
        (
            FileNotFoundError,
            "has no history; finish it with topofl resume",
            lambda path: summarize(stored_folder(path)),
        ),
        (
            ValueError,
            ("`runs['mine']` ", " differ in algorithm.lr: 1, 2; give"),
            lambda: summarize(
                {"mine": with_settings(*({"algorithm.lr": k, "run.seed": k} for k in (1, 2)))}
            ),
        ),
        (
            ValueError,
            "differ in model: Sequential #",
            lambda: summarize(
                {
                    "mine": [
                        of_name(),
                        replace(
                            of_name(seed=1),
                            meta=of_name(seed=1).meta | {"model": "Other #12345678"},
                        ),
                    ]
                }
            ),
        ),
        (
            ValueError,
            "model.parameters: 650, 610",
            lambda: summarize({"mine": [older(of_name()), older(of_name(hidden=8, seed=1))]}),
            lambda: summarize({"mine": [older(of_name()), older(of_name(seed=1))]}),
        ),
        (
            ValueError,
            ("must have seeds in common ", "data.seed 0", "data.seed 5"),
            lambda: summarize(
                {
                    "a": [of_name(), of_name(seed=1)],
                    "b": [of_name(of_data=5, lr=1.0), of_name(of_data=5, lr=1.0, seed=1)],
                },
                baseline="a",
            ),
        ),
    ]
    + [
        (
            ValueError,
            "`runs` must contain at least one finished run, got none",
            lambda runs=runs: summarize(runs),
        )
        for runs in ([], {}, (), {"ring": []})
    ]
    + [
        (
            ValueError,
            ("`runs['mine']` must contain ", " differ in ", message, "; give each setting a name"),
            lambda draw=draw, other=other, seed=seed: draw(
                {"mine": [of_name(), of_name(**other, seed=seed)], "other": [of_name(lr=0.2)]}
            ),
        )
        for draw, seed in ((summarize, 0), (summarize, 1), (plot_band, 1))
        for other, message in (
            ({"lr": 1.0}, "algorithm.local.lr: 0.1, 1.0"),
            (
                {"alpha": 10.0},
                "data.name: dirichlet_per_client(digits, n=4, alpha=1), dirichlet_per_",
            ),
            ({"hidden": 8}, "model"),
            ({"rounds": 3}, "run.rounds: 2, 3"),
            ({"weights": mixing.max_degree}, "mixing.name: metropolis_hastings, max_degree"),
        )
    ]
)

PLOTS = [
    (
        ValueError,
        ("`kind` must be one of 'band', ", "'heat_map', got 'bands'; did you mean 'band'"),
        lambda: summarize(runs_of()).plot("bands"),
    ),
    (
        ValueError,
        ("`x` must be one of 'rounds', ", " got 'time'"),
        lambda: plot_band(runs_of(), x="time"),
    ),
    (
        ValueError,
        "`x` must be recorded by all runs, 3 of 3 have no seconds",
        lambda: plot_pareto(runs_of(), x="seconds"),
    ),
    (
        ValueError,
        "`band` must be one of 'interval', 'range', got 'std'",
        lambda: plot_nodes(runs_of(), band="std"),
    ),
    (
        ValueError,
        ("`by` must have two settings, ", " got ['data.alpha']"),
        lambda: plot_heat_map(runs_of(alpha=[0.1, 1.0])),
    ),
    (
        ValueError,
        "`runs` must have nodes with a final accuracy",
        lambda: plot_violin(without_scores()),
    ),
] + [
    (
        TypeError,
        "`ax` must be the Axes to draw on",
        lambda draw=draw: draw(SEVERAL, ["topology", "alpha"], ax="here"),
    )
    for draw in KINDS.values()
]


@pytest.mark.parametrize("row", [*VALUES, *RUNS, *PLOTS], ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
