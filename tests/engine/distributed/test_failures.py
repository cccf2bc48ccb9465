"""Several ranks: one that ends or hangs ends the run, each writes its rows, and commands work."""

import json
import os
import shutil

import numpy as np
import pytest

import topofl
from analysis.program import free_port
from tests.engine.distributed.scenarios import CONFIG, ROUNDS, TIMEOUT, trained
from tests.new_process import output_of, results_of
from topofl.engine.checkpoint import newest_checkpoint

LIMIT = TIMEOUT + 9 + 20
"""Seconds in which the other ranks end: the timeout, reports, and the time of a slow machine."""

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.slow,  # processes that wait for one that hangs
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    return folder, results_of("tests.engine.distributed.scenarios", folder, timeout=900)


@pytest.fixture(scope="module")
def found(written):
    return written[1]


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "checkpoints")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("SIGKILL", "ended in round 4"),
        ("SIGSTOP", f"did not respond within {TIMEOUT} seconds in round 4"),
    ],
)
def test_a_failed_rank_ends_the_run_which_can_be_continued(found, name, rank, how):
    failure = found[f"{name} of rank {rank}"]
    assert [code for k, code in enumerate(failure["codes"]) if k != rank] == [3, 3]
    assert failure["seconds"] < LIMIT
    message = f"RankError({rank},): rank {rank} of 3 {how}; FOLDER has one of round 3"
    assert message in failure["output"]
    if rank:  # otherwise the store by which ranks agree on who reports has ended, too
        assert failure["output"].count("RankError") == 1
    assert failure["saved"] == [2, 3]
    assert failure["apart"] < 1e-10


@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_of_one_rank_is_not_reported_by_the_others(found, rank):
    """Also of rank 0, whose process has the store in which the others read of it."""
    failure = found[f"error of rank {rank}"]
    assert [code for k, code in enumerate(failure["codes"]) if k != rank] == [3, 3]
    assert failure["seconds"] < LIMIT
    if rank:  # otherwise torch warns of the end of the store
        assert failure["output"] == f"rank {rank}: ZeroDivisionError: of this rank\n"
    assert "RankError" not in failure["output"]
    assert failure["apart"] < 1e-10


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("raise_after_three", "ZeroDivisionError: of a callback"),
        (
            "gather_after_three",
            "RuntimeError: the models of all nodes must not be gathered in a callback",
        ),
    ],
)
def test_an_error_of_a_callback_is_raised_after_the_checkpoint_of_its_round(found, name, error):
    """The ranks also start at different times, apart by more than the timeout of exchanges."""
    failure = found[name]
    assert failure["codes"] == [3, 3]
    assert f"rank 0: {error}" in failure["output"]
    assert "rank 1: RankError" in failure["output"]
    assert "a callback of rank 0 raised an error; FOLDER" in failure["output"]
    assert failure["saved"] == [3]


def test_a_signal_while_a_checkpoint_is_written_stops_all_ranks_after_the_next_round(found):
    failure = found["stop_while_writing"]
    assert failure["codes"] == [3, 3]
    for rank in range(2):
        assert f"rank {rank}: Interrupted: interrupted after round 4 of 6" in failure["output"]
    assert failure["saved"] == [3, 4]


def test_states_of_all_rows_are_refused_to_phases_of_some_rows(found):
    for rank in range(2):
        text = f"rank {rank}: the phase 'after' with rowwise=True must not read the state of the"
        assert text in found["reading"]


def test_each_rank_writes_its_rows_and_gathers_none(found, folder):
    assert found["write"] == [0, 0, 0]
    names = sorted(path.name for path in (folder / "round-00000006").iterdir())
    ranks = [f"rows-{rank}.safetensors" for rank in range(3)]
    assert names == ["marker.json", *ranks, "shared.safetensors"]
    stored = newest_checkpoint(folder)
    assert stored is not None
    rows = stored.state()["models"]
    assert rows.owner.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose(rows.of(np.arange(6)), trained().models.flat, rtol=1e-12, atol=1e-12)


def test_checkpoints_of_one_process_replace_those_of_ranks(folder):
    trained(topofl.Saving(folder, resume=True, every=1), rounds=ROUNDS + 2)
    assert sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*")) == [
        f"round-0000000{t}/{name}"
        for t in (7, 8)
        for name in ("marker.json", "rows-0.safetensors", "shared.safetensors")
    ]


def test_training_continues_if_a_rank_cannot_write(found):
    failure = found["fill_disk"]
    assert failure["codes"] == [0, 0]
    (_, [text]), (_, none) = sorted(json.loads(line) for line in failure["output"].splitlines())
    assert none == []
    assert text.startswith("the checkpoint of round 4 could not be written to FOLDER: rank 1: ")
    assert text.endswith("the newest is that of round 2")
    assert failure["saved"] == [2, 6]
    assert not [name for name in failure["left"] if "partial" in name or "04" in name]
    assert failure["apart"] < 1e-10


@pytest.mark.parametrize(
    ("name", "killed", "noticed", "partial"),
    [
        ("kill_after_writing_rows", 1, 4, []),  # rank 0 removes what it began
        ("kill_before_the_state", 0, 5, ["round-00000004.partial"]),
    ],
)
def test_a_rank_killed_in_writing_leaves_the_checkpoint_before(
    found, name, killed, noticed, partial
):
    failure = found[name]
    assert failure["codes"] == [-9 if rank == killed else 3 for rank in range(2)]
    message = f"rank {killed} of 2 ended in round {noticed}; FOLDER has one of round 2"
    assert message in failure["output"]
    assert failure["saved"] == [2]
    assert failure["rows"] == ["round-00000002", *partial]
    assert failure["apart"] < 1e-10


def test_ranks_must_share_the_folder(found):
    failure = found["use_another_folder"]
    assert failure["codes"] == [3, 3]
    for rank in range(2):
        message = "`saving` must be one folder that all processes can write to, which fails on rank"
        assert f"rank {rank}: OSError: {message} 1: the files of rank 0" in failure["output"]
    assert failure["saved"] == []
    assert failure["left"] == []


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
    placed = {"size": 2, "nodes": [3, 3], "placement": "consecutive nodes"}
    assert commands["ranks"]["several"] == placed
    assert commands["ranks"]["one"] is None
    cut = np.array(commands["traffic"]["cut_edges"])
    np.testing.assert_array_equal(cut, [4] * 4 + [6] * 2 + [np.nan, 4])  # round 7 was not divided


@pytest.mark.parametrize("name", ["run again", "wrong"])
def test_errors_of_commands_are_printed_once(found, name):
    command = found["commands"][name]
    assert command["codes"][0] == 2
    assert command["output"].count("topofl: error") == 1


def test_rows_travel_once_to_a_rank(found):
    """On a ring of 6 nodes, each of 2 ranks sends 2 rows to the other, and each of 3 ranks 2."""
    row = 650 * 4
    sent = np.array(found["commands"]["traffic"]["rank_bytes"])[:6]
    rows = np.array([4 * row] * 4 + [6 * row] * 2)
    assert (sent >= rows).all()
    assert (sent <= 1.2 * rows).all()
    assert all(seconds > 0 for seconds in found["commands"]["traffic"]["exchange_seconds"][:6])


def test_clipped_updates_travel_as_sums(found):
    """As averages of a server do, without a row per node; all rows if attackers forge some."""
    assert found["sums"]["dp_fedavg"] == found["sums"]["fedavg"]
    assert min(found["sums"]["fedavg"]) > 0
    assert found["sums"]["attacked"] == []


def test_torchrun_starts_the_ranks(tmp_path):
    (tmp_path / "ring.toml").write_text(CONFIG)
    command = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-addr", "127.0.0.1"]
    command += ["--master-port", free_port(), "-m", "topofl", "run", tmp_path / "ring.toml"]
    printed = output_of(*command, "--out", tmp_path / "ring", timeout=200)
    assert printed.count("saved in") == 1
    assert topofl.History.load(tmp_path / "ring").meta["ranks"]["nodes"] == [3, 3]
