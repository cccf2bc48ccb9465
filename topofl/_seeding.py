"""Random streams as pure functions of (seed, purpose, keys): nothing here reads or moves a global generator."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from topofl._check import check_int

__all__ = ["random_keys", "seeded_torch", "stream", "torch_seed"]


def stream(seed: int | np.random.Generator, purpose: str, *keys: int) -> np.random.Generator:
    """Return the generator of one purpose.

    Parameters
    ----------
    seed
        Non-negative integer; a generator is passed through unchanged (then `purpose` and `keys` do not matter).
    purpose
        What the numbers are for; streams of different purposes are independent.
    keys
        Further non-negative integers, for example round and node.

    Examples
    --------
    >>> int(stream(0, "graph").integers(1000)) == int(stream(0, "graph").integers(1000))
    True
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """Return a 63-bit seed for a ``torch.Generator``, a pure function of its arguments."""
    return int(_sequence(seed, purpose, *keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, *keys: int) -> np.random.SeedSequence:
    seed = check_int("seed", seed, minimum=0)
    # The number of keys is part of the key: SeedSequence pads with zeros, and (purpose,) is not (purpose, 0).
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), len(keys), *keys))


def random_keys(seed: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return 64 random bits for each pair (row key, column key), by a counter-based hash.

    Unlike a generator it has no state, so that node i's numbers do not depend on which other nodes are computed
    with it. The hash is the finalizer of SplitMix64 (Steele, Lea and Flood 2014) applied in two rounds.

    Parameters
    ----------
    seed
        64-bit seed, for example from :func:`torch_seed`.
    rows, columns
        Integer vectors of lengths r and c.

    Returns
    -------
    numpy.ndarray
        Shape (r, c), uint64.
    """
    with np.errstate(over="ignore"):
        row_state = _splitmix(np.asarray(rows, np.uint64) + np.uint64(seed))
        return _splitmix(row_state[:, None] ^ (np.asarray(columns, np.uint64) * _GOLDEN)[None, :])


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _splitmix(state: np.ndarray) -> np.ndarray:
    z = state + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator inside the block and put it back afterwards, as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
