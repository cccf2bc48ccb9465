"""Policies of peers: choices stay on the graph, and errors name what is wrong."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import HOW, ROUNDS, N, engine
from topofl import algorithms, mixing, topologies

RING = topologies.circulant(N, (1,), directed=True)


@HOW
def test_infinite_losses_are_infinite_for_nodes_with_few_examples_too(settings):
    clients, found = problems.validated_clients(), {}
    assert len(set(map(len, clients.val))) > 1

    def trial(model):
        return (yield model)

    def choose(models, state, round):
        sure = models.flat.clone()  # of class 0: the loss on any other is infinite
        sure[:, -3:] = torch.tensor([1.7e308, -1.7e308, -1.7e308], dtype=torch.float64)
        found.update(round.cross_evaluate({i: trial(sure[i : i + 1]) for i in range(N)}, "val"))
        return algorithms.Choice(mixing.average_of_chosen(np.eye(N)))

    chain = algorithms.chain(
        "ask", exchange=algorithms.average_over_peers(algorithms.Policy(choose))
    )
    engine(chain, problems.convolutional(), clients, **settings)
    for i, losses in found.items():
        wrong = bool(clients.dataset.labels.numpy()[clients.val[i]].any())
        assert losses.tolist() == [np.inf if wrong else 0.0]


def test_policies_that_leave_the_graph_raise():
    everybody = mixing.average_of_chosen(np.ones((N, N)))
    algorithm = algorithms.chain(
        "wild",
        exchange=algorithms.average_over_peers(
            algorithms.Policy(lambda *_: algorithms.Choice(everybody))
        ),
    )
    with pytest.raises(ValueError, match="off the edges of circulant"):
        engine(algorithm, problems.linear(), problems.equal_clients(), RING)
    downloads = algorithms.Policy(
        lambda *_: algorithms.Choice(mixing.average_of_chosen(np.eye(N)), [everybody])
    )
    chain = algorithms.chain("wild", exchange=algorithms.average_over_peers(downloads))
    with pytest.raises(ValueError, match="off the edges of circulant"):
        engine(chain, problems.linear(), problems.equal_clients(), RING)


@pytest.mark.parametrize(
    "returned",
    [None, torch.eye(N), mixing.average_of_chosen(np.eye(N)), algorithms.Choice(torch.eye(N))],  # pyright: ignore
)
def test_results_other_than_a_choice_raise(returned):
    policy = algorithms.Policy(lambda *_: returned)
    with pytest.raises(
        TypeError,
        match=r"a policy must return Choice\(weights\) with a MixingMatrix, got \w+; mixing",
    ):
        engine(
            algorithms.chain("mine", exchange=algorithms.average_over_peers(policy)),
            problems.linear(),
            problems.equal_clients(),
        )


ALONE, ALL = mixing.average_of_chosen(np.eye(N)), mixing.average_of_chosen(np.ones((N, N)))


def with_policy(choose, clients=None, **settings):
    """Run a policy, in float64."""
    policy = choose if isinstance(choose, algorithms.Policy) else algorithms.Policy(choose)
    algorithm = algorithms.chain("mine", exchange=algorithms.average_over_peers(policy))
    return engine(algorithm, problems.linear(), clients or problems.validated_clients(), **settings)


@pytest.mark.parametrize(
    ("choice", "error", "match"),
    [
        (
            algorithms.Choice(ALL, downloads=[ALONE]),
            ValueError,
            r"round 1, .*`downloads`.*but node 0 averages with node 1",
        ),
        (algorithms.Choice(ALL, downloads=[]), ValueError, "`downloads`"),
        (
            algorithms.Choice(ALONE, downloads=[np.eye(N)]),
            TypeError,
            "must hold MixingMatrix, got ndarray",
        ),
        (algorithms.Choice(ALONE, downloads=ALONE), TypeError, "must be lists"),
        (
            algorithms.Choice(ALONE, extra_messages=[(ALL, -4)]),
            ValueError,
            "`extra_messages` must be at least 0, got -4",
        ),
        (
            algorithms.Choice(ALONE, extra_messages=[(ALL, 2.5)]),
            TypeError,
            "`extra_messages` must be an integer",
        ),
        (algorithms.Choice(ALONE, server=-1), ValueError, "`server`"),
    ],
)
def test_impossible_costs_raise(choice, error, match):
    with pytest.raises(error, match=match):
        with_policy(lambda *_: choice)


def test_downloads_may_be_several_matrices_that_hold_all_edges_together():
    one, other = np.eye(N, k=1), np.eye(N, k=-1)
    several = [mixing.average_of_chosen(one), mixing.average_of_chosen(other)]
    choice = algorithms.Choice(mixing.average_of_chosen(one + other), downloads=several)
    history, _ = with_policy(lambda *_: choice)
    assert history["messages"].tolist() == [2 * (N - 1)] * ROUNDS


def test_a_policy_that_changes_models_is_refused():
    def zero(models, state, round):
        if round.t == 1:
            models.flat[2].zero_()
        return algorithms.Choice(ALONE)

    with pytest.raises(
        ValueError,
        match=r"round 2, where nodes choose their peers: a policy must not change models",
    ):
        with_policy(zero)


def test_state_that_checkpoints_cannot_store_raises():
    def count(models, state, round):
        state["k"] = round.t
        return algorithms.Choice(ALONE)

    with pytest.raises(TypeError, match=r"round 1, .*got int as state\['k'\]; .*torch.tensor"):
        with_policy(count)
    with pytest.raises(TypeError, match="must be a dict of tensors, got list"):
        with_policy(algorithms.Policy(count, lambda models: [1]))  # pyright: ignore


def test_any_policy_can_be_saved_resumed_and_estimated(tmp_path):
    """Even one that needs values, which do not exist in the dry run."""

    def choose(models, state, round):
        state["seen"] += float(models.flat.mean())
        nearest = np.argsort(models.flat.numpy()[:, 0])
        return algorithms.Choice(mixing.average_of_chosen(np.eye(N)[nearest]))

    policy = algorithms.Policy(
        choose, lambda models: {"seen": models.flat.numpy().sum() + torch.zeros(1)}
    )
    algorithm = algorithms.chain("mine", exchange=algorithms.average_over_peers(policy))
    how = {"model": problems.linear(), "clients": problems.validated_clients()}
    settings = {**how, "seed": 0, "init": "independent", "every": 1}
    whole = topofl.run(algorithm, **problems.options(**settings), rounds=4)
    topofl.run(algorithm, **problems.options(saving=tmp_path, **settings), rounds=2)
    resumed = topofl.run(
        algorithm,
        **problems.options(saving=topofl.Saving(tmp_path, resume=True), **settings),
        rounds=4,
    )
    np.testing.assert_array_equal(whole["loss"], resumed["loss"])
    assert topofl.estimate(algorithm, **problems.options(**how)).messages == N * (
        N - 1
    )  # the dry run assumes all peers


@HOW
@pytest.mark.parametrize(
    ("cross_evaluate", "error", "match"),
    [
        (
            lambda models: {0: iter([])},
            TypeError,
            "must be generators, .* got a list_iterator for node 0",
        ),
        (lambda models: {N: yielding(models.flat)}, ValueError, "nodes from 0 to n-1=5, got 6"),
        (
            lambda models: {0: yielding(models.flat[0])},
            TypeError,
            r"must yield models as a tensor \(k, d=\d+\), got sh",
        ),
        (lambda models: {0: yielding(models.flat[:, :7])}, TypeError, r"got shape \(6, 7\)"),
        (lambda models: {0: yielding("text")}, TypeError, "got str"),
    ],
)
def test_invalid_trials_raise(cross_evaluate, error, match, settings):
    def choose(models, state, round):
        round.cross_evaluate(cross_evaluate(models), "val")
        return algorithms.Choice(ALONE)

    algorithm = algorithms.chain(
        "mine", exchange=algorithms.average_over_peers(algorithms.Policy(choose))
    )
    with pytest.raises(error, match=match):
        engine(algorithm, problems.convolutional(), problems.validated_clients(), **settings)


def yielding(models):
    yield models


def test_evaluation_needs_validation_examples():
    def choose(models, state, round):
        round.cross_evaluate({0: yielding(models.flat[:1])}, "val")
        return algorithms.Choice(ALONE)

    with pytest.raises(ValueError, match="`clients` must give every node val examples, on which"):
        with_policy(choose, problems.equal_clients())


def test_objects_other_than_policies_raise():
    def nobody(models, state, round):
        return algorithms.Choice(mixing.average_of_chosen(np.eye(N)))

    for policy in (nobody, algorithms.Policy(3), algorithms.Policy(nobody, 3), None):  # pyright: ignore
        with pytest.raises(TypeError, match="`policy` must be a Policy of functions"):
            algorithms.average_over_peers(policy)  # pyright: ignore
