"""One rank of a process group that runs all cases, and saves the results on rank 0.

``python worker.py RESULTS [CASE...]``; torchrun's variables are in the environment.
"""

import os
import pickle
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))


def result_of(history):
    """Return everything that two runs of a case have in common."""
    matrices = [(one.name, one.weights.toarray()) for one in history.matrices]
    return {
        "rounds": history.rounds,
        "evaluations": history.evaluations,
        "node_loss": history.node_loss,
        "matrix_of_round": history.matrix_of_round,
        "matrices": matrices,
        "models": None if history.models is None else history.models.flat,
        "meta": history.meta,
    }


def result(case, **compute):
    """Return the result of a case, or the text of an error."""
    import topofl
    from tests import problems
    from tests.engine.distributed.cases import CASES

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return result_of(topofl.run(**problems.options(**CASES[case](), **compute)))
    except Exception:
        return traceback.format_exc()


def main(out, *names):
    from tests.engine.distributed.cases import CASES

    out, rank = Path(out), int(os.environ["RANK"])
    for name in names or CASES:
        found = result(name, distributed=True, rank_timeout=30)
        part = out / f"{list(CASES).index(name)}.{rank}.partial"
        part.write_bytes(pickle.dumps(found))
        part.rename(part.with_suffix(".pickle"))


if __name__ == "__main__":
    main(*sys.argv[1:])
