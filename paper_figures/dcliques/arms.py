"""The training runs of D-Cliques' figures, by panel and arm, and the labels of arms.

A problem is everything that the arms of a figure share: a dataset, its model and the settings of
section IV-A at a scale.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from topofl.runs.identity import Run, with_options

from ..kit.paper import Arms, Scale, Setting, declared

DECLARED = declared("dcliques/paper.toml")

FULLY, CLIQUES, CA = "fully-connected", "D-Cliques", "D-Cliques + CA"
RANDOM_CLIQUES = "random cliques + CA"
RANDOM_LABEL, EXPONENTIAL_LABEL, ALL = "random graph", "exponential graph", "all nodes connected"
RANDOM_MOMENTUM = f"{RANDOM_LABEL}, momentum"

INTER = {
    "fully-connected": "fully_connected",
    "small-world": "small_world",
    "fractal": "fractal",
    "ring": "ring",
}
"""Ways to join cliques, by label."""

TWO_SHARDS = "two shards a node"
"""Title under which the data of a panel of figure 1 are stored; "two shards per node" is shown."""

FULL, RING, GRID, EXPONENTIAL, RANDOM = (
    {"name": "fully_connected"},
    {"name": "ring"},
    {"name": "grid"},
    {"name": "exponential"},
    {"name": "random_regular", "k": 10},
)


def problems_at_hand(setting: Setting, n: int = 100, *only: str) -> list[Scale]:
    """Return the problems of 100 or 1,000 nodes whose data are available, or some of them."""
    return [
        _problem(setting, dataset, n)
        for dataset in DECLARED["problems"]
        if dataset in setting.datasets and dataset in (only or DECLARED["problems"])
    ]


def _problem(setting: Setting, dataset: str, n: int) -> Scale:
    """Return the settings of the paper, with those of this number of nodes and scale over them."""
    paper = DECLARED["problems"][dataset]
    problem = Scale(setting=setting)
    for settings in (paper, paper.get(setting.scale, {})):
        for layer in (settings, settings.get(str(n), {})):
            problem = problem.but(**layer)
            further = layer.get("further_differences", [])
            problem = problem.but(differences=[*problem.differences, *further])
    return problem.but(data=setting.source(problem.data))


def _arm(
    problem: Scale,
    topology: Mapping[str, Any],
    *,
    averaging: bool = False,
    momentum: bool = False,
    partition: str = "shards",
    init: str = "common",
) -> list[Run]:
    """Return one run per seed."""

    def tables(seed: int) -> dict[str, dict[str, Any]]:
        per_node = {"per_node": 2} if partition == "shards" else {}
        deal = {"split_seed": seed, "partition": partition, "n": problem.n, **per_node}
        return {
            "data": {**problem.data, **deal, "seed": seed},
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
            "compute": {"device": problem.setting.device},
        }

    seeds = problem.setting.seeds
    return [Run(with_options(tables(seed), problem.options)) for seed in seeds]


def _seeded(topology: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a graph's table with the run's seed if the graph, or its base, takes one."""
    table = dict(topology)
    if "base" in table:
        table["base"] = _seeded(table["base"], seed)
    fixed = table["name"] in ("fully_connected", "ring", "grid", "exponential")
    return table if fixed else table | {"seed": seed}


def _cliques(
    problem: Scale, inter: str = "fully_connected", *, swaps: bool = True
) -> dict[str, Any]:
    """Return the table of D-Cliques; without `swaps` the cliques are random."""
    steps = max(1000, 10 * problem.n) if swaps else 0
    return {"name": "dcliques", "clique_size": problem.clique_size, "inter": inter, "steps": steps}


def _thinned(problem: Scale, removed: int) -> dict[str, Any]:
    """Return the table of D-Cliques with edges removed from every clique."""
    cliques = _cliques(problem)
    return {"name": "thin_cliques", "base": cliques, "removed": removed} if removed else cliques


def _has_momentum(problem: Scale) -> bool:
    """Return whether the paper's method has momentum: on CIFAR-10."""
    return problem.name == "CIFAR-10"


def _cliques_and_complete(problem: Scale, momentum: bool | None = None) -> dict[str, list[Run]]:
    """Return the paper's method and the complete graph."""
    momentum = _has_momentum(problem) if momentum is None else momentum
    return {
        FULLY: _arm(problem, FULL, momentum=momentum),
        CA: _arm(problem, _cliques(problem), averaging=True, momentum=momentum),
    }


def fig01(setting: Setting) -> Arms:
    """Return D-SGD over three graphs, on IID data and on two shards per node."""
    graphs = {FULLY: FULL, "grid": GRID, "ring": RING}
    return {
        title: {label: _arm(problem, graph, partition=deal) for label, graph in graphs.items()}
        for problem in problems_at_hand(setting, 100, "mnist")
        for title, deal in (("IID", "iid"), (TWO_SHARDS, "shards"))
    }


def fig08(setting: Setting) -> Arms:
    """Return D-Cliques with Clique Averaging, the complete graph and, on MNIST, ring and grid."""
    panels = {}
    for problem in problems_at_hand(setting):
        panels[problem.name] = _cliques_and_complete(problem)
        if problem.name == "MNIST":
            panels["MNIST"] |= {"grid": _arm(problem, GRID), "ring": _arm(problem, RING)}
    return panels


def fig09(setting: Setting) -> Arms:
    """Return D-Cliques with and without Clique Averaging on MNIST."""
    return {
        problem.name: _cliques_and_complete(problem) | {CLIQUES: _arm(problem, _cliques(problem))}
        for problem in problems_at_hand(setting, 100, "mnist")
    }


def fig10(setting: Setting) -> Arms:
    """Return D-Cliques with and without Clique Averaging on CIFAR-10, without and with momentum."""
    return {
        title: _cliques_and_complete(problem, momentum)
        | {CLIQUES: _arm(problem, _cliques(problem), momentum=momentum)}
        for problem in problems_at_hand(setting, 100, "cifar10")
        for title, momentum in (("without momentum", False), ("with momentum", True))
    }


def fig11(setting: Setting) -> Arms:
    """Return D-Cliques without Clique Averaging or momentum, and a random 10-regular graph."""
    panels = _cliques_and(setting, RANDOM_LABEL, RANDOM)
    for problem in problems_at_hand(setting, 100, "cifar10"):
        panels[problem.name][RANDOM_MOMENTUM] = _arm(problem, RANDOM, momentum=True)
    return panels


def fig12(setting: Setting) -> Arms:
    """Return D-Cliques without Clique Averaging or momentum, and the exponential graph."""
    return _cliques_and(setting, EXPONENTIAL_LABEL, EXPONENTIAL)


def _cliques_and(
    setting: Setting, label: str, graph: Mapping[str, Any]
) -> dict[str, dict[str, list[Run]]]:
    return {
        problem.name: {CLIQUES: _arm(problem, _cliques(problem)), label: _arm(problem, graph)}
        for problem in problems_at_hand(setting)
    }


def _joined(setting: Setting, dataset: str) -> Arms:
    """Return D-Cliques of 1,000 nodes joined in four ways, and the complete graph."""
    panels = {}
    for problem in problems_at_hand(setting, 1000, dataset):
        momentum = _has_momentum(problem)
        panels[problem.name] = {ALL: _arm(problem, FULL, momentum=momentum)} | {
            label: _arm(problem, _cliques(problem, inter), averaging=True, momentum=momentum)
            for label, inter in INTER.items()
        }
    return panels


fig13, fig14 = (partial(_joined, dataset=name) for name in ("mnist", "cifar10"))


def _lossy(setting: Setting, dataset: str) -> Arms:
    """Return D-Cliques with 0, 1 or 5 edges per clique removed."""
    panels = {}
    for problem in problems_at_hand(setting, 100, dataset):
        momentum = _has_momentum(problem)
        for title, averaging in (
            ("without Clique Averaging", False),
            ("with Clique Averaging", True),
        ):
            how: dict[str, Any] = {"averaging": averaging, "momentum": momentum}
            panels[title] = {FULLY: _arm(problem, FULL, momentum=momentum)} | {
                f"{k} removed": _arm(problem, _thinned(problem, k), **how) for k in (0, 1, 5)
            }
    return panels


fig15, fig16 = (partial(_lossy, dataset=name) for name in ("mnist", "cifar10"))


def fig19(setting: Setting) -> Arms:
    """Return D-Cliques made by Greedy-Swap, and random cliques."""
    panels = {}
    for problem in problems_at_hand(setting):
        random, momentum = _cliques(problem, swaps=False), _has_momentum(problem)
        panels[problem.name] = _cliques_and_complete(problem) | {
            RANDOM_CLIQUES: _arm(problem, random, averaging=True, momentum=momentum)
        }
    return panels


def reference(setting: Setting) -> Arms:
    """Return ten epochs on MNIST with independent initial models, as in the authors' simulator.

    At least 20 seeds are run, since one value of theirs is compared with the spread of ours.
    """
    if setting.scale != "smoke":
        setting = replace(setting, seeds=tuple(range(max(20, len(setting.seeds)))))
    panels = {}
    for problem in problems_at_hand(setting, 100, "mnist"):
        if setting.scale != "smoke":
            problem = problem.but(rounds=10 * problem.every)
        panels[problem.name] = {
            FULLY: _arm(problem, FULL, init="independent"),
            CA: _arm(problem, _cliques(problem), averaging=True, init="independent"),
            "ring": _arm(problem, RING, init="independent"),
        }
    return panels
