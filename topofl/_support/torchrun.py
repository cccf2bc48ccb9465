"""What torchrun tells the processes that it starts, by environment variables."""

import os

__all__ = [
    "local_process_number",
    "process_count",
    "process_number",
    "processes_on_machine",
    "torchrun_holds_store",
]


def process_number() -> int | None:
    """Return the number of this process if it was started by torchrun, and otherwise None.

    Examples
    --------
    >>> process_number() is None
    True
    """
    rank = os.environ.get("RANK")
    return int(rank) if rank is not None and "WORLD_SIZE" in os.environ else None


def process_count() -> int:
    """Return the number of processes that were started together.

    Examples
    --------
    >>> process_count()
    1
    """
    return 1 if process_number() is None else int(os.environ["WORLD_SIZE"])


def local_process_number() -> int:
    """Return the number of this process among those of its machine.

    Examples
    --------
    >>> local_process_number()
    0
    """
    return int(os.environ.get("LOCAL_RANK", "0"))


def processes_on_machine() -> int:
    """Return the number of processes on this machine that were started together.

    Examples
    --------
    >>> processes_on_machine()
    1
    """
    return 1 if process_number() is None else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def torchrun_holds_store() -> bool:
    """Return whether torchrun holds the key-value store, and not the process of rank 0.

    Examples
    --------
    >>> torchrun_holds_store()
    False
    """
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
