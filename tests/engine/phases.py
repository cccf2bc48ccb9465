"""User-defined phases for tests."""

import topofl
from tests import problems
from topofl import algorithms
from topofl.algorithms import Phase

N, BATCH, SEED = 6, 4, 3


def stateless(models):
    return {}


def phase(use):
    """Return a phase that calls ``use(models, round)``."""

    def apply(models, state, round):
        use(models, round)
        return state

    return Phase(stateless, apply)


def run(tried, rounds=2, **settings):
    settings = {
        "clients": problems.equal_clients(N),
        "model": problems.linear(),
        "executor": "looped",
    } | settings
    algorithm = algorithms.chain("own", local=algorithms.sgd(0.1, batch_size=BATCH), tried=tried)
    return topofl.run(algorithm, rounds=rounds, seed=SEED, **problems.options(every=1, **settings))
