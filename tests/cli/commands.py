"""Commands that must fail, and the configuration of a small run."""

from pathlib import Path

from topofl import config
from topofl._support.locks import LOCK
from topofl.cli import main

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


def fails(capsys, code, *argv):
    """Run a command that must fail; return its one line on stderr."""
    capsys.readouterr()
    assert main(argv) == code
    captured = capsys.readouterr()
    *notes, last = captured.err.splitlines()
    assert all(note.startswith("topofl: note: ") for note in notes)
    assert last.startswith("topofl: error: ")
    assert captured.out == ""
    return last


def train(monkeypatch, error):
    """Let training raise an error."""

    def run(self, **options):
        raise error

    monkeypatch.setattr(config.Experiment, "run", run)


FAILING = "link_failures,base=({}),fail=0.1,recover=0.5,seed=0"


def contents(folder):
    """Return what is in all files of a folder, by their paths in it; locks apart."""
    found = {
        path.relative_to(folder): path for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }
    return {name.as_posix(): path.read_bytes() for name, path in found.items() if path.name != LOCK}
