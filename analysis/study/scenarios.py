"""The scenarios of the study: datasets, partitions, models, methods and training budgets."""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from torch import nn

from topofl import (
    Compute,
    Evaluation,
    Topology,
    TopologyError,
    TopologySequence,
    algorithms,
    config,
    data,
    models,
    topologies,
)
from topofl.config.toml import TABLES
from topofl.data import Partition
from topofl.runs.identity import digest_of
from topofl.toolkit import build_topology, parse_spec

Graph = Topology | TopologySequence
Builder = Callable[[Partition, int], Graph]


@dataclass(frozen=True)
class StudyGraph:
    """A graph of the study.

    Parameters
    ----------
    name, family
        Label in tables and pages, and the family that is held out as a whole.
    build
        ``build(clients, seed)`` returns the graph.
    """

    name: str
    family: str
    build: Builder


def _plain(function: Callable[..., Graph], *args: Any, **options: Any) -> Builder:
    """Return the builder of a generator that takes the number of nodes."""
    return lambda clients, seed: function(clients.n, *args, **options)


def _seeded(function: Callable[..., Graph], *args: Any, **options: Any) -> Builder:
    """Return the builder of a random generator."""
    return lambda clients, seed: function(clients.n, *args, **options, seed=seed)


def _from_labels(function: Callable[..., Graph], **options: Any) -> Builder:
    """Return the builder of a generator that takes label counts and a seed."""
    return lambda clients, seed: function(clients, **options, seed=seed)


def _erdos_renyi(degree: int) -> Builder:
    def build(clients: Partition, seed: int) -> Graph:
        return topologies.erdos_renyi(clients.n, min(1.0, degree / (clients.n - 1)), seed=seed)

    return build


def _swapped(degree: int) -> Builder:
    def build(clients: Partition, seed: int) -> Graph:
        return topologies.neighborhood_swap(clients, degree, seed=seed)

    return build


def _learned(degree: int) -> Builder:
    return lambda clients, seed: topologies.stl_fw(clients, degree)


def _failing(clients: Partition, seed: int) -> Graph:
    torus = topologies.torus(clients.n)
    return topologies.link_failures(torus, fail=0.1, recover=0.5, seed=seed)


def _directed_design(clients: Partition, seed: int) -> Graph:
    return topologies.designed_directed(clients, 4)


def _cliques(size: int, inter: str) -> Builder:
    return _from_labels(topologies.dcliques, clique_size=size, inter=inter)


_FAMILIES: Mapping[str, Mapping[str, Builder]] = {
    "classic": {
        "complete": _plain(topologies.fully_connected),
        "ring": _plain(topologies.ring),
        "path": _plain(topologies.path),
        "torus": _plain(topologies.torus),
        "grid": _plain(topologies.grid),
        "tree": _plain(topologies.tree),
        "star": _plain(topologies.star),
        "circulant 1-2": _plain(topologies.circulant, [1, 2]),
        "circulant 1-5": _plain(topologies.circulant, [1, 2, 3, 4, 5]),
    },
    "random": {
        **{
            f"{degree}-regular": _seeded(topologies.random_regular, degree)
            for degree in (3, 4, 6, 10, 16)
        },
        "Erdos-Renyi 6": _erdos_renyi(6),
        "Erdos-Renyi 10": _erdos_renyi(10),
        "small world 4": _seeded(topologies.small_world, 4, 0.1),
        "small world 6": _seeded(topologies.small_world, 6, 0.3),
        "Barabasi-Albert 2": _seeded(topologies.barabasi_albert, 2),
        "Barabasi-Albert 4": _seeded(topologies.barabasi_albert, 4),
    },
    "exponential": {
        "exponential": _plain(topologies.exponential),
        "exponential directed": _plain(topologies.exponential, directed=True),
        "D-EquiStatic 4": _seeded(topologies.d_equistatic, 4),
        "U-EquiStatic 4": _seeded(topologies.u_equistatic, 4),
    },
    "D-Cliques": {
        f"D-Cliques {size} {inter}": _cliques(size, inter)
        for size, inter in (
            (5, "ring"),
            (5, "small_world"),
            (10, "ring"),
            (10, "fractal"),
            (10, "small_world"),
            (10, "fully_connected"),
            (20, "ring"),
            (20, "fully_connected"),
        )
    },
    "learned": {
        **{f"STL-FW {degree}": _learned(degree) for degree in (3, 5, 10)},
        "swapped 4": _swapped(4),
        "swapped 10": _swapped(10),
        "designed 4": _from_labels(topologies.designed, degree=4),
        "designed 10": _from_labels(topologies.designed, degree=10),
        "designed directed 4": _directed_design,
    },
    "time-varying": {
        "one-peer exponential": _plain(topologies.one_peer_exponential),
        "base graph 1": _plain(topologies.base_graph, 1),
        "random matching": _seeded(topologies.random_matching),
        "torus in turns": lambda clients, seed: topologies.matchings(topologies.torus(clients.n)),
        "3-regular anew": _seeded(topologies.random_regular_sequence, 3),
        "failing torus": _failing,
        "random out 3": _seeded(topologies.random_out, 3),
    },
}

GRAPHS: Mapping[str, StudyGraph] = {
    name: StudyGraph(name, family, build)
    for family, members in _FAMILIES.items()
    for name, build in members.items()
}
"""All graphs of the study by name; some do not exist for every number of nodes."""


def build_graph(graph: StudyGraph, clients: Partition, seed: int) -> Graph | str:
    """Return the graph, or the reason why there is none for these clients."""
    try:
        return graph.build(clients, seed)
    except (ValueError, TopologyError) as error:
        return str(error)


RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Learning rates that are tried."""

Method = Callable[[float, int], algorithms.Algorithm]

METHODS: Mapping[str, Method] = {
    "D-SGD": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch),
    "momentum": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch, momentum=0.9),
    "local steps": lambda lr, batch: algorithms.dsgd(lr, batch_size=batch, local_steps=5),
    "Clique Averaging": lambda lr, batch: algorithms.clique_averaging(lr, batch_size=batch),
    "gradient tracking": lambda lr, batch: algorithms.dsgt(lr, batch_size=batch),
    "D2": lambda lr, batch: algorithms.d2(lr, batch_size=batch),
    "push-sum": lambda lr, batch: algorithms.osgp(lr, batch_size=batch),
    "DFedPGP": lambda lr, batch: algorithms.dfedpgp(lr, head_lr=lr, batch_size=batch, epochs=1),
}
"""Methods of the study: ``method(lr, batch_size)``."""

PARTITIONS: Mapping[str, Callable[..., data.Partition]] = {
    "1 class": partial(data.shards, per_node=1),
    "2 shards": partial(data.shards, per_node=2),
    "Dirichlet 0.1": partial(data.dirichlet_per_client, alpha=0.1),
    "Dirichlet 0.3": partial(data.dirichlet_per_client, alpha=0.3),
    "Dirichlet 1": partial(data.dirichlet_per_client, alpha=1.0),
    "iid": data.iid,
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
    settings: str = ""

    def rates_of(self, method: str) -> tuple[float, ...]:
        """Return the learning rates that are tried for a method; the only one is used as it is."""
        return (self.chosen_rates[method],) if method in self.chosen_rates else self.rates


def _digits(root: Path | None, enlarge: int = 1) -> data.Dataset:
    return data.digits(enlarge=enlarge)


def _folder(root: Path | None, name: str) -> Path:
    if root is None:
        raise ValueError(f"`--data` must name a folder with the folder {name}, got none")
    return root / name


def read_mnist(root: Path | None) -> data.Dataset:
    """Return MNIST, from `root` or a folder below."""
    return data.mnist(_folder(root, "mnist").parent)


def read_cifar(root: Path | None) -> data.Dataset:
    """Return the CIFAR-10 subset from a folder of `root`, averaged to 16 x 16 pixels."""
    # The subset has other checksums than the whole dataset. Averaging saves three quarters of time.
    return data.cifar10(_folder(root, "cifar10-subset"), verify=False, downscale=2)


def _own_tests(clients: data.Partition, seed: int) -> data.Partition:
    return data.match_test(clients, rule="disjoint", seed=seed)


def _keep(clients: data.Partition, seed: int) -> data.Partition:
    return clients


@dataclass(frozen=True)
class _Source:
    """Return the partitions of a dataset, which is read when it is first needed."""

    dataset: Callable[[Path | None], data.Dataset]
    root: Path | None
    n: int
    edit: Callable[[data.Partition, int], data.Partition] = _keep

    def __call__(self, partition: str, seed: int) -> data.Partition:
        dataset = _read_once(self.dataset, self.root)
        return self.edit(PARTITIONS[partition](dataset, n=self.n, seed=seed), seed)


@cache
def _read_once(dataset: Callable[[Path | None], data.Dataset], root: Path | None) -> data.Dataset:
    return dataset(root)


def _scenario(name: str, source: _Source, **changes: Any) -> Scenario:
    """Return a scenario with the usual settings, which are those of the digits."""
    batch_size = changes.pop("batch_size", 8)
    every, on = changes.pop("every", 4), changes.pop("on", "test")
    usual: dict[str, Any] = {
        "model": partial(models.logistic_regression, 64),
        "rounds": 120,
        "partitions": ("2 shards",),
        "methods": ("D-SGD",),
    }
    return Scenario(
        name,
        source.n,
        source,
        method=lambda method, lr: METHODS[method](lr, batch_size),
        batch_size=batch_size,
        evaluation=Evaluation(every=every, on=on),
        **usual | changes,
    )


def default_scenarios(root: Path | None = None) -> Mapping[str, Scenario]:
    """Return the scenarios of the study by name; datasets are read from folders of `root`."""
    scenarios = (*_on_digits(root), *_on_mnist(root), *_of_networks(root))
    return {scenario.name: scenario for scenario in scenarios}


def _on_digits(root: Path | None) -> Iterator[Scenario]:
    few, some, many = (_Source(_digits, root, n) for n in (30, 60, 200))
    four = ("D-SGD", "momentum", "local steps", "gradient tracking")
    yield _scenario("digits 60", some, partitions=tuple(PARTITIONS), methods=four)
    yield _scenario("digits 60, other methods", some, methods=("D2", "push-sum"))
    yield _scenario("digits 60, Clique Averaging", some, methods=("Clique Averaging",))
    yield _scenario("digits 30", few)
    yield _scenario("digits 200", many, batch_size=4)


def _on_mnist(root: Path | None) -> Iterator[Scenario]:
    usual = {"model": partial(models.logistic_regression, 784)}
    some = {"batch_size": 128, "rounds": 80, "partitions": ("2 shards", "Dirichlet 0.1")}
    yield _scenario("MNIST 100", _Source(read_mnist, root, 100), **usual, **some)
    many = {"batch_size": 13, "rounds": 400, "every": 40, "seeds": (0,)}
    yield _scenario("MNIST 1000", _Source(read_mnist, root, 1000), **usual, **many)


def _of_networks(root: Path | None) -> Iterator[Scenario]:
    yield _scenario(
        "digits 16 x 16, DFedPGP",
        _Source(partial(_digits, enlarge=2), root, 30, _own_tests),
        model=partial(models.dpfl_cnn, (1, 16, 16)),
        batch_size=16,
        rounds=60,
        on="own_test",
        partitions=("Dirichlet 0.3",),
        methods=("DFedPGP",),
        seeds=(0,),
    )
    yield _scenario(
        "CIFAR-10 subset, GN-LeNet",
        _Source(read_cifar, root, 30),
        model=partial(models.gn_lenet, (3, 16, 16)),
        batch_size=16,
        rounds=150,
        every=15,
        methods=("momentum",),
        seeds=(0,),
    )


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


def _clients_of_tables(tables: Mapping[str, Any], partition: str, seed: int) -> data.Partition:
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


TUNING_SEED = 100
"""Seed with which the learning rate is chosen, on the random 4-regular graph; not reported."""


@dataclass(frozen=True)
class Source:
    """Where the scenarios come from; small, since it is sent to every process.

    Parameters
    ----------
    root
        Folder of the data.
    config
        Configuration file of a study of one's own; None: the scenarios of this study.
    """

    root: Path | None = None
    config: Path | None = None

    def scenario(self, name: str) -> Scenario:
        """Return the scenario of a name."""
        return scenarios_of(self)[name]


@cache
def scenarios_of(source: Source) -> dict[str, Scenario]:
    """Return the scenarios of a source by name."""
    if source.config is not None:
        return dict(configured_scenarios(source.config))
    return dict(default_scenarios(source.root))


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


TUNING_GRAPH = "4-regular"
"""Graph on which the learning rate is chosen."""


def arguments(source: Source, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :func:`topofl.run` for a cell and a learning rate.

    Raises
    ------
    TopologyError
        If there is no such graph for these clients.
    """
    cell: Cell = point["cell"]
    scenario, clients = source.scenario(cell.scenario), clients_of(cell, source)
    graph = graph_of(cell, clients, source)
    if isinstance(graph, str):
        raise TopologyError(graph)
    return {
        "algorithm": scenario.method(cell.method, point["lr"]),
        "model": scenario.model(),
        "clients": clients,
        "topology": graph,
        "rounds": scenario.rounds,
        "evaluation": scenario.evaluation,
        "compute": Compute(device="cpu", on_disconnected="allow"),
        "seed": cell.seed,
    }


@cache
def about(source: Source, name: str) -> list[Any]:
    """Return what determines the results of a scenario apart from the cell, as JSON values."""
    scenario = source.scenario(name)
    dataset = scenario.clients(scenario.partitions[0], TUNING_SEED).dataset
    numbers = [scenario.n, scenario.batch_size, scenario.rounds, scenario.evaluation.every]
    return [*numbers, scenario.evaluation.on, scenario.settings, digest_of(dataset, splits=False)]
