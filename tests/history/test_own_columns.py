"""The names of columns that scores and values of a user cannot have."""

from tests.engine.evaluated_runs import run
from topofl import algorithms
from topofl._columns import OWN_COLUMNS


def test_they_are_those_of_all_rounds_tables_and_events():
    told = []
    history = run(
        algorithms.timed(algorithms.push_diging(lr=0.1)),
        callbacks=[told.append],
    )
    assert history.rounds.keys() <= OWN_COLUMNS
    assert {"simulated_seconds", "smallest_push_weight"} <= history.rounds.keys()
    others = {*history.evaluations, *history.to_pandas(per="node")} - {"accuracy"}
    assert others <= OWN_COLUMNS
    of_rounds = [event.values.keys() for event in told if event.kind == "round"]
    assert set().union(*of_rounds) <= OWN_COLUMNS
