"""Train a small language model over a graph, then adapt it to other topics: all of it, or adapters.

``python -m analysis.adapters`` cuts the sources of modules of Python's standard library into
sequences of bytes; each module is a topic. Nodes with one topic each train a transformer of 26,000
parameters over D-Cliques. The model of the first node is then adapted to other topics, which nodes
hold in the same way: by D-SGD on all parameters, and on low-rank adapters alone, which then are all
that is sent (decentralized LoRA), over each graph. It prints the perplexity on text of all topics,
and the bytes that were sent. ``--preset smoke`` takes few topics and rounds.
"""

import importlib
import inspect
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import topofl
from topofl import Evaluation, Table, algorithms, data, models, tasks, topologies

from .program import parser_of

LENGTH = 32
"""Bytes that the model sees at once."""

RANK = 4
"""Rank of the adapters."""


PER_TOPIC = 2
"""Nodes per topic."""

PRESETS: dict[str, tuple[str, str, int, int, int]] = {
    "full": (
        "argparse ast calendar csv difflib gettext locale zipfile",
        "inspect subprocess tarfile textwrap threading typing uuid pickle",
        *(12_000, 60, 30),
    ),
    "smoke": ("argparse csv", "typing uuid", 4000, 2, 2),
}
"""Topics before and after, bytes of a topic, and rounds of both parts, by name."""


class LanguageModel(nn.Module):
    """A transformer of one layer that predicts the next byte; see :data:`LENGTH`."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(LENGTH, width)
        self.block = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.1, batch_first=True
        )
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))
        self.register_buffer("order", torch.arange(LENGTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (b, LENGTH, 256)."""
        inputs = self.tokens(x) + self.places(self.order)
        return self.head(self.block(inputs, src_mask=self.mask, is_causal=False))


def clients_of(topics: Sequence[str], size: int) -> data.Partition:
    """Return nodes with sequences of one topic each."""
    with tempfile.TemporaryDirectory() as folder:
        for name in topics:
            source = inspect.getsource(importlib.import_module(name))
            Path(folder, f"{name}.txt").write_text(source[:size], encoding="utf-8")
        dataset = data.text_files(folder, length=LENGTH, test=0.2)
    return data.shards(dataset, len(topics) * PER_TOPIC, per_node=1, seed=0)


def trained(
    network: nn.Module, clients: data.Partition, graph: topofl.Topology, rounds: int, init: str
) -> topofl.History:
    """Return the history of D-SGD with momentum and four local steps a round."""
    return topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=16, momentum=0.9, local_steps=4),
        model=network,
        clients=clients,
        topology=graph,
        rounds=rounds,
        seed=0,
        task=tasks.next_token(),
        evaluation=Evaluation(every=rounds),
        init=init,
    )


def graphs_of(clients: data.Partition) -> list[topofl.Topology]:
    """Return the graphs that are compared: the last is D-Cliques, each with all topics."""
    return [
        topologies.ring(clients.n),
        topologies.fully_connected(clients.n),
        topologies.dcliques(clients.label_counts, clique_size=clients.n_classes, seed=0),
    ]


def study(preset: str) -> Table:
    """Return a row for each graph and each way to adapt the model."""
    *topics, size, learned, adapted = PRESETS[preset]
    before, after = (clients_of(names.split(), size) for names in topics)
    start = trained(LanguageModel(), before, graphs_of(before)[-1], learned, "common")
    assert start.models is not None  # since runs keep them
    network = start.models.module(0)
    rows = []
    for graph in graphs_of(after):
        ways = {"all parameters": network, "adapters": models.lora(network, rank=RANK)}
        for way, own in ways.items():
            found = trained(own, after, graph, adapted, "given")
            perplexity = found["perplexity"]
            rows.append({
                "graph": graph.name.partition("(")[0],
                "trained": way,
                "parameters": found.meta["parameters"],
                "MB sent": round(float(found.rounds["bytes"].sum()) / 1e6, 2),
                "perplexity before": round(float(perplexity[0].mean()), 2),
                "after": round(float(perplexity[-1].mean()), 2),
                "worst node": round(float(perplexity[-1].max()), 2),
            })  # fmt: skip
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the study; returns the exit code."""
    parser = parser_of("adapters", __doc__, preset=("full", "settings", tuple(PRESETS)))
    print(study(parser.parse_args(argv).preset))
    return 0


if __name__ == "__main__":
    sys.exit(main())
