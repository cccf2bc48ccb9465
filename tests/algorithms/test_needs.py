"""Requirements of methods on graphs and weights: lists, conditions and remedies; state per edge."""

import re

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import N, engine
from topofl import algorithms, topologies
from topofl.algorithms import Phase, chain, sgd
from topofl.algorithms.contract.needs import needs_of
from topofl.cli import main


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
    ("build", "listed", "usual", "other"),
    [
        (algorithms.d2, "eigenvalues above -1/3 where lazy=False", {}, {"lazy": False}),
        (algorithms.dadam, "doubly stochastic where track=True", {}, {"track": True}),
        (algorithms.choco_sgd, "a spectral gap above 0 where gamma=None", {"gamma": 0.1}, {}),
    ],
    ids=["d2", "dadam", "choco_sgd"],
)
def test_needs_that_depend_on_arguments_are_listed_with_their_condition(
    build, listed, usual, other, capsys
):
    said = needs_of(build)[-1]
    assert said.name + said.condition == listed
    assert said.name not in [need.name for need in build(0.1, **usual).needs]
    assert said.name in [need.name for need in build(0.1, **other).needs]
    assert main(["list", "algorithm", "--needs"]) == 0
    condition = listed.removeprefix(said.name)
    assert f"needs{condition}: {said.name} ({said.meaning})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dsgt", "needs: doubly stochastic (all rows and columns of W sum to 1)"),
        ("trimmed_mean", "needs: more than 2 * trim neighbors at each node"),
        ("clique_averaging", "needs: groups"),
        ("clipped_gossip", "needs: attackers of little weight"),
    ],
)
def test_needs_by_arguments_are_listed(name, text, capsys):
    main(["list", "algorithm", "--needs"])
    own = capsys.readouterr().out.partition(f"\n  {name}(")[2]
    assert text in re.split(r"\n  (?=\w)", own)[0]


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
