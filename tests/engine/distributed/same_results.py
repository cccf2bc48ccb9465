"""Runs on two and three ranks, compared with those of a single process.

Importing torch takes seconds and a fork milliseconds: this process imports it once, trains all
cases alone, and is forked once per rank. Each rank runs all cases; rank 0 compares and writes what
differs, by case.
"""

import json
import sys
import tempfile
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from tests.engine.distributed.processes import forked

LIMIT = 400
"""Seconds after which all ranks are killed."""


def tables_of(history):
    """Return all numbers of a history, by name."""
    rounds = {f"rounds.{name}": column for name, column in history.rounds.items()}
    return {
        **rounds,
        **{f"evaluations.{name}": column for name, column in history.evaluations.items()},
        "node_loss": history.node_loss,
        "matrix_of_round": history.matrix_of_round,
        **{f"matrix {k}": one.weights.toarray() for k, one in enumerate(history.matrices)},
        **({} if history.models is None else {"models": history.models.flat.numpy()}),
    }


def differences(got, wanted, tolerance):
    """Return what differs between two histories by more than a tolerance, relative above 1."""
    found, expected = tables_of(got), tables_of(wanted)
    wrong = [f"{name} is missing" for name in expected.keys() - found.keys()]
    own = {"rounds.cut_edges", "rounds.rank_bytes", "rounds.exchange_seconds"}
    wrong += [f"{name} is new" for name in found.keys() - expected.keys() - own]
    for name in found.keys() & expected.keys():
        one, other = found[name], expected[name]
        if one.shape != other.shape or one.dtype != other.dtype:
            wrong.append(f"{name}: {one.dtype}{one.shape}, not {other.dtype}{other.shape}")
        elif not np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True):
            with np.errstate(invalid="ignore"):
                wrong.append(f"{name}: {np.nanmax(np.abs(one - other)):.2g}")
    meta = {"executor", "diverged", "columns", "settings"}
    return wrong + [
        f"meta {name}" for name in meta if repr(got.meta[name]) != repr(wanted.meta[name])
    ]


def run(case, **changes):
    """Return the history of a case."""
    import topofl
    from tests import problems
    from tests.engine.distributed.cases import arguments_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return topofl.run(**problems.options(**arguments_of(case) | changes))


def plan_of(reference):
    """Return the options that repeat the executor of a run."""
    chunk = reference.meta["chunk"] if reference.meta["executor"] == "batched" else "auto"
    return {"executor": reference.meta["executor"], "chunk": chunk}


def verdict(case, reference, folder, size):
    """Return what differs if a case runs on ranks, and continue its checkpoints."""
    import topofl
    from tests.engine.distributed.cases import ROUNDS, tolerance_of

    how = {"distributed": True, "rank_timeout": 60} | plan_of(reference)
    wrong = differences(run(case, **how), reference, tolerance_of(case))
    until = {2: ROUNDS - 2, 3: ROUNDS - 1}[size]  # round 2 of 2 ranks is continued by 3
    run(case, **how, rounds=until, saving=topofl.Saving(folder, every=until, resume=size == 3))
    return wrong


def run_all(rank, size, references, root):
    """Run all cases on one rank."""
    for k, (case, reference) in enumerate(references.items()):
        try:
            wrong = verdict(case, reference, root / case, size)
            failed = False
        except BaseException:
            wrong, failed = [traceback.format_exc()], True
        if rank == 0 or failed:
            (root / f"{size}-{k}-{rank}.json").write_text(json.dumps(wrong))
        if failed:
            return  # ranks may disagree about where they are


def written(root, size, k):
    """Return the verdict of a case, or the errors of any rank."""
    own = root / f"{size}-{k}-0.json"
    found = json.loads(own.read_text()) if own.exists() else ["it did not finish"]
    for path in sorted(root.glob(f"{size}-{k}-[1-9].json")):
        found += [f"rank {path.stem[-1]}: {error}" for error in json.loads(path.read_text())]
    return found


def continued_alone(case, reference, folder):
    """Return what differs if a single process continues the checkpoint of three ranks."""
    import topofl
    from tests.engine.distributed.cases import tolerance_of

    try:
        saving = topofl.Saving(folder, resume=True)
        got = run(case, **plan_of(reference), saving=saving)
        return differences(got, reference, tolerance_of(case))
    except Exception:
        return [traceback.format_exc()]


def exchange_in_small_blocks():
    """Let ranks exchange, gather and sum models in several blocks of columns."""
    from topofl.algorithms.exchanges import masks
    from topofl.engine import mixing, ranks

    mixing.SENT, ranks.NUMBERS, ranks.BLOCK, masks.BLOCK = 2**10, 2**9, 2**11, 2**9


def main(*names):
    from tests.engine.distributed.cases import CASES

    exchange_in_small_blocks()
    references = {case: run(case) for case in names or CASES}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for size in (2, 3):
            forked(size, partial(run_all, size=size, references=references, root=root), LIMIT)
        found = {
            case: {
                "2 ranks": written(root, 2, k),
                "3 ranks": written(root, 3, k),
                "alone after 3 ranks": continued_alone(case, reference, root / case),
            }
            for k, (case, reference) in enumerate(references.items())
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
