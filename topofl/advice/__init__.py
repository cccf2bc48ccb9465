"""Advice: which topology to use for given data and a given communication budget.

:func:`recommend` builds the graphs that meet a budget, predicts for each how long the nodes need to
learn, and ranks them. It is offered as ``topofl.topologies.recommend`` too, and at the shell as
``topofl recommend``.
"""

from topofl.advice.recommend import recommend
from topofl.advice.result import Candidate, Recommendation

__all__ = ["Candidate", "Recommendation", "recommend"]
