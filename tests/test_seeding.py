"""Streams are pure, independent, and told apart by the number of their keys."""

import numpy as np
import pytest
import torch

from topofl._seeding import random_keys, seeded_torch, stream, torch_seed


def first(*arguments):
    return stream(*arguments).integers(2**63)


def test_streams_are_pure_and_differ_in_every_argument():
    assert first(1, "graph", 2) == first(1, "graph", 2)
    others = [(1, "graph"), (1, "graph", 0), (1, "graph", 0, 0), (2, "graph"), (1, "data"), (1, "graph", 1)]
    assert len({first(*arguments) for arguments in others}) == len(others)
    assert len({torch_seed(*arguments) for arguments in others}) == len(others)


def test_random_keys_of_a_node_do_not_depend_on_the_others():
    together = random_keys(7, np.arange(5), np.arange(9))
    np.testing.assert_array_equal(random_keys(7, [3], np.arange(9))[0], together[3])
    assert len(np.unique(together)) == together.size


def test_random_keys_are_uniform():
    bits = random_keys(0, np.arange(200), np.arange(200)).reshape(-1)
    for bit in (0, 17, 63):
        share = ((bits >> np.uint64(bit)) & np.uint64(1)).mean()
        assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(bits.size)


def test_seeded_torch_puts_the_generator_back():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with seeded_torch(1):
        drawn = torch.rand(2)
    assert torch.equal(before, torch.get_rng_state())
    with seeded_torch(1):
        assert torch.equal(drawn, torch.rand(2))


def test_bad_seeds_are_named():
    with pytest.raises(ValueError, match="`seed`"):
        stream(-1, "graph")
    with pytest.raises(TypeError, match="`seed`"):
        stream(0.5, "graph")
