"""Train for many rounds and check that memory, open files and files on disk do not grow.

``python -m analysis.soak`` trains 16 nodes on digits over a time-varying graph, with checkpoints,
evaluations and a log, in a temporary folder. It prints a table and one line per check, and exits
with 1 if a check fails:

* memory: after the first quarter of the run, the 95 % interval of the slope of resident memory lies
  below the growth of the history plus 1 MiB in 10,000 rounds (least squares, assuming independent
  residuals);
* open files and checkpoint files: never more than in the first quarter;
* resuming: a run resumed from its second-to-last checkpoint ends with the same models and history.

Linux only, since memory is read from ``/proc``.
"""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import topofl
from topofl import Table, algorithms, callbacks, data, models, topologies
from topofl.callbacks import Callback, Event

from .program import parser_of, process_bytes

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


@dataclass(frozen=True)
class Slope:
    """Growth of resident memory in MiB per 10,000 rounds: estimate and 95 % interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        interval = f"{self.low:+.3f} to {self.high:+.3f}"
        return f"{self.estimate:+.3f} MiB in {PER:,} rounds (95 %: {interval})"


@dataclass(frozen=True)
class Check:
    """A condition, whether it holds, and the measured values."""

    name: str
    holds: bool
    numbers: str

    def __str__(self) -> str:
        return f"{'HOLDS' if self.holds else 'FAILS'}  {self.name}: {self.numbers}"


@dataclass(frozen=True, eq=False)
class Soak:
    """Measurements of a long run.

    Parameters
    ----------
    samples
        Samples in order of time.
    history_bytes
        Growth of the history's arrays per round, in bytes.
    resumed
        Whether the resumed run equals the original.
    """

    samples: tuple[Sample, ...]
    history_bytes: float
    resumed: Check


def slope(samples: Sequence[Sample]) -> Slope:
    """Return the growth of resident memory after the first quarter of the samples.

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
    return Slope(float(fit.slope), float(fit.slope - margin), float(fit.slope + margin))


def checks(soak: Soak) -> Iterator[Check]:
    """Yield the checks of a long run."""
    grows = slope(soak.samples)
    must = soak.history_bytes * PER / MIB
    numbers = f"{grows}; the history itself {must:+.3f}, limit {must + LIMIT:.3f}"
    yield Check("memory is flat", grows.high <= must + LIMIT, numbers)
    rest = _after_warm_up(soak.samples)
    parts = soak.samples[: len(soak.samples) - len(rest)], rest
    for name, kind in (("descriptors", "open files"), ("files", "files of checkpoints")):
        before, after = (max(getattr(s, name) for s in part) for part in parts)
        yield Check(
            f"no more {kind}",
            after <= before,
            f"at most {before} in the first quarter, {after} later",
        )
    yield soak.resumed


def _after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[math.ceil(len(samples) / 4) :]


def table(samples: Sequence[Sample]) -> Table:
    """Return one row per sample."""
    columns = ("rounds", "resident MiB", "open files", "checkpoint files", "checkpoint MiB")
    rows = ((s.round, s.resident / MIB, s.descriptors, s.files, s.folder / MIB) for s in samples)
    return Table(columns, tuple(rows))


def watch(samples: list[Sample], folder: Path) -> Callback:
    """Return a callback that adds a sample at every checkpoint."""

    def callback(event: Event) -> None:
        if event.kind == "checkpoint":
            sizes = [path.stat().st_size for path in folder.iterdir()]
            open_files = len(os.listdir("/proc/self/fd"))
            samples.append(Sample(event.round, resident(), open_files, len(sizes), sum(sizes)))
            print(
                f"round {event.round}: {samples[-1].resident / MIB:.1f} MiB",
                file=sys.stderr,
                flush=True,
            )

    return callback


def resident() -> int:
    """Return the resident memory of this process in bytes.

    Raises
    ------
    OSError
        If the system is not Linux.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        raise OSError(
            f"resident memory is read from {status}, which does not exist; run this on Linux"
        )
    return process_bytes("VmRSS")


def keep(checkpoint_of: int, folder: Path, copy: Path, ends: list[np.ndarray]) -> Callback:
    """Return a callback that copies the checkpoints once and stores the final models."""

    def callback(event: Event) -> None:
        if event.kind == "checkpoint" and event.round == checkpoint_of:
            shutil.copytree(folder, copy)
        if event.kind == "end" and event.models is not None:
            ends.append(event.models.flat.cpu().numpy().copy())

    return callback


def measure(rounds: int, *, every: int = 500) -> Soak:
    """Return the measurements of a run of `rounds` rounds that is resumed once.

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


def _measure(train: Any, place: Path, rounds: int, every: int) -> Soak:
    samples = list[Sample]()
    ends = list[np.ndarray]()
    whole = place / "whole"
    copy = place / "copy"
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
    return Soak(tuple(samples), _bytes_per_round(history), _resumed(ends, history, again, last))


def _bytes_per_round(history: topofl.History) -> float:
    arrays = [
        history.node_loss,
        history.matrix_of_round,
        *history.rounds.values(),
        *history.evaluations.values(),
    ]
    return sum(array.nbytes for array in arrays) / history.n_rounds


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
    return Check("resuming changes nothing", all(parts.values()), f"from round {last:,}: {said}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak test from the command line; returns the exit code, 1 if a check fails."""
    options = parser_of(
        "soak",
        __doc__,
        rounds=(20_000, "number of rounds"),
        every=(500, "rounds between two samples"),
        out=(Path, "Markdown file for table and checks"),
    ).parse_args(argv)
    soak = measure(options.rounds, every=options.every)
    rows, results = table(soak.samples), list(checks(soak))
    print(rows)
    print(*results, sep="\n")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(
            "\n".join([rows.to_markdown(), "", *(f"- {check}" for check in results), ""])
        )
    return 0 if all(check.holds for check in results) else 1


if __name__ == "__main__":
    sys.exit(main())
