"""Runs that are killed at chosen points and resumed, in a process started by test_resume.py.

Importing torch takes seconds and a fork milliseconds: this process imports it once, and a fork of
it runs until it kills itself. What then remains on disk is all that the parent resumes from.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.rows.methods import ALGORITHMS

PROBLEMS = [*ALGORITHMS, "dsgd over a period", "dsgd over new graphs"]
TRAINING = [
    "between rounds",
    "after train, in the second round",
    "after train",
    "after mix",
    "in the last round",
]
WRITING = [
    "with half of the first rows",
    "with half of the rows",
    "with half of the shared tensors",
    "before the marker",
    "before it has its name",
    "after it has its name",
    "before the folder is synchronized",
    "before old ones are removed",
]
ANY_TIME = ("clique_averaging", "dsgd over new graphs")
"""Problems that are killed at every point."""


def _name(problem):
    return problem.partition(" over ")[0]


def moments(problem):
    """Return the points at which a problem is killed, after a checkpoint of round two or four."""
    if problem in ANY_TIME:
        return [*TRAINING, *WRITING]
    mixes = ALGORITHMS[_name(problem)].mixes
    return ["between rounds", "after mix" if mixes else "after train"]


CASES = [f"{problem}: {moment}" for problem in PROBLEMS for moment in moments(problem)]


def settings(problem):
    """Return the arguments of a run."""
    import topofl
    from tests import problems
    from topofl import algorithms, topologies

    name, _, graphs = problem.partition(" over ")
    row = ALGORITHMS[name]
    clients = problems.validated_clients() if row.validated else problems.equal_clients()
    topology = {
        "": problems.cliques(clients),
        "a period": topologies.one_peer_exponential(6),
        "new graphs": topofl.as_topology(lambda t: topologies.random_regular(6, 3, seed=t)),
    }[graphs]
    arguments = {**row.required, **row.killed}
    algorithm = getattr(algorithms, name)(lr=0.1, batch_size=4, **arguments)
    model = problems.perceptron() if "head" in arguments else problems.linear()
    start = "common" if row.common_start else "independent"
    how = {"model": model, "clients": clients, "topology": topology, "device": "cpu", "init": start}
    if "head" in arguments:
        how["executor"] = "looped"  # auto chooses by the clock, which no two runs share
    return {"algorithm": algorithm, "rounds": 7, "seed": 0, "every": 3} | how


def trained(arguments, **more):
    """Return the history of a run and its models."""
    import topofl
    from tests import problems

    kept, how = {}, problems.options(**arguments, **more)
    further = how.pop("callbacks", [])
    history = topofl.run(
        **how, callbacks=[lambda event: kept.update(models=event.models), *further]
    )
    return history, kept["models"].flat.clone()


def differences(one, other):
    """Return the bitwise differences between two results of `trained`."""
    (a, models), (b, others) = one, other
    tables = {"rounds": (a.rounds, b.rounds), "evaluations": (a.evaluations, b.evaluations)}
    found = [name for name, (left, right) in tables.items() if list(left) != list(right)]
    for left, right in tables.values():
        found += [
            name for name in left if not np.array_equal(left[name], right[name], equal_nan=True)
        ]
        found += [f"dtype of {name}" for name in left if left[name].dtype != right[name].dtype]
    found += (
        ["models"] if not np.array_equal(models.numpy(), others.numpy(), equal_nan=True) else []
    )
    found += ["node_loss"] if not np.array_equal(a.node_loss, b.node_loss, equal_nan=True) else []
    found += ["matrix_of_round"] if not np.array_equal(a.matrix_of_round, b.matrix_of_round) else []
    matrices = [
        [(m.name, m.weights.toarray().tolist()) for m in history.matrices] for history in (a, b)
    ]
    found += ["matrices"] if matrices[0] != matrices[1] else []
    return found + (["meta"] if a.meta != b.meta else [])


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(module, name, call, *, after=False):
    """Kill the process at a given call of a function, before or after the call."""
    function, calls = getattr(module, name), [0]

    def deadly(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call and not after:
            die()
        result = function(*args, **kwargs)
        if calls[0] == call:
            die()
        return result

    setattr(module, name, deadly)


def die_with_half(call):
    """Kill the process when half of a file is written."""
    from topofl.engine import checkpoint

    whole, calls = checkpoint.write_tensors, [0]

    def half(path, tensors, texts):
        calls[0] += 1
        checksum = whole(path, tensors, texts)
        if calls[0] == call:
            os.truncate(path, path.stat().st_size // 2)
            die()
        return checksum

    checkpoint.write_tensors = half


def plan(moment):
    """Prepare to be killed in a run with a checkpoint every two rounds; return its arguments."""
    from tests import problems
    from topofl.engine import checkpoint
    from topofl.engine.mixing import Mixing
    from topofl.engine.round import Round

    if moment in ("between rounds", "in the last round"):
        last = 5 if moment == "between rounds" else 7
        return {
            "callbacks": [problems.each_round(lambda done, models: die() if done == last else None)]
        }
    {
        "after train, in the second round": lambda: die_at(Round, "_train", 2, after=True),
        "after train": lambda: die_at(Round, "_train", 4, after=True),
        "after mix": lambda: [
            die_at(owner, door, 4, after=True)
            for owner, door in (
                *((Mixing, door) for door in ("mix", "average", "aggregate")),
                (Round, "send"),
            )
        ],
        "with half of the first rows": lambda: die_with_half(1),
        "with half of the rows": lambda: die_with_half(5),
        "with half of the shared tensors": lambda: die_with_half(6),
        "before the marker": lambda: die_at(checkpoint, "_write_marker", 3),
        "before it has its name": lambda: die_at(checkpoint.os, "replace", 3),
        "after it has its name": lambda: die_at(checkpoint.os, "replace", 3, after=True),
        "before the folder is synchronized": lambda: die_at(checkpoint, "sync_folder", 5),
        "before old ones are removed": lambda: die_at(checkpoint, "prune", 3),
    }[moment]()
    return {}


def verdict(case, reference, folder):
    """Kill a run, resume it, and return the differences from an uninterrupted run."""
    import topofl

    problem, _, moment = case.partition(": ")
    child = os.fork()
    if child == 0:
        try:
            trained(settings(problem), saving=topofl.Saving(folder, every=2), **plan(moment))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        return [f"it was not killed: status {status}"]
    resumed = trained(settings(problem), saving=topofl.Saving(folder, every=2, resume=True))
    names = sorted(path.name for path in Path(folder).iterdir())
    leftovers = [] if len(names) == 2 else [f"files {names}"]
    return differences(resumed, reference) + leftovers


def main():
    references = {problem: trained(settings(problem)) for problem in PROBLEMS}
    with tempfile.TemporaryDirectory() as folder:
        wrong = {
            case: verdict(case, references[case.partition(": ")[0]], f"{folder}/{case}")
            for case in CASES
        }
    json.dump(wrong, sys.stdout)


if __name__ == "__main__":
    main()
