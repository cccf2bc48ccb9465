"""Partitioners: functions that divide the training examples of a dataset among nodes.

Most label-skewed partitioners first choose *how many* examples of each class every node gets, an
(n, n_classes) matrix, and then deal out random examples in these numbers. No example is dealt
twice, except by :func:`~topofl.data.pathological_shared`, whose nodes may share examples.
"""

from topofl.data.partitioners import by_label
from topofl.data.partitioners.by_label import *
from topofl.data.partitioners.extended_dirichlet import extended_dirichlet as extended_dirichlet
from topofl.data.partitioners.natural import natural as natural

__all__ = ["extended_dirichlet", "natural"]
__all__ += by_label.__all__
