"""Push-sum: conservation, bounds and exact averages; what methods require of graphs."""

import re

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import HEAD, N, engine, nodes_at_start
from topofl import algorithms, metrics, topologies
from topofl.algorithms import Phase, chain, sgd
from topofl.algorithms.contract.needs import needs_of
from topofl.cli import main

RANDOM = topologies.random_out(N, 2, seed=4)


def exchanged(phase, graph, rounds=1, **settings):
    """Return history, and models and weights after every round without training."""
    kept = []
    noting = problems.each_round(
        lambda t, models: kept.append((models.flat.clone(), models.push_sum_weights.clone()))
    )
    algorithm = algorithms.chain("exchange", exchange=phase)
    how = {"rounds": rounds, "callbacks": [noting]} | settings
    history, _ = engine(algorithm, problems.convolutional(), None, graph, **how)
    return history, kept


@pytest.fixture(scope="module")
def start():
    return nodes_at_start(problems.convolutional(), problems.equal_clients()).flat()


def test_push_conserves_mass_and_what_is_pushed_and_weights_stay_positive(start):
    history, kept = exchanged(algorithms.push_sum(), RANDOM, rounds=40)
    for flat, weights in kept:
        assert float(weights.sum()) == pytest.approx(N, rel=1e-14)
        assert bool((weights > 0).all())
        torch.testing.assert_close((weights[:, None] * flat).sum(0), start.sum(0))
    least = [float(weights.min()) for _, weights in kept]
    assert len({round(one, 9) for one in least}) > 5, "weights did not move"
    torch.testing.assert_close(kept[-1][0], start.mean(0).expand(N, -1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(history["smallest_push_weight"], least)


def test_smallest_push_weight_is_delta_and_distances_stay_below_the_proven_bound(start):
    """Without gradients, the measured rate, the proven bound and SGP's form hold in every round."""
    history, kept = exchanged(algorithms.push_sum(), RANDOM, rounds=60)
    constants = metrics.push_sum_constants(history, dimension=start.shape[1])
    assert constants.delta == pytest.approx(history["smallest_push_weight"].min(), rel=1e-12)
    mean, proven, sgp = start.mean(0), constants.proven, constants.sgp
    # Weights of z_i on x_j / n differ from 1 / n by tau / delta at most, summed over j by twice
    # as much.
    size = 2 / constants.delta * float(start.abs().max()) * N
    for t, (flat, _) in enumerate(kept, start=1):
        farthest = float((flat - mean).abs().max())
        assert farthest <= constants.c_hat * constants.q_hat**t * size + 1e-12
        assert farthest <= 10**proven.log10_c * proven.q**t * size
        bound = 10**sgp.log10_c * sgp.q**t * start.norm(dim=1).max()
        assert (flat - mean).norm(dim=1).max() <= bound, "the published form"


def test_pull_keeps_weights_and_constants_but_no_sum(start):
    graphs = topologies.random_in(N, 2, seed=4)
    _, kept = exchanged(algorithms.gossip(), graphs, rounds=3)
    flat, weights = kept[-1]
    assert bool((weights == 1).all())
    assert not torch.allclose(flat.mean(0), start.mean(0), atol=1e-3)
    _, kept = exchanged(algorithms.gossip(), graphs, rounds=3, init="common")
    same, _ = kept[-1]
    torch.testing.assert_close(same, same[:1].expand(N, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("phase", [algorithms.push_sum, algorithms.gossip])
def test_with_all_others_as_neighbors_bodies_are_averaged_exactly(phase, start):
    graphs = topologies.random_out(N, N - 1, seed=0)
    _, ((flat, weights),) = exchanged(phase(algorithms.part(HEAD).rest), graphs)
    torch.testing.assert_close(flat[:, :-111], start[:, :-111].mean(0).expand(N, -1))
    torch.testing.assert_close(flat[:, -111:], start[:, -111:], rtol=0, atol=0)
    torch.testing.assert_close(weights, torch.ones(N, dtype=torch.float64))


def test_needs_are_listed_without_building_an_algorithm(capsys):
    needs = algorithms.dsgt(0.1).needs
    assert needs_of(algorithms.dsgt) == needs == (algorithms.doubly_stochastic,)
    assert [need.name for need in needs_of(algorithms.dsgd)] == ["equal shares"]
    assert needs_of(algorithms.local_only) == ()
    assert main(["list", "algorithm"]) == 0
    assert "needs:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "value", [np.ones(3), torch.ones(3), [1, 2]], ids=["array", "tensor", "list"]
)
def test_conditions_on_arguments_may_meet_arrays(value):
    @algorithms.needing(algorithms.static, when={"exact": True})
    def mine(exact):
        del exact
        return chain("mine", local=sgd(0.1))

    assert mine(value).needs == ()
    assert mine(True).needs == (algorithms.static,)


@pytest.mark.parametrize(
    ("name", "text", "usual"),
    [
        ("d2", "needs where lazy=False: eigenvalues above -1/3 (", {"lazy": True}),
        ("dadam", "needs where track=True: doubly stochastic (", {"track": False}),
        ("choco_sgd", "needs where gamma=None: a spectral gap above 0 (", {"gamma": 0.1}),
        ("dsgt", "needs: doubly stochastic (all rows and columns of W sum to 1)", None),
        ("trimmed_mean", "needs: more than 2 * trim neighbors at each node (", None),
        ("clique_averaging", "needs: groups (", None),
        ("clipped_gossip", "needs: attackers of little weight (", None),
    ],
)
def test_needs_are_listed_with_their_conditions(name, text, usual, capsys):
    main(["list", "algorithm", "--needs"])
    own = capsys.readouterr().out.partition(f"\n  {name}(")[2]
    assert text in re.split(r"\n  (?=\w)", own)[0]
    build, wanted = getattr(algorithms, name), text.partition(": ")[2].partition(" (")[0]
    for argument, value in (usual or {}).items():
        other = {argument: None if argument == "gamma" else not value}
        found = [[need.name for need in build(0.1, **how).needs] for how in (usual, other)]
        assert [wanted in names for names in found] == [False, True]


def relayed():
    """Return the exchange that delivers messages along each edge one round later."""

    def init(models):
        edges, d = models.topology.adjacency.nnz, models.flat.shape[1]
        return {"under_way": models.flat.new_zeros(edges, d)}

    def apply(models, state, round):
        edges = np.array(round.topology.adjacency.nonzero())
        edges = torch.tensor(edges, device=models.flat.device)
        arrived = torch.zeros_like(models.flat).index_add_(0, edges[1], state["under_way"])
        state["under_way"].copy_(models.flat[edges[0]] / N)
        round.send(round.weights, models.flat.shape[1] * models.flat.element_size())
        models.flat.mul_(0.5).add_(arrived, alpha=0.1)
        return state

    return chain("relayed", local=sgd(0.1, batch_size=8), exchange=Phase(init, apply))


def test_state_of_edges_is_counted_and_survives_a_stop(tmp_path):
    world, graph = (None, problems.equal_clients()), topologies.ring(N)
    _, whole = engine(relayed(), *world, graph, rounds=6)
    engine(relayed(), *world, graph, rounds=3, saving=tmp_path)
    saving = topofl.Saving(tmp_path, resume=True)
    _, resumed = engine(relayed(), *world, graph, rounds=6, saving=saving)
    assert torch.equal(whole.flat, resumed.flat)
    how = {"model": problems.linear(), "clients": world[1], "topology": graph}
    assert topofl.estimate(relayed(), **how).state == graph.adjacency.nnz * 111 * 4
    changing = [graph, topologies.star(N)]
    with pytest.raises(topofl.TopologyError, match=r"`topology` must be static for relayed \(the"):
        engine(relayed(), *world, changing)
    with pytest.raises(TypeError, match="`topology` must be given, since relayed exchanges models"):
        engine(relayed(), *world)
