"""The scenarios of the study: datasets, partitions, models, methods and training budgets."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from torch import nn

from topofl import (
    Compute,
    Evaluation,
    TopologyError,
    algorithms,
    config,
    data,
    topologies,
)
from topofl.config.toml import TABLES
from topofl.runs.identity import digest_of
from topofl.toolkit import parse_spec

from ..program import declared
from .graphs import DECLARED, GRAPHS, Graph, StudyGraph, build_graph, declared_graphs, graph_of_spec
from .learned import dataset_of, model_of

RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Learning rates that are tried."""

TUNING_SEED = 100
"""Seed with which the learning rate is chosen, on the random 4-regular graph; not reported."""

TUNING_GRAPH = "4-regular"
"""Graph on which the learning rate is chosen."""

Method = Callable[[float, int], algorithms.Algorithm]


def _method(spec: str) -> Method:
    name, arguments = parse_spec(spec)

    def build(lr: float, batch_size: int) -> algorithms.Algorithm:
        own = {"head_lr": lr} if name == "dfedpgp" else {}
        return getattr(algorithms, name)(lr, batch_size=batch_size, **arguments, **own)

    return build


METHODS: Mapping[str, Method] = {name: _method(spec) for name, spec in DECLARED["methods"].items()}
"""Methods of the study: ``method(lr, batch_size)``."""

PARTITIONS: Mapping[str, Callable[..., data.Partition]] = {
    name: partial(getattr(data, spec.name), **spec.arguments)
    for name, spec in zip(
        DECLARED["partitions"], map(parse_spec, DECLARED["partitions"].values()), strict=True
    )
}
"""Partitions of the study: ``partition(dataset, n=, seed=)``."""


@dataclass(frozen=True)
class Scenario:
    """A dataset, a model, a number of nodes and a training budget.

    Parameters
    ----------
    name
        Label in tables.
    n
        Number of nodes.
    clients
        ``clients(partition, seed)`` returns the partition of a name.
    model
        Returns the model.
    method
        ``method(name, lr)`` returns the algorithm of a name.
    batch_size, rounds, evaluation
        Examples per minibatch (of gradient statistics), rounds, and when what is evaluated.
    partitions, methods, seeds
        Names, and the seeds that are reported.
    graphs
        Graphs by name.
    rates
        Learning rates that are tried.
    chosen_rates
        Learning rates by method that are used without trying others.
    tuned_on, tuning_seeds
        Graph on which, and seeds with which, learning rates are chosen; None: on each graph itself.
    executor
        Executor of the engine; results agree up to rounding.
    settings
        Text that differs if runs of other settings must not be mixed with those of this scenario.
    """

    name: str
    n: int
    clients: Callable[[str, int], data.Partition]
    model: Callable[[], nn.Module]
    method: Callable[[str, float], algorithms.Algorithm]
    batch_size: int
    rounds: int
    evaluation: Evaluation
    partitions: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    graphs: Mapping[str, StudyGraph] = field(default_factory=lambda: GRAPHS)
    rates: tuple[float, ...] = RATES
    chosen_rates: Mapping[str, float] = field(default_factory=dict)
    tuned_on: str | None = TUNING_GRAPH
    tuning_seeds: tuple[int, ...] = (TUNING_SEED,)
    executor: str = "auto"
    settings: str = ""

    def rates_of(self, method: str) -> tuple[float, ...]:
        """Return the learning rates that are tried for a method; the only one is used as it is."""
        return (self.chosen_rates[method],) if method in self.chosen_rates else self.rates


def default_scenarios(
    root: Path | None = None, tables: Mapping[str, Any] = DECLARED
) -> Mapping[str, Scenario]:
    """Return the scenarios of a study by name.

    Parameters
    ----------
    root
        Folder of the folders of datasets.
    tables
        What the study declares: families of graphs, what its scenarios have in common, and each of
        them. A scenario may choose among the graphs and families by ``graphs``.
    """
    usual = tables["usual"]
    return {
        name: _scenario(name, usual | own, tables["graphs"], root)
        for name, own in tables["scenarios"].items()
    }


def _chosen_graphs(own: Mapping[str, Any], families: Mapping[str, Any]) -> dict[str, StudyGraph]:
    """Return the graphs that a scenario chooses by their names and by those of families."""
    changes = {key: own[key] for key in ("absent", "epsilon") if key in own}
    every = declared_graphs(families, **changes)
    chosen = own.get("graphs", families)
    return {
        name: graph for name, graph in every.items() if name in chosen or graph.family in chosen
    }


def _scenario(
    name: str, own: Mapping[str, Any], families: Mapping[str, Any], root: Path | None
) -> Scenario:
    def clients(partition: str, seed: int) -> data.Partition:
        found = PARTITIONS[partition](dataset_of(own["data"], root), n=own["n"], seed=seed)
        is_own = own["on"] == "own_test"
        return data.match_test(found, rule="disjoint", seed=seed) if is_own else found

    return Scenario(
        name,
        own["n"],
        clients,
        model=partial(model_of, own["model"]),
        method=lambda method, lr: METHODS[method](lr, own["batch_size"]),
        batch_size=own["batch_size"],
        rounds=own["rounds"],
        evaluation=Evaluation(every=own["every"], on=own["on"]),
        partitions=tuple(own["partitions"]),
        methods=tuple(own["methods"]),
        seeds=tuple(own["seeds"]),
        graphs=_chosen_graphs(own, families),
        rates=tuple(own.get("rates", RATES)),
        tuned_on=own.get("tuned_on", TUNING_GRAPH) or None,
        tuning_seeds=tuple(own.get("tuning_seeds", [TUNING_SEED])),
        executor=own.get("executor", "auto"),
        settings=json.dumps({key: own[key] for key in _FURTHER if key in own}) * ("rates" in own),
    )


_FURTHER = ("data", "model", "executor", "absent", "epsilon")
"""What determines the runs of declared scenarios of other studies, apart from numbers."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


KEYS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "graphs": ("specs such as 'ring'", _is_text),
    "partitions": ("specs such as 'shards,per_node=2'", _is_text),
    "algorithms": ("specs such as 'dsgd,batch_size=8'", _is_text),
    "seeds": ("integers of at least 0", _is_seed),
    "rates": ("positive numbers", _is_rate),
}
"""Keys of the table ``[study]``: what their lists have, and whether an entry is such."""

AS_CONFIGURED = "as configured"
"""Name of the only partition or method if the table names none."""

FEWEST_NODES = 6

EVALUATIONS = 20
"""Evaluations of a run whose file does not say how many: the first half is its learning phase."""


def configured_scenarios(path: Path) -> Mapping[str, Scenario]:
    """Return the only scenario of a configuration file, named after the file.

    The file is one of ``topofl run`` without ``[topology]``, and has a table ``[study]``. Without
    ``[evaluation]``, there are 20 evaluations::

        [study]
        graphs = ["ring", "designed,degree=4", "graph.graphml"]  # default: those of the study
        partitions = ["shards,per_node=1", "dirichlet_per_client,alpha=0.1"]  # default: of [data]
        algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=8"]  # default: [algorithm]
        seeds = [0, 1, 2]
        rates = [0.05, 0.1, 0.2]  # of which the best on one graph is used; default: lr of
                                  # the entry of algorithms, or of [algorithm]

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError, TypeError
        If a key is unknown, a list is empty or has an entry twice, batch sizes differ, there are
        fewer than 6 nodes, scores are evaluated too rarely, or an experiment or a graph cannot be
        built. The message starts with the path.
    """
    tables = config.read(path)
    try:
        return _scenarios(tables, path.stem)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {error}") from error


def _scenarios(contents: Mapping[str, Any], name: str) -> Mapping[str, Scenario]:
    """Return the scenario of the contents of a file, by its name."""
    tables = {
        name: _as_table(table) if name in ("data", "algorithm") else table
        for name, table in contents.items()
    }
    study = _checked(tables.pop("study", {}))
    for table in tables:
        if table not in TABLES and difflib.get_close_matches(table, ["study"]):
            raise ValueError(f"there is no table [{table}]; did you mean [study]?")
    if "topology" in tables:
        raise ValueError("list topologies as `graphs` in [study], not in [topology]")
    tables = _often_evaluated(tables)
    experiment = _experiment(tables)
    methods = tuple(study.get("algorithms", [AS_CONFIGURED]))
    scenario = Scenario(
        name,
        experiment.clients.n,
        partial(_clients_of_tables, tables),
        lambda: _experiment(tables).model,
        partial(_algorithm, tables),
        batch_size=_batch_size(tables, methods),
        rounds=experiment.options["rounds"],
        evaluation=experiment.options["evaluation"],
        partitions=tuple(study.get("partitions", [AS_CONFIGURED])),
        methods=methods,
        seeds=tuple(study.get("seeds", [0, 1, 2])),
        graphs=_graphs(study.get("graphs")),
        rates=tuple(study.get("rates", RATES)),
        chosen_rates={} if "rates" in study else _chosen_rates(tables, methods),
        settings=json.dumps(tables, sort_keys=True, default=str),
    )
    _build_all(scenario, own_graphs="graphs" in study)
    return {scenario.name: scenario}


def _often_evaluated(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables with evaluations in the first half of the rounds, the learning phase."""
    rounds = tables.get("run", {}).get("rounds")
    if not isinstance(rounds, int):
        return dict(tables)
    chosen = tables.get("evaluation")
    if chosen is None:
        return {**tables, "evaluation": {"every": max(1, rounds // EVALUATIONS)}}
    every = chosen.get("every", rounds) if isinstance(chosen, Mapping) else chosen
    if isinstance(every, int) and 2 * every > rounds > 1:
        raise ValueError(
            f"`every` in [evaluation] must be at most half of `rounds`, {rounds // 2}, got "
            f"{every}: outcomes include the mean accuracy over the first half of the rounds"
        )
    return dict(tables)


def _as_table(table: Any) -> Any:
    """Return a table as it is, and text such as ``"dsgd,lr=0.1"`` as a table."""
    if not isinstance(table, str):
        return table
    name, arguments = parse_spec(table)
    return {"name": name, **arguments}


def _checked(study: Any) -> dict[str, Any]:
    """Return the table ``[study]`` if all of its lists have different entries of the right type."""
    if not isinstance(study, dict):
        raise ValueError(f"[study] must be a table, got {study!r}")
    for key, value in study.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"[study] must have keys of {', '.join(KEYS)}, got {key!r}{meant}")
        what, is_right = KEYS[key]
        right = isinstance(value, list) and value and all(map(is_right, value))
        if not right or len(set(value)) < len(value):
            raise ValueError(
                f"`{key}` in [study] must be a list of different {what}, got {value!r}"
            )
    return study


def _build_all(scenario: Scenario, *, own_graphs: bool) -> None:
    """Build what all runs need, so that mistakes show before the first one."""
    if scenario.n < FEWEST_NODES:
        raise ValueError(
            f"`n` in [data] must be at least {FEWEST_NODES}, got {scenario.n}, since "
            "learning rates are chosen on a random 4-regular graph"
        )
    clients = [scenario.clients(partition, scenario.seeds[0]) for partition in scenario.partitions]
    for method in scenario.methods:
        scenario.method(method, scenario.rates_of(method)[0])
    for graph in scenario.graphs.values() if own_graphs else ():
        graph.build(clients[0], scenario.seeds[0])


def _chosen_rates(tables: Mapping[str, Any], methods: Sequence[str]) -> dict[str, float]:
    """Return the learning rates that the file gives, by method; those without one are tuned."""
    found = {}
    for method in methods:
        own = {} if method == AS_CONFIGURED else parse_spec(method).arguments
        lr = own.get("lr", tables["algorithm"].get("lr"))
        if lr is None:
            continue
        if not _is_rate(lr):
            raise ValueError(
                f"`lr` must be a positive number without `rates` in [study], got {lr!r}; give "
                "`rates`, of which the best is used"
            )
        found[method] = float(lr)
    return found


def _batch_size(tables: Mapping[str, Any], methods: Sequence[str]) -> int:
    """Return the batch size of all methods, which gradient statistics use too."""
    usual = tables["algorithm"].get("batch_size", 128)
    specs = [parse_spec(method) for method in methods if method != AS_CONFIGURED]
    sizes = {spec.arguments.get("batch_size", 128) for spec in specs} or {usual}
    if len(sizes) > 1:
        raise ValueError(
            f"`algorithms` in [study] must have one batch size, got "
            f"{', '.join(map(str, sorted(sizes)))}; study them in files of their own"
        )
    return sizes.pop()


def _graphs(specs: Sequence[str] | None) -> Mapping[str, StudyGraph]:
    if specs is None:
        return GRAPHS
    return {
        spec: StudyGraph(spec, parse_spec(spec).name, partial(graph_of_spec, spec))
        for spec in specs
    }


def _experiment(tables: Mapping[str, Any], **changes: Any) -> config.Experiment:
    changed = {name: {**tables.get(name, {}), **more} for name, more in changes.items()}
    return config.build({**tables, "topology": "fully_connected", **changed})


def _clients_of_tables(tables: Mapping[str, Any], partition: str, seed: int) -> data.Partition:
    more: dict[str, Any] = {"seed": seed}
    if partition != AS_CONFIGURED:
        name, arguments = parse_spec(partition)
        more |= {"partition": name, **arguments}
    return _experiment(tables, data=more).clients


def _algorithm(tables: Mapping[str, Any], method: str, lr: float) -> algorithms.Algorithm:
    if method == AS_CONFIGURED:
        return _experiment(tables, algorithm={"lr": lr}).algorithm
    name, arguments = parse_spec(method)
    own = {"topology": "fully_connected", "algorithm": {"name": name, **arguments, "lr": lr}}
    return config.build({**tables, **own}).algorithm


@dataclass(frozen=True)
class Source:
    """Where the scenarios come from; small, since it is sent to every process.

    Parameters
    ----------
    root
        Folder of the data.
    config
        Configuration file of a study of one's own; None: the scenarios of this study.
    study
        Name of another study, which declares its scenarios in ``studies.toml``; empty: this one.
    preset
        Which of its scenarios and seeds: ``"smoke"``, the scenario of this name; ``"quick"``, three
        seeds of all others; ``"full"``, all seeds of these.
    """

    root: Path | None = None
    config: Path | None = None
    study: str = ""
    preset: str = "full"

    def scenario(self, name: str) -> Scenario:
        """Return the scenario of a name."""
        found = scenarios_of(self)[name]
        return replace(found, seeds=found.seeds[:3]) if self.preset == "quick" else found

    def free(self) -> list[str]:
        """Return the names of the scenarios of the preset whose data are given."""
        on_digits = ("digits", "smoke")
        return [name for name in self._names() if self.root or name.startswith(on_digits)]

    def left_out(self) -> int:
        """Return the number of scenarios of the preset whose data are not given."""
        return len(self._names()) - len(self.free())

    def _names(self) -> list[str]:
        known = scenarios_of(self)
        return [name for name in known if (name == "smoke") == (self.preset == "smoke")]


@cache
def scenarios_of(source: Source) -> dict[str, Scenario]:
    """Return the scenarios of a source by name."""
    if source.config is not None:
        return dict(configured_scenarios(source.config))
    tables = declared(source.study) if source.study else DECLARED
    return dict(default_scenarios(source.root, tables))


@dataclass(frozen=True)
class Cell:
    """A graph trained in a scenario: what one run needs."""

    scenario: str
    partition: str
    method: str
    seed: int
    graph: str


def cells(scenario: Scenario) -> list[Cell]:
    """Return all cells of a scenario."""
    return [
        Cell(scenario.name, partition, method, seed, graph)
        for partition in scenario.partitions
        for method in scenario.methods
        for seed in scenario.seeds
        for graph in scenario.graphs
    ]


def clients_of(cell: Cell, source: Source) -> data.Partition:
    """Return the partition of a cell."""
    return _clients(source, cell.scenario, cell.partition, cell.seed)


@lru_cache(maxsize=2)  # the graphs of a cell are computed one after the other
def _clients(source: Source, scenario: str, partition: str, seed: int) -> data.Partition:
    return source.scenario(scenario).clients(partition, seed)


def graph_of(cell: Cell, clients: data.Partition, source: Source) -> Graph | str:
    """Return the graph of a cell, or the reason why there is none for these clients."""
    if cell.graph == TUNING_GRAPH:
        return topologies.random_regular(clients.n, 4, seed=cell.seed)
    return build_graph(source.scenario(cell.scenario).graphs[cell.graph], clients, cell.seed)


@lru_cache(maxsize=1)  # the learning rates of a cell are tried one after the other
def _graph(source: Source, cell: Cell) -> Graph | str:
    return graph_of(cell, clients_of(cell, source), source)


def arguments(source: Source, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :func:`topofl.run` for a cell and a learning rate.

    Raises
    ------
    TopologyError
        If there is no such graph for these clients.
    """
    cell: Cell = point["cell"]
    scenario, clients = source.scenario(cell.scenario), clients_of(cell, source)
    graph = _graph(source, replace(cell, method=""))
    if isinstance(graph, str):
        raise TopologyError(graph)
    return {
        "algorithm": scenario.method(cell.method, point["lr"]),
        "model": scenario.model(),
        "clients": clients,
        "topology": graph,
        "rounds": scenario.rounds,
        "evaluation": scenario.evaluation,
        "compute": Compute(device="cpu", on_disconnected="allow", executor=scenario.executor),
        "seed": cell.seed,
    }


@cache
def about(source: Source, name: str) -> list[Any]:
    """Return what determines the results of a scenario apart from the cell, as JSON values."""
    scenario = source.scenario(name)
    dataset = scenario.clients(scenario.partitions[0], TUNING_SEED).dataset
    numbers = [scenario.n, scenario.batch_size, scenario.rounds, scenario.evaluation.every]
    return [*numbers, scenario.evaluation.on, scenario.settings, digest_of(dataset, splits=False)]
