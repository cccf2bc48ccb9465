"""Histories keep the labels of nodes."""

import json

import pytest

import topofl
from tests.history.test_node_names import run
from topofl import topologies

CITIES = topofl.as_topology([("Zug", "Bern"), ("Bern", "Genf"), ("Genf", "Zug")])


def test_tables_per_node_show_labels_that_are_stored(tmp_path):
    history = run(CITIES)
    history.save(tmp_path / "run")
    for found in (history, topofl.History.load(tmp_path / "run")):
        table = found.to_pandas(per="node")
        assert table.columns[:3].tolist() == ["round", "node", "label"]
        assert table["label"].tolist() == ["Zug", "Bern", "Genf"] * len(found["round"])
        assert table["node"].tolist() == [0, 1, 2] * len(found["round"])


def test_tables_of_nodes_without_labels_have_no_such_column():
    history = run(topologies.ring(3))
    assert "nodes" not in history.meta
    assert "label" not in history.to_pandas(per="node")


@pytest.mark.parametrize("labels", ["Zug", ["Zug"], [["Zug"], "Bern", "Genf"]])
def test_other_labels_are_refused_when_a_history_is_loaded(tmp_path, labels):
    run(CITIES).save(tmp_path / "run")
    path = tmp_path / "run" / "meta.json"
    meta = json.loads(path.read_text())
    meta["nodes"] = labels
    del meta["format"], meta["sha256"]  # as of older versions, without checksums
    path.write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="nodes must be one label for each node"):
        topofl.History.load(tmp_path / "run")
