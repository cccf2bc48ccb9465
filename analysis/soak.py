"""Train for many rounds and check that memory, open files and files on disk do not grow.

``python -m analysis.soak`` trains 16 nodes on digits over a time-varying graph, with checkpoints,
evaluations and a log, in a temporary folder. It prints a table and one line per check, and exits
with 1 if a check fails:

* memory: after the first quarter of the run, the 95 % interval of the slope of resident memory lies
  below the growth of the history plus 1 MiB in 10,000 rounds (least squares, assuming independent
  residuals);
* open files and checkpoint files: never more than in the first quarter;
* resuming: a run resumed from its second-to-last checkpoint ends with the same models and history.

Not on Windows, which cannot count open files.
"""

import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy import stats

import topofl
from topofl import Table, algorithms, callbacks, data, models, topologies
from topofl.callbacks import Callback, Event

from .program import parser_of

MIB = 2**20
PER = 10_000
"""Number of rounds to which slopes refer."""

LIMIT = 1.0
"""Limit of the growth of resident memory in `PER` rounds, in MiB, in addition to the history."""

N = 16
"""Number of nodes."""


@dataclass(frozen=True)
class Sample:
    """Memory and files of the process after a round.

    Parameters
    ----------
    round
        Completed rounds.
    resident
        Resident memory in bytes.
    descriptors
        Open files, sockets and pipes.
    files, folder
        Number of checkpoint files, and their bytes.
    """

    round: int
    resident: int
    descriptors: int
    files: int
    folder: int


Check = tuple[bool, str]
"""Whether a condition holds, and its name with the measured values."""


def slope(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Return the growth of resident memory after the first quarter of the samples.

    The result is an estimate in MiB per 10,000 rounds with its 95 % interval.

    Raises
    ------
    ValueError
        If fewer than 3 samples remain.
    """
    rest = _after_warm_up(samples)
    if len(rest) < 3:
        raise ValueError(
            f"`samples` must be at least 4, got {len(samples)}; train longer or sample more often"
        )
    fit: Any = stats.linregress([s.round / PER for s in rest], [s.resident / MIB for s in rest])
    margin = float(stats.t.ppf(0.975, len(rest) - 2)) * fit.stderr
    return float(fit.slope), float(fit.slope - margin), float(fit.slope + margin)


def checks(samples: Sequence[Sample], history_bytes: float, resumed: Check) -> Iterator[Check]:
    """Yield the checks of a long run, whose measurements are those of :func:`measure`."""
    estimate, low, high = slope(samples)
    must = history_bytes * PER / MIB
    grows = f"{estimate:+.3f} MiB in {PER:,} rounds (95 %: {low:+.3f} to {high:+.3f})"
    limit = f"the history itself {must:+.3f}, limit {must + LIMIT:.3f}"
    yield high <= must + LIMIT, f"memory is flat: {grows}; {limit}"
    rest = _after_warm_up(samples)
    parts = samples[: len(samples) - len(rest)], rest
    for name, kind in (("descriptors", "open files"), ("files", "files of checkpoints")):
        before, after = (max(getattr(s, name) for s in part) for part in parts)
        yield (
            after <= before,
            f"no more {kind}: at most {before} in the first quarter, {after} later",
        )
    yield resumed


def _after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[math.ceil(len(samples) / 4) :]


def table(samples: Sequence[Sample]) -> Table:
    """Return one row per sample."""
    columns = ("rounds", "resident MiB", "open files", "checkpoint files", "checkpoint MiB")
    rows = ((s.round, s.resident / MIB, s.descriptors, s.files, s.folder / MIB) for s in samples)
    return Table(columns, tuple(rows))


def watch(samples: list[Sample], folder: Path) -> Callback:
    """Return a callback that adds a sample at every checkpoint."""
    process = psutil.Process()

    def callback(event: Event) -> None:
        if event.kind == "checkpoint":
            sizes = [path.stat().st_size for path in folder.iterdir()]
            held = process.memory_info().rss
            open_files = process.num_fds()
            samples.append(Sample(event.round, held, open_files, len(sizes), sum(sizes)))
            print(f"round {event.round}: {held / MIB:.1f} MiB", file=sys.stderr, flush=True)

    return callback


def keep(checkpoint_of: int, folder: Path, copy: Path, ends: list[np.ndarray]) -> Callback:
    """Return a callback that copies the checkpoints once and stores the final models."""

    def callback(event: Event) -> None:
        if event.kind == "checkpoint" and event.round == checkpoint_of:
            shutil.copytree(folder, copy)
        if event.kind == "end" and event.models is not None:
            ends.append(event.models.flat.cpu().numpy().copy())

    return callback


def measure(rounds: int, *, every: int = 500) -> tuple[list[Sample], float, Check]:
    """Return the measurements of a run of `rounds` rounds that is resumed once.

    These are samples in order of time, the bytes by which the history's arrays grow per round, and
    whether the resumed run equals the original.

    Parameters
    ----------
    rounds, every
        Total number of rounds, and rounds between checkpoints, at which samples are taken.
        Evaluations are half as frequent.

    Raises
    ------
    ValueError
        If there would be fewer than 8 samples: two of them must be in the first quarter, after
        which the number of checkpoint files is constant.
    """
    if rounds < 8 * every:
        raise ValueError(
            f"`rounds` must be at least {8 * every}, eight times `every`, got {rounds}"
        )
    clients = data.shards(data.digits(), n=N, per_node=2, seed=0)
    train = partial(
        topofl.run,
        algorithms.dsgd(lr=0.05, batch_size=8, momentum=0.9),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.one_peer_exponential(N),
        rounds=rounds,
        seed=0,
        evaluation=2 * every,
        compute=topofl.Compute(executor="batched"),
        progress=False,
    )
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        return _measure(train, Path(place), rounds, every)


def _measure(train: Any, place: Path, rounds: int, every: int) -> tuple[list[Sample], float, Check]:
    samples, ends = list[Sample](), list[np.ndarray]()
    whole, copy = place / "whole", place / "copy"
    last = (rounds - 1) // every * every
    watching = [
        callbacks.jsonl(place / "log.jsonl"),
        watch(samples, whole),
        keep(last, whole, copy, ends),
    ]
    history = train(saving=topofl.Saving(whole, every=every), callbacks=watching)
    again = train(
        saving=topofl.Saving(copy, every=every, resume=True), callbacks=[keep(-1, copy, copy, ends)]
    )
    arrays = [history.node_loss, history.matrix_of_round]
    arrays += [*history.rounds.values(), *history.evaluations.values()]
    grown = sum(array.nbytes for array in arrays) / history.n_rounds
    return samples, grown, _resumed(ends, history, again, last)


def _resumed(
    ends: list[np.ndarray], whole: topofl.History, again: topofl.History, last: int
) -> Check:
    parts: Mapping[str, bool] = {
        "models": np.array_equal(ends[0], ends[1]),
        "losses": np.array_equal(whole.node_loss, again.node_loss),
        "accuracies": np.array_equal(whole["accuracy"], again["accuracy"]),
        "matrices": np.array_equal(whole.matrix_of_round, again.matrix_of_round),
    }
    said = ", ".join(f"{name} {'equal' if same else 'differ'}" for name, same in parts.items())
    return all(parts.values()), f"resuming changes nothing: from round {last:,}: {said}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak test from the command line; returns the exit code, 1 if a check fails."""
    options = parser_of(
        "soak",
        __doc__,
        rounds=(20_000, "number of rounds"),
        every=(500, "rounds between two samples"),
        out=(Path, "Markdown file for table and checks"),
    ).parse_args(argv)
    samples, history_bytes, resumed = measure(options.rounds, every=options.every)
    rows, results = table(samples), list(checks(samples, history_bytes, resumed))
    lines = [f"{'HOLDS' if holds else 'FAILS'}  {said}" for holds, said in results]
    print(rows, *lines, sep="\n")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join([rows.to_markdown(), "", *(f"- {line}" for line in lines), ""])
        options.out.write_text(text)
    return 0 if all(holds for holds, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
