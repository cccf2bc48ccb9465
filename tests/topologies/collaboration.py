"""Rewards and references that several tests of collaboration graphs use."""

import numpy as np
from hypothesis import strategies as st

from topofl.topologies.collaboration import Reward

seeds = st.integers(0, 2**32)


def table_reward(seed: int) -> Reward:
    """Return a reward that draws its own number for each node and group."""
    return lambda k, members: float(np.random.default_rng([seed, k, *members]).normal())


def naive_ggc(
    reward: Reward, k: int, pool: list[int], budget: int | None, rng: np.random.Generator
) -> set[int]:
    """Return the choice of the corrected listing, with four rewards a candidate."""
    order = rng.permutation(sorted(pool))
    coins = rng.random(len(pool))
    x, y = {k}, {k, *pool}

    def value(members: set[int]) -> float:
        return reward(k, tuple(sorted(members)))

    for j, coin in zip(order.tolist(), coins, strict=True):
        if budget is not None and len(x - {k}) >= budget:
            break
        a = max(value(x | {j}) - value(x), 0)
        b = max(value(y - {j}) - value(y), 0)
        p = 1 if a == b == 0 else a / (a + b)
        if coin < p:
            x = x | {j}
        else:
            y = y - {j}
    return x - {k}
