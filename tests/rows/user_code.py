"""Source of a user's module, tables of an experiment that uses it, and package metadata."""

import subprocess
import sys
import textwrap
from contextlib import contextmanager

MINE = '''
"""A user's module."""
from __future__ import annotations

import functools

import torch
from topofl import NotApplicable, TopologyError, algorithms, data, from_edges, mixing, models, \
topologies

made = topologies.ring(4)
half = functools.partial(topologies.ring)
_hidden = len

def wheel(n: int, hub: int = 0, *, base=None, key=len, sizes=(1, 2)):
    """Return a hub and its spokes.

    More.
    """
    return from_edges([(hub, i) for i in range(n) if i != hub], n=n)

def counted(label_counts):
    return topologies.ring(len(label_counts))

def on_another(base):
    return base

def any_keys(**keys):
    return topologies.ring(keys["n"])

def positional(n, /):
    return topologies.ring(n)

def nothing(n=3):
    topologies.ring(n)

def text(n=3):
    return "ring"

def petersen():
    import networkx
    return networkx.petersen_graph()

def matrix(n=3):
    return [[0, 1, 1], [1, 0, 1], [1, 1, 0]]

def pairs():
    return [(0, 1), (1, 2)]

def rounds():
    return [[(0, 1), (1, 2)], topologies.ring(3)]

def fails(n=3):
    return {}["x"]

def refuses(n=3):
    raise ValueError("`n` must be prime")

def refuses_graph(n=3):
    raise TopologyError("no such graph")

def slow_sgd(lr, head=algorithms.head, local_steps=2):
    return algorithms.dsgd(lr, local_steps=local_steps)

class Net(torch.nn.Sequential):
    def __init__(self, in_features, n_classes, width=5):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(in_features, width), \
torch.nn.Linear(width, n_classes))
        self.scale = torch.nn.Parameter(torch.rand(()))

    def forward(self, x):
        return self.scale * super().forward(x)

def digits(test=300):
    return data.digits(test=test)

def split(source, n, seed):
    return data.iid(source, n, seed=seed)

def half_of(dataset):
    return dataset

def without_seed(dataset, n=4):
    return data.iid(dataset, n, seed=7)

def rule(graph, laziness=0.5):
    return mixing.lazy(mixing.metropolis_hastings(graph), share=laziness)

def no_rule():
    return None

def crops(padding=1):
    return data.crop_and_flip(padding=padding)

def heaviest(matrix):
    return float(matrix.weights.max())

def of_lines(matrix):
    raise TopologyError("it is no line")

def of_nothing(matrix):
    return NotApplicable("never")

def of_words(matrix):
    return "much"
'''


def install(folder, name, points, version="1.0"):
    """Create the metadata of an installed package in a folder on the path."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(points))


BROKEN = {
    "raises_": "x = 1\n1 / 0\n",
    "needs_": "import there_is_no_such_module\n",
    "stops_": "raise SystemExit(3)\n",
    "wrong_": "def f(:\n",
}
"""Modules that cannot be imported."""

POINTS = """
[topofl.topologies]
spokes = mine_:wheel [extra]
ring = mine_:wheel
broken = raises_:f
absent = mine_:whee
[topofl.algorithms]
slow = mine_:slow_sgd
[topofl.data]
my_digits = mine_:digits
my_split = mine_:split
[topofl.metrics]
heavy = mine_:heaviest
slem = mine_:heaviest
"""
"""Entry points in all groups, some of them broken."""


@contextmanager
def installed_modules(folder, monkeypatch, package=True):
    """Put a user's modules on the path, and a package with entry points."""
    monkeypatch.syspath_prepend(folder)
    modules = {"mine_": MINE} | BROKEN
    for name, text in modules.items():
        monkeypatch.delitem(sys.modules, name, raising=False)
        (folder / f"{name}.py").write_text(text)
    if package:
        install(folder, "mypackage", POINTS)
    yield folder
    for name in modules:
        sys.modules.pop(name, None)


TABLES = {
    "data": {"name": "mine_:digits", "partition": "mine_:split", "n": 4, "seed": 1},
    "topology": "mine_:wheel",
    "mixing": "mine_:rule,laziness=0.25",
    "algorithm": {"name": "mine_:slow_sgd", "lr": 0.5},
    "model": {"name": "mine_:Net", "width": 3},
    "run": {"rounds": 2, "seed": 0, "progress": False},
}


def topofl_in(folder, *words):
    """Run topofl as a process in a folder that is not on Python's path; None: the current one."""
    code = "import sys; sys.path = [p for p in sys.path if p]; from topofl.cli import main; "
    command = [sys.executable, "-c", f"{code}sys.exit(main(sys.argv[1:]))", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
