"""The training runs of D-Cliques' figures, by panel and arm."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from topofl.runs.identity import Run, with_options

from ..kit.figure import Arms
from ..kit.setting import Setting
from .labels import (
    ALL,
    CA,
    CLIQUES,
    EXPONENTIAL_LABEL,
    FULLY,
    INTER,
    RANDOM_CLIQUES,
    RANDOM_LABEL,
    RANDOM_MOMENTUM,
    TWO_SHARDS,
)
from .settings import Problem, problems_at_hand


def _arm(problem: Problem, setting: Setting, topology: Mapping[str, Any], **how: Any) -> list[Run]:
    """Return one run per seed; `how` as in :func:`_tables`."""
    return [Run(_tables(problem, setting, topology, seed, **how)) for seed in setting.seeds]


def _tables(
    problem: Problem,
    setting: Setting,
    topology: Mapping[str, Any],
    seed: int,
    *,
    averaging: bool = False,
    momentum: bool = False,
    partition: str = "shards",
    init: str = "common",
) -> dict[str, dict[str, Any]]:
    """Return the tables of one run."""
    per_node = {"per_node": 2} if partition == "shards" else {}
    tables = {
        "data": {
            **problem.dataset,
            "split_seed": seed,
            "partition": partition,
            "n": problem.n,
            **per_node,
            "seed": seed,
        },
        "topology": _seeded(topology, seed),
        "algorithm": {
            "name": "clique_averaging" if averaging else "dsgd",
            "lr": problem.lr,
            "batch_size": problem.batch_size,
            "momentum": problem.momentum if momentum else 0.0,
        },
        "model": {"name": problem.model},
        "run": {"rounds": problem.rounds, "init": init, "seed": seed},
        "evaluation": {"every": problem.every},
        "compute": {"device": setting.device},
    }
    return with_options(tables, problem.options)


def _seeded(topology: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a graph's table with the run's seed if the graph, or its base, takes one."""
    table = dict(topology)
    if "base" in table:
        table["base"] = _seeded(table["base"], seed)
    return (
        table
        if table["name"] in ("fully_connected", "ring", "grid", "exponential")
        else table | {"seed": seed}
    )


FULL: Mapping[str, Any] = {"name": "fully_connected"}


RING: Mapping[str, Any] = {"name": "ring"}


GRID: Mapping[str, Any] = {"name": "grid"}


EXPONENTIAL: Mapping[str, Any] = {"name": "exponential"}


RANDOM: Mapping[str, Any] = {"name": "random_regular", "k": 10}


def _cliques(
    problem: Problem, inter: str = "fully_connected", *, swaps: bool = True
) -> dict[str, Any]:
    """Return the table of D-Cliques; without `swaps` the cliques are random."""
    steps = max(1000, 10 * problem.n) if swaps else 0
    return {"name": "dcliques", "clique_size": problem.clique_size, "inter": inter, "steps": steps}


def _thinned(problem: Problem, removed: int) -> dict[str, Any]:
    """Return the table of D-Cliques with edges removed from every clique."""
    cliques = _cliques(problem)
    return {"name": "thin_cliques", "base": cliques, "removed": removed} if removed else cliques


def _usual(problem: Problem) -> dict[str, bool]:
    """Return the options of the paper's method: Clique Averaging, and momentum on CIFAR-10."""
    return {"averaging": True, "momentum": problem.name == "CIFAR-10"}


def fig01(setting: Setting) -> Arms:
    """Return D-SGD over three graphs, on IID data and on two shards per node."""
    graphs = {FULLY: FULL, "grid": GRID, "ring": RING}
    return {
        title: {
            label: _arm(problem, setting, graph, partition=partition)
            for label, graph in graphs.items()
        }
        for problem in problems_at_hand(setting, 100, "mnist")
        for title, partition in (("IID", "iid"), (TWO_SHARDS, "shards"))
    }


def fig08(setting: Setting) -> Arms:
    """Return D-Cliques with Clique Averaging, the complete graph and, on MNIST, ring and grid."""
    panels: dict[str, dict[str, Sequence[Run]]] = {
        problem.name: {**_cliques_and_complete(problem, setting)}
        for problem in problems_at_hand(setting)
    }
    if "MNIST" in panels:
        sparse = fig01(setting)[TWO_SHARDS]
        panels["MNIST"] |= {label: sparse[label] for label in ("grid", "ring")}
    return panels


def _cliques_and_complete(problem: Problem, setting: Setting) -> dict[str, list[Run]]:
    momentum = _usual(problem)["momentum"]
    return {
        FULLY: _arm(problem, setting, FULL, momentum=momentum),
        CA: _arm(problem, setting, _cliques(problem), averaging=True, momentum=momentum),
    }


def fig09(setting: Setting) -> Arms:
    """Return D-Cliques with and without Clique Averaging on MNIST."""
    return {
        problem.name: _cliques_and_complete(problem, setting)
        | {CLIQUES: _arm(problem, setting, _cliques(problem))}
        for problem in problems_at_hand(setting, 100, "mnist")
    }


def fig10(setting: Setting) -> Arms:
    """Return D-Cliques with and without Clique Averaging on CIFAR-10, without and with momentum."""
    return {
        title: {
            FULLY: _arm(problem, setting, FULL, momentum=momentum),
            CA: _arm(problem, setting, _cliques(problem), averaging=True, momentum=momentum),
            CLIQUES: _arm(problem, setting, _cliques(problem), momentum=momentum),
        }
        for problem in problems_at_hand(setting, 100, "cifar10")
        for title, momentum in (("without momentum", False), ("with momentum", True))
    }


def fig11(setting: Setting) -> Arms:
    """Return D-Cliques without Clique Averaging or momentum, and a random 10-regular graph."""
    panels = {
        problem.name: _cliques_and(problem, setting, RANDOM_LABEL, RANDOM)
        for problem in problems_at_hand(setting)
    }
    for problem in problems_at_hand(setting, 100, "cifar10"):
        panels[problem.name][RANDOM_MOMENTUM] = _arm(problem, setting, RANDOM, momentum=True)
    return panels


def fig12(setting: Setting) -> Arms:
    """Return D-Cliques without Clique Averaging or momentum, and the exponential graph."""
    return {
        p.name: _cliques_and(p, setting, EXPONENTIAL_LABEL, EXPONENTIAL)
        for p in problems_at_hand(setting)
    }


def _cliques_and(
    problem: Problem, setting: Setting, label: str, graph: Mapping[str, Any]
) -> dict[str, list[Run]]:
    return {
        CLIQUES: _arm(problem, setting, _cliques(problem)),
        label: _arm(problem, setting, graph),
    }


def fig13(setting: Setting) -> Arms:
    """Return D-Cliques of 1,000 nodes on MNIST joined in four ways, and the complete graph."""
    return _joined(problems_at_hand(setting, 1000, "mnist"), setting)


def fig14(setting: Setting) -> Arms:
    """Return the arms of figure 13 on CIFAR-10, with momentum."""
    return _joined(problems_at_hand(setting, 1000, "cifar10"), setting)


def _joined(problems: Sequence[Problem], setting: Setting) -> Arms:
    panels = {}
    for problem in problems:
        usual = _usual(problem)
        panels[problem.name] = {ALL: _arm(problem, setting, FULL, momentum=usual["momentum"])} | {
            label: _arm(problem, setting, _cliques(problem, inter), **usual)
            for label, inter in INTER.items()
        }
    return panels


def fig15(setting: Setting) -> Arms:
    """Return D-Cliques on MNIST with 0, 1 or 5 edges per clique removed."""
    return _lossy(problems_at_hand(setting, 100, "mnist"), setting)


def fig16(setting: Setting) -> Arms:
    """Return the arms of figure 15 on CIFAR-10, with momentum."""
    return _lossy(problems_at_hand(setting, 100, "cifar10"), setting)


def _lossy(problems: Sequence[Problem], setting: Setting) -> Arms:
    panels = {}
    for problem in problems:
        momentum = _usual(problem)["momentum"]
        for title, averaging in (
            ("without Clique Averaging", False),
            ("with Clique Averaging", True),
        ):
            how = {"averaging": averaging, "momentum": momentum}
            panels[title] = {FULLY: _arm(problem, setting, FULL, momentum=momentum)} | {
                f"{removed} removed": _arm(problem, setting, _thinned(problem, removed), **how)
                for removed in (0, 1, 5)
            }
    return panels


def fig19(setting: Setting) -> Arms:
    """Return D-Cliques made by Greedy-Swap, and random cliques."""
    return {
        problem.name: _cliques_and_complete(problem, setting)
        | {
            RANDOM_CLIQUES: _arm(
                problem, setting, _cliques(problem, swaps=False), **_usual(problem)
            )
        }
        for problem in problems_at_hand(setting)
    }


def reference(setting: Setting) -> Arms:
    """Return ten epochs on MNIST with independent initial models, as in the authors' simulator.

    At least 20 seeds are run, since one value of theirs is compared with the spread of ours.
    """
    if setting.scale != "smoke":
        setting = replace(setting, seeds=tuple(range(max(20, len(setting.seeds)))))
    arms = {FULLY: (FULL, False), CA: (None, True), "ring": (RING, False)}
    panels = {}
    for problem in problems_at_hand(setting, 100, "mnist"):
        short = replace(
            problem, rounds=10 * problem.every if setting.scale != "smoke" else problem.rounds
        )
        panels[problem.name] = {
            label: _arm(
                short, setting, graph or _cliques(short), averaging=averaging, init="independent"
            )
            for label, (graph, averaging) in arms.items()
        }
    return panels
