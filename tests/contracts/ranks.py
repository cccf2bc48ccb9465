"""Runs on two and three ranks, compared with those of a single process.

Importing torch takes seconds and a fork milliseconds: this process imports it once, trains all
runs alone, and is forked once per rank. Each rank trains all; rank 0 compares and writes what
differs, by run.
"""

import json
import sys
import tempfile
import traceback
import warnings
from functools import partial
from pathlib import Path

import topofl
from tests.engine.distributed.processes import forked
from tests.rows.runs import ROUNDS, differences, in_float64, tolerance_of
from topofl.algorithms.exchanges import masks
from topofl.engine import mixing, ranks

LIMIT = 400
"""Seconds after which all ranks are killed."""


def plan_of(reference):
    """Return the options that repeat the executor of a run."""
    chunk = reference.meta["chunk"] if reference.meta["executor"] == "batched" else "auto"
    return {"executor": reference.meta["executor"], "chunk": chunk}


def verdict(name, reference, folder, size):
    """Return what differs if a row runs on ranks, and continue its checkpoints."""
    how = {"distributed": True, "rank_timeout": 60} | plan_of(reference)
    found = topofl.run(**in_float64(name, **how))
    wrong = differences(found, reference, tolerance_of(name))
    until = {2: ROUNDS - 2, 3: ROUNDS - 1}[size]  # the last round of 2 ranks is continued by 3
    saving = topofl.Saving(folder, every=until, resume=size == 3)
    topofl.run(**in_float64(name, **how, rounds=until), saving=saving)
    return wrong


def run_all(rank, size, references, root):
    """Run all rows on one rank."""
    for k, (name, reference) in enumerate(references.items()):
        try:
            wrong, failed = verdict(name, reference, root / str(k), size), False
        except BaseException:
            wrong, failed = [traceback.format_exc()], True
        if rank == 0 or failed:
            (root / f"{size}-{k}-{rank}.json").write_text(json.dumps(wrong))
        if failed:
            return  # ranks may disagree about where they are


def written(root, size, k):
    """Return the verdict of a row, or the errors of any rank."""
    own = root / f"{size}-{k}-0.json"
    found = json.loads(own.read_text()) if own.exists() else ["it did not finish"]
    for path in sorted(root.glob(f"{size}-{k}-[1-9].json")):
        found += [f"rank {path.stem[-1]}: {error}" for error in json.loads(path.read_text())]
    return found


def continued_alone(name, reference, folder):
    """Return what differs if a single process continues the checkpoint of three ranks."""
    try:
        saving = topofl.Saving(folder, resume=True)
        got = topofl.run(**in_float64(name, **plan_of(reference)), saving=saving)
        return differences(got, reference, tolerance_of(name))
    except Exception:
        return [traceback.format_exc()]


def main(*names):
    warnings.simplefilter("ignore")
    # ranks exchange, gather and sum models in several blocks of columns
    mixing.SENT, ranks.NUMBERS, ranks.BLOCK, masks.BLOCK = 2**10, 2**9, 2**11, 2**9
    references = {name: topofl.run(**in_float64(name)) for name in names}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for size in (2, 3):
            forked(size, partial(run_all, size=size, references=references, root=root), LIMIT)
        found = {}
        for k, (name, reference) in enumerate(references.items()):
            found[name] = {"2 ranks": written(root, 2, k), "3 ranks": written(root, 3, k)}
            alone = continued_alone(name, reference, root / str(k))
            found[name]["alone after 3 ranks"] = alone
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
