"""A rank that ends or hangs ends the run in a limited time; commands run on several ranks."""

import os

import numpy as np
import pytest

import topofl
from analysis.program import free_port
from tests import problems
from tests.engine.distributed.failing import CONFIG, TIMEOUT
from tests.new_process import output_of, results_of
from topofl import algorithms, topologies

LIMIT = TIMEOUT + 9 + 20
"""Seconds in which the other ranks end: the timeout, reports, and the time of a slow machine."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture(scope="module")
def found():
    return results_of("tests.engine.distributed.failing", timeout=600)


@pytest.mark.parametrize(
    ("name", "rank", "how"),
    [
        ("SIGKILL", 1, "rank 1 of 3 ended in round 4"),
        ("SIGSTOP", 1, f"rank 1 of 3 did not respond within {TIMEOUT} seconds in round 4"),
        ("SIGKILL", 0, "rank 0 of 3 ended in round 4"),
        ("SIGSTOP", 0, f"rank 0 of 3 did not respond within {TIMEOUT} seconds in round 4"),
    ],
)
@pytest.mark.slow
def test_a_failed_rank_ends_the_run_which_can_be_continued(found, name, rank, how):
    failure = found[f"{name} of rank {rank}"]
    assert failure["codes"] == [3, 3]
    assert failure["seconds"] < LIMIT
    assert f"missing ({rank},): {how}; FOLDER has one of round 3" in failure["output"]
    if rank:  # otherwise the store by which ranks agree on who reports has ended, too
        assert failure["output"].count("missing") == 1
    assert failure["saved"] == 3
    assert failure["apart"] < 1e-10


@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_of_one_rank_is_not_reported_by_the_others(found, rank):
    """Also of rank 0, whose process has the store in which the others read of it."""
    failure = found[f"error of rank {rank}"]
    assert failure["codes"] == [3, 3]
    assert failure["seconds"] < LIMIT
    if rank:  # otherwise torch warns of the end of the store
        assert failure["output"] == ""
    assert "missing" not in failure["output"]
    assert failure["apart"] < 1e-10


@pytest.mark.parametrize(
    ("k", "error"),
    [
        (0, "ZeroDivisionError: of a callback"),
        (1, "RuntimeError: the models of all nodes must not be gathered in a callback"),
    ],
)
def test_an_error_of_a_callback_is_raised_after_the_checkpoint_of_its_round(found, k, error):
    """The ranks also start at different times, apart by more than the timeout of exchanges."""
    failure = found["callbacks"][k]
    assert failure["codes"] == [3, 3]
    assert f"rank 0: {error}" in failure["output"]
    assert "rank 1: RankError: a callback of rank 0 raised an error; FOLDER" in failure["output"]
    assert failure["saved"] == [3]


def test_a_signal_while_a_checkpoint_is_written_stops_all_ranks_after_the_next_round(found):
    failure = found["callbacks"][2]
    assert failure["codes"] == [3, 3]
    for rank in range(2):
        assert f"rank {rank}: Interrupted: interrupted after round 4 of 6" in failure["output"]
    assert failure["saved"] == [3, 4]


def test_states_of_all_rows_are_refused_to_phases_of_some_rows(found):
    for rank in range(2):
        text = f"rank {rank}: the phase 'after' with rowwise=True must not read the state of the"
        assert text in found["reading"]


def test_commands_train_on_all_ranks_and_print_once(found):
    commands = found["commands"]
    for name in ("run", "skip", "resume", "one rank"):
        assert set(commands[name]["codes"]) == {0}, commands[name]["output"]
    assert commands["run"]["output"].count("saved in") == 1
    assert commands["skip"]["output"].count("is finished; nothing was done") == 1
    losses = {name: np.array(loss) for name, loss in commands["loss"].items()}
    np.testing.assert_allclose(losses["one rank"], losses["one"], rtol=1e-5)
    np.testing.assert_allclose(losses["several"][:3], losses["one"], rtol=1e-5)
    assert commands["rounds"] == {"one": 4, "several": 8, "one rank": 4}
    assert commands["ranks"]["several"] == {
        "size": 2, "nodes": [3, 3], "placement": "consecutive nodes",
    }  # fmt: skip
    assert commands["ranks"]["one"] is None
    cut = np.array(commands["traffic"]["cut_edges"])
    np.testing.assert_array_equal(cut, [4] * 4 + [6] * 2 + [np.nan, 4])  # round 7 was not divided


def test_errors_of_commands_are_printed_once(found):
    commands = found["commands"]
    assert commands["run again"]["codes"][0] == 2
    assert commands["run again"]["output"].count("topofl: error") == 1
    assert commands["wrong"]["codes"][0] == 2
    assert commands["wrong"]["output"].count("topofl: error") == 1


def test_rows_travel_once_to_a_rank(found):
    """On a ring of 6 nodes, each of 2 ranks sends 2 rows to the other, and each of 3 ranks 2."""
    row = 650 * 4
    sent = np.array(found["commands"]["traffic"]["rank_bytes"])[:6]
    rows = np.array([4 * row] * 4 + [6 * row] * 2)
    assert (sent >= rows).all()
    assert (sent <= 1.2 * rows).all()
    assert all(seconds > 0 for seconds in found["commands"]["traffic"]["exchange_seconds"][:6])


def test_without_torchrun_a_run_is_refused(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="`distributed` must be False unless torchrun starts"):
        topofl.run(
            algorithms.dsgd(0.1),
            model=problems.linear(),
            clients=problems.equal_clients(),
            topology=topologies.ring(6),
            rounds=1,
            seed=0,
            compute=topofl.Compute(distributed=True),
        )


@pytest.mark.slow
def test_torchrun_starts_the_ranks(tmp_path):
    (tmp_path / "ring.toml").write_text(CONFIG)
    command = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-addr", "127.0.0.1"]
    command += ["--master-port", free_port(), "-m", "topofl", "run", tmp_path / "ring.toml"]
    printed = output_of(*command, "--out", tmp_path / "ring", timeout=200)
    assert printed.count("saved in") == 1
    assert topofl.History.load(tmp_path / "ring").meta["ranks"]["nodes"] == [3, 3]
