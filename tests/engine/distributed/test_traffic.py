"""Bytes that a rank sends in collective operations, by the formulas of rings."""

import numpy as np
import pytest
import torch

from topofl.engine import ranks
from topofl.engine.ranks import Ranks


@pytest.mark.parametrize(
    ("size", "sent"),
    [(1, 0), (2, 1200), (3, 1600), (4, 1800), (5, 1920)],
)
def test_a_sum_sends_what_a_ring_reduction_sends(size, sent, monkeypatch):
    """Each rank sends 2 (size - 1) parts of 1/size of the values: 300 of 4 bytes here."""
    monkeypatch.setattr(ranks.dist, "all_reduce", lambda *_, **__: None)
    monkeypatch.setattr(Ranks, "_call", lambda _, function: function())
    rank = Ranks(0, size, np.arange(60) % size, torch.device("cpu"))
    rank.sum_(torch.ones(300))
    assert rank.sent == sent
