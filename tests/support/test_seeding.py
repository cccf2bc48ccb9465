"""Random streams are pure functions of their arguments, and independent."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from topofl._support.seeding import NoGeneratorError, random_keys, seeded_torch, stream, torch_seed


def first(*arguments):
    return stream(*arguments).integers(2**63)


def test_streams_are_pure_and_differ_in_every_argument():
    assert first(1, "graph", 2) == first(1, "graph", 2)
    others = [(1, "graph"), (1, "graph", 0), (1, "graph", 0, 0)]
    others += [(2, "graph"), (1, "data"), (1, "graph", 1)]
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


def by_the_global_generator(seed, draw):
    """Return the result of `draw` right after torch.manual_seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return draw()


INITS = ("kaiming_uniform_", "xavier_normal_", "trunc_normal_", "orthogonal_")
LIKE, RATES = torch.zeros(21, 2).T, torch.full((9,), 0.3)


def inits():
    made = [getattr(nn.init, name)(torch.empty(12, 7)) for name in INITS]
    return [*made, nn.init.sparse_(torch.empty(12, 7), 0.3)]


def numbers():
    made = [torch.rand(3), torch.randn(17), torch.randint(9, (4,)), torch.randint(2, 9, (4,))]
    made += [torch.randperm(9), torch.rand_like(LIKE), torch.randn_like(LIKE, dtype=torch.float64)]
    made += [torch.randint_like(LIKE, 7), torch.normal(0.0, 1.0, (3,)), torch.normal(RATES, 1.0)]
    made += [torch.normal(RATES, RATES), RATES.bernoulli(), RATES.multinomial(3)]
    made += [torch.poisson(RATES), torch.rand(3, out=torch.empty(3))]
    made += [torch.distributions.Gamma(2.0, 1.0).sample((3,))]
    made += [torch.distributions.Dirichlet(RATES).sample()]
    kinds = ("normal_", "exponential_", "cauchy_", "random_")
    return [*made, *(getattr(torch.empty(5), kind)() for kind in kinds)]


def dropped():
    ones = torch.ones(9)
    return [nn.Dropout()(ones), nn.functional.rrelu(-ones, training=True)]


DRAWS = {
    "linear": lambda: nn.Linear(7, 5).parameters(),
    "convolution": lambda: nn.Conv2d(3, 40, 5).parameters(),
    "embedding": lambda: nn.Embedding(5, 3).parameters(),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2).parameters(),
    "recurrent": lambda: nn.LSTM(3, 4, 2).parameters(),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 3)).parameters(),
    "init": inits,
    "numbers": numbers,
    "dropout": dropped,
}


@pytest.mark.parametrize("name", DRAWS)
def test_seeded_torch_draws_the_numbers_of_manual_seed(name):
    wanted = by_the_global_generator(5, lambda: list(DRAWS[name]()))
    before = torch.get_rng_state()
    with seeded_torch(5) as drawn:
        found = list(DRAWS[name]())
    assert torch.equal(before, torch.get_rng_state())
    assert drawn
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_explicit_generators_and_deterministic_modules_are_unaffected():
    own = torch.Generator().manual_seed(7)
    with seeded_torch(1) as drawn:
        mine = torch.rand(3, generator=own)
        nn.Dropout(0.0)(torch.ones(3))
        nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 4), dropout_p=0.0)
    assert drawn == []
    assert torch.equal(mine, torch.rand(3, generator=torch.Generator().manual_seed(7)))


def test_operations_without_a_generator_are_refused_by_name():
    with seeded_torch(1), pytest.raises(NoGeneratorError, match="native_dropout"):
        torch.ops.aten.native_dropout(torch.ones(3), 0.5, True)


def test_threads_draw_independently():
    """Each block draws the numbers of its seed and does not affect the global stream."""
    done = threading.Event()
    wanted = by_the_global_generator(11, lambda: [torch.rand(1) for _ in range(500)])
    torch.manual_seed(11)

    def draw(seed):
        found = []
        while not done.is_set() or not found:
            with seeded_torch(seed):
                found.append(torch.randn(4))
        return found

    with ThreadPoolExecutor(3) as pool:
        blocks = {seed: pool.submit(draw, seed) for seed in (1, 2, 3)}
        mine = [torch.rand(1) for _ in range(500)]
        done.set()
    torch.testing.assert_close(mine, wanted, rtol=0, atol=0)
    for seed, block in blocks.items():
        expected = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        assert all(torch.equal(numbers, expected) for numbers in block.result())
