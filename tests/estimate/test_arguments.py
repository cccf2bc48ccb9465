"""Arguments of estimates are checked."""

import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.estimate.helpers import need
from topofl import algorithms, topologies


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "`rounds` must be at least 1, got 0"),
        ({"every": 0}, "`every` must be at least 1"),
        ({"before_exchange": "none"}, "`before_exchange` must be True or False"),
    ],
)
def test_rounds_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        topofl.estimate(
            algorithms.local_only(lr=0.1),
            model=problems.linear(),
            clients=problems.equal_clients(),
            **problems.options(**change),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "fast"}, "`executor` must be one of"),
        ({"chunk": 0}, "`chunk` must be at least 1"),
        ({"executor": "looped", "chunk": 8}, '`chunk` must be "auto" or 1 with executor="looped"'),
        ({"precision": "fp16"}, "`precision` must be one of"),
        (
            {"precision": "bf16", "dtype": torch.float64},
            "`dtype` must be torch.float32 with precision='bf16'",
        ),
        ({"device": "tpu"}, "`device` must be such as"),
        ({"device": "meta"}, "`device` must be such as"),
        ({"dtype": torch.int64}, "`dtype` must be a floating-point type among"),
        ({"nodes": 0}, "`nodes` must be at least 1"),
        ({"examples": 10**6}, "`evaluation.examples` must be between 1 and"),
        ({"graph": topologies.ring(7)}, "`topology` must have one node per client"),
        ({"model": nn.Linear(5, 3)}, "`model` cannot take examples"),
        ({"model": nn.BatchNorm1d(3)}, "`model` must not contain BatchNorm1d"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        need(algorithms.dsgd(0.1), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float32"}, "`dtype` must be a torch dtype"),
        ({"chunk": "Auto"}, "`chunk` must be an integer or \"auto\", got 'Auto'"),
        ({"clients": [1, 2]}, "`clients` must be a Partition"),
    ],
)
def test_arguments_of_bad_types(options, message):
    with pytest.raises(TypeError, match=message):
        topofl.estimate(
            algorithms.dsgd(0.1),
            **problems.options(
                **{
                    "model": problems.linear(),
                    "clients": problems.equal_clients(),
                    "topology": topologies.ring(6),
                }
                | options
            ),
        )


def test_exchanging_algorithms_need_a_topology():
    with pytest.raises(TypeError, match="`topology` must be given"):
        topofl.estimate(
            algorithms.dsgd(0.1), model=problems.linear(), clients=problems.equal_clients()
        )
