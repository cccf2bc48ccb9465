"""Pictures of graphs in reports, without their names."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from topofl import topologies
from topofl.report.figures import picture


def test_picture_of_a_graph():
    drawn = picture(topologies.ring(5).renamed("hidden"))
    assert drawn.description == "5 nodes and 5 undirected edges."
    assert "hidden" not in drawn.figure.axes[0].get_title()


def test_groups_and_labels_are_shown():
    counts = np.eye(4, dtype=int)[np.arange(8) % 4]
    drawn = picture(topologies.dcliques(label_counts=counts, clique_size=4, seed=0), counts)
    assert drawn.description.endswith("in 2 groups.")
    assert drawn.figure.axes[0].get_legend() is not None


def test_picture_of_a_sequence():
    before = plt.get_fignums()
    drawn = picture(topologies.one_peer_exponential(16))
    assert drawn.description == "Rounds 0 to 3 of a period of 4, 16 nodes."
    assert len(drawn.figure.axes) == 4
    assert (
        picture(topologies.random_out(6, 2, seed=0)).description
        == "Rounds 0 to 5 without a period, 6 nodes."
    )
    assert plt.get_fignums() == before


@pytest.mark.slow
def test_large_graphs_are_drawn_as_matrices():
    drawn = picture(topologies.ring(100_000))
    assert "Drawn: adjacency" in drawn.description
    assert len(drawn.figure.axes[0].images) == 1
