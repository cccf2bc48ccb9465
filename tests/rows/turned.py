"""Changes under which claims of the papers fail, by figure."""

import numpy as np

from paper_figures.dcliques import graphs as dcliques_graphs
from paper_figures.dcliques.arms import ALL, EXPONENTIAL_LABEL
from paper_figures.dcliques.claims import REFERENCE
from paper_figures.dcliques.greedy_swap import GREEDY, RANDOM
from paper_figures.dfedpgp.claims import ABLATION_NUMBERS, ACCURACIES
from tests.rows.papers import (
    ALIKE,
    BAD,
    BOTH,
    C10,
    CA,
    D10,
    DATA,
    DEVICES,
    DIR,
    DPFL,
    FIRST_EPOCHS,
    FULL,
    GOOD,
    HALF,
    IID,
    MILD,
    MIXED,
    MOMENTUM,
    NO_MOMENTUM,
    NONE,
    ONE_WAY,
    OURS,
    PAT,
    PATHO,
    PERIODS,
    PLAIN,
    RING,
    SKEWED,
    SKEWS,
    SPLITS,
    UNSHOWN,
    ahead,
    by_clients,
    by_neighbors,
    descents,
    grid,
    line,
)

CLOSE = {1: (80.0,) * 4, 5: (81.0,) * 4, 10: (82.9,) * 4}
"""Numbers that are 2.9 points apart in the end, and at most 1.9 from one to the next."""

AGAINST = {
    "DPFL": (70, 50, MIXED),
    "random": (80, 55, {}),
    "D-Cliques": (90, 30, ALIKE),
    "random cliques": (80, 55, {}),
}


def _four(averaged, plain, plain_momentum):
    """Return figure 10 with other ends of three arms; the fourth ends at 65."""
    without = {
        "D-Cliques + CA": {"final": averaged, "tau": 20},
        "D-Cliques": {"final": plain, "tau": 20},
    }
    return {NO_MOMENTUM: without, MOMENTUM: {"D-Cliques": {"final": plain_momentum, "tau": 20}}}


def _clique_of(value):
    """Return the clique of each node of figure 5, and its edges between cliques."""
    clique = np.empty(100, int)
    for k, group in enumerate(value["groups"]):
        clique[group] = k
    return clique, [edge for edge in value["edges"] if clique[edge[0]] != clique[edge[1]]]


def _shuffle(value):
    value["labels"] = np.random.default_rng(0).permutation(value["labels"]).tolist()


def _add(value):
    pairs = {tuple(edge) for edge in value["edges"]}
    first, second = value["groups"][:2]
    new = next([u, v] for u in first for v in second if not {(u, v), (v, u)} & pairs)
    value["edges"].append(new)


def _lose(value):
    clique, _ = _clique_of(value)
    value["edges"].remove(next(edge for edge in value["edges"] if len({*clique[edge]}) == 1))


def _crowd(value):
    """Let all edges between cliques end at the first node of each."""
    clique, between = _clique_of(value)
    heads = [[value["groups"][clique[end]][0] for end in edge] for edge in between]
    value["edges"] = [edge for edge in value["edges"] if edge not in between] + heads


def _unjoin(value):
    value["edges"].remove(_clique_of(value)[1][0])


def _swap_rules(value):
    value["without"], value["with"] = value["with"], value["without"]


def _swap_nodes(value):
    value["without"]["A"], value["without"]["B"] = value["without"]["B"], value["without"]["A"]


def _another_weight(value):
    value["without"]["A"][7] = 0.11


def _rise_again(value):
    for panel in value.values():
        panel["skew"] = [skews[::-1] for skews in panel["skew"]]


def _slow_down(value):
    for panel in value.values():
        panel["seconds"] = [200 * seconds for seconds in panel["seconds"]]


def _swap_data(value):
    value["MNIST"], value["CIFAR-10"] = value["CIFAR-10"], value["MNIST"]


def _one_rise(value):
    value["MNIST"]["skew"][2][500] = 0.061


def _of_joined(**numbers):
    return {"1000": {dcliques_graphs.JOINED_CLIQUES: numbers}}


def _finals(values):
    return {label: {"final": value} for label, value in values.items()}


def _less_than_another_graph(other):
    """Return the rows of figures 11 and 12, whose D-Cliques are ahead of another graph."""
    return [
        ("MNIST: even without", {"MNIST": {other: {"tau": 6}}}),
        ("MNIST: D-Cliques have less", {"MNIST": {other: {"spread": 1}}}),
        ("CIFAR-10: even without", {"CIFAR-10": {other: {"final": 60}}}),
        ("CIFAR-10: D-Cliques have less", {"CIFAR-10": {"D-Cliques": {"spread": 15}}}),
    ]


TURNED = {
    "dcliques-fig01": [
        ("negligible", {IID: {"ring": {"tau": 6}}}),
        ("very significant", {SKEWED: {"ring": {"final": 92, "tau": 7}, "grid": {"tau": 7}}}),
        ("every sparse topology", {SKEWED: {"grid": {"tau": 5.5}}}),
        ("IID and skewed data", {SKEWED: {"fully-connected": {"tau": 3}}}),
    ],
    "dcliques-fig08": [
        ("MNIST: the convergence speed", {"MNIST": {"D-Cliques + CA": {"tau": 6}}}),
        ("CIFAR-10: the convergence speed", {"CIFAR-10": {"D-Cliques + CA": {"final": 60}}}),
        ("significantly better", {"MNIST": {"grid": {"tau": 5.5}}}),
        ("less variance", {"MNIST": {"D-Cliques + CA": {"spread": 9}}}),
    ],
    "dcliques-fig09": [
        ("reduces the variance", {"MNIST": {"D-Cliques": {"spread": 0.9}}}),
        ("accelerates", {"MNIST": {"D-Cliques": {"tau": 5.0}}}),
        ("is slight", {"MNIST": {"D-Cliques": {"tau": 8}}}),
    ],
    "dcliques-fig10": [
        ("more pronounced", _four(62.5, 63.8, 57.5)),
        ("in combination", _four(63.0, 55.5, 53.5)),
        ("is detrimental", {MOMENTUM: {"D-Cliques": {"final": 60}}}),
        ("is beneficial", {NO_MOMENTUM: {"D-Cliques + CA": {"final": 64.5, "tau": 20}}}),
        ("fastest", {NO_MOMENTUM: {"D-Cliques": {"final": 67, "tau": 20}}}),
        ("lowest variance", {MOMENTUM: {"D-Cliques + CA": {"spread": 7}}}),
    ],
    "dcliques-fig11": [
        *_less_than_another_graph("random graph"),
        ("momentum is detrimental", {"CIFAR-10": {"random graph, momentum": {"final": 50}}}),
    ],
    "dcliques-fig12": _less_than_another_graph("exponential graph"),
    "dcliques-fig13": [
        ("joined in a ring converge", {"MNIST": {"ring": {"final": 60}}}),
        ("much slower", {"MNIST": {"ring": {"tau": 6}}}),
        ("small world", {"MNIST": {"small-world": {"tau": 6}}}),
        ("connecting all nodes", {"MNIST": {ALL: {"tau": 3}}}),
    ],
    "dcliques-fig14": [
        ("joined in a ring converge", {"CIFAR-10": {"ring": {"final": 45}}}),
        ("much slower", {"CIFAR-10": {"ring": {"tau": 22}}}),
        ("small world", {"CIFAR-10": {"small-world": {"tau": 18}}}),
        ("connecting all nodes", {"CIFAR-10": {ALL: {"final": 70}}}),
    ],
    "dcliques-fig15": [
        ("slows the convergence.", {PLAIN: {"5 removed": {"tau": 5.1}}}),
        ("slows the convergence only", {PLAIN: {"5 removed": {"tau": 9}}}),
        ("increases the variance", {PLAIN: {"5 removed": {"spread": 2}}}),
        ("affect the speed", {CA: {"1 removed": {"tau": 5.5}}}),
        ("affect the variance", {CA: {"5 removed": {"spread": 1.5}}}),
    ],
    "dcliques-fig16": [
        ("small effect on the speed", {PLAIN: {"5 removed": {"final": 50}}}),
        ("small effect on the variance", {PLAIN: {"1 removed": {"spread": 25}}}),
        ("too slow", {PLAIN: {"fully-connected": {"tau": 60}}}),
        ("noticeable effect", {CA: {"1 removed": {"tau": 20.5}}}),
        ("single edge is small", {CA: {"1 removed": {"tau": 35}}}),
        ("significantly damages", {CA: {"5 removed": {"tau": 24}}}),
        ("sharply increases", {CA: {"5 removed": {"spread": 5.5}}}),
    ],
    "dcliques-fig19": [
        ("MNIST: cliques made by", {"MNIST": {"random cliques + CA": {"tau": 5}}}),
        ("MNIST: with Greedy-Swap", {"MNIST": {"random cliques + CA": {"spread": 5}}}),
        ("CIFAR-10: cliques made by", {"CIFAR-10": {"D-Cliques + CA": {"tau": 36}}}),
        ("CIFAR-10: with Greedy-Swap", {"CIFAR-10": {"D-Cliques + CA": {"spread": 8}}}),
    ],
    "dcliques-reference": [
        (f"{label}, epoch {epoch}:", {"MNIST": {label: {epoch: 2.0}}})
        for label in REFERENCE
        for epoch in (5, 7, 10)
    ],
    "dcliques-fig05": [
        (("global class", "holds each class once"), _shuffle),
        (("exactly one edge", "9.9 edges", "spread evenly"), _add),
        (("fully connected", "9.9 edges", "spread evenly", "farther apart"), _lose),
        ("spread evenly", _crowd),
        (("exactly one edge", "farther apart than 3", "9.9 edges"), _unjoin),
    ],
    "dcliques-fig06": [
        (("is biased", "All weights", "counts twice", "removes the bias"), _swap_rules),
        (("own class", "equal weights", "All weights", "counts twice"), _swap_nodes),
        ("Node A gives its other neighbors equal weights", _another_weight),
    ],
    "dcliques-numbers": [
        ("18.9 edges per node", _of_joined(degree=18.902)),
        (("18.9 edges per node", "98 %", "22 %"), _of_joined(degree=50)),
        (("37.8 messages", "96 %"), _of_joined(messages_paper=200)),
        ("27.9 messages", _of_joined(messages_exact=30)),
        ("999 edges", {"1000": {ALL: {"degree": 998}}}),
        (("14.5 edges", "22 %"), {"1000": {dcliques_graphs.SMALL_WORLD_CLIQUES: {"degree": 12}}}),
        ("at most M = 10", {"1000": {dcliques_graphs.FRACTAL_CLIQUES: {"highest_degree": 11}}}),
        ("80 %", {"100": {ALL: {"messages_paper": 90}}}),
        ("exponential graph has", {"100": {EXPONENTIAL_LABEL: {"degree": 15}}}),
        *(
            (f"gap: {label}, n = {int(n):,}", {n: {label: {"gap": 2 * gap}}})
            for n, gaps in dcliques_graphs.DECLARED["gaps"].items()
            for label, (gap, _) in gaps.items()
        ),
    ],
    "dcliques-fig17": [
        ("", {name: {RANDOM: SKEWS[GREEDY], GREEDY: SKEWS[RANDOM]} for name in DATA}),
        ("", {name: {GREEDY: SKEWS[RANDOM]} for name in DATA}),
    ],
    "dcliques-fig18": [
        (("400 steps", "raises", "construction slower"), _rise_again),
        ("are fast", _slow_down),
        ("imbalance", _swap_data),
        ("MNIST: the low skew", descents(pace=(400, 40))),
        ("MNIST: no swap raises", _one_rise),
    ],
    "dfedpgp-tab01": [
        ((f"{DIR}: DFedPGP is", "on average"), ahead(DIR, "FedPer", 20)),
        (f"{DIR}: DFedPGP is", ahead(DIR, "Local", 30)),
        (f"{PAT}: DFedPGP is", ahead(PAT, "Local", 10)),
        (f"{MILD}: DFedPGP is", ahead(MILD, "FedPer", 1)),
        ("loses less than FedRep", ahead(MILD, "DFedPGP", 20)),
    ],
    "dfedpgp-fig02": [("learns fastest", {DIR: {"OSGP": {"tau": 4}}})],
    "dfedpgp-tab02": [
        ("", {title: {"DFedPGP": {"tau": 40}} for title in (DIR, PAT)}),
        ("almost twice", {DIR: {"DFedPGP": {"tau": 18}}}),
    ],
    "dfedpgp-tab03": [
        ("", {DIR: _finals({label: 150 - ACCURACIES[label][DIR][0] for label in DEVICES})})
    ],
    "dfedpgp-tab04": [
        (
            "",
            {
                title: _finals({label: 170 - value for label, value in row.items()})
                for title, row in ABLATION_NUMBERS.items()
            },
        ),
        (  # 0.4 points are no great margin where the paper prints 2.2 and 2.5
            f"{DIR}: keeping heads",
            {DIR: _finals({"DFedAvgM": 79.9, "OSGP": 80, "DFedAvgM-P": 80.3, "DFedPGP": 80.4})},
        ),
    ],
    "dfedpgp-fig03a": [("", {DIR: by_neighbors(-1, drop=10)})],
    "dfedpgp-fig03b": [("", {DIR: by_clients(60, 40, -1)})],
    "pfeddst-fig03": [
        (("most accurate", "learns fastest"), {C10: {"FedPer": line(90)}}),
        ("is stable", {C10: {OURS: line(90, drop=6)}}),
    ],
    "pfeddst-tab01": [("", {C10: {OURS: {"tau": 40}, "DFedPGP": {"tau": 60}}})],
    "pfeddst-fig02a": [("", {"own": 30, "near": -10})],
    "pfeddst-labels": [("", {"overlap": [18.0, 16.0]})],
    "dpfl-tab01": [
        row
        for t in SPLITS
        for row in (
            (f"{t}: ", {t: {"APFL": 99, "Local": 95, "FedAvg": 95, "DPFL, 0.05 n": 70}}),
            (
                f"{t}: DPFL is far more accurate than FedAvg",
                {t: {"FedAvg": DPFL["DPFL"][t][0] - 1}},
            ),
        )
    ],
    "dpfl-fig07": [
        *((f"{t}: with every budget", {t: {"DPFL, 0.05 n": (10, 999)}}) for t in SPLITS),
        ("FEMNIST: with every budget", {"FEMNIST": {"FedAvg": (99, 1)}}),
        ((), {PATHO: dict.fromkeys(UNSHOWN, (99, 1))}),
    ],
    "dpfl-tab02": [
        (("comparable", "yields good"), {PATHO: grid(CLOSE)}),
        ("", {PATHO: grid(FIRST_EPOCHS, lambda k: -5 * (k == 1) - 8 * (k == 10))}),
    ],
    "dpfl-tab03": [
        ("decreases slightly", {D10: grid(PERIODS, lambda k: k)}),
        ("maintains good", {D10: grid(PERIODS, lambda k: -k)}),
    ],
    "dpfl-fig03": [("", {D10: {"DPFL, 0.1 n, random": 83}})],
    "dpfl-fig02": [("", {"DPFL": [FULL, FULL]}), ("", {"DPFL": [NONE, NONE]})],
    "dpfl-fig08": [("", {"DPFL": [RING, FULL] * 5 + [RING]})],
    "dpfl-fig15": [
        ("", {"DPFL": [FULL, RING], "DPFL, 0.1 n": [FULL, HALF]}),
        (("around 80 to 88", "decreases"), {"DPFL, 0.1 n": [RING, FULL]}),
    ],
    "dpfl-fig04a": [("", {"DPFL": [GOOD, BAD]})],
    "dpfl-fig04b": [("", {"DPFL": [BOTH, FULL]}), ("segregated", {"DPFL": [FULL, ONE_WAY]})],
    "dpfl-fig14": [("", {"DPFL": [BAD] * 10})],
    "dpfl-study": [("", AGAINST)],
    "dpfl-expA": [("", {"with 2": 70.0, "with 3": 68.0, "with both": 46.0})],
}
"""Words of the claims that fail, "" for all, while the others hold, and what is changed for it."""
