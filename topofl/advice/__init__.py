"""Advice: which topology to use for given data and a given communication budget.

:func:`topofl.topologies.recommend` builds the graphs that meet a budget, predicts for each how long
the nodes need to learn, and ranks them. At the shell it is ``topofl recommend``.
:func:`predict_rounds` predicts it for a graph of your own.
"""

from topofl.advice.predict import Prediction, predict_rounds
from topofl.advice.recommend import Candidate, Recommendation, recommend

__all__ = ["Candidate", "Prediction", "Recommendation", "predict_rounds", "recommend"]
