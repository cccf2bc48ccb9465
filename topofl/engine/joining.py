"""Start of a distributed run: processes join, and each is given nodes."""

import atexit
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore

from topofl._linalg.bisection import bisected, bisected_groups, cut_edges
from topofl._support.processes import local_process_number, process_count
from topofl.engine.ranks import RankError, Ranks, answering
from topofl.history import History
from topofl.metrics._rounds import node_groups
from topofl.topology import Topology, TopologySequence

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets."""

FIRST_TIMEOUT = 600.0
"""Seconds in which all processes must start."""

ROUNDS = 16
"""Rounds of changing graphs whose edges are counted."""

_RUNS = count()
"""Numbers of the distributed runs of this process, which name their keys in the store."""


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
) -> Iterator[Ranks]:
    """Join the processes of a run, place the nodes, and yield the ranks.

    Processes beyond the number of nodes hold none. The process group of torch.distributed is
    initialized unless it is, and stays so until the process ends.

    Parameters
    ----------
    graphs, given
        As in :func:`place`.
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
    size = min(processes, graphs.n)
    store = PrefixStore(f"topofl/{next(_RUNS)}", _store_of_all())
    owner, method = place(graphs, size, given)
    group: Any = dist.new_group(range(size), timeout=timedelta(seconds=timeout))
    ranks = Ranks(rank, size, owner, device, method, group, store, timeout, processes - size)
    try:
        with answering(ranks):
            if rank < size:
                ranks.owner, ranks.placement = ranks.of_first((owner, method))
            yield ranks
    finally:
        if rank < size:
            with suppress(RuntimeError):  # of a group whose other ranks have ended
                dist.destroy_process_group(group)


def history_of_others(ranks: Ranks) -> History:
    """Wait for the end of the run in a process without nodes; return its history, without models.

    Raises
    ------
    RankError
        If the run failed.
    """
    store, box = ranks.store, list[Any]([None])
    try:
        while not store.check(["done"]):
            if store.check(["error"]) or store.check(["reports"]):
                raise RankError("the other ranks failed", reporter=False)
            time.sleep(0.1)
        dist.broadcast_object_list(box, src=0)
    except RankError:
        raise
    except RuntimeError as error:
        raise RankError("the other ranks ended", reporter=False) from error
    return box[0]


def tell_history(ranks: Ranks, history: History) -> None:
    """Send the history, without models, to the processes without nodes."""
    if not ranks.idle:
        return
    if ranks.is_first:
        ranks.store.set("done", "1")
    dist.broadcast_object_list([replace(history, models=None)], src=0)


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


def place(
    graphs: Topology | TopologySequence, size: int, given: Sequence[int] | None = None
) -> tuple[np.ndarray, str]:
    """Return the rank of each node, (n,), and the name of the method.

    Without a given placement, ranks hold equal numbers of nodes up to one, or whole groups of the
    topology, such as cliques. Of consecutive nodes, spectral bisection and groups, the placement
    with the fewest edges between ranks is chosen.

    Parameters
    ----------
    graphs
        The graphs of the run.
    size
        Number of ranks, at most n.
    given
        The rank of each node; None: chosen.

    Raises
    ------
    ValueError
        If a given placement has another length, names other ranks, or leaves a rank without nodes.

    Examples
    --------
    >>> from topofl import topologies
    >>> place(topologies.ring(6), 2)
    (array([0, 0, 0, 1, 1, 1]), 'consecutive nodes')
    """
    n = graphs.n
    if given is not None:
        return _check_given(np.asarray(given), n, size), "given"
    if size == 1:
        return np.zeros(n, dtype=np.int64), "one rank"
    edges = sparse.csr_array((n, n))
    for t in range(min(graphs.period or ROUNDS, ROUNDS)):
        ones = sparse.csr_array((graphs.at(t).adjacency != 0).astype(float))
        edges = sparse.csr_array(edges + ones + ones.T)
    candidates = {
        "consecutive nodes": np.floor((np.arange(n) + 0.5) * size / n).astype(np.int64),
        "spectral bisection": bisected(edges, np.ones(n), size),
    }
    groups = node_groups(graphs)
    if len(groups) >= size and sum(map(len, groups)) == n:
        candidates["groups"] = bisected_groups(edges, groups, size)
    best = min(candidates, key=lambda name: cut_edges(edges, candidates[name]))
    _, firsts = np.unique(candidates[best], return_index=True)
    numbers = np.argsort(np.argsort(firsts))  # in order of first nodes: node 0 is on rank 0
    return numbers[candidates[best]], best


def _check_given(owner: np.ndarray, n: int, size: int) -> np.ndarray:
    if owner.shape != (n,) or owner.dtype.kind not in "iu":
        raise ValueError(
            f"`placement` must have the rank of each of the n={n} nodes, got shape {owner.shape} "
            f"of {owner.dtype}; leave it out to have it chosen"
        )
    if sorted(set(owner.tolist())) != list(range(size)):
        raise ValueError(
            f"`placement` must give nodes to all ranks 0 to {size - 1} and to no others, got ranks "
            f"{sorted(set(owner.tolist()))}; start as many processes as it names"
        )
    return owner.astype(np.int64)
