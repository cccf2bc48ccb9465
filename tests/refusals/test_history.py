"""What histories, their files, their plots and comparisons refuse."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from tests.history.helpers import RUN, ran, run_of, runs_of, scored, trained, without
from tests.refusals import named, refused, rows
from topofl import History, algorithms, as_topology, compare_histories, metrics, mixing, topologies
from topofl.engine.options import OPTIONAL_COLUMNS
from topofl.history import Personal

X = np.zeros((4, 1, 6, 6), np.float32)
NOTHING = scored(accuracy=np.full((2, 3), np.nan))
UNEVALUATED = replace(RUN, evaluations={name: x[:0] for name, x in RUN.evaluations.items()})
LEFT_OUT = replace(
    RUN,
    meta=RUN.meta | {"evaluation": {"without": ["consensus_distance"]}},
    evaluations=RUN.evaluations | dict.fromkeys(OPTIONAL_COLUMNS, RUN.evaluations["round"] * 1.0),
)
STOPPED = scored(loss_before_exchange=[[2.0, 3.0], [1.0, 1.5], [np.nan] * 2])
ONE, OTHER = scored(accuracy=[[0.1], [0.5]]), scored(accuracy=[[0.2], [0.3]])


def without_exchange():
    return run_of(algorithms.local_only, topologies.ring(6), rounds=1)


def predicted(x=X, node=None, **how):
    return trained(rounds=1).predict(x, node, **how)


def loaded(path):
    return History.load(trained(rounds=1).save(path / "run", models=True))


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


def numbered(path):
    """Return a saved history whose meta.json is a number."""
    (saved(path) / "meta.json").write_text("3")
    return path / "run"


def noting(name):
    return replace(ran(), meta={**ran().meta, name: "mine"})


def violin(at):
    return RUN.plot(kind="violin", at=at)


def drawn(count, *size, **how):
    """Compare runs on axes of a size."""
    ax = Figure(figsize=size, layout="constrained").subplots()
    return compare_histories(runs_of(count), ax=ax, **how)


def copies(path):
    run_of(algorithms.dsgd, topologies.ring(6), rounds=2).save(path / "run")
    return [History.load(path / "run") for _ in range(2)]


def weighted(*edges):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(edges)
    return graph


HEAVY = weighted(("Zug", "Genf", 0.8), ("Bern", "Genf", 0.7))
LOOPED = weighted(("Zug", "Genf", 0.3), ("Genf", "Genf", 0.5))

KEY_ERRORS = {
    "did you mean 'accuracy'": lambda: ran()["acuracy"],
    "; known are round, accuracy, loss, ": lambda: ran()["losses"],
    ("'simulated_seconds': dsgd on ", "run algorithms.timed"): lambda: ran()["simulated_seconds"],
    ("no column 'steps': dsgd on ", "run it again"): lambda: without("steps")["steps"],
    ("`column`: no column 'acuracy'", "did you mean"): lambda: ran().last("acuracy"),
    ("`validation`: no column ", "=('own_test', 'own_val')"): lambda: ran().best_on_validation(),
    "no column 'acuracy'": lambda: ran().seconds_to(0.1, "acuracy"),
    "no column 'accuracy'": lambda: replace(RUN, evaluations={}).plot(),
    "b: no column 'f1'": lambda: compare_histories({"a": scored(f1=[[1]]), "b": ONE}, "f1"),
}

TYPE_ERRORS = {
    "`column` must be the name of a column, such as 'accuracy', got 3": lambda: ran()[3],
    ("`x` must be floating-point numbers, ", "uint8"): lambda: predicted(X.astype(np.uint8)),
    "`network` must be an nn.Module, got 'linear'": lambda: predicted(network="linear"),
    "`quantiles` must be two numbers": lambda: RUN.plot(quantiles=0.1),
    "`at` must be an integer": lambda: violin("last"),
    "`ax` must be the Axes": lambda: RUN.plot(ax="here"),
    "take history.plot() for a single one": lambda: compare_histories(RUN),
    "`histories` must be a dictionary of histories by name, or a": lambda: compare_histories(
        "runs"
    ),
    "`histories` must be a dictionary": lambda: compare_histories(3),
    "got an item 3": lambda: compare_histories([RUN, 3]),
}

VALUE_ERRORS = {
    "`t` must be between -7 and 6": (lambda: ran().mixing(7), lambda: ran().mixing(6)),
    ("local_only on ring(n=6) has no mixing matrices, ", "exchanges nothing; leave it out"): (
        lambda: metrics.compare([without_exchange()], about="all")
    ),
    "`score` must be one that was evaluated, 'accuracy', 'loss', got": lambda: ran().column("f1"),
    "`stage` must be one that was evaluated, '', 'before_": lambda: ran().column(stage="knn"),
    "`on` must be one that was evaluated, 'test', got 'val'": lambda: ran().column(on="val"),
    "`per` must be one of 'round', 'node'": lambda: ran().to_pandas(per="edge"),
    ("have one score per node, as accuracy, loss, ", "got 'bytes', "): lambda: ran().last("bytes"),
    "`column` must be a score, which can reach a target, such as accuracy, loss, got 'mixed'": (
        lambda: scored(mixed=[[0.5]]).rounds_to(0.5, "mixed")
    ),
    "`value` must be between 0 and 1, got 80": lambda: ran().bytes_to(80),
    "`values` must be one number per node, (n,), got shape (2, 3)": (
        lambda: Personal.of(np.zeros((2, 3)))
    ),
    # models
    ("must have models to predict", "Saving(models=True)"): lambda: RUN.predict(X),
    "`models` must be False for a history without models, got True": (
        lambda path: RUN.save(path / "run", models=True)
    ),
    "`node` must be between 0 and 5, got 6": (lambda: predicted(node=6), lambda: predicted(node=5)),
    "shape (b, 1, 6, 6), got shape (1, 6, 6); for one example pass x[None]": (
        lambda: predicted(X[0])
    ),
    "`x` must be examples of shape": lambda: predicted(3.0),
    ("`network` must have parameters 1.weight (3, 36), ", ", got weight (2, 2)"): (
        lambda: predicted(network=torch.nn.Linear(2, 2))
    ),
    "`network` must be given for loaded models": lambda path: loaded(path).predict(X),
    "models.pt has models in the format of an earlier version, which is not read; remove it": (
        lambda path: History.load(saved(path, "models.pt"))
    ),
    # files
    "expected a JSON object, got int": lambda path: History.load(numbered(path)),
    "must be the path of a folder, got an empty text": lambda: ran().save(""),
    "`path` must be the path of a folder, got an empty text": lambda: History.load(""),
    ("must be a folder, got '", "/a', a link that leads back to itself; remove it"): (
        lambda path: ran().save(linked(path))
    ),
    "a link that leads back to itself": lambda path: History.load(linked(path)),
    # plots
    ("`x` must be one of 'rounds'", "did you mean 'megabytes'"): lambda: RUN.plot(x="megabyte"),
    ("be a recorded cost, got 'seconds', dsgd ", "algorithms.timed"): (
        lambda: ran().plot(x="seconds")
    ),
    ("'steps', ", " has no steps in its rounds, "): lambda: without("steps").plot(x="steps"),
    ("`kind` must be one of ", "'bands'; did you mean 'band'"): lambda: RUN.plot(kind="bands"),
    "`x` must be left out for kind='violin'": lambda: RUN.plot(kind="violin", x="rounds"),
    "`at` must be left out for kind='band', got 2; it is for kind='violin'": lambda: RUN.plot(at=2),
    ("one of 'rounds', ", " got 'rank'; take kind='nodes' for it"): lambda: RUN.plot(x="rank"),
    ("`x` must be left out ", "='nodes' for it"): lambda: RUN.plot(kind="violin", x="rank"),
    ("`at` must be an evaluated round of ", "0, 1, 2, 3, got 9"): lambda: violin(9),
    "with scores in 'loss_before_exchange', 0, 1, got 2": (
        lambda: STOPPED.plot("loss_before_exchange", kind="violin", at=2)
    ),
    "`at` must be at least one evaluated round": lambda: violin([]),
    "`at` must have at most 24 rounds, got 25": (
        lambda: violin([0] * 25),
        lambda: violin([0] * 24),
    ),
    "`worst` must be at least 0": lambda: RUN.plot(kind="nodes", worst=-1),
    "`quantiles` must ascend": (
        lambda: RUN.plot(quantiles=(0.9, 0.1)),
        lambda: RUN.plot(quantiles=(0.1, 0.1)),
    ),
    "`quantiles` must be between 0 and 1": lambda: RUN.plot(quantiles=(0.1, 1.5)),
    "`column` must have one value per node": lambda: RUN.plot("train_loss", kind="nodes"),
    "`column` must have a finite value for some node": lambda: NOTHING.plot(kind="violin"),
    ("`column` must have been evaluated, ", " has no evaluations"): lambda: UNEVALUATED.plot(),
    ("`column` must have been computed, ", " left out 'consensus_distance' by Evaluation(wit"): (
        lambda: LEFT_OUT.plot("consensus_distance"),
        lambda: LEFT_OUT.plot("gradient_diversity"),
    ),
    # comparisons
    ("`histories` must be a dictionary ", ", got none"): lambda: compare_histories({}),
    "`histories` must have names that differ, got '1' 2 times": (
        lambda: compare_histories({1: ONE, "1": OTHER})
    ),
    "`histories` must be different runs, got the same one as 'a' and 'c'; leave one of them out": (
        lambda: compare_histories({"a": RUN, "b": ran(), "c": RUN})
    ),
    ("as 'dsgd", "(1)' and 'dsgd", "(2)'"): lambda path: compare_histories(copies(path)),
    "b: `x` must be a recorded cost, got 'seconds'": (
        lambda: compare_histories({"b": ONE}, x="seconds")
    ),
    "`ax` must be None for several groups": lambda: drawn(3, 6, 4, kind="nodes"),
    "`ax` must be None for more than 8 groups": (lambda: drawn(9, 6, 6), lambda: drawn(8, 6, 6)),
    ("`ax` must be at least ", " inches wide for its labels, got 0."): lambda: drawn(4, 1, 1),
    "`ax` must have room for 4 labels, got Axes that are": lambda: drawn(4, 1, 1, kind="pareto"),
    "'accuracy' of never has none in round 1": (
        lambda: compare_histories({"never": NOTHING, "other": RUN}, kind="pareto")
    ),
    # labels of nodes
    "self-loops, got one at node Bern": lambda: as_topology(nx.DiGraph([("Bern", "Bern")])),
    "those into node Genf sum to 1.5": lambda: as_topology(HEAVY, own_weights=True),
    "node Genf of networkx sum to 1.5": lambda: mixing.own_weights(as_topology(HEAVY)),
    "node Genf has a self-loop of 0.5": lambda: as_topology(LOOPED, own_weights=True),
} | {
    f"of the names that meta.json has for other things, got '{name}'": (
        lambda path, name=name: noting(name).save(path / "run")
    )
    for name in ("arrays", "format", "matrices", "n_rounds", "round_columns", "sha256")
}

MISSING_FILES = {"meta.json is missing": lambda path: History.load(path / "nothing")}

EXISTING_FILES = {
    ("run also contains chapter1.tex; ", "overwrite=True"): (
        lambda path: ran().save(saved(path, "chapter1.tex"))
    ),
    "run also contains figures (1 more); ": (
        lambda path: ran().save(saved(path, "figures/accuracy.pdf", "thesis.tex"))
    ),
    ("`path` must be new or contain only an older history, ", " has no rounds.jsonl"): (
        lambda path: ran().save(written(path, "meta.json"))
    ),
    ("`path` must be a folder, got the file ", "file; name another path"): (
        lambda path: ran().save(written(path, "file") / "file", overwrite=True)
    ),
}

ROWS = {
    **{KeyError: KEY_ERRORS, TypeError: TYPE_ERRORS, ValueError: VALUE_ERRORS},
    **{FileNotFoundError: MISSING_FILES, FileExistsError: EXISTING_FILES},
}


@pytest.mark.parametrize("row", rows(ROWS), ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
