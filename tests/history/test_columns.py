"""Columns of a history: their names, lookup, mixing matrices, and the page that explains them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

import topofl
from tests import problems
from tests.engine.evaluated_runs import run
from tests.history.helpers import run_of, scored
from topofl import algorithms, metrics, mixing, topologies
from topofl._columns import OWN_COLUMNS, STAGES


def test_mixing_matrices_are_those_used_and_metrics_take_them(history):
    graph, rounds = topologies.one_peer_exponential(6), history.n_rounds
    for t in (0, 1, 2, 3, 6, -1):
        used = history.mixing(t).weights.toarray()
        np.testing.assert_array_equal(used, mixing.uniform(graph.at(t % 7)).weights.toarray())
    assert len(history.matrices) == 3, "one a member of the period"
    kept = history.mixings
    assert (kept.n, kept.length, kept.period) == (6, rounds, None)
    assert metrics.expected_gap(history) == metrics.expected_gap(
        [mixing.uniform(graph.at(t)) for t in range(rounds)]
    )
    assert metrics.b_connectivity(history, rounds=rounds) == metrics.b_connectivity(graph)
    assert metrics.push_sum_constants(history).rounds == rounds
    table = metrics.compare([history, graph], about=["structure", "rounds"])
    assert table.column("nodes") == (6, 6)
    assert table.column("B")[0] == table.column("B")[1]
    assert metrics.measured_contraction(history, rounds=2, burn_in=3, seed=0) < 1
    assert metrics.measured_contraction(history, rounds=rounds, seed=0) < 1, "nothing to burn in"


def test_one_graph_in_all_rounds_has_period_one():
    run = run_of(algorithms.dsgd, topologies.ring(6), rounds=3)
    assert (run.mixings.period, run.mixings.length) == (1, 3)
    assert metrics.slem(run) == metrics.slem(topologies.ring(6))
    table = metrics.compare([run, topologies.ring(6)], about=["averaging", "rounds"])
    for column in set(table.columns) - {"name", "measured contraction"}:
        assert table.column(column)[0] == table.column(column)[1]


def test_repr_and_names_mention_algorithm_graph_attack_and_time(timed, history):
    assert "dsgd on one_peer_exponential(n=6): 7 rounds, n=6" in repr(history)
    assert repr(timed).endswith(", 2 attackers (sign_flip), 6 simulated seconds)")
    assert timed.mixings.name == "dsgd over ring(n=6), 2 attackers (sign_flip)"
    label = timed.plot().axes[0].get_lines()[0].get_label()
    assert label == "dsgd, ring(n=6), 2 attackers (sign_flip)"
    assert history.attack == ""
    assert not {"attack", "seconds"} & {*re.findall(r"\w+", repr(history))}
    meta = {"algorithm": "\x1b[2J", "topology": "a\nb", "attackers": {"name": "\x1b", "nodes": [3]}}
    named = repr(replace(history, meta=meta))
    assert r"\x1b[2J on a\nb: 7 rounds" in named
    assert r", 1 attacker (\x1b))" in named


def test_columns_have_score_stage_and_set():
    how = {"rounds": 2, "every": 1, "before_exchange": True, "on": ("test", "val")}
    history = run_of(algorithms.osgp, topologies.exponential(6, directed=True), **how)
    early = "loss_before_exchange_val"
    assert tuple(history.score_columns[early]) == ("loss", "before_exchange", "val")
    assert history.column("loss", "before_exchange", "val") == early
    assert history.column() == "accuracy"
    on_test = history.column(stage="before_exchange", on="test")
    assert history.column(stage="before_exchange") == on_test == "accuracy_before_exchange"
    assert history.meta["columns"]["accuracy"] == {"score": "accuracy", "stage": "", "set": "test"}
    assert history.columns == (*history.evaluations, *history.rounds)
    assert {"round", "accuracy", "push_weight", "train_loss", "bytes"} <= {*history.columns}
    for name in history.columns:
        assert len(history.plot(name).axes[0].lines[0].get_ydata()) == len(history[name])


def test_fields_of_a_column_decide_rather_than_its_name():
    """A score may be called as our stages are; fields, not names, decide."""
    task = {"name": "t", "scores": {"hit_before_exchange": "high", "loss": "low"}}
    columns = {"hit_before_exchange": {"score": "hit_before_exchange", "stage": "", "set": "test"}}
    history = topofl.History(
        {"task": task, "columns": columns},
        {"bytes": np.array([10, 10]), "messages": np.ones(2), "train_loss": np.ones(2)},
        {"round": np.arange(3), "hit_before_exchange": np.array([[0.1], [0.5], [0.9]])},
        np.zeros((2, 1)),
    )
    assert history.bytes_to(0.5) == 10, "the bytes of round 1 were sent before it was scored"


def test_loading_adds_fields_of_columns_to_older_histories(history, tmp_path):
    file = history.save(tmp_path / "run") / "meta.json"
    meta = json.loads(file.read_text())
    said = meta.pop("columns")
    del meta["format"], meta["sha256"], meta["arrays"]  # which older versions did not write
    file.write_text(json.dumps(meta | {"columns": meta.pop("round_columns")}))
    loaded = topofl.History.load(tmp_path / "run")
    assert loaded.meta["columns"] == said == history.meta["columns"]
    assert list(loaded.rounds) == list(history.rounds)


def test_they_are_those_of_all_rounds_tables_and_events():
    told = []
    history = run(algorithms.timed(algorithms.push_diging(lr=0.1)), callbacks=[told.append])
    assert {"simulated_seconds", "smallest_push_weight"} <= history.rounds.keys() <= OWN_COLUMNS
    others = {*history.evaluations, *history.to_pandas(per="node")} - {"accuracy"}
    assert others <= OWN_COLUMNS
    of_rounds = [event.values.keys() for event in told if event.kind == "round"]
    assert set().union(*of_rounds) <= OWN_COLUMNS


ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "columns-of-a-history.md").read_text()
ROWS = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
EXPLAINED = {name for row in ROWS for name in re.findall(r"`(\w+)`", row)}
NOTED = re.compile(r"round\.note\(\s*(?:\"(\w+)\"|(\w+))")
"""A column that a method notes, by its name or by a constant."""

OTHERS = {"seconds", "node_loss", "node", "label"}
"""What is in events only, in an attribute of its own, or names the node of a row in tables."""


def noted_columns():
    """Return the columns that methods note, from the source."""
    found = set()
    for path in (ROOT / "topofl" / "algorithms").rglob("*.py"):
        text = path.read_text()
        for name, constant in NOTED.findall(text.replace('round.note("moved', "")):
            value = re.search(rf'^{constant} = "(\w+)"', text, re.MULTILINE) if constant else None
            found.add(name or (value[1] if value else ""))
    return found - {""}


def test_the_page_explains_exactly_the_columns_that_exist():
    assert {"simulated_seconds", "staleness"} <= noted_columns()
    assert (OWN_COLUMNS - OTHERS) | noted_columns() == EXPLAINED - {"accuracy"}


def test_every_column_of_a_run_is_on_the_page():
    how = {"on": ("own_val", "test"), "before_exchange": True, "rounds": 2}
    how |= {"fine_tune": algorithms.sgd(lr=0.1, steps=1), "clients": problems.validated_clients()}
    history = run_of(algorithms.osgp, topologies.circulant(6, (1,), directed=True), **how)
    assert {"push_weight", "loss_fine_tuned_test"} < set(history.columns)
    for name in history.columns:
        column = history.score_columns.get(name)
        assert (name if column is None else column.score) in EXPLAINED
        assert column is None or f"`{column.stage}`" in PAGE or not column.stage
    assert all(f"`{stage}`" in PAGE for stage in STAGES if stage)


def test_tables_are_tidy(history):
    rounds, nodes = history.to_pandas(), history.to_pandas(per="node")
    assert (rounds.index.name, list(rounds.index)) == ("round", list(range(8)))
    assert rounds["accuracy_mean"].notna().sum() == 4
    assert len(nodes) == 4 * 6
    assert {"round", "node", "accuracy", "loss", "accuracy_before_exchange"} <= set(nodes)


def test_steps_count_those_of_all_nodes(timed, history):
    assert timed["steps"].tolist() == [12] * 4
    assert history["steps"].tolist() == [6] * 7


def test_notebooks_show_the_text_and_the_curve(history):
    named = replace(history, meta={"algorithm": "<b>", "topology": "ring"})._repr_html_()
    assert "&lt;b&gt; on ring" in named
    assert "<b>" not in named
    assert named.count("<img") == 1
    assert "accuracy by round" in named
    for short in (scored(accuracy=[[np.nan]] * 2), scored(accuracy=[[0.5]])):
        assert "<img" not in short._repr_html_()
    none = replace(scored(accuracy=[[0.5]]), evaluations={})
    assert repr(none) == "History(the run on no graph: 1 rounds, n=1, not evaluated)"
    assert "not evaluated" in none._repr_html_()
