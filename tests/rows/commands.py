"""Command lines with what they print, and a folder of configurations and runs for them."""

import json
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topofl import config
from topofl._support.locks import LOCK
from topofl.cli import main
from topofl.topologies import ring

TEXT = """
topology = "dcliques,clique_size=5,inter=ring,seed=2"

[data]
name = "digits"
n = 10
seed = 1

[algorithm]
name = "dsgd"
lr = 0.5
batch_size = 8

[run]
rounds = 4
seed = 3

[evaluation]
every = 2
"""

BASE = """
topology = "ring"
algorithm = "dsgd,lr=0.1"
data = { name = "digits", n = 4 }
run = { rounds = 1 }
"""

STUDY = """
data = { name = "digits", n = 8, seed = 0 }
algorithm = { name = "dsgd", lr = 0.5, batch_size = 8 }
run = { rounds = 2, seed = 0 }
study = { graphs = ["ring", "path"], seeds = [0] }
"""

SIX = "ring0 ring1 ring2 star0 star1 star2"
"""Folders of runs with two topologies and three seeds, as words of a command."""


def furnish(folder):
    """Fill the current folder: configurations, single runs `a` and `b`, six runs, and a store."""
    texts = {"small.toml": TEXT, "base.toml": BASE, "study.toml": STUDY, "bad.toml": "[run\na = 1"}
    texts |= {
        "file": "",
        "edges": "0 1\n",
        "g.tsv": "0 1\n",
        "points.json": '[{"algorithm.lr": 1}]',
        "entry.toml": 'name = "mine"\ntopology = "one_peer_exponential"\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    np.save(folder / "ring.npy", ring(10).to_scipy().toarray() / 4)
    (folder / "folder.html").mkdir()
    (folder / "link.html").symlink_to("file/a.html")
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter1.tex").write_text("years of work")
    runs = {"a": "topology=ring", "b": "algorithm=local_only,lr=0.5"}
    for key, change in runs.items():
        assert main(shlex.split(f"run small.toml --out {key} --set {change}")) == 0
    for key in SIX.split():
        made = f"run base.toml --out {key} --set topology={key[:4]} --set run.seed={key[4]}"
        assert main(shlex.split(made)) == 0
    assert main(shlex.split("sweep base.toml --store store --grid algorithm.lr=0.1,0.5")) == 0


class Command(NamedTuple):
    """A command line that succeeds, parts of what it prints, and some keys of its JSON rows."""

    line: str
    said: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def verb(self):
        return self.line.split()[0]


FAILING = "link_failures,base=({}),fail=0.1,recover=0.5,seed=0"
"""A graph of a graph."""

FIGURE = "dcliques-fig05"
"""A figure that needs no files."""

COMMANDS = [
    Command("new mine.toml", ("train with: topofl run mine.toml",)),
    Command("list", ("  ring(n)\n      Return the cycle", "  shards(", "  slem\n")),
    Command("list compressor", ("  top_k(share)\n",)),
    Command("list clock", ("  exponential(mean)\n",)),
    Command("list attack", ("  sign_flip(nodes, scale=1.0)\n",)),
    Command("list schedule", ("  cosine(lr, *, rounds, warmup=0, end=0.0)\n",)),
    Command(
        "list topology", ("random_regular(n, k, *, seed)", "offsets=[1, 2], *, directed=False)")
    ),
    Command(
        "list algorithm",
        (
            "  timed(algorithm, clock=None)\n",
            ", head='head', fine_tune_epochs=None)",
            "dsgd(lr, *, batch_size=128, momentum=0.0, local_steps=1)",
        ),
    ),
    Command("list --json", keys=("kind", "name", "description", "parameters")),
    Command("spectral ring:16 --all", ("0.05075", "slem")),
    Command("spectral ring:8 star:8 --json", keys=("name", "nodes", "spectral gap", "diameter")),
    Command("spectral ring:8 --markdown", ("| name | N_10 | spectral gap |",)),
    Command("spectral ring:8 --markdown --all", ("| name | nodes |",)),
    Command("spectral ring:8 --about paths", ("diameter",)),
    Command("spectral random_regular:10,k=3", ("note: random_regular:10,k=3: no `seed` given; 0",)),
    Command("spectral dcliques:20,seed=0", ("seed=0: no data given; one class per node is used",)),
    Command(
        "recommend --data digits --n 12 --max-degree 2 --static",
        ("candidates within max_degree=2", "1. topologies.", 'configuration file: topology = "'),
    ),
    Command(
        "recommend --data digits --n 12 --max-degree 2 --static --json",
        keys=("code", "rounds / complete", "messages", "MB", "H_10"),
    ),
    Command("run small.toml --dry-run", ("at once, at most", "GiB free", "by a probe", "in all ")),
    Command(
        "run small.toml --dry-run --json",
        keys=("n", "total", "parameters", "seconds_per_round", "fits"),
    ),
    Command("run small.toml --out new --progress", ("saved in new", "dsgd on dcliques")),
    Command("run base.toml --out seedless", ("note: [data] no `seed` given; 0 is used",)),
    Command(
        "run small.toml --out other --json",
        ("note: saved in other",),
        ("run", "algorithm", "final accuracy"),
    ),
    Command("resume a --json", keys=("run", "algorithm", "final accuracy")),
    Command(
        "sweep base.toml --store swept --grid topology=ring,star --json",
        keys=("topology", "accuracy"),
    ),
    Command("sweep base.toml --grid topology=ring --dry-run --json", keys=("runs", "to do")),
    Command("runs store --json", keys=("key", "algorithm.lr", "accuracy")),
    Command("runs . --where topology=star", ("star0", "star2")),
    Command("runs store --bibtex", ("@software{topofl,", "% dsgd\n@inproceedings{lian2017can,")),
    Command("compare a b --latex", ("\\toprule",)),
    Command("compare a b --target 1 --json", keys=("run", "final accuracy", "rounds to 1")),
    Command(f"compare {SIX} --group-by topology --markdown", ("| topology | runs | accuracy |",)),
    Command(f"compare {SIX} --group-by topology --latex", ("\\begin{tabular}{lrrrrr}\n\\toprule",)),
    Command(
        f"compare {SIX} --group-by topology --json",
        ("note: ±: 95 % interval (Student's t), averaged over run.seed",),
        ("topology", "runs", "accuracy", "worst tenth"),
    ),
    Command(
        "leaderboard run entry.toml --tasks digits-shards --out board --store store",
        ("mine, digits-shards: ", "written: board/digits-shards/mine.json"),
    ),
    Command("leaderboard build --out board", ("written: board/leaderboard.md",)),
    Command("leaderboard build --out board --json", keys=("written",)),
    Command("graphs a --labels", ("neighbor label distance",)),
    Command("graphs a/history --every 3 --json", keys=("round", "edges", "spectral gap")),
    Command("reproduce --list", ("dcliques-fig19", "dcliques-numbers", "Tiny-ImageNet")),
    Command("reproduce --list --json", keys=("name", "reproduced")),
    Command(
        f"reproduce {FIGURE} --scale smoke --out r --dry-run", ("dcliques-fig05     0      0",)
    ),
    Command(f"reproduce {FIGURE} --scale smoke --json", keys=("figure", "verdict")),
    Command(
        f"reproduce {FIGURE} --scale smoke --until-decided --hours 1 --json",
        keys=("figure", "verdict"),
    ),
    Command("study study.toml --dry-run --json", keys=("runs",)),
    Command("study study.toml --json", keys=("written",)),
    Command("doctor", ("ok    Python: 3.", "ok    self-test")),
    Command("doctor --json", keys=("check", "status", "details")),
    Command(
        "doctor --model gn_lenet --shape 3,32,32", ("the whole network    Sequential  batched",)
    ),
    Command(
        "doctor --model gn_lenet --shape 3,32,32 --json",
        keys=("layer", "type", "executor", "why"),
    ),
]


def shell(capsys, line, code=0):
    """Run a command line, check its exit code, and return what it prints."""
    capsys.readouterr()
    assert main(shlex.split(line)) == code, f"{line}: {capsys.readouterr()}"
    return capsys.readouterr()


def refusal(capsys, line, code=2):
    """Run a command line that must fail, and return its one line on stderr."""
    captured = shell(capsys, line, code)
    *notes, last = captured.err.splitlines()
    assert all(note.startswith("topofl: note: ") for note in notes)
    assert last.startswith("topofl: error: ")
    assert captured.out == ""
    return last


def rows_of(text):
    """Return the rows in JSON that a command printed, and nothing else."""
    found = json.loads(text)
    assert isinstance(found, list)
    assert all(isinstance(row, dict) for row in found)
    return found


def train(monkeypatch, error):
    """Let training raise an error."""

    def run(self, **options):
        raise error

    monkeypatch.setattr(config.Experiment, "run", run)


def contents(folder):
    """Return what is in all files of a folder, by their paths in it; locks apart."""
    found = {
        path.relative_to(folder): path for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }
    return {name.as_posix(): path.read_bytes() for name, path in found.items() if path.name != LOCK}
