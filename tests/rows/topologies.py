"""What there is of topologies: arguments of each generator, what it declares, known facts."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import floor, log2
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from topofl import topologies
from topofl._spec import build_topology
from topofl._support.calls import parse_spec
from topofl.topology import Topology, TopologySequence, from_edges

sizes = st.integers(1, 20)


seeds = st.integers(0, 2**32)


def label_counts(least: int = 1) -> st.SearchStrategy[np.ndarray]:
    """Label counts of at least this many nodes, each with data."""
    shapes = st.tuples(st.integers(least, 16), st.integers(1, 5))
    return arrays.arrays(np.int64, shapes, elements=st.integers(0, 99)).map(give_data_to_all)


def give_data_to_all(counts: np.ndarray) -> np.ndarray:
    counts = counts.copy()
    counts[counts.sum(axis=1) == 0, 0] = 1
    return counts


@st.composite
def composite_sides(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a grid: given rows, or a size that has sides."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    n = rows * columns
    feasible = n <= 3 or any(n % side == 0 for side in range(2, n))
    return {"n": n} if feasible and draw(st.booleans()) else {"n": n, "rows": rows}


@st.composite
def regular_arguments(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(2, 16))
    k = draw(st.integers(1, n - 1).filter(lambda k: n * k % 2 == 0 and (k > 1 or n == 2)))
    return {"n": n, "k": k, "seed": draw(seeds)}


@st.composite
def attachment_arguments(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(2, 16))
    return {"n": n, "m": draw(st.integers(1, n - 1)), "seed": draw(seeds)}


@st.composite
def circulant_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """One of the offsets is 1, so that the graph is connected."""
    n = draw(st.integers(2, 16))
    others = draw(st.lists(st.integers(-20, 20).filter(lambda offset: offset % n), max_size=3))
    return {"n": n, "offsets": [1, *others], "directed": draw(st.booleans())}


@st.composite
def lattice_arguments(draw: st.DrawFn) -> dict[str, Any]:
    k = draw(st.sampled_from([2, 4, 6]))
    n, p = draw(st.integers(k + 1, 16)), draw(st.floats(0, 0.5))
    return {"n": n, "k": k, "p": p, "seed": draw(seeds)}


@st.composite
def peer_arguments(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(2, 16))
    return {"n": n, "k": draw(st.integers(1, n - 1)), "seed": draw(seeds)}


@st.composite
def base_graphs(draw: st.DrawFn) -> Topology:
    """Undirected graphs with names that make them; not all connected."""
    n, seed = draw(st.integers(2, 16)), draw(seeds)
    random = topologies.erdos_renyi(n, draw(st.floats(0.5, 1)), seed=seed)
    cliques = topologies.random_cliques(n, draw(st.integers(2, n)), seed=seed)
    return draw(st.sampled_from([random, cliques, topologies.exponential(n), topologies.ring(1)]))


def traces(n: int) -> st.SearchStrategy[list[list[int]]]:
    """Who is there when: a few rounds of 0 and 1."""
    return st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=4)


@st.composite
def equitopo_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a prime number of nodes, so that every shift alone joins all of them."""
    n = draw(st.sampled_from([2, 3, 5, 7, 11, 13]))
    return {"n": n, "m": draw(st.integers(1, 8)), "seed": draw(seeds)}


equidyn = st.fixed_dictionaries(
    {
        "n": st.integers(2, 16),
        "seed": seeds,
        "m": st.none() | st.integers(1, 8),
        "eta": st.floats(0.01, 1),
    }
)


@st.composite
def clique_arguments(draw: st.DrawFn, **more: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Label counts, or only a number of nodes, and a clique size that fits."""
    given_n = draw(st.booleans())
    name, values = ("n", st.integers(2, 16)) if given_n else ("label_counts", label_counts(least=2))
    data = {name: draw(values)}
    size = draw(st.integers(2, n_of(data)))
    drawn = {"clique_size": size, "seed": draw(seeds)}
    return data | drawn | {key: draw(value) for key, value in more.items()}


@st.composite
def one_class_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Label counts of nodes with one class each, or only a number of nodes."""
    arguments = draw(clique_arguments())
    if "label_counts" in arguments:
        counts = arguments["label_counts"]
        first = (counts > 0).argmax(axis=1)
        own = np.arange(counts.shape[1]) == first[:, None]
        arguments["label_counts"] = np.where(own, counts, 0)
    return arguments | {"inter": draw(st.one_of(st.none(), schemes))}


@st.composite
def thinning_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """D-Cliques whose cliques stay connected: one of k nodes loses at most k - 2 edges."""
    arguments = draw(clique_arguments(inter=schemes).filter(lambda arguments: "n" in arguments))
    base = topologies.dcliques(**arguments, steps=20)
    smallest = min(len(group) for group in base.groups)
    removed = draw(st.integers(0, max(0, smallest - 2)))
    return {"base": base, "removed": removed, "seed": draw(seeds)}


@st.composite
def placed_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a moved graph: a number of nodes and a degree, or label counts and a graph."""
    steps = draw(st.integers(1, 30))  # with 0 nothing is drawn for a graph that is given
    if draw(st.booleans()):
        regular = draw(regular_arguments())
        return {"n": regular["n"], "base": regular["k"], "steps": steps, "seed": regular["seed"]}
    counts = draw(label_counts())
    base = draw(st.sampled_from([topologies.ring, topologies.star, topologies.path]))(len(counts))
    return {"label_counts": counts, "base": base, "steps": steps, "seed": draw(seeds)}


@st.composite
def designed_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a designed graph: label counts, or a number of nodes, and a budget."""
    counts = draw(label_counts())
    n = len(counts)
    data = {"label_counts": counts} if draw(st.booleans()) else {"n": n}
    edges = draw(st.integers(n - 1, n * (n - 1) // 2))
    return {**data, "edges": edges, "steps": draw(st.integers(0, 3)), "seed": draw(seeds)}


def toy_reward(k: int, members: tuple[int, ...]) -> float:
    """Return a number that looks like noise: any reward has to be coped with."""
    return float(np.sin(1 + k + np.square(members).sum() + len(members) ** 3))


@st.composite
def chosen_arguments(draw: st.DrawFn) -> dict[str, Any]:
    n, budget = draw(sizes), draw(st.none() | st.integers(1, 5))
    arguments = {"reward": toy_reward, "n": n, "budget": budget}
    return arguments | {"count_self": draw(st.booleans()), "seed": draw(seeds)}


@st.composite
def learned_arguments(draw: st.DrawFn) -> dict[str, Any]:
    data = {"n": draw(sizes)} if draw(st.booleans()) else {"label_counts": draw(label_counts())}
    return data | {"degree": draw(st.integers(0, 5)), "lam": draw(st.sampled_from([0.0, 0.1, 2.0]))}


def n_of(arguments: dict[str, Any]) -> int:
    if isinstance(arguments.get("base"), Topology):
        return arguments["base"].n
    return len(arguments["label_counts"]) if "label_counts" in arguments else arguments["n"]


bases = st.one_of(
    sizes.map(topologies.ring),
    sizes.map(topologies.star),
    st.builds(topologies.exponential, sizes, directed=st.booleans()),
    st.builds(
        lambda n, seed: topologies.random_out(n, 1, seed=seed).at(0), st.integers(2, 16), seeds
    ),
)


def is_base_directed(arguments: dict[str, Any]) -> bool:
    return arguments["base"].is_directed


@st.composite
def block_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Pairs likely enough for a connected graph, or blocks that are not joined at all."""
    n = draw(st.integers(1, 16))
    fields = {"n": n, "blocks": draw(st.integers(1, max(1, n // 2))), "seed": draw(seeds)}
    if draw(st.booleans()):
        return fields | {"p_in": draw(st.floats(0.5, 1)), "p_out": draw(st.floats(0.5, 1))}
    return fields | {"p_in": 1.0, "p_out": 0.0, "connected": False}


def with_seed(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({**fields, "seed": seeds})


@dataclass(frozen=True)
class Row:
    """Arguments of a generator, and what it declares of the graph it makes from them."""

    arguments: st.SearchStrategy[dict[str, Any]]
    connected: Callable[[dict[str, Any]], bool] | None = lambda arguments: (
        True
    )  # over one period; None: not declared
    directed: Callable[[dict[str, Any]], bool] = lambda arguments: False  # may be
    own_weights: bool = False  # its edges carry mixing weights
    redrawn: bool = (
        False  # every round anew: no period, nothing declared of connection, integer seeds only
    )
    n: int | None = None  # of a graph without parameters


def is_joined(arguments: dict[str, Any]) -> bool:
    return arguments["clique_size"] == n_of(arguments) or arguments.get("inter") is not None


schemes = st.sampled_from(["fully_connected", "ring", "fractal", "small_world"])


distances = st.sampled_from(
    ["l1", "total_variation", "kl", "hellinger", "euclidean", "chebyshev", "jensen_shannon"]
)


swapping = {
    "steps": st.integers(0, 30),
    "weighting": st.sampled_from(["uniform", "pooled"]),
    "distance": st.one_of(st.just("l1"), distances),
}


meeting = {
    "steps": st.integers(0, 30),
    "distance": st.one_of(st.just("l1"), distances),
    "gossip_rounds": st.one_of(st.none(), st.integers(0, 5)),
    "inter": st.one_of(st.none(), schemes),
}


peers = [{"n": n, "k": k} for n in range(1, 21) for k in range(1, max(2, n))]


smooth = [
    row
    for row in peers
    if all(row["n"] % prime for prime in (2, 3, 5, 7, 11, 13, 17, 19) if prime > row["k"] + 1)
]


ROWS = {
    "barabasi_albert": Row(attachment_arguments()),
    "base_graph": Row(st.sampled_from(peers), own_weights=True),
    "circulant": Row(circulant_arguments(), directed=lambda arguments: arguments["directed"]),
    "complete_bipartite": Row(
        st.integers(2, 16).flatmap(
            lambda n: st.fixed_dictionaries({"n": st.just(n), "left": st.integers(1, n - 1)})
        )
    ),
    "d_equistatic": Row(equitopo_arguments(), directed=lambda arguments: True, own_weights=True),
    "davis_southern_women": Row(st.just({}), n=32),
    "dcliques": Row(
        clique_arguments(
            **swapping, inter=schemes, cliques=st.sampled_from(["greedy_swap", "random"])
        )
    ),
    "decentralized_greedy_swap": Row(clique_arguments(**meeting), connected=is_joined),
    "dissimilar_ring": Row(
        st.one_of(
            with_seed(label_counts=label_counts(), ties=st.sampled_from(["stable", "random"])),
            with_seed(n=sizes),
        )
    ),
    "erdos_renyi": Row(with_seed(n=st.integers(1, 16), p=st.floats(0.5, 1.0))),
    "erdos_renyi_sequence": Row(with_seed(n=sizes, p=st.floats(0, 1)), redrawn=True),
    "exponential": Row(
        st.fixed_dictionaries({"n": sizes, "directed": st.booleans()}),
        directed=lambda arguments: arguments["directed"],
    ),
    "fedlay": Row(with_seed(n=sizes, spaces=st.integers(1, 6))),
    "florentine_families": Row(st.just({}), n=15),
    "fully_connected": Row(st.fixed_dictionaries({"n": sizes})),
    "greedy_collaboration": Row(
        chosen_arguments(), connected=None, directed=lambda arguments: True
    ),
    "greedy_swap": Row(clique_arguments(**swapping), connected=is_joined),
    "grid": Row(composite_sides()),
    "hyper_hypercube": Row(st.sampled_from(smooth), own_weights=True),
    "hypercube": Row(st.fixed_dictionaries({"n": st.sampled_from([1, 2, 4, 8, 16])})),
    "ideal_cliques": Row(one_class_arguments(), connected=is_joined),
    "karate_club": Row(st.just({}), n=34),
    "link_failures": Row(
        with_seed(base=bases, fail=st.floats(0, 1), recover=st.floats(0, 1)),
        directed=is_base_directed,
        redrawn=True,
    ),
    "matcha": Row(
        with_seed(
            base=base_graphs().filter(lambda base: base.n > 1 and base.is_connected),
            budget=st.floats(0, 1, exclude_min=True),
        ),
        own_weights=True,
        redrawn=True,
    ),
    "matchings": Row(
        st.fixed_dictionaries({"base": base_graphs()}),
        connected=lambda arguments: arguments["base"].is_connected,
    ),
    "neighborhood_swap": Row(placed_arguments()),
    "designed": Row(designed_arguments()),
    "designed_directed": Row(
        learned_arguments(), connected=None, directed=lambda arguments: True, own_weights=True
    ),
    "od_equidyn": Row(equidyn, directed=lambda arguments: True, own_weights=True, redrawn=True),
    "one_peer_exponential": Row(
        st.fixed_dictionaries({"n": st.integers(2, 20), "directed": st.booleans()}),
        directed=lambda arguments: arguments["directed"],
    ),
    "ou_equidyn": Row(equidyn, own_weights=True, redrawn=True),
    "p_peer_exponential": Row(
        st.integers(2, 16).flatmap(
            lambda n: st.fixed_dictionaries({"n": st.just(n), "p": st.integers(1, n - 1)})
        ),
        directed=lambda arguments: True,
    ),
    "availability": Row(
        bases.flatmap(
            lambda base: st.fixed_dictionaries({"base": st.just(base), "trace": traces(base.n)})
        ),
        connected=None,
        directed=is_base_directed,
    ),
    "participation": Row(
        with_seed(base=bases, fraction=st.floats(0, 1, exclude_min=True)),
        directed=is_base_directed,
        redrawn=True,
    ),
    "path": Row(st.fixed_dictionaries({"n": sizes})),
    "random_cliques": Row(
        clique_arguments().filter(lambda arguments: "n" in arguments), connected=is_joined
    ),
    "random_in": Row(peer_arguments(), directed=lambda arguments: True, redrawn=True),
    "random_matching": Row(with_seed(n=sizes), redrawn=True),
    "random_out": Row(peer_arguments(), directed=lambda arguments: True, redrawn=True),
    "random_regular": Row(regular_arguments()),
    "random_regular_sequence": Row(regular_arguments(), redrawn=True),
    "ring": Row(st.fixed_dictionaries({"n": sizes})),
    "rotating_cliques": Row(
        clique_arguments(
            steps=st.integers(0, 30), partitions=st.integers(1, 4), seed=st.integers(0, 9)
        ),
        connected=None,
    ),
    "small_world": Row(lattice_arguments()),
    "star": Row(st.fixed_dictionaries({"n": sizes})),
    "stochastic_block_model": Row(
        block_arguments(),
        connected=lambda arguments: arguments["p_out"] > 0 or arguments["blocks"] == 1,
    ),
    "stl_fw": Row(
        learned_arguments(), connected=None, directed=lambda arguments: True, own_weights=True
    ),
    "thin_cliques": Row(thinning_arguments()),
    "torus": Row(composite_sides()),
    "tree": Row(st.fixed_dictionaries({"n": sizes, "branching": st.integers(1, 4)})),
    "u_equistatic": Row(equitopo_arguments(), own_weights=True),
}


every_generator = pytest.mark.parametrize("name", topologies.__all__)


def rounds(graph: Topology | TopologySequence) -> list[Topology]:
    return [graph.at(t) for t in range(graph.period or 4)]


def same(a: Topology, b: Topology) -> bool:
    return a.name == b.name and a.groups == b.groups and (a.adjacency != b.adjacency).nnz == 0


def called(name: str, **arguments: Any) -> Any:
    """Return what the call that a name shows returns; a reward is not shown."""
    return eval(name, vars(topologies) | {"reward": arguments.get("reward")})


def row_of(name: str) -> Row:
    """Return the row of a generator; one without arguments of its own is tried on its examples."""
    return ROWS[name] if name in ROWS else row_of_examples(topologies.GENERATORS[name].examples)


def row_of_examples(examples: tuple[topologies.Example, ...]) -> Row:
    """Return a row of examples, all of the kind of the first, of graphs that are connected."""
    calls = [parse_spec(example) for example in examples if isinstance(example, str)]
    first = build_topology(*calls[0]).value
    graph = first.at(0)
    return Row(
        st.sampled_from([arguments for _, arguments in calls]),
        directed=lambda arguments: graph.is_directed,
        own_weights=graph.own_weights,
        redrawn=first.period is None,
    )


def words_digraph(words: list[tuple[int, ...]]) -> nx.DiGraph:
    """Return the digraph of words in which an edge drops the first letter and appends one."""
    graph = nx.DiGraph()
    graph.add_nodes_from(words)
    graph.add_edges_from((u, v) for u in words for v in words if u[1:] == v[:-1] and u != v)
    return graph


def all_words(letters: int, length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(letters), repeat=length))


def kautz_words(d: int, k: int) -> list[tuple[int, ...]]:
    """Return the words of k of d + 1 letters in which no letter follows itself."""
    words = all_words(d + 1, k)
    return [word for word in words if all(a != b for a, b in itertools.pairwise(word))]


DIGRAPHS = [(2, 1), (2, 2), (2, 3), (2, 5), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2)]
"""Degrees, and lengths of words, which are diameters."""

SIDES = [(1, 1), (1, 2), (1, 6), (2, 2), (2, 3), (2, 7), (3, 3), (4, 5), (5, 4)]


def offsets(n: int) -> list[int]:
    return [2**e for e in range(floor(log2(n - 1)) + 1)] if n > 1 else []


def random_dcliques(n: int, inter: str, seed: int = 0) -> Topology:
    return topologies.dcliques(n=n, inter=inter, cliques="random", seed=seed)


KNOWN = [
    *((topologies.fully_connected(n), {"twin": nx.complete_graph(n)}) for n in (1, 2, 3, 7, 16)),
    *((topologies.star(n), {"twin": nx.star_graph(n - 1)}) for n in (1, 2, 3, 7, 16)),
    (topologies.ring(1), {"twin": nx.empty_graph(1)}),  # networkx gives it a self-loop
    *((topologies.ring(n), {"twin": nx.cycle_graph(n)}) for n in (2, 3, 4, 7, 16)),
    *((topologies.grid(a * b, rows=a), {"twin": nx.grid_2d_graph(a, b)}) for a, b in SIDES),
    *(
        (topologies.torus(a * b, rows=a), {"twin": nx.grid_2d_graph(a, b, periodic=True)})
        for a, b in SIDES
    ),
    (topologies.grid(7, rows=1), {"twin": nx.path_graph(7)}),
    (topologies.grid(5, rows=5), {"twin": nx.path_graph(5)}),
    (topologies.torus(7, rows=1), {"twin": nx.cycle_graph(7)}),
    (topologies.path(7), {"twin": nx.path_graph(7)}),
    (topologies.complete_bipartite(7, 3), {"twin": nx.complete_bipartite_graph(3, 4)}),
    (topologies.complete_bipartite(2), {"twin": nx.path_graph(2)}),
    (topologies.hypercube(16), {"twin": nx.hypercube_graph(4), "diameter": 4}),
    (topologies.hypercube(1), {"twin": nx.path_graph(1)}),
    (topologies.tree(15), {"twin": nx.balanced_tree(2, 3)}),
    (topologies.tree(13, 3), {"twin": nx.balanced_tree(3, 2)}),
    (topologies.tree(9, 4), {"twin": nx.full_rary_tree(4, 9)}),
    (topologies.tree(6, 1), {"twin": nx.path_graph(6)}),
    *((topologies.tree(20, branching), {"edges": 19}) for branching in (1, 2, 3)),
    (topologies.circulant(12, [1, 5]), {"twin": nx.circulant_graph(12, [1, 5])}),
    (topologies.circulant(9, [1]), {"twin": nx.cycle_graph(9)}),
    *(
        (topologies.exponential(n), {"twin": nx.circulant_graph(n, offsets(n))})
        for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33)
    ),
    (
        topologies.circulant(7, [1, 2, 4], directed=True),
        {"twin": topologies.exponential(7, directed=True).to_networkx()},
    ),
    *(
        (
            topologies.kautz(d**k + d ** (k - 1), d),
            {"twin": words_digraph(kautz_words(d, k)), "diameter": k, "degree": d}
            | {"gap": 1 if k == 1 else d / (d + 1)},
        )
        for d, k in DIGRAPHS
    ),
    *((topologies.de_bruijn(d**k, d), {"diameter": k}) for d, k in DIGRAPHS),
    (topologies.de_bruijn(1), {"edges": 0}),
    # Degrees, edges and gaps
    (topologies.grid(100), {"degree": 3.6}),
    (topologies.torus(100), {"degree": 4}),
    (topologies.torus(8, rows=2), {"degree": 3}),  # a side of 2 has no double edges
    (topologies.star(100), {"diameter": 2, "gap": 1 / 100}),
    (topologies.exponential(100), {"degree": 14}),
    (topologies.exponential(1000), {"degree": 20}),
    (topologies.exponential(1000, directed=True), {"degree": 10}),
    (topologies.karate_club(), {"edges": 78}),
    (topologies.davis_southern_women(), {"edges": 89}),
    (topologies.florentine_families(), {"edges": 20}),
    *((topologies.path(n), {"gap": (2 - 2 * np.cos(np.pi / n)) / 3}) for n in (3, 4, 11, 40)),
    *((topologies.hypercube(2**d), {"gap": 2 / (d + 1), "diameter": d}) for d in (1, 3, 6)),
    *(  # Ying et al. 2021, Proposition 1
        (topologies.exponential(2**d, directed=True), {"gap": 2 / (1 + d)}) for d in (2, 3, 4, 6, 7)
    ),
    *(
        (topologies.random_cliques(n, size, seed=0), {"edges": edges})
        for n, size, edges in ((20, 10, 90), (21, 10, 90), (7, 7, 21), (5, 3, 4))
    ),
    (random_dcliques(20, "ring"), {"edges": 91}),
    # D-Cliques, section III-C; 18.9 edges a node at n = 1000 are its section IV-E
    (random_dcliques(100, "ring"), {"edges": 460, "degree": 9.2, "slem": 0.997099}),
    (random_dcliques(1000, "ring"), {"edges": 4600, "degree": 9.2, "slem": 0.999970}),
    (random_dcliques(100, "fractal"), {"edges": 495, "degree": 9.9, "slem": 0.918093}),
    (random_dcliques(1000, "fractal"), {"edges": 4995, "degree": 9.99, "slem": 0.993131}),
    (random_dcliques(100, "fully_connected"), {"edges": 495, "degree": 9.9, "slem": 0.918093}),
    (random_dcliques(1000, "fully_connected"), {"edges": 9450, "degree": 18.9, "slem": 0.801215}),
    # Rounds of exchanges after which averages are exact, from any round on
    *((topologies.one_peer_exponential(2**e), {"rounds": e, "exact": True}) for e in (1, 2, 3, 5)),
    *(
        (topologies.one_peer_exponential(2**e, directed=False), {"rounds": e, "exact": True})
        for e in (1, 2, 3, 5)
    ),
    *(
        (topologies.p_peer_exponential((p + 1) ** k, p), {"rounds": k, "degree": p})
        for p, k in ((1, 5), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2), (7, 2), (6, 1))
    ),
    *((topologies.hyper_hypercube(2**e, 1), {"rounds": e, "exact": True}) for e in (1, 2, 3, 5)),
    *((topologies.hyper_hypercube(n, k), {"rounds": r}) for n, k, r in ((12, 2, 3), (30, 4, 3))),
    *((make(7, 6), {"rounds": 1}) for make in (topologies.hyper_hypercube, topologies.base_graph)),
]
"""Single graphs, and what is known of each: `degree` is the mean number of receivers."""

COUNTS = np.array([[3, 0], [1, 2], [2, 2], [0, 5]])

NAMED = [
    (
        topologies.dcliques(COUNTS, clique_size=2, inter="ring", steps=5, seed=9),
        "dcliques(label_counts[4x2], clique_size=2, inter='ring', steps=5, seed=9)",
    ),
    (
        topologies.dcliques(n=20, inter="ring", cliques="random", seed=0),
        "dcliques(n=20, clique_size=10, inter='ring', cliques='random', seed=0)",
    ),
    (
        topologies.greedy_swap(COUNTS, 2, weighting="pooled", seed=0),
        "greedy_swap(label_counts[4x2], clique_size=2, weighting='pooled', seed=0)",
    ),
    (
        topologies.neighborhood_swap(COUNTS, 3, seed=0),
        "neighborhood_swap(label_counts[4x2], base=3, seed=0)",
    ),
    (
        topologies.neighborhood_swap(n=3, base=topologies.ring(3), steps=5, seed=0),
        "neighborhood_swap(n=3, base=ring(n=3), steps=5, seed=0)",
    ),
    (topologies.stl_fw(COUNTS, 1, lam=0), "stl_fw(label_counts[4x2], degree=1, lam=0.0)"),
    (
        topologies.od_equidyn(8, seed=0, m=3, eta=1).at(2),
        "od_equidyn(n=8, seed=0, m=3, eta=1.0).at(2)",
    ),
    (
        topologies.greedy_collaboration(toy_reward, 3, candidates=topologies.ring(3), seed=0),
        "greedy_collaboration(reward, n=3, candidates=ring(n=3), seed=0)",
    ),
    (
        topologies.greedy_collaboration(toy_reward, 3, [1, 2, 0], seed=0),
        "greedy_collaboration(reward, budget[3], n=3, seed=0)",
    ),
    (
        topologies.decentralized_greedy_swap(
            n=8, clique_size=4, gossip_rounds=3, gossip_graph=topologies.ring(8), seed=0
        ),
        "decentralized_greedy_swap(n=8, clique_size=4, gossip_rounds=3, gossip_graph=ring(n=8), "
        "seed=0)",
    ),
]
"""Graphs, and their names."""


@st.composite
def graphs(draw: st.DrawFn, directed: bool | None = None, groups: bool = False) -> Topology:
    """Any graph on a few nodes, connected or not; with `groups`, some nodes are in groups."""
    n = draw(st.integers(1, 9))
    node = st.integers(0, n - 1)
    pairs = st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])
    edges = draw(st.lists(pairs, max_size=3 * n)) if n > 1 else []
    directed = draw(st.booleans()) if directed is None else directed
    of_nodes = st.lists(st.integers(-1, 2), min_size=n, max_size=n)
    labels = draw(of_nodes.filter(lambda x: max(x) >= 0)) if groups else []
    members = [[i for i, label in enumerate(labels) if label == k] for k in range(3)]
    return from_edges(edges, n, directed=directed, groups=[group for group in members if group])
