"""What a run will need, before its first round: memory, messages and bytes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from topofl._check import check_choice, check_int
from topofl._table import Table
from topofl.algorithms.phase import Algorithm, Models, Rule
from topofl.data import Partition
from topofl.engine.checks import check_output, check_topology
from topofl.engine.population import Layout, Population, check_model
from topofl.engine.recorder import Ledger
from topofl.engine.world import as_rule
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologySequence

__all__ = ["Estimate", "estimate"]

SAMPLED_ROUNDS = 10
"""Rounds over which the messages of graphs without a period are averaged."""

_MIB = 2**20


@dataclass(frozen=True)
class Estimate:
    """Bytes of memory, and messages and bytes on the wire in a round.

    Parameters
    ----------
    name
        Algorithm and topology.
    n, d
        Number of nodes, and of parameters of one model.
    parameters
        Memory of all models.
    state
        Memory of what the algorithm carries from round to round, such as momentum.
    gradients
        Memory of one chunk's gradients, and of all nodes' if the algorithm mixes gradients.
    minibatches
        Memory of one chunk's gathered examples and labels.
    activations
        Memory of one chunk's outputs of all layers, twice: forward and backward.
    data
        Memory of the dataset, a byte a number if its inputs are uint8.
    messages, bytes, messages_paper, bytes_paper
        Sent by all nodes in a round, and the same as the D-Cliques paper counts them; as in :class:`topofl.History`.
    busiest_messages, busiest_bytes
        In and out of the node where they are most.
    """

    name: str
    n: int
    d: int
    parameters: int
    state: int
    gradients: int
    minibatches: int
    activations: int
    data: int
    messages: float
    bytes: float
    messages_paper: float
    bytes_paper: float
    busiest_messages: int
    busiest_bytes: int

    @property
    def total(self) -> int:
        """Memory of everything, in bytes."""
        return sum(value for _, value in self._memory())

    def _memory(self) -> list[tuple[str, int]]:
        names = ("parameters", "state", "gradients", "minibatches", "activations", "data")
        return [(name, getattr(self, name)) for name in names]

    def __str__(self) -> str:
        memory = [(name, value / _MIB) for name, value in [*self._memory(), ("total", self.total)]]
        wire = [
            ("all nodes", self.messages, self.bytes / _MIB),
            ("all nodes, as the D-Cliques paper counts", self.messages_paper, self.bytes_paper / _MIB),
            ("busiest node, in and out", self.busiest_messages, self.busiest_bytes / _MIB),
        ]
        title = f"{self.name}: n={self.n:,} models of d={self.d:,} parameters"
        tables = Table(("memory", "MiB"), tuple(memory), title), Table(("a round", "messages", "MiB"), tuple(wire))
        return "\n\n".join(map(str, tables))


def estimate(
    algorithm: Algorithm,
    *,
    model: nn.Module,
    clients: Partition,
    topology: Any = None,
    mixing: Rule | MixingMatrix | None = None,
    chunk: int | None = None,
    executor: str = "batched",
    dtype: torch.dtype = torch.float32,
) -> Estimate:
    """Return the memory that :func:`topofl.run` will need, and what nodes will send, without training.

    One round of the algorithm is played with tensors that have shapes but no memory, so that its messages are those
    that the run will record. Memory is that of the large tensors; indices, mixing matrices (n^2 numbers at most),
    evaluation and torch itself come on top, and operations that are not layers of the model are not seen.

    Parameters
    ----------
    algorithm, model, clients, topology, mixing, chunk, dtype
        As in :func:`topofl.run`. Of graphs that change, messages are means over a period (over the first 10 rounds if
        there is none), those of the busiest node the largest.
    executor
        ``"batched"``, ``"looped"``, or ``"auto"``, for which memory is that of ``"batched"``, the larger one.

    Raises
    ------
    ValueError, TypeError
        If arguments do not fit each other, as :func:`topofl.run`.

    Examples
    --------
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> need = estimate(algorithms.dsgd(lr=0.1, momentum=0.9), model=models.logistic_regression(64), clients=clients,
    ...                 topology=topologies.ring(10))
    >>> need.parameters, need.state, need.messages  # 10 models of 650 numbers of 4 bytes; 2 messages a node
    (26000, 26000, 20)
    """
    clients = clients.pooled() if algorithm.pooled else clients
    graphs = check_topology(algorithm, topology, clients.n, "allow")
    module = check_model(model).to(device="cpu", dtype=dtype)
    example = clients.dataset.examples([0], dtype).cpu()
    check_output(module, example, clients.dataset.n_classes)
    layout = Layout.of(module)
    models = Population(torch.empty(clients.n, layout.d, dtype=dtype, device="meta"), layout)
    rounds, state = _play(algorithm, models, graphs, as_rule(mixing))
    together = _nodes_together(executor, chunk, clients.n)
    width = min(max(r.batch_size for r in rounds), max(map(len, clients.train)))
    mixes_gradients = any(r.mixes_gradients for r in rounds)
    return Estimate(
        name=f"{algorithm.name} on {graphs.name}",
        n=clients.n,
        d=layout.d,
        parameters=clients.n * layout.d * dtype.itemsize,
        state=state,
        gradients=(together + clients.n * mixes_gradients) * layout.d * dtype.itemsize,
        minibatches=together * width * (example.nbytes + clients.dataset.labels.itemsize),
        activations=2 * together * width * _bytes_of_outputs(module, example),
        data=_bytes_of_data(clients.dataset.inputs, dtype) + clients.dataset.labels.nbytes,
        **_wire([r.ledger.totals(r.used) for r in rounds]),
    )


def _bytes_of_data(inputs: Tensor, dtype: torch.dtype) -> int:
    """Return the memory of all inputs: pixels stay bytes, other numbers become `dtype`."""
    return inputs.nbytes if inputs.dtype == torch.uint8 else inputs.numel() * dtype.itemsize


@dataclass(eq=False)
class _DryRound:
    """A round in which nothing is computed: it notes what the phases ask for (see ``algorithms.phase.Round``)."""

    t: int
    topology: Topology
    rule: Callable[[Topology], MixingMatrix]
    d: int
    ledger: Ledger
    batch_size: int = 0
    mixes_gradients: bool = False
    used: MixingMatrix | None = field(default=None, init=False)

    @property
    def weights(self) -> MixingMatrix:
        self.used = self.rule(self.topology)
        return self.used

    def local_sgd(
        self,
        models: Models,
        *,
        lr: float,
        batch_size: int,
        steps: int = 1,
        momentum: float = 0.0,
        velocity: Tensor | None = None,
        gradient: Rule | None = None,
    ) -> None:
        del models, lr, momentum, velocity
        self.batch_size = max(self.batch_size, batch_size)
        if gradient is not None:
            self.mixes_gradients = True
            weights = gradient(self.topology)
            for _ in range(steps):
                self.ledger.add(weights, self.d, gradients=True)

    def mix(self, weights: MixingMatrix, values: Tensor) -> None:
        self.ledger.add(weights, values.shape[1])


def _play(
    algorithm: Algorithm,
    models: Population,
    graphs: Topology | TopologySequence,
    rule: Callable[[Topology], MixingMatrix],
) -> tuple[list[_DryRound], int]:
    """Return one period of rounds (or the first ones), and the bytes of the states of all phases."""
    states = {name: phase.init(models) for name, phase in algorithm.phases.items()}
    size = sum(value.nbytes for state in states.values() for value in state.values())
    rounds = []
    for t in range(graphs.period or SAMPLED_ROUNDS):
        current = _DryRound(t, graphs.at(t), rule, models.layout.d, Ledger(models.flat.element_size()))
        for name, phase in algorithm.phases.items():
            states[name] = phase.apply(models, states[name], current)
        rounds.append(current)
    return rounds, size


def _nodes_together(executor: str, chunk: int | None, n: int) -> int:
    """Return how many nodes' gradients are computed at once."""
    check_choice("executor", executor, ["auto", "batched", "looped"])
    chunk = n if chunk is None else check_int("chunk", chunk, minimum=1)
    return 1 if executor == "looped" else min(chunk, n)


def _bytes_of_outputs(module: nn.Module, example: Tensor) -> int:
    """Return the bytes that the layers' outputs take for one example; outputs that share their input's do not count."""
    sizes = []

    def note(layer: nn.Module, inputs: Sequence[Any], output: Any) -> None:
        del layer
        known = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, Tensor)}
        outputs = [output] if isinstance(output, Tensor) else output
        new = [v for v in outputs if isinstance(v, Tensor) and v.untyped_storage().data_ptr() not in known]
        sizes.append(sum(value.nbytes for value in new))

    for layer in module.modules():
        if not list(layer.children()):
            layer.register_forward_hook(note)
    with torch.no_grad():
        module(example)
    return sum(sizes)


def _wire(totals: Sequence[dict[str, int]]) -> dict[str, Any]:
    """Return means over rounds, of the busiest node the largest; whole numbers as int."""
    columns = {name: [total[name] for total in totals] for name in totals[0]}
    means = {name: math.fsum(column) / len(column) for name, column in columns.items()}
    return {
        name: max(columns[name]) if name.startswith("busiest") else int(mean) if mean.is_integer() else mean
        for name, mean in means.items()
    }
