"""Batching of graphs as data gives the gradients of models one after another."""

from analysis import graph_data
from analysis.graph_data import batching


def test_ways_to_batch_agree_and_say_where_they_fail(capsys):
    table = batching("smoke", repeats=1)
    assert table.column("layers") == ("the study's", "GCNConv", "SAGEConv", "GINConv")
    first, *others = table.rows
    assert all(isinstance(value, float) for value in first[1:]), "all ways give equal gradients"
    assert all(isinstance(row[1], float) for row in others)
    assert graph_data.main(["--preset", "smoke", "--batching"]) == 0
    assert "block-diagonal" in capsys.readouterr().out
