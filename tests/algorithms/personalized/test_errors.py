"""Errors of personalized methods name the argument or the requirement."""

import numpy as np
import pytest

from tests import problems
from tests.algorithms.harness import HEAD, N, engine
from topofl import algorithms, mixing, topologies

REFUSED = [
    (
        "a head that is not there",
        {"head": "hed"},
        r"`head`, or a part, must name parameters.*'hed' matches none.*layers are",
    ),
    (
        "a head that is everything",
        {"head": "*"},
        r"`head`, or a part, must leave some parameters, '\*' matches all",
    ),
    (
        "a column stochastic matrix to pull",
        {"mode": "pull", "mixing": "push"},
        r"`mixing` must have rows that sum to 1",
    ),
    (
        "a row stochastic matrix to push",
        {"mode": "push", "mixing": "pull"},
        r"`mixing` must have columns that sum to 1",
    ),
]


@pytest.mark.parametrize(
    ("options", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused_before_training(options, message):
    options = {"head": HEAD} | options
    direction = options.pop("mixing", None)
    rule = None if direction is None else lambda graph: mixing.uniform(graph, direction=direction)
    with pytest.raises(ValueError, match=message):
        engine(
            algorithms.dfedpgp(0.1, **options), problems.convolutional(), problems.equal_clients(),
            topologies.random_in(N, 2, seed=0), mixing=rule,
        )  # fmt: skip


def test_epochs_must_be_one_per_node():
    phase = algorithms.sgd(0.1, epochs=[1, 2])
    with pytest.raises(
        ValueError, match=r"`epochs` must be one number or one per node, n=6, got 2 numbers"
    ):
        engine(algorithms.chain("uneven", local=phase), problems.linear(), problems.equal_clients())


@pytest.mark.parametrize(
    ("amount", "error"),
    [(0.0, ValueError), (1.5, ValueError), (0, ValueError), ("half", TypeError), (True, TypeError)],
)
def test_participation_is_checked(amount, error):
    with pytest.raises(error, match="`participation`"):
        algorithms.fedavg(0.1, participation=amount)


def test_more_participants_than_nodes_are_refused():
    with pytest.raises(ValueError, match=r"`participation` must be at most n=6 nodes, got 7"):
        engine(algorithms.fedavg(0.1, participation=7), problems.linear(), problems.equal_clients())


MISTAKES = [
    (lambda: algorithms.proximal(-1.0), ValueError, "`strength` must be .* at least 0"),
    (
        lambda: algorithms.sgd(0.1, epochs=[]),
        ValueError,
        "`epochs` must be one number or one per node",
    ),
    (
        lambda: algorithms.sgd(0.1, participants=0.3),
        TypeError,
        "`participants` must be a function of the round",
    ),
    (lambda: algorithms.dfedpgp(0.1, head_lr=-1), ValueError, "`head_lr`"),
    (lambda: algorithms.dfedpgp(0.1, head_epochs=0), ValueError, "`head_epochs`"),
    (lambda: algorithms.ditto(0.1, personal_lr="x"), TypeError, "`personal_lr`"),
    (lambda: algorithms.fedrep(0.1, head_lr=0), ValueError, "`head_lr`"),
]


@pytest.mark.parametrize(("build", "error", "message"), MISTAKES)
def test_mistakes_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_mistakes_that_show_in_the_first_round_are_named():
    clients = problems.equal_clients()
    model = problems.linear()
    free = algorithms.sgd(0.1)
    with pytest.raises(
        ValueError,
        match="`owner` must be a phase with models 'anchor' in its state, but 'a' has none",
    ):
        engine(
            algorithms.chain("no anchor", a=free, b=algorithms.on_kept_models("a", free)),
            model,
            clients,
        )
    with pytest.raises(
        ValueError,
        match=r"`owner` must be another phase .* got 'c' in .*; the other phases",
    ):
        engine(
            algorithms.chain("no owner", a=free, b=algorithms.on_kept_models("c", free)),
            model,
            clients,
        )
    push = algorithms.push_sum()
    with pytest.raises(ValueError, match="must push models once per round"):
        engine(
            algorithms.chain("two", a=push, b=push),
            model,
            clients,
            topologies.random_out(N, 2, seed=1),
        )
    for participants in (
        lambda round: np.arange(N),
        lambda round: np.ones(3, bool),
        lambda round: {1, 2},
    ):
        with pytest.raises(ValueError, match="`participants` must return one boolean per node"):
            engine(
                algorithms.chain("participation", a=algorithms.sgd(0.1, participants=participants)),
                model,
                clients,
            )
