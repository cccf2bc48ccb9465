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
from paper_figures.dcliques.arms import ALL
from paper_figures.dcliques.claims import REFERENCE
from paper_figures.dcliques.greedy_swap import FIG17, FIG18, GREEDY, RANDOM
from paper_figures.dfedpgp import claims as dfedpgp_claims
from paper_figures.dfedpgp.claims import ABLATION_NUMBERS, ACCURACIES, EQUAL
from paper_figures.dpfl import claims as dpfl_claims
from paper_figures.dpfl import graphs as dpfl_graphs
from paper_figures.dpfl import study
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
        assert len({claim.statement for claim in claims}) == len(claims)
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

    def outcome(arm: Any) -> dict[str, Any]:
        accuracy, variance = arm if isinstance(arm, tuple) else (arm, 100.0)
        values = accuracy + offsets
        parts = [np.stack([0 * values, values], 1)] * 3
        learned = Curve(np.arange(seeds), np.array([0.0, 1.0]), *parts, {})
        own = {"accuracy": values, "variance": variance + offsets, "worst_tenth": values - 10}
        return {"curve": learned} | own

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


def by_neighbors(sign: int, drop: float = 0.0) -> dict[str, Any]:
    tau = {1: lambda k: 30 - k / 2, -1: lambda k: 20 + k}[sign]
    return {
        f"{k} neighbors": line(80 + sign * k / 5, tau(k), drop * (k == 2))
        for k in (2, 5, 10, 20, 40)
    }


def by_clients(final: float, tau: float, sign: int) -> dict[str, Any]:
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


def grid(paper: dict[int, Any], change: Callable[[int], float] = lambda k: 0) -> dict[str, Any]:
    return {
        f"{label}; {k}": value + change(k)
        for k, row in paper.items()
        for label, value in zip(BUDGETS, row, strict=True)
    }


FIRST_EPOCHS, PERIODS = dpfl_claims.FIRST_EPOCHS, dpfl_claims.PERIODS

ALIKE = {"neighbor label distance": 0.5, "label separation": 0.6}
MIXED = {"neighbor label distance": 1.2, "label separation": -0.1}
STUDY = {
    "DPFL": (90, 30, ALIKE),
    "random": (80, 40, {}),
    "D-Cliques": (70, 50, MIXED),
    "random cliques": (80, 40, {}),
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
    "dfedpgp-fig03a": _judged(dfedpgp_claims.fig03a, {DIR: by_neighbors(1)}, curves),
    "dfedpgp-fig03b": _judged(dfedpgp_claims.fig03b, {DIR: by_clients(90, 10, 1)}, curves),
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
        peers.alike, {"overlap": [22.0, 24.0]}, lambda spec, seeds: _alike(spec["overlap"], seeds)
    ),
    "dpfl-tab01": _judged(dpfl_claims.table_1, _dpfl_table_1, outcomes),
    "dpfl-fig07": _judged(
        dpfl_claims.variances, _dpfl_table_1, outcomes, f"{D10}: with every budget DPFL is more"
    ),
    "dpfl-tab02": _judged(dpfl_claims.comparable, lambda: {PATHO: grid(FIRST_EPOCHS)}, outcomes),
    "dpfl-tab03": _judged(dpfl_claims.periods, lambda: {D10: grid(PERIODS)}, outcomes),
    "dpfl-fig03": _judged(
        dpfl_claims.random_graph, {D10: {"DPFL, 0.1 n": 84, "DPFL, 0.1 n, random": 80}}, outcomes
    ),
    "dpfl-fig02": _judged(dpfl_graphs.sparser, {"DPFL": [FULL, RING]}, heard),
    "dpfl-fig08": _judged(dpfl_graphs.evolution, {"DPFL": [RING] * 4 + [FULL] * 7}, heard),
    "dpfl-fig15": _judged(
        dpfl_graphs.asymmetry, {"DPFL": [RING, FULL], "DPFL, 0.1 n": [RING, HALF]}, heard
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
