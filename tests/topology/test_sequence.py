"""Sequences of graphs: periods, checks, pickling."""

import pickle

import pytest

from analysis import gallery
from tests.topology.samples import equal
from topofl import topologies
from topofl.topology import Topology, TopologySequence, as_topology, from_edges


def test_a_sequence_repeats_after_its_period() -> None:
    members = [topologies.ring(4), topologies.star(4)]
    sequence = TopologySequence(4, members.__getitem__, name="two", period=2)
    assert sequence.at(0) is sequence.at(2) is members[0]
    assert sequence.at(1) is sequence.at(5) is members[1]
    assert repr(sequence) == "TopologySequence('two', n=4, period=2)"
    endless = TopologySequence(4, lambda t: from_edges([(0, 1 + t % 3)], 4))
    assert endless.period is None
    assert endless.at(5).edge_index.tolist() == [[0, 3], [3, 0]]


def test_sequences_are_checked() -> None:
    sequence = TopologySequence(4, lambda t: topologies.ring(4 + t), name="growing")
    assert sequence.at(0).n == 4
    with pytest.raises(
        ValueError, match="every graph of growing must have n=4 nodes, round 2 has 6"
    ):
        sequence.at(2)
    with pytest.raises(ValueError, match="`t` must be at least 0, got -1"):
        sequence.at(-1)
    with pytest.raises(TypeError, match="`t` must be an integer"):
        sequence.at(0.5)  # type: ignore[arg-type]


SEQUENCES = {
    name: graphs
    for name, spec in gallery.EXAMPLES.items()
    if isinstance(graphs := gallery.example(spec), TopologySequence)
}


def two_rounds(t: int) -> Topology:
    return topologies.star(4) if t % 2 else topologies.ring(4)


@pytest.mark.parametrize(
    "sequence",
    [
        *SEQUENCES.values(),
        as_topology([topologies.ring(4), topologies.star(4)]),
        as_topology(two_rounds),
    ],
    ids=lambda sequence: sequence.name,
)
def test_sequences_that_generators_lists_and_functions_give_can_be_pickled(
    sequence: TopologySequence,
) -> None:
    before = [sequence.at(t) for t in range(4)]
    again = pickle.loads(pickle.dumps(sequence))
    assert (again.name, again.n, again.period) == (sequence.name, sequence.n, sequence.period)
    for t in reversed(range(4)):
        assert equal(again.at(t), before[t])
        assert again.at(t).name == before[t].name
        assert again.at(t).own_weights == before[t].own_weights
