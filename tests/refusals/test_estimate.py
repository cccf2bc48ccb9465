"""What estimates refuse."""

import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.estimate.helpers import need
from tests.refusals import named, refused, rows
from topofl import algorithms, mixing, topologies

DSGD = algorithms.dsgd(0.1)


def estimated(**options):
    """Return an estimate of a run that exchanges nothing."""
    how = {"model": problems.linear(), "clients": problems.equal_clients()}
    return topofl.estimate(algorithms.local_only(lr=0.1), **problems.options(**how | options))


VALUE_ERRORS = {
    "`rounds` must be at least 1, got 0": (
        lambda: estimated(rounds=0),
        lambda: estimated(rounds=1),
    ),
    "`every` must be at least 1": lambda: estimated(every=0),
    "`before_exchange` must be True or False": lambda: estimated(before_exchange="none"),
    "`executor` must be one of": lambda: need(DSGD, executor="fast"),
    "`chunk` must be at least 1": lambda: need(DSGD, chunk=0),
    '`chunk` must be "auto" or 1 with executor="looped"': (
        lambda: need(DSGD, executor="looped", chunk=8),
        lambda: need(DSGD, executor="looped", chunk=1),
    ),
    "`precision` must be one of": lambda: need(DSGD, precision="fp16"),
    "`dtype` must be torch.float32 with precision='bf16'": lambda: need(
        DSGD, precision="bf16", dtype=torch.float64
    ),
    "`device` must be such as": lambda: need(DSGD, device="tpu"),
    "must be such as": lambda: need(DSGD, device="meta"),
    "`dtype` must be a floating-point type among": lambda: need(DSGD, dtype=torch.int64),
    "`nodes` must be at least 1": (lambda: need(DSGD, nodes=0), lambda: need(DSGD, nodes=1)),
    "`evaluation.examples` must be between 1 and": lambda: need(DSGD, examples=10**6),
    "`topology` must have one node per client": lambda: need(DSGD, graph=topologies.ring(7)),
    "must be 0 off the edges": lambda: need(
        DSGD, graph=topologies.ring(6), mixing=mixing.metropolis_hastings(topologies.star(6))
    ),
    "`model` cannot take examples": lambda: need(DSGD, model=nn.Linear(5, 3)),
    "`model` must not contain BatchNorm1d": lambda: need(
        DSGD, model=nn.BatchNorm1d(3, track_running_stats=False)
    ),
}

TYPE_ERRORS = {
    "`dtype` must be a torch dtype": lambda: need(DSGD, dtype="float32"),
    "`chunk` must be an integer or \"auto\", got 'Auto'": lambda: need(DSGD, chunk="Auto"),
    "`clients` must be a Partition": lambda: topofl.estimate(
        DSGD, model=problems.linear(), clients=[1, 2]
    ),
    "`topology` must be given": lambda: topofl.estimate(
        DSGD, model=problems.linear(), clients=problems.equal_clients()
    ),
}


@pytest.mark.parametrize("row", rows({ValueError: VALUE_ERRORS, TypeError: TYPE_ERRORS}), ids=named)
def test_refused(row):
    refused(*row)
