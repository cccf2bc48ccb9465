"""What histories, their files, their plots and comparisons refuse."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import topofl
from tests.history.helpers import KINDS, RUN, ran, run_of, runs_of, scored, trained, without
from tests.refusals import named, refused
from topofl import History, algorithms, metrics, topologies
from topofl.history import Personal

X = np.zeros((4, 1, 6, 6), np.float32)
NOTHING = scored(accuracy=np.full((2, 3), np.nan))
UNEVALUATED = replace(RUN, evaluations={name: x[:0] for name, x in RUN.evaluations.items()})
STOPPED = scored(loss_before_exchange=[[2.0, 3.0], [1.0, 1.5], [np.nan] * 2])
ONE, OTHER = scored(accuracy=[[0.1], [0.5]]), scored(accuracy=[[0.2], [0.3]])


def axes(*size):
    return Figure(figsize=size, layout="constrained").subplots()


def written(path, *names):
    """Return a folder with these files and folders of somebody else."""
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("years of work")
    return path


def saved(path, *others):
    return written(ran().save(path / "run"), *others)


def linked(path):
    (path / "a").symlink_to("b")
    (path / "b").symlink_to("a")
    return path / "a"


def noting(name):
    return replace(ran(), meta={**ran().meta, name: "mine"})


def compared(histories, *args, **options):
    return topofl.compare_histories(histories, *args, **options)


def copies(path):
    run_of(algorithms.dsgd, topologies.ring(6), rounds=2).save(path / "run")
    return [History.load(path / "run") for _ in range(2)]


COLUMNS = [
    (KeyError, "did you mean 'accuracy'", lambda: ran()["acuracy"]),
    (KeyError, "; known are round, accuracy, loss, ", lambda: ran()["losses"]),
    (
        TypeError,
        "`column` must be the name of a column, such as 'accuracy', got 3",
        lambda: ran()[3],
    ),
    (
        KeyError,
        ("no column 'simulated_seconds': dsgd on ", "run algorithms.timed"),
        lambda: ran()["simulated_seconds"],
    ),
    (KeyError, ("no column 'steps': dsgd on ", "run it again"), lambda: without("steps")["steps"]),
    (ValueError, "`t` must be between -7 and 6", lambda: ran().mixing(7), lambda: ran().mixing(6)),
    (
        ValueError,
        "local_only on ring(n=6) has no mixing matrices, since its algorithm exchanges nothing",
        lambda: metrics.compare(
            [run_of(algorithms.local_only, topologies.ring(6), rounds=1)], about="all"
        ),
    ),
    (
        ValueError,
        "`score` must be one that was evaluated, 'accuracy', 'loss', got 'f1'",
        lambda: ran().column("f1"),
        lambda: ran().column("loss"),
    ),
    (
        ValueError,
        "`stage` must be one that was evaluated, '', 'before_exchange', got 'fine_tuned'",
        lambda: ran().column(stage="fine_tuned"),
    ),
    (
        ValueError,
        "`on` must be one that was evaluated, 'test', got 'own_val'",
        lambda: ran().column(on="own_val"),
    ),
    (ValueError, "`per` must be one of 'round', 'node'", lambda: ran().to_pandas(per="edge")),
]

SCORES = [
    (KeyError, ("`column`: no column 'acuracy'", "did you mean"), lambda: ran().last("acuracy")),
    (
        ValueError,
        ("`column` must have one score per node, as accuracy, loss, ", "got 'messages', which"),
        lambda: ran().personal("messages"),
    ),
    (
        KeyError,
        ("`validation`: no column ", "run with evaluation=('own_test', 'own_val')"),
        lambda: ran().best_on_validation(),
    ),
    (
        ValueError,
        "`column` must be a score, which can reach a target, such as accuracy, loss, got 'mixed'",
        lambda: scored(mixed=[[0.5]]).rounds_to(0.5, "mixed"),
    ),
    (
        ValueError,
        "`value` must be between 0 and 1, got 80",
        lambda: ran().bytes_to(80),
        lambda: ran().bytes_to(1),
    ),
    (KeyError, "no column 'acuracy'", lambda: ran().seconds_to(0.1, "acuracy")),
    (
        ValueError,
        "`values` must be one number per node, (n,), got shape (2, 3)",
        lambda: Personal.of(np.zeros((2, 3))),
    ),
]

MODELS = [
    (
        ValueError,
        ("must have models to predict", "Saving(models=True)"),
        lambda: trained(topofl.Saving(models=False), rounds=1).predict(X),
    ),
    (
        ValueError,
        "`models` must be False for a history without models, got True",
        lambda path: ran_without_models().save(path / "run", models=True),
    ),
    (
        ValueError,
        "`node` must be between 0 and 5, got 6",
        lambda: trained(rounds=1).predict(X, node=6),
        lambda: trained(rounds=1).predict(X, node=5),
    ),
    (ValueError, "`node` must be between 0", lambda: trained(rounds=1).predict(X, node=-1)),
    (
        ValueError,
        "shape (b, 1, 6, 6), got shape (1, 6, 6); for one example pass x[None]",
        lambda: trained(rounds=1).predict(X[0]),
        lambda: trained(rounds=1).predict(X[0][None]),
    ),
    (
        ValueError,
        "`x` must be examples of shape (b, 1, 6, 6), got shape (4, 36)",
        lambda: trained(rounds=1).predict(X.reshape(4, 36)),
    ),
    (ValueError, "`x` must be examples of shape", lambda: trained(rounds=1).predict(3.0)),
    (
        TypeError,
        ("`x` must be floating-point numbers, ", "got torch.uint8"),
        lambda: trained(rounds=1).predict(X.astype(np.uint8)),
    ),
    (
        ValueError,
        ("`network` must have parameters 1.weight (3, 36), ", ", got weight (2, 2)"),
        lambda: trained(rounds=1).predict(X, network=torch.nn.Linear(2, 2)),
    ),
    (
        TypeError,
        "`network` must be an nn.Module, got 'linear'",
        lambda: trained(rounds=1).predict(X, network="linear"),
    ),
    (
        ValueError,
        "`network` must be given for loaded models",
        lambda path: History.load(trained(rounds=1).save(path / "run", models=True)).predict(X),
    ),
    (
        ValueError,
        "models.pt has models in the format of an earlier version, which is not read; remove it",
        lambda path: History.load(saved(path, "models.pt")),
        lambda path: History.load(saved(path)),
    ),
]


def ran_without_models():
    return replace(ran(), models=None)


FILES = [
    (FileNotFoundError, "meta.json is missing", lambda path: History.load(path / "nothing")),
    (
        FileExistsError,
        ("run also contains chapter1.tex; ", "overwrite=True"),
        lambda path: ran().save(saved(path, "chapter1.tex")),
        lambda path: ran().save(saved(path / "other")),
    ),
    (
        FileExistsError,
        "run also contains figures (1 more); ",
        lambda path: ran().save(saved(path, "figures/accuracy.pdf", "thesis.tex")),
        lambda path: ran().save(path / "run", overwrite=True),
    ),
    (
        FileExistsError,
        ("`path` must be new or contain only an older history, ", " has no rounds.jsonl"),
        lambda path: ran().save(written(path, "meta.json")),
    ),
    (
        FileExistsError,
        ("`path` must be a folder, got the file ", "file; name another path"),
        lambda path: ran().save(written(path, "file") / "file", overwrite=True),
    ),
    (ValueError, "`path` must be the path of a folder, got an empty text", lambda: ran().save("")),
    (
        ValueError,
        "`path` must be the path of a folder, got an empty text",
        lambda: History.load(""),
    ),
    (
        ValueError,
        ("`path` must be a folder, got '", "/a', a link that leads back to itself; remove it"),
        lambda path: ran().save(linked(path)),
    ),
    (ValueError, "a link that leads back to itself", lambda path: History.load(linked(path))),
] + [
    (
        ValueError,
        ("`meta` must not have entries of the names that meta.json has for ", f", got '{name}'"),
        lambda path, name=name: noting(name).save(path / "run"),
        lambda path, name=name: noting(f"my_{name}").save(path / "run"),
    )
    for name in ("arrays", "format", "matrices", "n_rounds", "round_columns", "sha256")
]

PLOTS = [
    (
        ValueError,
        ("`x` must be a recorded cost, got 'seconds', dsgd on ", "algorithms.timed"),
        lambda: ran().plot(x="seconds"),
    ),
    (
        ValueError,
        ("got 'steps', ", " has no steps in its rounds, ", " run it again"),
        lambda: without("steps").plot(x="steps"),
    ),
    (ValueError, "`x` must be one of 'rounds'", lambda: RUN.plot(x="hours")),
    (
        ValueError,
        ("`kind` must be one of ", "'bands'", "did you mean 'band'"),
        lambda: RUN.plot(kind="bands"),
    ),
    (
        ValueError,
        "`x` must be left out for kind='violin'",
        lambda: RUN.plot(kind="violin", x="rounds"),
    ),
    (
        ValueError,
        "`at` must be left out for kind='band', got 2; it is for kind='violin'",
        lambda: RUN.plot(at=2),
    ),
    (ValueError, "`worst` must be left out for kind='band'", lambda: RUN.plot(worst=2)),
    (
        ValueError,
        ("`x` must be one of 'rounds', ", " got 'rank'; take kind='nodes' for it"),
        lambda: RUN.plot(x="rank"),
    ),
    (
        ValueError,
        ("`x` must be left out ", "; take kind='nodes' for it"),
        lambda: RUN.plot(kind="violin", x="rank"),
    ),
    (ValueError, "did you mean 'megabytes'", lambda: RUN.plot(x="megabyte")),
    (
        ValueError,
        ("`at` must be an evaluated round of ", ", 0, 1, 2, 3, got 9"),
        lambda: RUN.plot(kind="violin", at=9),
        lambda: RUN.plot(kind="violin", at=3),
    ),
    (
        ValueError,
        "with scores in 'loss_before_exchange', 0, 1, got 2",
        lambda: STOPPED.plot("loss_before_exchange", kind="violin", at=2),
    ),
    (
        ValueError,
        "`at` must be at least one evaluated round",
        lambda: RUN.plot(kind="violin", at=[]),
    ),
    (
        ValueError,
        "`at` must have at most 24 rounds, got 25",
        lambda: RUN.plot(kind="violin", at=[0] * 25),
        lambda: RUN.plot(kind="violin", at=[0] * 24),
    ),
    (
        ValueError,
        "`worst` must be at least 0",
        lambda: RUN.plot(kind="nodes", worst=-1),
        lambda: RUN.plot(kind="nodes", worst=0),
    ),
    (ValueError, "`quantiles` must ascend", lambda: RUN.plot(quantiles=(0.9, 0.1))),
    (
        ValueError,
        "`quantiles` must be between 0 and 1",
        lambda: RUN.plot(quantiles=(0.1, 1.5)),
        lambda: RUN.plot(quantiles=(0.1, 1)),
    ),
    (
        ValueError,
        "`column` must have one value per node",
        lambda: RUN.plot("train_loss", kind="nodes"),
    ),
    (TypeError, "`quantiles` must be two numbers", lambda: RUN.plot(quantiles=0.1)),
    (TypeError, "`at` must be an integer", lambda: RUN.plot(kind="violin", at="last")),
    (
        ValueError,
        "`column` must have a finite value for some node",
        lambda: NOTHING.plot(kind="violin"),
    ),
    (KeyError, "no column 'accuracy'", lambda: replace(RUN, evaluations={}).plot()),
] + [
    row
    for kind in ("band", "violin", "nodes", "pareto")
    for row in (
        (TypeError, "`ax` must be the Axes", lambda kind=kind: RUN.plot(kind=kind, ax="here")),
        (
            ValueError,
            ("`column` must have been evaluated, ", " has no evaluations"),
            lambda kind=kind: UNEVALUATED.plot(kind=kind),
        ),
    )
]

COMPARISONS = (
    [
        (ValueError, ("`histories` must be a dictionary ", ", got none"), lambda: compared({})),
        (ValueError, ("`histories` must be a dictionary ", ", got none"), lambda: compared([])),
        (TypeError, "take history.plot() for a single one", lambda: compared(RUN)),
        (TypeError, "`histories` must be a dictionary", lambda: compared("runs")),
        (TypeError, "got an item 3", lambda: compared([RUN, 3])),
        (TypeError, "`histories` must be a dictionary", lambda: compared(3)),
        (
            ValueError,
            "`histories` must have names that differ, got '1' 2 times",
            lambda: compared({1: ONE, "1": OTHER}),
            lambda: compared({1: ONE, "2": OTHER}),
        ),
        (
            ValueError,
            "got the same one as 'one' and 'other'; leave one of them out",
            lambda path: compared(dict(zip(("one", "other"), copies(path), strict=True))),
        ),
        (ValueError, ("as 'dsgd", "(1)' and 'dsgd", "(2)'"), lambda path: compared(copies(path))),
        (
            KeyError,
            "b: no column 'accuracy_knn'",
            lambda: compared({"a": scored(accuracy_knn=[[1]]), "b": ONE}, "accuracy_knn"),
        ),
        (
            ValueError,
            "b: `x` must be a recorded cost, got 'seconds'",
            lambda: compared({"b": ONE}, x="seconds"),
        ),
        (
            ValueError,
            "`ax` must be None for several groups",
            lambda: compared(runs_of(3), kind="nodes", ax=axes(6, 4)),
        ),
        (
            ValueError,
            "`ax` must be None for more than 8 groups",
            lambda: compared(runs_of(9), ax=axes(6, 4)),
            lambda: compared(runs_of(8), ax=axes(6, 6)),
        ),
        (
            ValueError,
            ("`ax` must be at least ", " inches wide for its labels, got 0."),
            lambda: compared(runs_of(4), ax=axes(1, 1)),
        ),
        (
            ValueError,
            "`ax` must have room for 4 labels, got Axes that are too small",
            lambda: compared(runs_of(4), kind="pareto", ax=axes(1, 1)),
        ),
    ]
    + [
        (
            ValueError,
            "`histories` must be different runs, got the same one as 'a' and 'c'; leave",
            lambda kind=kind, more=more: compared(
                {"a": RUN, "b": ran(), "c": RUN}, kind=kind, **more
            ),
        )
        for kind, more in KINDS
    ]
    + [
        (
            ValueError,
            "got 'consensus_distance' of b with one for all",
            lambda how=how: compared({"b": ONE}, "consensus_distance", **how),
        )
        for how in ({"kind": "nodes"}, {"kind": "nodes", "x": "rank"}, {"kind": "violin"})
    ]
    + [
        (
            ValueError,
            "finite value for some node, 'accuracy' of never has none in round 1",
            lambda how=how: compared({"never": NOTHING, "other": RUN}, **how),
        )
        for how in ({"kind": "violin"}, {"kind": "nodes", "x": "rank"}, {"kind": "pareto"})
    ]
)


def weighted(*edges):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(edges)
    return graph


HEAVY = weighted(("Zug", "Genf", 0.8), ("Bern", "Genf", 0.7))
LOOPED = weighted(("Zug", "Genf", 0.3), ("Genf", "Genf", 0.5))
TWO_WAYS = nx.complete_graph(("Zug", "Bern", "Genf"), nx.DiGraph)

LABELS = [
    (
        ValueError,
        "self-loops, got one at node Bern",
        lambda: topofl.as_topology(nx.DiGraph([("Zug", "Bern"), ("Bern", "Bern")])),
    ),
    (
        ValueError,
        "those into node Genf sum to 1.5",
        lambda: topofl.as_topology(HEAVY, own_weights=True),
    ),
    (
        ValueError,
        "into node Genf of networkx sum to 1.5",
        lambda: topofl.mixing.own_weights(topofl.as_topology(HEAVY)),
    ),
    (
        ValueError,
        "node Genf has a self-loop of 0.5",
        lambda: topofl.as_topology(LOOPED, own_weights=True),
    ),
    (
        ValueError,
        "gives 0.333333 to node ",
        lambda: topofl.mixing.from_weights(
            np.full((3, 3), 1 / 3), topofl.as_topology(TWO_WAYS)
        ).check_on(
            topofl.as_topology(nx.DiGraph([("Zug", "Bern"), ("Bern", "Zug"), ("Genf", "Zug")]))
        ),
    ),
]


@pytest.mark.parametrize(
    "row", [*LABELS, *COLUMNS, *SCORES, *MODELS, *FILES, *PLOTS, *COMPARISONS], ids=named
)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
