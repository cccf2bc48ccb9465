"""What the papers print, as data of their figures, and changes under which claims fail."""

import copy
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from paper_figures import dpfl, pfeddst, reproduce
from paper_figures.command import PAPERS, figures_named
from paper_figures.dcliques import claims as dcliques_claims
from paper_figures.dcliques import graphs as dcliques_graphs
from paper_figures.dcliques.arms import ALL, EXPONENTIAL_LABEL
from paper_figures.dcliques.claims import REFERENCE
from paper_figures.dcliques.greedy_swap import FIG17, FIG18, GREEDY, RANDOM
from paper_figures.dfedpgp import claims as dfedpgp_claims
from paper_figures.dfedpgp.claims import ABLATION_NUMBERS, ACCURACIES, EQUAL
from paper_figures.dpfl import claims as dpfl_claims
from paper_figures.dpfl import graphs as dpfl_graphs
from paper_figures.dpfl import study
from paper_figures.dpfl.arms import Outcome
from paper_figures.kit.claims import Claim
from paper_figures.kit.curves import Curve, write_panels
from paper_figures.kit.paper import Setting
from paper_figures.kit.store import Store
from paper_figures.pfeddst import peers

EPOCHS = np.linspace(0, 100, 101)

LACKING = {"pfeddst-fig04", "dpfl-fig05", "dpfl-fig06"}
"""Figures that scale ``smoke`` has no data for."""

SILENT = {"dcliques-reference", "dpfl-fig12", "dpfl-fig13", "pfeddst-labels", "pfeddst-sensitivity"}
"""Figures without a claim at scale ``smoke``: too short, or judged with other figures."""


@cache
def reproduced(paper: str) -> tuple[Path, dict[str, Any], list[object], TemporaryDirectory]:
    """Return the folder, the results by id, and what was shown, of a whole paper at ``smoke``."""
    folder, told = TemporaryDirectory(), []
    results = reproduce(
        paper, scale="smoke", out=folder.name, report=True, progress=False, show=told.append
    )
    return Path(folder.name), {result.figure.id: result for result in results}, told, folder


def figure(name: str) -> Any:
    """Return the figure with an id."""
    return figures_named(name)[1][0]


FIGURES = {each.id: each for paper in PAPERS for each in paper.figures}


@dataclass(frozen=True)
class Judged:
    """A figure's claims, and what its paper prints.

    Parameters
    ----------
    judge
        ``judge(data)`` -> claims.
    printed
        What the paper prints, in short; a function of nothing.
    made
        ``made(printed, seeds)`` -> data of so many seeds.
    slips
        Words of the claims that are false on the paper's own numbers.
    """

    judge: Callable[[Any], Sequence[Claim]]
    printed: Callable[[], Any]
    made: Callable[[Any, int], Any]
    slips: tuple[str, ...] = ()

    def data(self, change: Any = None, seeds: int = 3) -> Any:
        """Return the data after a change: a function, or what is merged into dictionaries."""
        value = copy.deepcopy(self.printed())
        if callable(change):
            change(value)
        elif change:
            _merge(value, change)
        return self.made(value, seeds)

    def claims(self, change: Any = None, seeds: int = 3) -> Sequence[Claim]:
        """Return the claims on the data after a change, which must differ in what they say."""
        claims = self.judge(self.data(change, seeds))
        assert len({(claim.statement, claim.statistic) for claim in claims}) == len(claims)
        return claims


def _merge(value: dict[str, Any], change: dict[str, Any]) -> None:
    for key, new in change.items():
        if isinstance(new, dict) and isinstance(value.get(key), dict):
            _merge(value[key], new)
        else:
            value[key] = new


def curve(name: str, spec: dict[str, Any], epochs: np.ndarray = EPOCHS, seeds: int = 3) -> Curve:
    """Return the specified curve; seeds differ by 0.3 points, arms of a seed by its noise.

    Other entries: ``final``, ``tau`` (its time constant), ``spread`` (over nodes), and ``drop``
    (points lost in the last fifth); the rest are numbers of the arm.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    spec = {"spread": 10.0, "drop": 0.0, "noise": 0.0} | spec
    final, tau, spread, drop, noise = (
        spec.pop(key) for key in ("final", "tau", "spread", "drop", "noise")
    )
    mean = 10 + (final - 10) * (1 - np.exp(-epochs / (tau * epochs[-1] / 100)))
    mean = mean - drop * (epochs > 0.8 * epochs[-1])
    mean = mean + np.linspace(-0.3, 0.3, seeds)[:, None] + noise * rng.standard_normal((seeds, 1))
    apart = spread * (1 + 0.01 * rng.standard_normal((seeds, 1)))
    numbers = {key: np.full(seeds, float(value)) for key, value in spec.items()}
    return Curve(np.arange(seeds), epochs, mean, mean - apart / 2, mean + apart / 2, numbers)


def curves(spec: dict[str, Any], seeds: int, epochs: np.ndarray = EPOCHS) -> dict[str, Any]:
    """Return the specified panels."""
    return {
        title: {label: curve(title + label, arm, epochs, seeds) for label, arm in arms.items()}
        for title, arms in spec.items()
    }


def simulated(spec: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Return curves that lie on the points of the authors' simulator, off by those of `spec`."""
    epochs, offsets = np.arange(11.0), np.linspace(-0.2, 0.2, seeds)[:, None]
    arms = {}
    for label, points in REFERENCE.items():
        mean = np.interp(epochs, [0, *points], [10, *points.values()]) + offsets
        for epoch, off in spec["MNIST"].get(label, {}).items():
            mean[:, epoch] += off
        arms[label] = Curve(np.arange(seeds), epochs, mean, mean - 1, mean + 1, {})
    return {"MNIST": arms}


def outcomes(spec: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Return DPFL's outcomes; an arm is its accuracy, or that with the variance over clients."""
    offsets = np.linspace(-0.2, 0.2, seeds)

    def outcome(arm: Any) -> Outcome:
        accuracy, variance = arm if isinstance(arm, tuple) else (arm, 100.0)
        values = accuracy + offsets
        parts = [np.stack([0 * values, values], 1)] * 3
        learned = Curve(np.arange(seeds), np.array([0.0, 1.0]), *parts, {})
        return Outcome(learned, values, variance + offsets, values - 10)

    return {
        title: {label: outcome(arm) for label, arm in arms.items()} for title, arms in spec.items()
    }


def heard(spec: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Return graphs over rounds; an arm is a list of graphs, whose last nodes are malicious."""
    malicious = spec.get("malicious", [])
    return {
        label: [{"heard": {str(t): g for t, g in enumerate(shown)}, "malicious": malicious}] * seeds
        for label, shown in spec.items()
        if label != "malicious"
    }


def as_it_is(value: Any, seeds: int) -> Any:
    """Return what no seed decides."""
    return value


# D-Cliques


def arm(final=92.0, tau=5.0, spread=1.0, degree=9.9):
    """Return a curve's specification on MNIST."""
    return {"final": final, "tau": tau, "spread": spread, "noise": 0.01, "degree": degree}


def full(**more):
    """Return that of the complete graph, whose nodes are alike."""
    return arm(spread=0.0, **{"degree": 99} | more)


def cifar(**more):
    """Return a curve's specification on CIFAR-10."""
    return arm(**{"final": 65, "tau": 20} | more)


def cifar_full(**more):
    """Return that of the complete graph."""
    return full(**{"final": 65, "tau": 20} | more)


def _thinned(make, *taus_and_spreads):
    removed = zip((0, 1, 5), taus_and_spreads, strict=True)
    return {f"{k} removed": make(tau=t, spread=s) for k, (t, s) in removed}


def _joined(make, make_full):
    tau = make()["tau"]
    return {
        ALL: make_full(degree=999),
        "fully-connected": make(tau=1.02 * tau, degree=18.9),
        "small-world": make(tau=1.03 * tau, degree=14.57),
        "fractal": make(tau=1.1 * tau, degree=9.99),
        "ring": make(tau=2.2 * tau, degree=9.2),
    }


def _swapped(make, make_full):
    random = make(tau=1.8 * make()["tau"], spread=9.0)
    own = {"D-Cliques + CA": make(spread=3.0), "random cliques + CA": random}
    return {"fully-connected": make_full()} | own


IID, SKEWED = "IID", "two shards a node"
PLAIN, CA = "without Clique Averaging", "with Clique Averaging"
NO_MOMENTUM, MOMENTUM = "without momentum", "with momentum"

DCLIQUES = {
    "fig01": {
        IID: {"fully-connected": full(), "grid": arm(tau=5.1), "ring": arm(tau=5.2)},
        SKEWED: {
            "fully-connected": full(tau=5.1),
            "grid": arm(tau=9),
            "ring": arm(final=85, tau=20),
        },
    },
    "fig08": {
        "MNIST": {
            "fully-connected": full(),
            "D-Cliques + CA": arm(tau=5.2),
            "grid": arm(tau=9, spread=8),
            "ring": arm(final=85, tau=20, spread=20),
        },
        "CIFAR-10": {"fully-connected": cifar_full(), "D-Cliques + CA": cifar(tau=20.4)},
    },
    "fig09": {
        "MNIST": {
            "fully-connected": full(),
            "D-Cliques + CA": arm(tau=5.1),
            "D-Cliques": arm(tau=5.3, spread=2),
        }
    },
    "fig10": {
        NO_MOMENTUM: {
            "fully-connected": cifar_full(tau=40),
            "D-Cliques + CA": cifar(tau=40, spread=6),
            "D-Cliques": cifar(final=60, tau=60, spread=10),
        },
        MOMENTUM: {
            "fully-connected": cifar_full(),
            "D-Cliques + CA": cifar(spread=4),
            "D-Cliques": cifar(final=30, tau=60, spread=12),
        },
    },
    "fig11": {
        "MNIST": {"D-Cliques": arm(tau=6), "random graph": arm(tau=7, spread=4)},
        "CIFAR-10": {
            "D-Cliques": cifar(final=60, spread=10),
            "random graph": cifar(final=50, spread=15),
            "random graph, momentum": cifar(final=30, spread=15),
        },
    },
    "fig12": {
        "MNIST": {"D-Cliques": arm(tau=6), "exponential graph": arm(tau=7, spread=4, degree=14)},
        "CIFAR-10": {
            "D-Cliques": cifar(final=60, spread=10),
            "exponential graph": cifar(final=50, spread=15, degree=14),
        },
    },
    "fig13": {"MNIST": _joined(arm, full)},
    "fig14": {"CIFAR-10": _joined(cifar, cifar_full)},
    "fig15": {
        PLAIN: {"fully-connected": full()} | _thinned(arm, (5.2, 2), (5.3, 2.2), (5.5, 3)),
        CA: {"fully-connected": full()} | _thinned(arm, (5.1, 1), (5.1, 1.02), (5.12, 1.08)),
    },
    "fig16": {
        PLAIN: {"fully-connected": cifar_full()}
        | _thinned(cifar, (60, 14), (61, 14.5), (65, 15.5)),
        CA: {"fully-connected": cifar_full()} | _thinned(cifar, (20.5, 4), (23, 5), (40, 15)),
    },
    "fig19": {"MNIST": _swapped(arm, full), "CIFAR-10": _swapped(cifar, cifar_full)},
}
"""Curves as the paper describes them."""


def _computed(name: str) -> Callable[[], Any]:
    return cache(lambda: FIGURES[name].compute(Setting("smoke", (3,)), Store(Path())))


def descents(repetitions: int = 6, floor=(0.06, 0.02), pace=(60, 40)) -> dict[str, Any]:
    """Return descents of the skew as the paper shows them: exponential falls to a floor."""
    panels, places = {}, np.arange(repetitions)[:, None]
    for name, low, slow in zip(DATA, floor, pace, strict=True):
        lows = low + 0.001 * places
        skews = lows + (0.45 + low + 0.01 * places - lows) * np.exp(-np.arange(1001) / slow)
        seconds = (0.05 + 0.001 * places[:, 0]).tolist()
        panels[name] = {"skew": skews.tolist(), "seconds": seconds}
    return panels


DATA = ("MNIST", "CIFAR-10")
SKEWS = {RANDOM: [0.4, 0.45, 0.5, 0.48], GREEDY: [0.06, 0.07, 0.05, 0.06]}

# DFedPGP and PFedDST

MILD, DIR, PAT = "CIFAR-10, Dir(0.1)", "CIFAR-10, Dir(0.3)", "CIFAR-10, c=2"
DEVICES = [label for label in ACCURACIES if label != "Local"]


def line(final: float, tau: float = 20.0, drop: float = 0.0) -> dict[str, float]:
    """Return a curve's specification, of arms that differ by the same amount in all seeds."""
    return {"final": final, "tau": tau, "drop": drop}


def _table_1(title: str, points: float = 0.0) -> dict[str, Any]:
    return {label: line(row[title][0] + points, 8.0) for label, row in ACCURACIES.items()}


def ahead(title: str, label: str, points: float) -> dict[str, Any]:
    """Return the change that moves a method of table 1."""
    return {title: {label: {"final": ACCURACIES[label][title][0] + points}}}


def _fast(slow: float, fast: float, final: float) -> dict[str, Any]:
    """Return methods of which ours is fastest but for training alone, which does not compete."""
    arms = dict.fromkeys(ACCURACIES, line(final, slow))
    return arms | {"DFedPGP": line(final, fast), "Local": line(99, 1.0)}


def _neighbors(sign: int, drop: float = 0.0) -> dict[str, Any]:
    tau = {1: lambda k: 30 - k / 2, -1: lambda k: 20 + k}[sign]
    return {
        f"{k} neighbors": line(80 + sign * k / 5, tau(k), drop * (k == 2))
        for k in (2, 5, 10, 20, 40)
    }


def _clients(final: float, tau: float, sign: int) -> dict[str, Any]:
    return {
        f"{n} clients": line(final - sign * n / 10, tau + sign * n / 10)
        for n in (5, 10, 20, 50, 100, 200)
    }


def judged_rounds(judge: Callable[..., Sequence[Claim]], panels: dict[str, Any]) -> Any:
    """Return claims on rounds to 60 %."""
    return judge(panels, dict.fromkeys(panels, 60.0))


def _reported(panels: dict[str, Any], targets: dict[str, float]) -> Sequence[Claim]:
    found = {t: {k: {"after exchange": c} for k, c in arms.items()} for t, arms in panels.items()}
    return pfeddst.sooner({"panels": write_panels(found), "targets": targets})


C10, OURS = pfeddst.CIFAR_10, pfeddst.OURS
PFEDDST = dict.fromkeys(pfeddst.LABELS, line(80))


def _of_peers(spec: dict[str, Any], seeds: int) -> dict[str, Any]:
    return {
        "seeds": [
            {"own": [spec["own"] + s], "near": [[spec["near"] + s, 82]], "random": [[40, 50 - s]]}
            for s in range(seeds)
        ]
    }


def _alike(overlap: list[float], seeds: int) -> dict[str, Any]:
    own = [
        {"overlap": [90.0, *(o + s / 10 for o in overlap)], "chance": 20.0, "different": 3.0}
        for s in range(seeds)
    ]
    return {"panels": {"a": {"explored": 1, "peers": 4, "seeds": own}}}


# DPFL

D10, PATHO = dpfl.DIR, dpfl.PATHO
DPFL = dpfl_claims.ACCURACIES
SPLITS = dpfl.DECLARED.scale("paper").splits
BUDGETS = tuple(label for label in DPFL if label.startswith("DPFL"))
UNSHOWN = ("FedAvg", "FedProx", "FedProx+FT")
"""Methods that the paper's figure of CIFAR-10 leaves out."""

RING, BOTH, NONE = [[1], [2], [3], [0]], [[1], [0], [3], [2]], [[], [], [], []]
FULL = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
HALF = [[1], [0], [3], [0]]
BAD, GOOD, ONE_WAY = [[1, 3], [0, 3], [1, 3], [2]], [[1], [0], [1], [2]], [[1], [0], [0], [1]]


def _variance(label: str) -> float:
    return 80.0 if label in BUDGETS else 110.0


def _dpfl_table_1() -> dict[str, Any]:
    return {
        title: {label: (row[title][0], _variance(label)) for label, row in DPFL.items()}
        for title in SPLITS
    }


def _grid(paper: dict[int, Any], change: Callable[[int], float] = lambda k: 0) -> dict[str, Any]:
    return {
        f"{label}; {k}": value + change(k)
        for k, row in paper.items()
        for label, value in zip(BUDGETS, row, strict=True)
    }


FIRST_EPOCHS, PERIODS = dpfl_claims.FIRST_EPOCHS, dpfl_claims.PERIODS
CLOSE = {1: (80.0,) * 4, 5: (81.0,) * 4, 10: (82.9,) * 4}
"""Numbers that are 2.9 points apart in the end, and at most 1.9 from one to the next."""

ALIKE = {"neighbor label distance": 0.5, "label separation": 0.6}
MIXED = {"neighbor label distance": 1.2, "label separation": -0.1}
STUDY = {
    "DPFL": (90, 30, ALIKE),
    "random": (80, 40, {}),
    "D-Cliques": (70, 50, MIXED),
    "random cliques": (80, 40, {}),
}
AGAINST = {
    "DPFL": (70, 50, MIXED),
    "random": (80, 55, {}),
    "D-Cliques": (90, 30, ALIKE),
    "random cliques": (80, 55, {}),
}


def _studied(spec: dict[str, Any], seeds: int) -> dict[str, Any]:
    names = ("own test images", "all test images", "graph")
    return {
        "panels": {
            "a split": {
                label: [
                    dict(zip(names, (own + s, all_ + s, graph), strict=True))
                    for s in np.linspace(0, 0.2, seeds)
                ]
                for label, (own, all_, graph) in spec.items()
            }
        }
    }


def _accuracies(spec: dict[str, float], seeds: int) -> dict[str, Any]:
    return {
        label: [value + s * (1 + 0.1 * k) for s in np.linspace(-0.5, 0.5, seeds)]
        for k, (label, value) in enumerate(spec.items())
    }


def _judged(judge, printed, made, *slips: str) -> Judged:
    return Judged(judge, printed if callable(printed) else lambda: printed, made, slips)


JUDGED = {
    **{
        f"dcliques-{name}": _judged(getattr(dcliques_claims, name), spec, curves)
        for name, spec in DCLIQUES.items()
    },
    "dcliques-reference": _judged(dcliques_claims.reference, {"MNIST": {}}, simulated),
    **{
        name: _judged(FIGURES[name].claims, _computed(name), as_it_is)
        for name in ("dcliques-fig05", "dcliques-fig06", "dcliques-numbers")
    },
    "dcliques-fig17": _judged(FIG17.claims, dict.fromkeys(DATA, SKEWS), as_it_is),
    "dcliques-fig18": _judged(FIG18.claims, descents, as_it_is),
    "dfedpgp-tab01": _judged(
        dfedpgp_claims.tab01, {t: _table_1(t) for t in (MILD, DIR, PAT)}, curves, f"{PAT}: DFedPGP"
    ),
    "dfedpgp-fig02": _judged(dfedpgp_claims.fig02, {DIR: _fast(20, 8, 80)}, curves),
    "dfedpgp-tab02": _judged(
        partial(judged_rounds, dfedpgp_claims.tab02),
        {DIR: _fast(25, 8, 85), PAT: _fast(25, 8, 85)},
        curves,
    ),
    "dfedpgp-tab03": _judged(
        dfedpgp_claims.tab03,
        {
            title: {label: arm for label, arm in _table_1(DIR, points).items() if label in DEVICES}
            for title, points in ((DIR, -3), (DIR + EQUAL, 0))
        },
        curves,
    ),
    "dfedpgp-tab04": _judged(
        dfedpgp_claims.tab04,
        {t: {k: line(ABLATION_NUMBERS[t][k]) for k in ABLATION_NUMBERS[t]} for t in (DIR, PAT)},
        curves,
    ),
    "dfedpgp-fig03a": _judged(dfedpgp_claims.fig03a, {DIR: _neighbors(1)}, curves),
    "dfedpgp-fig03b": _judged(dfedpgp_claims.fig03b, {DIR: _clients(90, 10, 1)}, curves),
    "pfeddst-fig03": _judged(
        lambda panels: [*pfeddst.best(panels), *pfeddst.steady(panels)],
        {C10: PFEDDST | {OURS: line(82)}},
        curves,
    ),
    "pfeddst-tab01": _judged(
        partial(judged_rounds, _reported),
        {C10: PFEDDST | {OURS: line(82, 4), "DFedPGP": line(82, 8)}},
        curves,
    ),
    "pfeddst-fig02a": _judged(
        lambda data: [*pfeddst.useful(data), *pfeddst.own_best(data)],
        {"own": 90, "near": 80},
        _of_peers,
    ),
    "pfeddst-labels": _judged(
        peers.alike,
        {"overlap": [22.0, 24.0]},
        lambda spec, seeds: _alike(spec["overlap"], seeds),
    ),
    "dpfl-tab01": _judged(dpfl_claims.table_1, _dpfl_table_1, outcomes),
    "dpfl-fig07": _judged(
        dpfl_claims.variances, _dpfl_table_1, outcomes, f"{D10}: with every budget DPFL is more"
    ),
    "dpfl-tab02": _judged(dpfl_claims.comparable, lambda: {PATHO: _grid(FIRST_EPOCHS)}, outcomes),
    "dpfl-tab03": _judged(dpfl_claims.periods, lambda: {D10: _grid(PERIODS)}, outcomes),
    "dpfl-fig03": _judged(
        dpfl_claims.random_graph,
        {D10: {"DPFL, 0.1 n": 84, "DPFL, 0.1 n, random": 80}},
        outcomes,
    ),
    "dpfl-fig02": _judged(dpfl_graphs.sparser, {"DPFL": [FULL, RING]}, heard),
    "dpfl-fig08": _judged(dpfl_graphs.evolution, {"DPFL": [RING] * 4 + [FULL] * 7}, heard),
    "dpfl-fig15": _judged(
        dpfl_graphs.asymmetry,
        {"DPFL": [RING, FULL], "DPFL, 0.1 n": [RING, HALF]},
        heard,
    ),
    "dpfl-fig04a": _judged(dpfl_graphs.ceased, {"DPFL": [BAD, GOOD], "malicious": [3]}, heard),
    "dpfl-fig04b": _judged(
        dpfl_graphs.segregated, {"DPFL": [FULL, BOTH], "malicious": [2, 3]}, heard
    ),
    "dpfl-fig14": _judged(dpfl_graphs.rare, {"DPFL": [BAD, *[GOOD] * 9], "malicious": [3]}, heard),
    "dpfl-study": _judged(study.judged, STUDY, _studied),
    "dpfl-expA": _judged(
        study.judged_clients,
        {"alone": 60.0, "with 2": 50.0, "with 3": 48.0, "with both": 66.0},
        _accuracies,
    ),
}
"""Every figure whose claims are judged."""


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
    "dfedpgp-fig03a": [("", {DIR: _neighbors(-1, drop=10)})],
    "dfedpgp-fig03b": [("", {DIR: _clients(60, 40, -1)})],
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
        (("comparable", "yields good"), {PATHO: _grid(CLOSE)}),
        ("", {PATHO: _grid(FIRST_EPOCHS, lambda k: -5 * (k == 1) - 8 * (k == 10))}),
    ],
    "dpfl-tab03": [
        ("decreases slightly", {D10: _grid(PERIODS, lambda k: k)}),
        ("maintains good", {D10: _grid(PERIODS, lambda k: -k)}),
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
