"""Requirements of methods on graphs and weights, and state per edge."""

import re

import networkx as nx
import numpy as np
import pytest
import torch

import topofl
from topofl import algorithms, mixing, models, topologies
from topofl.algorithms import Phase, chain, gossip, sgd
from topofl.algorithms.contract.needs import needs_of
from topofl.cli import main
from topofl.topology import TopologyError, TopologySequence

N = 6
CYCLE = topofl.as_topology(
    nx.cycle_graph(N, nx.DiGraph), name="cycle"
)  # directed, as many in as out: doubly stochastic, not symmetric
STAR = topologies.star(N)
UNLIKE = topofl.as_topology(
    nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 4), (4, 5), (5, 0)])
)
APART = topofl.as_topology(np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3)))
CHANGING = TopologySequence(N, lambda t: topologies.ring(N), name="rings")


def tried(algorithm, graph, **settings):
    options = {
        "model": models.logistic_regression(64),
        "clients": CLIENTS,
        "rounds": 1,
        "seed": 0,
        "progress": False,
    }
    return topofl.run(algorithm, topology=graph, **options | settings)


CLIENTS = topofl.data.shards(topofl.data.digits(), n=N, seed=0)


def needing(need):
    return chain("mine", local=sgd(0.1, batch_size=8), exchange=gossip(), needs=[need])


@pytest.mark.parametrize(
    ("need", "fine", "wrong", "argument"),
    [
        (algorithms.static, STAR, CHANGING, "topology"),
        (algorithms.undirected, STAR, CYCLE, "topology"),
        (algorithms.strongly_connected, CYCLE, APART, "topology"),
        (algorithms.symmetric, STAR, UNLIKE, "mixing"),
        (algorithms.doubly_stochastic, CYCLE, UNLIKE, "mixing"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_needs_are_checked_before_a_run(need, fine, wrong, argument):
    tried(needing(need), fine)
    with pytest.raises(
        TopologyError, match=rf"`{argument}` must be {need.name} for mine .*; (give|add)"
    ) as raised:
        tried(needing(need), wrong, compute=topofl.Compute(on_disconnected="allow"))
    assert need.meaning in str(raised.value)
    assert need.remedy in str(raised.value)


def test_needs_of_weights_are_those_of_the_rule_of_the_run():
    tried(needing(algorithms.symmetric), STAR, mixing=mixing.metropolis_hastings)
    with pytest.raises(TopologyError, match="symmetric"):
        tried(needing(algorithms.symmetric), STAR, mixing=mixing.uniform)


def test_estimates_check_needs_too():
    with pytest.raises(TopologyError, match="doubly stochastic"):
        topofl.estimate(
            needing(algorithms.doubly_stochastic),
            model=models.logistic_regression(64),
            clients=CLIENTS,
            topology=UNLIKE,
        )


def test_every_graph_of_a_period_is_checked():
    rounds = [topologies.ring(N)] * 5 + [UNLIKE]
    with pytest.raises(TopologyError, match="doubly stochastic"):
        tried(needing(algorithms.doubly_stochastic), rounds)


def test_needs_are_listed_without_building_an_algorithm(capsys):
    assert (
        needs_of(algorithms.dsgt) == algorithms.dsgt(0.1).needs == (algorithms.doubly_stochastic,)
    )
    assert [need.name for need in needs_of(algorithms.dsgd)] == ["equal shares"]
    assert needs_of(algorithms.local_only) == ()
    assert main(["list", "algorithm", "--needs"]) == 0
    text = capsys.readouterr().out
    assert (
        "needs: doubly stochastic (all rows and columns of W sum to 1)"
        in text.partition("dsgt(")[2][:400]
    )
    assert main(["list", "algorithm"]) == 0
    assert "needs:" not in capsys.readouterr().out


@pytest.mark.parametrize("needs", [["static"], 3, [algorithms.dsgd]])
def test_needs_must_be_needs(needs):
    with pytest.raises(TypeError, match="`needs` must be a list of needs"):
        chain("mine", local=sgd(0.1), needs=needs)


@pytest.mark.parametrize(
    ("need", "wrong", "found"),
    [
        (algorithms.static, CHANGING, "got rings: a sequence without a period"),
        (
            algorithms.static,
            [topologies.ring(N), STAR, topologies.ring(N)],
            "a sequence of period 3 with 2 distinct graphs; give one graph for all rounds, such as",
        ),
        (
            algorithms.undirected,
            CYCLE,
            "got cycle: 6 edges have none back, such as the one from node 0 to node 1",
        ),
        (algorithms.undirected, [STAR, CYCLE], "got cycle, round 1 of .*: 6 edges have none back"),
        (
            algorithms.undirected,
            topofl.as_topology(np.array([[0, 1.0], [0.5, 0]])[np.ix_([0, 1] * 3, [0, 1] * 3)]),
            "the edge from node 0 to node 1 weighs 1, the one back 0.5",
        ),
        (
            algorithms.strongly_connected,
            APART,
            "2 strongly connected components, the smallest of 3 nodes, with node 0; add edges",
        ),
        (
            algorithms.symmetric,
            UNLIKE,
            r"W\[0, 1\] = 0 and W\[1, 0\] = 0.5, the largest difference, 0.5",
        ),
        (
            algorithms.doubly_stochastic,
            UNLIKE,
            "the column of node 1 sums to 0.833333, the furthest from 1",
        ),
    ],
    ids=[
        "a function",
        "a list",
        "a cycle",
        "a round",
        "weights of edges",
        "parts",
        "asymmetry",
        "sums",
    ],
)
def test_errors_describe_the_violation(need, wrong, found):
    with pytest.raises(TopologyError, match=found):
        tried(needing(need), wrong, compute=topofl.Compute(on_disconnected="allow"))


def test_remedies_in_errors_exist():
    graph = topofl.as_topology(CYCLE.to_networkx().to_undirected())
    tried(needing(algorithms.undirected), CYCLE.to_networkx().to_undirected())
    assert not graph.is_directed
    tried(needing(algorithms.undirected), graph)
    tried(needing(algorithms.symmetric), graph, mixing=mixing.metropolis_hastings)
    tried(needing(algorithms.doubly_stochastic), CYCLE, mixing=mixing.uniform)
    tried(algorithms.d2(0.1), topologies.ring(N))
    how = {"mixing": lambda graph: mixing.lazy(mixing.metropolis_hastings(graph))}
    tried(algorithms.d2(0.1, lazy=False), topologies.ring(N), **how)


def test_the_missing_spectral_gap_of_choco_sgd_is_explained():
    """The remedy, a `gamma`, works for both causes; lazy weights do not help a graph in parts."""
    allow = {"compute": topofl.Compute(on_disconnected="allow")}

    def equal(graph):
        return mixing.from_weights(graph.adjacency / 2, graph)

    cases = [
        (APART, {}, "the gap is 0, since the graph of W has 2 components; give a `gamma`"),
        (topologies.ring(N), {"mixing": equal}, "since W has the eigenvalue -1; mixing.lazy"),
    ]
    for graph, how, message in cases:
        with pytest.raises(TopologyError, match=message):
            tried(algorithms.choco_sgd(0.1), graph, **allow, **how)
        tried(algorithms.choco_sgd(0.1, gamma=0.1), graph, **allow, **how)
    lazy = {"mixing": lambda graph: mixing.lazy(equal(graph))}
    tried(algorithms.choco_sgd(0.1), topologies.ring(N), **lazy)


def test_a_single_edge_without_a_reverse_edge_is_described_in_the_singular():
    one = nx.DiGraph(nx.path_graph(N))
    one.add_edge(0, 3)
    with pytest.raises(TopologyError, match="the edge from node 0 to node 3 has none back"):
        tried(needing(algorithms.undirected), topofl.as_topology(one))


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
        ("trimmed_mean", "needs: more than 2 * trim neighbors at each node"),
        ("clique_averaging", "needs: groups"),
        ("clipped_gossip", "needs: attackers of little weight"),
    ],
)
def test_needs_by_arguments_are_listed(name, text, capsys):
    main(["list", "algorithm", "--needs"])
    own = capsys.readouterr().out.partition(f"\n  {name}(")[2]
    assert text in re.split(r"\n  (?=\w)", own)[0]


def test_needs_by_arguments_are_checked():
    with pytest.raises(TopologyError, match=r"doubly stochastic for dadam .*column of node 1"):
        tried(algorithms.dadam(0.1, track=True), UNLIKE)
    with pytest.warns(UserWarning, match=r"node 0 a share of 0\.214 "):
        tried(algorithms.dadam(0.1), UNLIKE)
    with pytest.raises(
        TopologyError,
        match=r"must have groups for clique_averaging .*got star\(n=6\): it has none; use",
    ):
        tried(algorithms.clique_averaging(0.1), STAR)


@pytest.mark.parametrize(
    "need",
    [
        algorithms.Need("of", "", "", of=("trim",)),
        algorithms.Need("when", "", "", when=(("track", True),)),
    ],
    ids=["of", "when"],
)
def test_needs_by_arguments_need_a_function_that_has_these(need):
    with pytest.raises(
        TypeError,
        match=r"`when` and `of` of a need must name arguments of mine\(lr\), got '(trim|track)'",
    ):

        @algorithms.needing(need)
        def mine(lr):
            return chain("mine", local=sgd(lr))

    with pytest.raises(ValueError, match="`needs` must not depend on arguments"):
        chain("mine", local=sgd(0.1), needs=[need])


def test_needs_must_return_text():
    need = algorithms.Need("regular", "", "", graph=lambda graph: True)
    with pytest.raises(
        TypeError,
        match=r"`graph` of the need 'regular' must return a description .*, or '' .*got True",
    ):
        tried(needing(need), STAR)


def relayed():
    """Return the exchange that delivers messages along each edge one round later."""

    def init(models):
        return {
            "under_way": models.flat.new_zeros(models.topology.adjacency.nnz, models.flat.shape[1])
        }

    def apply(models, state, round):
        edges = torch.tensor(
            np.array(round.topology.adjacency.nonzero()), device=models.flat.device
        )
        arrived = torch.zeros_like(models.flat).index_add_(0, edges[1], state["under_way"])
        state["under_way"].copy_(models.flat[edges[0]] / N)
        round.send(round.weights, models.flat.shape[1] * models.flat.element_size())
        models.flat.mul_(0.5).add_(arrived, alpha=0.1)
        return state

    return chain("relayed", local=sgd(0.1, batch_size=8), exchange=Phase(init, apply))


def test_state_of_edges_is_counted_and_survives_a_stop(tmp_path):
    graph, settings = (
        topologies.ring(N),
        {"model": models.logistic_regression(64), "clients": CLIENTS},
    )
    whole = tried(relayed(), graph, rounds=6)
    tried(relayed(), graph, rounds=3, saving=tmp_path)
    resumed = tried(relayed(), graph, rounds=6, saving=topofl.Saving(tmp_path, resume=True))
    assert whole.models is not None
    assert resumed.models is not None
    assert torch.equal(whole.models.flat, resumed.models.flat)
    assert (
        topofl.estimate(relayed(), topology=graph, **settings).state
        == graph.adjacency.nnz * 650 * 4
    )


@pytest.mark.parametrize(
    "build", [relayed, lambda: algorithms.relay_sgd(0.1)], ids=["mine", "relay_sgd"]
)
def test_state_of_edges_needs_one_graph(build):
    method = build()
    said = (
        rf"`topology` must be static for {method.name} \(the same graph in all rounds\), "
        r"got rings: a sequence .*; give"
    )
    with pytest.raises(TopologyError, match=said):
        tried(method, CHANGING)
    with pytest.raises(
        TypeError, match=f"`topology` must be given, since {method.name} exchanges models"
    ):
        tried(method, None)
