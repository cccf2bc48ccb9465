"""How PFedDST depends on the three constants of its score: a study on small data.

The loss term of the score prefers peers with different data, the distance of heads peers with
similar data; the constants decide which term dominates. The study covers both extremes, and the
paper's formula with unscaled terms. It makes no claim.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from topofl import NotApplicable, Table
from topofl.runs.run import Run, with_options

from ..kit.comparison import DECLARED as COMPARISON
from ..kit.comparison import METHODS, scale_of
from ..kit.curves import plus_minus
from ..kit.drawing import Dots, dots
from ..kit.paper import Arms, Data, Scale, Setting, declared
from ..kit.store import Store
from .peers import choices_of, explored

ALPHAS, RATES, COSTS = (0.0, 0.3, 1.0, 3.0, 1000.0), (0.3, 3.0), (1.0, 3.0)
"""All combinations are trained; with alpha 0 only heads decide, with 1,000 practically losses."""

LITERAL = ({"alpha": 1.0, "cost": 2.0}, {"alpha": 0.0, "cost": 2.0})
"""Constants with unscaled terms and lambda 0.3."""

ALONE = "nobody is chosen"  # key of stored data

SMALL: Mapping[str, Any] = declared("pfeddst/paper.toml")["small"]
"""What differs from the setting of scale ``quick``."""

OUTCOMES = {
    "accuracy": "accuracy on own test images, %",
    "overlap": "labels shared with chosen peers, %",
    "different": "different peers chosen",
}


def _scale(setting: Setting) -> Scale:
    """Return the small setting of scales ``quick`` and ``paper``, or that of ``smoke``."""
    if setting.scale == "smoke":
        return scale_of(setting)
    return COMPARISON.scale("quick").but(**SMALL["scale"])


def _constants(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return the constants of every arm, by label; none of the arm that chooses nobody."""
    arms: dict[str, dict[str, Any]] = {}
    for alpha, rate, cost in product(ALPHAS, RATES, COSTS):
        some = {"standardize": True, "alpha": alpha, "recency_rate": rate, "cost": cost}
        arms[_label(some)] = some
    for some in LITERAL:
        some = {"standardize": False, "recency_rate": 0.3, **some}
        arms[f"unscaled, {_label(some)}"] = some
    if setting.scale == "smoke":
        arms = {label: arms[label] for label in list(arms)[:: len(arms) - 1]}
    return {**arms, ALONE: {"k": 0}}


def _label(some: Mapping[str, float]) -> str:
    return f"alpha {some['alpha']:g}, lambda {some['recency_rate']:g}, c {some['cost']:g}"


def arms(setting: Setting) -> Arms:
    """Return the training runs of all constants, in one panel."""
    return {
        "digits": {
            label: [Run(_tables(_scale(setting), constants, seed)) for seed in setting.seeds]
            for label, constants in _constants(setting).items()
        }
    }


def _tables(scale: Scale, constants: Mapping[str, Any], seed: int) -> dict[str, Any]:
    seeds = {"seed": seed, "split_seed": seed}
    tables = {
        "data": {**SMALL["data"], "n": scale.clients, **seeds, "match_test": "per_client"},
        "algorithm": METHODS["PFedDST"].table(scale) | dict(constants),
        "model": dict(scale.model),
        "run": {"rounds": scale.rounds, "seed": seed},
        "evaluation": {"every": 1, "on": "own_test"},
    }
    return with_options(tables, scale.options)


def compute(setting: Setting, store: Store) -> Data:
    """Return constants and outcomes of every arm, one entry a seed."""
    scale, constants = _scale(setting), _constants(setting)
    first = min(explored(scale.clients, scale.neighbors), scale.rounds - 1)
    (panel,) = arms(setting).values()
    return {
        "arms": {
            label: {
                "constants": constants[label],
                "seeds": [_outcome(run, store, first) for run in runs],
            }
            for label, runs in panel.items()
        }
    }


def _outcome(run: Run, store: Store, first: int) -> dict[str, float]:
    """Return the final accuracy and, from round `first` on, statistics of the chosen peers."""
    history, _ = store.load(run)
    final = history["accuracy"][history["round"] > 0.9 * history.n_rounds]
    accuracy = {"accuracy": 100 * float(np.nanmean(final))}
    if run.tables["algorithm"]["k"] == 0:
        return accuracy
    chosen = choices_of(run, history)
    return accuracy | {
        "overlap": float(np.mean(chosen["overlap"][first:])),
        "chance": chosen["chance"],
        "different": chosen["different"],
    }


def _values(arm: Mapping[str, Any], name: str) -> np.ndarray:
    """Return one number per seed, NaN where there is none."""
    return np.array([seed.get(name, np.nan) for seed in arm["seeds"]])


def tables(data: Data) -> list[Table]:
    """Return a table with one row per arm."""
    seeds = [seed for arm in data["arms"].values() for seed in arm["seeds"]]
    chance = np.mean([seed["chance"] for seed in seeds if "chance" in seed])
    rows = []
    for label, arm in data["arms"].items():
        outcomes = [_values(arm, name) for name in OUTCOMES]
        cells = [NotApplicable(ALONE) if np.isnan(v).any() else plus_minus(v) for v in outcomes]
        rows.append((label, *cells))
    title = (
        "Constants of the score: mean ± standard deviation over seeds; peers: those of the rounds "
        "after every peer could be tried once; with peers drawn at random "
        f"{chance:.1f} % of the labels are shared"
    )
    return [Table(("constants", *OUTCOMES.values()), tuple(rows), title=title)]


def draw(data: Data) -> Picture:
    """Return accuracies and shared labels of all arms, a row each."""
    panels = {
        OUTCOMES[name].removesuffix(", %"): {
            label: Dots(_values(arm, name)) for label, arm in data["arms"].items()
        }
        for name in ("accuracy", "overlap")
    }
    return dots(panels, xlabel="%")


def differences(setting: Setting) -> tuple[str, ...]:
    """Return what the study is, as it is no experiment of the paper."""
    scale = _scale(setting)
    unlike = "" if setting.scale == "smoke" else "step 0.05, minibatches of 16; "
    return (
        "this study is not an experiment of the paper, which does not give alpha, lambda and c: "
        f"all combinations of alpha {_listed(ALPHAS)}, lambda {_listed(RATES)} and c "
        f"{_listed(COSTS)} with terms from 0 to 1 over a client's peers (alpha 0: heads alone "
        "choose; alpha 1000: losses do; alpha 1, lambda 0.3, c 1 is what all other figures have), "
        "the formula with its terms as they are (“unscaled”), and clients that choose nobody; the "
        "arms were chosen before a run was looked at, and no claim is made",
        f"scikit-learn's 1,497 training digits at 16 x 16 pixels, Dir(0.1), {scale.clients} "
        f"clients that choose {scale.neighbors}, DPFL's network, {scale.rounds} rounds of "
        f"{scale.epochs} epochs; {unlike}the small setting is the same at all scales but “smoke”",
        "where alpha is 0 untried peers are not preferred, as infinite losses do not count",
    )


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
