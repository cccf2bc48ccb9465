"""Titles of graphs and runs for readers."""

import pytest

from topofl import topologies
from topofl.report.pages import title_of


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (topologies.ring(9).name, "Ring, 9 nodes"),
        (topologies.erdos_renyi(9, 0.5, seed=1).name, "Erdős-Rényi, 9 nodes, p 0.5, seed 1"),
        ("pfedgraph over ring(n=4)", "pFedGraph over ring, 4 nodes"),
        (
            "dpfl over ring(n=4), 2 attackers (sign_flip)",
            "DPFL over ring, 4 nodes, 2 attackers (sign_flip)",
        ),
        ("link_failures(torus(n=9), fail=0.1)", "Link failures, torus (9 nodes), fail 0.1"),
        ("f(base=ring(n=4), loops=True, own=False)", "F, base ring (4 nodes), loops, no own"),
        ("dcliques(label_counts[50x10], inter='ring')", "D-Cliques, 50 nodes, inter ring"),
        ("ring", "ring"),
        ("my graph (new)", "my graph (new)"),
        ("", ""),
        ("f(", "f("),
    ],
)
def test_titles(name, title):
    assert title_of(name) == title
