"""Histories: what a run records, as columns per round, scores per node, and mixing matrices."""

from topofl._columns import SECONDS
from topofl.history.compare import compare_histories
from topofl.history.files import FILES, MODELS, OURS, check_replaceable, saved_in
from topofl.history.history import History
from topofl.history.record import why_not_scored
from topofl.history.statistics import Personal, evaluation_record, over_nodes

__all__ = [
    "FILES",
    "MODELS",
    "OURS",
    "SECONDS",
    "History",
    "Personal",
    "check_replaceable",
    "compare_histories",
    "evaluation_record",
    "over_nodes",
    "saved_in",
    "why_not_scored",
]
