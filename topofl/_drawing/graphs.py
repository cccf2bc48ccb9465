"""Protocols of the graphs and sequences of graphs that can be drawn."""

from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sparse

__all__ = ["Graph", "GraphSequence"]


class Graph(Protocol):
    """Protocol of a graph that can be drawn; :class:`topofl.Topology` documents the attributes."""

    @property
    def n(self) -> int: ...

    @cached_property
    def n_edges(self) -> int: ...

    @cached_property
    def is_directed(self) -> bool: ...

    @property
    def name(self) -> str: ...

    @property
    def nodes(self) -> tuple[Any, ...]: ...

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]: ...

    @cached_property
    def group_of(self) -> np.ndarray: ...

    @property
    def adjacency(self) -> sparse.csr_array: ...

    @cached_property
    def edge_index(self) -> np.ndarray: ...


class GraphSequence(Protocol):
    """Protocol of a sequence of graphs that can be drawn, as :class:`topofl.TopologySequence`."""

    @property
    def n(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def period(self) -> int | None: ...

    def at(self, t: int) -> Graph: ...
