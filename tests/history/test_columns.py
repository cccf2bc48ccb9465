"""Columns of a history: their names, lookup, and the page that explains them."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import topofl
from tests import problems
from tests.engine.evaluated_runs import run
from tests.history.helpers import run_of
from topofl import Evaluation, algorithms, metrics, mixing, topologies
from topofl._columns import OWN_COLUMNS, STAGES


def test_a_missing_history_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"meta.json is missing"):
        topofl.History.load(tmp_path / "nothing")


def test_columns_by_name(history):
    assert history["messages"].shape == (7,)
    assert history["accuracy"].shape == (4, 6)
    with pytest.raises(KeyError, match="did you mean 'accuracy'"):
        history["acuracy"]


def test_errors_for_unrecorded_costs_say_how_to_record_them(history):
    with pytest.raises(
        KeyError, match=r"no column 'simulated_seconds': dsgd on .* run algorithms\.timed"
    ):
        history["simulated_seconds"]
    rounds = {name: column for name, column in history.rounds.items() if name != "steps"}
    with pytest.raises(KeyError, match=r"no column 'steps': dsgd on .* run it again"):
        dataclasses.replace(history, rounds=rounds)["steps"]


def test_mixing_matrices_are_those_used(history):
    graphs = topologies.one_peer_exponential(6)
    for t in (0, 1, 2, 3, 6, -1):
        used = history.mixing(t).weights.toarray()
        np.testing.assert_array_equal(
            used, topofl.mixing.uniform(graphs.at(t % 7)).weights.toarray()
        )
    assert len(history.matrices) == 3, "one a member of the period"
    with pytest.raises(ValueError, match="`t` must be between -7 and 6"):
        history.mixing(7)


def test_metrics_accept_histories(history):
    graph, rounds = topologies.one_peer_exponential(6), history.n_rounds
    kept = history.mixings
    assert (kept.n, kept.length, kept.period) == (6, rounds, None)
    assert "dsgd" in kept.name
    assert metrics.expected_gap(history) == metrics.expected_gap(
        [mixing.uniform(graph.at(t)) for t in range(rounds)]
    )
    assert metrics.b_connectivity(history, rounds=rounds) == metrics.b_connectivity(graph)
    assert metrics.push_sum_constants(history).rounds == rounds
    table = metrics.compare([history, graph], about=["structure", "rounds"])
    assert table.column("nodes") == (6, 6)
    assert table.column("B")[0] == table.column("B")[1]
    assert metrics.measured_contraction(history, rounds=2, burn_in=3, seed=0) < 1
    assert (
        metrics.measured_contraction(history, rounds=rounds, seed=0) < 1
    )  # nothing is left to burn in


def test_one_graph_in_all_rounds_has_period_one():
    run = run_of(algorithms.dsgd, topologies.ring(6), rounds=3)
    assert (run.mixings.period, run.mixings.length) == (1, 3)
    assert metrics.slem(run) == pytest.approx(2 / 3)
    assert metrics.b_connectivity(run) == 1
    assert metrics.dobrushin(run) == metrics.dobrushin(topologies.ring(6))
    table = metrics.compare([run, topologies.ring(6)], about=["averaging", "rounds"])
    for column in set(table.columns) - {"name", "measured contraction"}:
        assert table.column(column)[0] == table.column(column)[1]


def test_a_run_without_exchange_has_no_matrices():
    alone = run_of(algorithms.local_only, topologies.ring(6), rounds=1)
    with pytest.raises(
        ValueError,
        match=r"local_only on .* has no mixing matrices, since its algorithm exchanges nothing",
    ):
        metrics.compare([alone], about="all")


def test_repr_and_names_mention_attack_and_time(timed, history):
    assert repr(timed).endswith(", 2 attackers (sign_flip), 6 simulated seconds)")
    assert timed.attack == "2 attackers (sign_flip)"
    assert timed.mixings.name == "dsgd over ring(n=6), 2 attackers (sign_flip)"
    assert (
        timed.plot().axes[0].get_lines()[0].get_label()
        == "dsgd, ring(n=6), 2 attackers (sign_flip)"
    )
    assert history.attack == ""
    assert "attack" not in repr(history)
    assert "seconds" not in repr(history)
    lone = dataclasses.replace(
        history, meta=dict(history.meta) | {"attackers": {"name": "\x1b[2J", "nodes": [3]}}
    )
    assert r", 1 attacker (\x1b[2J))" in repr(lone)


def test_repr_escapes_control_characters(history):
    named = dataclasses.replace(history, meta={"algorithm": "\x1b[2J", "topology": "a\nb"})
    assert r"\x1b[2J on a\nb: 7 rounds" in repr(named)


def test_repr_names_algorithm_and_topology(history):
    assert "dsgd on one_peer_exponential(n=6): 7 rounds, n=6" in repr(history)


def test_columns_have_score_stage_and_set():
    history = run_of(
        algorithms.dsgd,
        topologies.ring(6),
        rounds=2,
        every=1,
        before_exchange=True,
        on=("test", "val"),
    )
    assert tuple(history.score_columns["loss_before_exchange_val"]) == (
        "loss",
        "before_exchange",
        "val",
    )
    assert history.column() == "accuracy"
    assert history.column("loss", "before_exchange", "val") == "loss_before_exchange_val"
    assert history.column(stage="before_exchange") == history.column(
        stage="before_exchange", on="test"
    )
    assert history.meta["columns"]["accuracy"] == {"score": "accuracy", "stage": "", "set": "test"}


def test_columns_are_all_that_can_be_read_and_drawn():
    history = run_of(
        algorithms.osgp, topologies.exponential(6, directed=True), rounds=2, every=1, on="test"
    )
    assert history.columns == (*history.evaluations, *history.rounds)
    assert {"round", "accuracy", "push_weight", "train_loss", "steps", "bytes"} <= {
        *history.columns
    }
    assert list(history.score_columns) == ["accuracy", "loss"]
    for name in history.columns:
        line = history.plot(name).axes[0].lines[0].get_ydata()
        assert len(line) == len(history[name])
    with pytest.raises(KeyError) as caught:
        history["losses"]
    assert f"known are {', '.join(history.columns)}" in str(caught.value)


COLUMNS = {
    "score": (
        {"score": "f1"},
        r"`score` must be one that was evaluated, 'accuracy', 'loss', got 'f1'",
    ),
    "stage": (
        {"stage": "fine_tuned"},
        r"`stage` must be .*'', 'before_exchange', got 'fine_tuned'",
    ),
    "set": ({"on": "own_val"}, r"`on` must be one that was evaluated, 'test', got 'own_val'"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_columns_that_were_not_recorded_are_refused(history, case):
    arguments, message = COLUMNS[case]
    with pytest.raises(ValueError, match=message):
        history.column(**arguments)


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
    assert history.rounds.keys() <= OWN_COLUMNS
    assert {"simulated_seconds", "smallest_push_weight"} <= history.rounds.keys()
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
    stages = Evaluation(
        on=("own_val", "test"), before_exchange=True, fine_tune=algorithms.sgd(lr=0.1, steps=1)
    )
    fine_tuned = topofl.run(
        algorithms.osgp(lr=0.1),
        model=problems.linear(),
        clients=problems.validated_clients(),
        topology=topologies.circulant(6, (1,), directed=True),
        rounds=2,
        seed=0,
        evaluation=stages,
    )
    assert {"push_weight", "smallest_push_weight"} < set(fine_tuned.columns)
    assert "loss_fine_tuned_test" in fine_tuned.columns
    for name in fine_tuned.columns:
        column = fine_tuned.score_columns.get(name)
        assert (name if column is None else column.score) in EXPLAINED
        assert column is None or f"`{column.stage}`" in PAGE or not column.stage
    assert all(f"`{stage}`" in PAGE for stage in STAGES if stage)
