"""A study of one's own: a configuration file of an experiment, with a table ``[study]``."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from topofl import Topology, TopologySequence, algorithms, config, data
from topofl.config.toml import TABLES
from topofl.toolkit import build_topology, parse_spec

from .graphs import GRAPHS, StudyGraph
from .scenarios import RATES, Scenario

__all__ = ["configured_scenarios"]


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
        partial(_clients, tables),
        partial(_model, tables),
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
    return {spec: StudyGraph(spec, parse_spec(spec).name, partial(_graph, spec)) for spec in specs}


def _graph(spec: str, clients: data.Partition, seed: int) -> Topology | TopologySequence:
    """Return the graph of a spec; a random one is drawn with the seed of the cell."""
    name, arguments = parse_spec(spec)
    built = build_topology(name, arguments, clients.label_counts)
    if "seed" in built.arguments and "seed" not in arguments:
        built = build_topology(name, {**arguments, "seed": seed}, clients.label_counts)
    return built.value


def _experiment(tables: Mapping[str, Any], **changes: Any) -> config.Experiment:
    changed = {name: {**tables.get(name, {}), **more} for name, more in changes.items()}
    return config.build({**tables, "topology": "fully_connected", **changed})


def _clients(tables: Mapping[str, Any], partition: str, seed: int) -> data.Partition:
    more: dict[str, Any] = {"seed": seed}
    if partition != AS_CONFIGURED:
        name, arguments = parse_spec(partition)
        more |= {"partition": name, **arguments}
    return _experiment(tables, data=more).clients


def _model(tables: Mapping[str, Any]) -> Any:
    return _experiment(tables).model


def _algorithm(tables: Mapping[str, Any], method: str, lr: float) -> algorithms.Algorithm:
    if method == AS_CONFIGURED:
        return _experiment(tables, algorithm={"lr": lr}).algorithm
    name, arguments = parse_spec(method)
    return config.build(
        {
            **tables,
            "topology": "fully_connected",
            "algorithm": {"name": name, **arguments, "lr": lr},
        }
    ).algorithm
