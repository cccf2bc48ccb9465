"""Topofl's own entries: their results are committed, and cover what topofl has."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from topofl import algorithms, topologies
from topofl.config.toml import as_table
from topofl.leaderboard import build, ranks, read_entries, read_results, run_entry, tasks

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "analysis" / "results" / "leaderboard"
PAGE = ROOT / "docs" / "leaderboard.md"

WITHOUT_AN_ENTRY = {
    "availability": "it needs a trace of when devices were there",
    "davis_southern_women": "it has 32 nodes; the tasks have 20, 30, 40 and 100",
    "de_bruijn": "it has k^m nodes for a degree of k; none of 30 and 40 with a degree of 2 to 9",
    "florentine_families": "it has 15 nodes",
    "greedy_collaboration": "it needs rewards, which DPFL measures while it trains",
    "greedy_swap": "its cliques are not joined; D-Cliques and rotating cliques join them",
    "hypercube": "it has 2^m nodes",
    "ideal_cliques": "it needs nodes of one class each",
    "karate_club": "it has 34 nodes",
    "kautz": "it has k^m + k^(m - 1) nodes for a degree of k, 30 but not 40",
    "random_cliques": "its cliques are not joined",
}
"""Generators that no entry of topofl has, and why."""

MAIN = {
    "digits-shards": (
        "beer", "choco_sgd", "clique_averaging", "d2", "dadam", "dfedavgm", "dfedsam", "dsgd",
        "dsgt", "edm", "extra", "led", "local_gt", "local_only", "qg_dsgdm", "relay_sgd",
        "fedadam", "fedavg", "feddyn", "fednova", "fedprox", "scaffold",
    ),
    "digits-own": (
        "apfl", "dfedpgp", "dispfl", "ditto", "dpfl", "fedavg", "fedper", "fedrep", "local_only",
        "pfeddst", "pfedgraph",
    ),
}  # fmt: skip
"""The main methods, by the task on which each has an entry."""


WITHOUT_RESULTS: dict[str, int] = {}
"""Numbers of entries that have not been run on a task yet, which the page says, too."""


def own_entries(task):
    """Return the entries of TASK.toml, or those of entries.toml, which tasks on digits share."""
    own = COMMITTED / f"{task}.toml"
    return read_entries(own if own.exists() else COMMITTED / "entries.toml")


def own_tasks():
    """Return the keys of the tasks on which topofl has entries."""
    return [task.key for task in tasks() if not task.key.startswith("cifar10")]


def copy_results(folder, task):
    """Copy the committed results of a task."""
    (folder / task).mkdir(parents=True)
    for path in (COMMITTED / task).glob("*.json"):
        (folder / task / path.name).write_bytes(path.read_bytes())


def test_every_generator_has_an_entry_or_a_reason():
    used, pending = set(), [one.tables.get("topology") for one in own_entries("digits-shards")]
    while pending:
        if (table := pending.pop()) is None:
            continue
        table = as_table("topology", table)
        used.add(table["name"])
        pending.append(table.get("base") if isinstance(table.get("base"), str | dict) else None)
    assert used | set(WITHOUT_AN_ENTRY) == set(topologies.__all__)
    assert not used & set(WITHOUT_AN_ENTRY), "these have an entry and need no reason"


@pytest.mark.parametrize("name", ["de_bruijn", "hypercube", "kautz"])
def test_graphs_of_few_sizes_are_not_those_of_all_tasks(name):
    """The reasons above are true for all degrees that a budget allows."""
    for degree in range(2, 10):
        more = {} if name == "hypercube" else {"degree": degree}
        refused = 0
        for n in (30, 40):
            try:
                getattr(topologies, name)(n, **more)
            except ValueError:
                refused += 1
        assert refused


@pytest.mark.parametrize("task", MAIN)
def test_the_main_methods_have_entries(task):
    tables = [one.tables.get("algorithm", "dsgd") for one in own_entries(task)]
    used = {as_table("algorithm", table)["name"] for table in tables}
    assert set(MAIN[task]) <= used <= set(algorithms.__all__)


def test_an_entry_is_sent_in_as_the_page_says(tmp_path):
    """The entry of the page is trained, here for four rounds, and is ranked with ours."""
    block = re.search(r"```toml\n# mine\.toml\n(.+?)```", PAGE.read_text(), re.DOTALL)
    assert block
    (tmp_path / "mine.toml").write_text(block[1])
    (entry,) = read_entries(tmp_path / "mine.toml")
    (task,) = tasks(["digits-shards"])
    short = replace(task, tables={**task.tables, "run": {"rounds": 4}}, rates=(1.0,))
    found = run_entry(entry, short, store=tmp_path / "store", progress=False)
    copy_results(tmp_path / "board", "digits-shards")
    count = len(read_results(tmp_path / "board", task))
    replace(found, digest=task.digest).save(tmp_path / "board")
    table = ranks(tmp_path / "board", entry.name)
    assert entry.authors == "A. Author"
    assert len(read_results(tmp_path / "board", task)) == count + 1
    assert [row[:2] for row in table.rows] == [
        ("digits-shards", "At most 4 messages and 10.4 kB (4 models) per node and round"),
        ("digits-shards", "At most 9 messages and 23.4 kB (9 models) per node and round"),
    ]


def test_results_are_those_of_the_entries():
    """Of the tasks as they are, and of the entries as they are; what is missing is counted."""
    missing = {}
    for task in (one for one in tasks() if one.key in own_tasks()):
        known = {one.entry["name"]: one.entry["tables"] for one in read_results(COMMITTED, task)}
        ours = {
            entry.name: {k: v for k, v in entry.tables.items() if k != "modules"}
            for entry in own_entries(task.key)
        }
        assert known == {name: ours[name] for name in known}
        missing |= {task.key: len(ours) - len(known)} if known != ours else {}
        row = next(line for line in PAGE.read_text().splitlines() if f"| `{task.key}` |" in line)
        assert row.endswith(f"| {len(known)} of {len(ours)} |")
    assert missing == WITHOUT_RESULTS


def test_the_committed_page_is_that_of_the_committed_results(tmp_path):
    for task in own_tasks():
        copy_results(tmp_path, task)
    assert build(tmp_path).read_text() == (COMMITTED / "leaderboard.md").read_text()
