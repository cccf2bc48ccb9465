"""Values of all types for configurations, and commands that must say what is wrong."""

import io
import re
from contextlib import redirect_stderr, redirect_stdout

from hypothesis import strategies as st

from tests import problems
from topofl import algorithms, topologies
from topofl.cli import main

HUGE = 2**50
"""No machine has as much memory, so that what is this large is refused at once."""


numbers = st.sampled_from(
    [-1, 0, 1, 2, 3, HUGE, -HUGE, 10**30, 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf")]
)


NAMES = "auto,test,raise,cpu,cuda,cuda:9,float32,ring"
words = st.sampled_from(["", *NAMES.split(","), "`", "a\nb", "\0", "é"])


plain = st.none() | st.booleans() | numbers | words


def small_run():
    return {
        "algorithm": algorithms.dsgd(lr=0.1, batch_size=4),
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 2,
        "seed": 0,
        "progress": False,
    }


DATA = {"name": "digits", "n": 6, "partition": "shards", "per_node": 2}

TABLES = {
    "data": {**DATA, "seed": 1, "split_seed": 0},
    "topology": {"name": "dcliques", "clique_size": 3, "inter": "ring", "steps": 10, "seed": 2},
    "mixing": {"name": "metropolis_hastings"},
    "algorithm": {"name": "dsgd", "lr": 0.5, "batch_size": 8, "momentum": 0.5, "local_steps": 1},
    "model": {"name": "logistic_regression", "in_features": 64, "n_classes": 10},
    "run": {"rounds": 1, "seed": 3},
    "evaluation": {"every": 1},
    "compute": {"executor": "auto", "dtype": "float32", "device": "cpu"},
}


keys = st.sampled_from(
    sorted(
        {key for table in TABLES.values() for key in table}
        | {"augment", "base", "spec", "chunk", "a b", ""}
    )
)


names = st.sampled_from(
    ["ring", "random_regular", "local_only", "centralized", "clique_averaging", "iid", "gn_lenet"]
)


values = st.recursive(
    plain | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
)


def says_what_is_wrong(*argv):
    """Return a command's exit code and error, after checking that it has one line if it fails."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
        code = main([str(word) for word in argv])
    errors = [line for line in err.getvalue().splitlines() if not line.startswith("topofl: note: ")]
    assert code in (0, 1, 2)
    assert len(errors) == (code != 0), err.getvalue()
    assert all(re.match("topofl: error: .{10}", line) for line in errors), errors
    return code, "".join(errors)
