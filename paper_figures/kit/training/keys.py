"""Runs by their keys."""

from collections.abc import Iterable

from topofl.runs.identity import Run


def keyed(runs: Iterable[Run]) -> dict[str, Run]:
    """Return runs by key, without duplicates.

    Raises
    ------
    FileNotFoundError, ValueError
        As :attr:`Run.key`; the message suggests how to run without the data.
    """
    try:
        return {run.key: run for run in runs}
    except ValueError as error:
        raise ValueError(
            f"{error}; --scale quick also accepts a subset of CIFAR-10, and --datasets mnist "
            "leaves CIFAR-10 out"
        ) from error
