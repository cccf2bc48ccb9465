"""Every row of the table of large graphs is measured; how fast they are is measured by hand."""

import numpy as np
import pytest

from analysis.benchmark import command, graphs
from analysis.benchmark.report import title
from topofl import NotApplicable, mixing, topologies

SMALL = graphs.GraphSizes(
    n=2_000, ring=4_000, nodes=20, rounds=60, fewer_rounds=30, restarts=20, limit=1e-3, repeats=1
)  # peers have no time at all: a process each would take seconds


@pytest.fixture(scope="module")
def table():
    return graphs.measure(SMALL, title="here")


def test_every_row_has_a_time_and_every_other_cell_a_time_or_a_reason(table):
    assert table.columns == graphs.COLUMNS
    assert len(table.rows) == 5 + 2 + 2 + 2
    assert min(table.column("ours s")) > 0
    for name in ("bare scipy s", "ours / bare", "networkx s", "pygsp s"):
        for cell in table.column(name):
            assert cell.reason if isinstance(cell, NotApplicable) else cell > 0


def test_ratios_are_those_of_the_seconds_beside_them(table):
    rows = [row for row in table.rows if not isinstance(row[4], NotApplicable)]
    assert len(rows) == 3
    for _, ours, _, bare, ratio, *_ in rows:
        assert ratio == ours / bare


def test_solver_and_residual_are_shown(table):
    by = dict(zip(table.column("graphs"), table.column("ours is"), strict=True))
    assert by["spectral gap of a ring, n=4,000, in order (bare: eigsh)"].startswith(
        "circulant DFT, residual "
    )
    shuffled = next(text for label, text in by.items() if "shuffled" in label)
    assert shuffled.split(",")[0] in ("lanczos", "shift-invert")
    plain = [row[3] for row in table.rows if "ring, n=4,000" in row[0]]
    assert all("plain Lanczos did not converge in 20 restarts" in cell.reason for cell in plain)


def test_bare_calls_compute_the_same_number():
    W = mixing.metropolis_hastings(topologies.random_regular(2_000, 10, seed=0))
    assert graphs._eigsh(W.weights, tol=1e-9) == pytest.approx(W.slem, abs=1e-9)
    assert graphs._lobpcg(W.weights, tol=1e-6) == pytest.approx(W.slem, abs=1e-6)


def test_peers_are_timed_in_their_own_process(monkeypatch):
    scale = graphs.GraphSizes(limit=60)
    seconds = graphs._peer(
        "networkx", "assert nx.cycle_graph(a).size() == {n}", scale, "a = {n}", n=7
    )
    assert 0 < seconds < 60
    failed = graphs._peer("networkx", "nx.no_such_graph()", scale)
    assert "networkx failed: AttributeError" in failed.reason
    slow = graphs._peer("networkx", "time.sleep(60)", graphs.GraphSizes(limit=0.1))
    assert slow.reason == "networkx did not finish in 0.1 s"
    monkeypatch.setitem(graphs._IMPORTS, "no_such_library", "import no_such_library")
    missing = graphs._peer("no_such_library", "pass", scale)
    assert missing.reason == "no_such_library is not installed"


def test_offsets_are_those_of_the_exponential_graph():
    for n in (2, 5, 64, 100):
        assert np.array_equal(
            topologies.circulant(
                n, sorted({min(d, n - d) for d in graphs._powers(n)})
            ).adjacency.toarray(),
            topologies.exponential(n).adjacency.toarray(),
        )


def test_command_line(capsys, monkeypatch, tmp_path):
    measured = []
    result = graphs.Table(("graphs", "ours s"), (("ring", 1.5),))
    monkeypatch.setattr(graphs, "measure", lambda **kwargs: measured.append(kwargs) or result)
    assert command.main(["graphs", "--out", str(tmp_path)]) == 0
    assert measured == [{"title": title()}]
    assert "1.5" in capsys.readouterr().out
    assert "| ring | 1.5 |" in (tmp_path / "cpu-graphs.md").read_text()
