"""Runs on several processes are measured, and compared with predictions."""

import json

import numpy as np
import pytest

from analysis.ranks import (
    CASES,
    RankCase,
    Way,
    clients_of,
    graph_of,
    link,
    of_first_rank,
    predicted,
    table,
    train,
    ways,
)
from topofl.engine.joining import place

CASE = RankCase("D-Cliques of 10", "gn_lenet", 40, 2)
MODEL = 85_354 * 4


def test_predictions_use_the_placement_of_the_run():
    """Cliques of ten stay on one rank, so a rank that trains two of them is the slowest."""
    clients = clients_of(CASE)
    owner, method = place(graph_of(CASE, clients), 3)
    assert sorted(np.bincount(owner)) == [10, 10, 20] or method != "groups"
    most = np.bincount(owner).max()
    found = predicted(CASE, Way(3, 1), 0.01, (1e-9, 2e-9), cores=3)
    assert found == pytest.approx(most * 0.01, rel=1e-3)


def test_predictions_are_steps_and_messages():
    """On a ring, each rank trains its nodes, and sends two rows and receives two."""
    case = RankCase("ring", "gn_lenet", 6, 2)
    messages = (1e-4, 1e-4 + 2**22 / 1e8)  # 100 MB/s
    alone = predicted(case, Way(1, 1), 0.01, messages, cores=2)
    assert alone == pytest.approx(0.06)
    two = predicted(case, Way(2, 1), 0.01, messages, cores=2)
    assert two == pytest.approx(0.03 + 1e-4 + 2 * MODEL / 1e8)
    three = predicted(case, Way(3, 1), 0.01, messages, cores=2)
    assert three == pytest.approx(1.5 * 0.02 + 1e-4 + 2 * MODEL / 1e8)


def test_ways_use_all_cores_by_threads_or_ranks():
    assert ways(4) == [Way(1, 1), Way(1, 4), Way(2, 1), Way(3, 1)]
    assert ways(1) == [Way(1, 1), Way(2, 1)]


def test_a_run_gives_the_seconds_of_rounds_without_evaluation():
    found = train(CASES["smoke"][0], 2)
    assert len(found["seconds"]) == 2
    assert all(seconds > 0 for seconds in found["seconds"])
    assert (found["bytes"], found["nodes"]) == (0.0, [6])


@pytest.mark.slow
def test_messages_between_two_processes_are_timed():
    short, long = of_first_rank(Way(2, 1), link)
    assert 0 < short < long


def test_tables_have_ratios_where_there_are_predictions():
    row = {"case": CASES["smoke"][0]._asdict(), "seconds": 0.03, "bytes": 2**21, "cores": 2}
    row |= {"step": 0.01, "messages": (1e-9, 2e-9), "turns": [0.03, 0.02, 0.04]}
    rows = [
        row | {"way": {"ranks": 1, "threads": 1}, "seconds": 0.12, "turns": [0.12, 0.06, 0.14]},
        row | {"way": {"ranks": 1, "threads": 2}},
        row | {"way": {"ranks": 2, "threads": 1}},
    ]
    found = table(json.loads(json.dumps(rows))).rows
    assert found[0] == (
        "ring",
        "1 rank of 1 thread",
        0.12,
        "3.5 (3 to 4)",
        2.0,
        pytest.approx(0.5),
        "-",
    )
    assert found[1] == ("ring", "1 rank of 2 threads", 0.03, "1", 2.0, "-", "-")
    ratios = (pytest.approx(1.0, rel=1e-3), pytest.approx(2.0, rel=1e-3))
    assert found[2] == ("ring", "2 ranks of 1 thread", 0.03, "1 (1 to 1)", 2.0, *ratios)
