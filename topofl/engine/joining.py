"""Start of a distributed run: process group, placement, and processes without nodes."""

import atexit
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore

from topofl._support.torchrun import local_process_number, process_count
from topofl.engine.placement import place
from topofl.engine.rank_failure import (
    Link,
    RankError,
    answering,
    report_own_error,
)
from topofl.engine.ranks import Ranks
from topofl.topology import Topology, TopologySequence

__all__ = ["IdleRank", "Joined", "joined_ranks", "joined_store", "local_device"]

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets."""

FIRST_TIMEOUT = 600.0
"""Seconds in which all processes must start."""

_RUNS = count()
"""Numbers of the distributed runs of this process, which name their keys in the store."""


@dataclass(frozen=True, eq=False)
class IdleRank:
    """A process that holds no nodes, because there are more processes than nodes."""

    link: Link
    rank: int

    def history(self) -> Any:
        """Wait for the end of the run, and return its history, without models.

        Raises
        ------
        RankError
            If the run failed.
        """
        try:
            while not self.link.store.check(["done"]):
                if self.link.store.check(["error"]) or self.link.store.check(["reports"]):
                    raise RankError("the other ranks failed", reporter=False)
                time.sleep(0.1)
            box = [None]
            dist.broadcast_object_list(box, src=0)
        except RankError:
            raise
        except RuntimeError as error:
            raise RankError("the other ranks ended", reporter=False) from error
        return box[0]


@dataclass(frozen=True, eq=False)
class Joined:
    """The ranks of a run, and how it ends.

    Parameters
    ----------
    ranks
        The ranks.
    placement
        The method of the placement; empty in a run of one process.
    idle
        Number of processes without nodes.
    """

    ranks: Ranks
    placement: str = ""
    idle: int = 0

    def end(self, history: Any) -> None:
        """Send the history to the processes without nodes."""
        if not self.idle:
            return
        if self.ranks.is_first:
            self.ranks.joined.store.set("done", "1")
        dist.broadcast_object_list([history], src=0)

    @property
    def description(self) -> dict[str, Any]:
        """The ranks and their nodes as JSON values."""
        return {
            "size": self.ranks.size,
            "nodes": self.ranks.counts.tolist(),
            "placement": self.placement,
        }


def local_device(device: torch.device) -> torch.device:
    """Return the device of this process: of several GPUs, the one of its number on the machine."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", local_process_number())


@contextmanager
def joined_ranks(
    graphs: Topology | TopologySequence,
    device: torch.device,
    timeout: float,
    given: Sequence[int] | None,
) -> Iterator[Joined | IdleRank]:
    """Join the processes of a run, place the nodes, and yield the ranks or an idle rank.

    The process group of torch.distributed is initialized unless it is, and stays so until the
    process ends.

    Parameters
    ----------
    graphs, given
        As in :func:`topofl.engine.placement.place`.
    device
        Device of the models.
    timeout
        Seconds after which a rank that does not respond has failed.

    Raises
    ------
    ValueError
        If the process was not started by torchrun, or the placement is not valid.
    RankError
        If another process fails.
    """
    _initialize(device)
    rank, processes = dist.get_rank(), dist.get_world_size()
    number = next(_RUNS)
    store = PrefixStore(f"topofl/{number}", _store_of_all())
    size = min(processes, graphs.n)
    owner, method = place(graphs, size, given)
    group: Any = dist.new_group(range(size), timeout=timedelta(seconds=timeout))
    link = Link(group, store, size, timeout)
    try:
        if rank >= size:
            yield IdleRank(link, rank)
        else:
            with answering(link, rank):
                ranks = Ranks(rank, size, owner, device, link)
                agreed, method = ranks.of_first((owner, method))
                yield Joined(Ranks(rank, size, agreed, device, link), method, processes - size)
    except BaseException as error:
        report_own_error(link, rank, error)
        raise
    finally:
        if rank < size:
            with suppress(RuntimeError):  # of a group whose other ranks have ended
                dist.destroy_process_group(group)


def joined_store() -> Any:
    """Return the store of all processes that torchrun started.

    Raises
    ------
    ValueError
        If the process was not started by torchrun.
    RankError
        If not all processes start.
    """
    own = local_device(torch.device("cuda"))
    _initialize(own if (own.index or 0) < torch.cuda.device_count() else torch.device("cpu"))
    return _store_of_all()


def _store_of_all() -> Any:
    everyone: Any = dist.group.WORLD
    newer = getattr(everyone, "get_group_store", None)
    return distributed_c10d._get_default_store() if newer is None else newer()


def _initialize(device: torch.device) -> None:
    """Initialize the process group of all processes, unless it is."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return
    if missing := [name for name in VARIABLES if name not in os.environ]:
        raise ValueError(
            "`distributed` must be False unless torchrun starts the processes, "
            f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not set; start them by "
            "torchrun --nproc-per-node 2 script.py"
        )
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=FIRST_TIMEOUT))
    except dist.DistError as error:
        what = str(error).partition("\n")[0]
        raise RankError(f"the {process_count()} processes did not start: {what}") from error
    atexit.register(_destroy)


def _destroy() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
