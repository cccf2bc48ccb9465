"""A study of one's own: a configuration file of an experiment, with a table ``[study]``."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from topofl import Topology, TopologySequence, algorithms, config, data
from topofl.toolkit import build_topology, parse_spec

from .graphs import GRAPHS, StudyGraph
from .scenarios import RATES, Scenario

__all__ = ["configured_scenarios"]

KEYS = ("graphs", "partitions", "algorithms", "seeds", "rates")
"""Keys of the table ``[study]``."""


def configured_scenarios(path: Path) -> Mapping[str, Scenario]:
    """Return the only scenario of a configuration file, named after the file.

    The file is one of ``topofl run`` without ``[topology]``, and has a table ``[study]``::

        [study]
        graphs = ["ring", "designed,degree=4", "graph.graphml"]  # default: those of the study
        partitions = ["shards,per_node=1", "dirichlet_per_client,alpha=0.1"]  # default: of [data]
        algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=8"]  # default: [algorithm]
        seeds = [0, 1, 2]
        rates = [0.05, 0.1, 0.2]  # of which the best on one graph is used

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError, TypeError
        If a key is unknown, a list is empty, or an experiment cannot be built.
    """
    tables = config.read(path)
    study = _checked(dict(tables.pop("study", {})), path)
    if "topology" in tables:
        raise ValueError(f"{path}: list topologies as `graphs` in [study], not in [topology]")
    batch_size = tables.get("algorithm", {}).get("batch_size", 128)
    experiment = _experiment(tables)
    scenario = Scenario(
        path.stem,
        experiment.clients.n,
        partial(_clients, tables),
        partial(_model, tables),
        partial(_algorithm, tables),
        batch_size=batch_size,
        rounds=tables["run"]["rounds"],
        evaluation=experiment.options["evaluation"],
        partitions=tuple(study.get("partitions", ["as configured"])),
        methods=tuple(study.get("algorithms", ["as configured"])),
        seeds=tuple(study.get("seeds", [0, 1, 2])),
        graphs=_graphs(study.get("graphs")),
        rates=tuple(study.get("rates", RATES)),
    )
    for partition in scenario.partitions:
        scenario.clients(partition, 0)
    for method in scenario.methods:
        scenario.method(method, scenario.rates[0])
    if "graphs" in study:
        clients = scenario.clients(scenario.partitions[0], 0)
        for graph in scenario.graphs.values():
            graph.build(clients, 0)
    return {scenario.name: scenario}


def _checked(study: dict[str, Any], path: Path) -> dict[str, Any]:
    for key, value in study.items():
        if key not in KEYS:
            raise ValueError(f"{path}: [study] must have keys of {', '.join(KEYS)}, got {key!r}")
        if not isinstance(value, list) or not value:
            raise ValueError(
                f"{path}: `{key}` in [study] must be a list with entries, got {value!r}"
            )
    return study


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
    if partition != "as configured":
        name, arguments = parse_spec(partition)
        more |= {"partition": name, **arguments}
    return _experiment(tables, data=more).clients


def _model(tables: Mapping[str, Any]) -> Any:
    return _experiment(tables).model


def _algorithm(tables: Mapping[str, Any], method: str, lr: float) -> algorithms.Algorithm:
    if method == "as configured":
        return _experiment(tables, algorithm={"lr": lr}).algorithm
    name, arguments = parse_spec(method)
    return config.build(
        {
            **tables,
            "topology": "fully_connected",
            "algorithm": {"name": name, **arguments, "lr": lr},
        }
    ).algorithm
