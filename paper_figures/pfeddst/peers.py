"""The peers that PFedDST's clients choose: shared labels, rounds decided by scores, accuracies.

Figure 2 tests the models of one client's peers on its data while PFedDST trains.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from torch.func import functional_call

from topofl import History, NotApplicable, Table, algorithms, callbacks, config, toolkit
from topofl.runs.identity import Run, with_options

from ..kit.claims import OUR_QUESTION, Claim, at_least, judge
from ..kit.comparison import DECLARED as COMPARISON
from ..kit.comparison import METHODS, scale_of, scale_on
from ..kit.curves import plus_minus
from ..kit.drawing import dots, side_by_side
from ..kit.paper import Arms, Data, Scale, Setting, declared
from ..kit.store import Store

CHOSEN, CHANCE = "#0072B2", "#000000"


def explored(n: int, k: int) -> int:
    """Return the number of rounds until all n - 1 peers were tried once, k per round."""
    return -(-(n - 1) // k)


def exploration(setting: Setting, titles: list[str]) -> str:
    """Return a sentence on how many rounds PFedDST spends on trying every peer once, per split."""
    scales = {title: scale_on(setting, title) for title in titles}
    rounds = [
        f"{_explored(scale)} of {scale.rounds} rounds ({title})" for title, scale in scales.items()
    ]
    paper, there = scale_of(Setting("paper", (0,))), ""
    if setting.scale != "paper":
        there = f"; at the paper's scale it is {_explored(paper)} of {paper.rounds}"
    return (
        "cold start: PFedDST knows the losses of previously chosen peers only, and the loss of an "
        "untried peer counts as infinite, so that every peer is tried once, in random order, "
        f"before scores decide: {', '.join(rounds)}{there}"
    )


def _explored(scale: Scale) -> int:
    return explored(scale.clients, scale.neighbors)


def shared_labels(label_counts: Any) -> np.ndarray:
    """Return the label overlap of each pair of nodes, ``sum_y min(p_i(y), p_j(y))``, (n, n).

    1 minus the total variation of their label shares, whose mean over edges
    :func:`topofl.metrics.neighbor_label_distance` compares with its mean over all pairs.
    """
    counts = np.asarray(label_counts, dtype=np.float64)
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.minimum(shares[:, None], shares[None]).sum(axis=2)


def choices(history: History, label_counts: Any, k: int) -> dict[str, Any]:
    """Return statistics of the peers that a run's clients chose, overlaps in %.

    Returns
    -------
    dict
        ``overlap``: mean label overlap with chosen peers, one number per round; ``chance``: mean
        overlap with all peers; ``different``: mean number of different peers that a client chose
        in the rounds after it had tried all of them.
    """
    shared = 100 * shared_labels(label_counts)
    others = ~np.eye(len(shared), dtype=bool)
    chosen = [(history.mixing(t).weights.toarray() > 0) & others for t in range(history.n_rounds)]
    after = chosen[explored(len(shared), k) :]
    return {
        "overlap": [float(shared[pairs].mean()) for pairs in chosen],
        "chance": float(shared[others].mean()),
        "different": float(np.any(after, axis=0).sum(axis=1).mean()) if after else 0.0,
    }


def choices_of(run: Run, history: History) -> dict[str, Any]:
    """Return :func:`choices` of a run's clients."""
    return choices(
        history, config.build(run.tables).clients.label_counts, run.tables["algorithm"]["k"]
    )


def compute(arms: Arms, label: str, store: Store) -> Data:
    """Return the choices of one arm's runs by panel, and the rounds until every peer was tried."""
    panels = {}
    for title, panel in arms.items():
        runs = panel[label]
        n, k = runs[0].tables["data"]["n"], runs[0].tables["algorithm"]["k"]
        seeds = [choices_of(run, store.load(run)[0]) for run in runs]
        panels[title] = {"explored": explored(n, k), "peers": n - 1, "seeds": seeds}
    return {"panels": panels}


def _overlaps(panel: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return, per seed, the labels shared with peers chosen by scores, and with all peers, in %."""
    overlap = np.array([seed["overlap"][panel["explored"] :] for seed in panel["seeds"]])
    return overlap.mean(axis=1), np.array([seed["chance"] for seed in panel["seeds"]])


def _decided(data: Data) -> dict[str, Mapping[str, Any]]:
    """Return the panels with rounds in which scores decided."""
    panels = data["panels"].items()
    return {
        title: panel
        for title, panel in panels
        if len(panel["seeds"][0]["overlap"]) > panel["explored"]
    }


def alike(data: Data) -> list[Claim]:
    """Judge that the clients choose peers whose tasks are like theirs, as section II-B says."""
    said = "“particularly those undertaking similar tasks”"
    claims = []
    for title, panel in _decided(data).items():
        chosen, chance = _overlaps(panel)
        claims.append(
            judge(
                f"{title}: PFedDST's clients choose peers whose labels are like their own.",
                "labels shared with chosen peers minus labels shared with all peers, rounds after "
                "every peer was tried, points",
                chosen - chance,
                at_least(0, f"{said}: any consistent difference over seeds counts"),
                kind=OUR_QUESTION,  # the paper describes this but does not measure it
            )
        )
    return claims


def tables(data: Data) -> list[Table]:
    """Return a table with one row per split."""
    columns = ("split", "rounds of trying", "chosen peers, %", "all peers, %")
    columns += ("different peers", "of")
    rows = []
    for title, panel in data["panels"].items():
        different = np.array([seed["different"] for seed in panel["seeds"]])
        cells = [NotApplicable("scores decided in no round")] * 3
        if title in _decided(data):
            cells = [plus_minus(values) for values in (*_overlaps(panel), different)]
        rows.append((title, panel["explored"], *cells, panel["peers"]))
    note = (
        "labels shared with peers in the rounds after all were tried, and how many "
        "different ones a client chose then"
    )
    return [Table(columns, tuple(rows), title=f"{note}; mean ± standard deviation over seeds")]


def draw(data: Data) -> Picture:
    """Return a plot of labels shared with chosen and with all peers, one panel per split."""
    panels = data["panels"]
    picture, axes = side_by_side(len(panels), (1.2 + 3.6 * len(panels), 3.0))
    for ax, (title, panel) in zip(axes, panels.items(), strict=True):
        overlap = np.array([seed["overlap"] for seed in panel["seeds"]])
        chance = float(np.mean([seed["chance"] for seed in panel["seeds"]]))
        rounds = np.arange(1, overlap.shape[1] + 1)
        ax.plot(rounds, overlap.T, color=CHOSEN, linewidth=0.7, alpha=0.6)
        ax.plot(rounds, overlap.mean(axis=0), color=CHOSEN, linewidth=1.8, label="chosen peers")
        ax.axhline(chance, color=CHANCE, ls="--", label="all peers")
        end, tried = panel["explored"] + 0.5, "every peer is tried once"
        ax.axvspan(0.5, end, color="#BBBBBB", alpha=0.4, label=tried)
        ax.set(title=title, xlabel="round", ylabel="labels shared, %", ylim=(0, None))
        ax.set_xlim(0.5, len(rounds) + 0.5)
    handles = axes[0].get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
    return picture


def accuracies_of_peers(arms: Arms, k: int) -> Data:
    """Return, per seed and round, accuracies of a client's and its peers' models on its data."""
    ((runs,),) = (panel.values() for panel in arms.values())
    return {"seeds": [_of_one_client(json.dumps(run.tables), k) for run in runs]}


@lru_cache(maxsize=64)
def _of_one_client(tables: str, k: int) -> dict[str, list[Any]]:
    """Train again and record the accuracies; cached for both panels of the figure."""
    experiment = config.build(json.loads(tables))
    clients, model = experiment.clients, experiment.model
    client, found = 0, {"own": [], "random": [], "near": []}
    indices = list(clients.test[client])
    inputs, labels = clients.dataset.examples(indices), clients.dataset.labels[indices]

    def accuracy(models: Any, i: int) -> float:
        parameters = {name: view[i] for name, view in zip(models.shapes, models.views, strict=True)}
        with torch.no_grad():
            logits = functional_call(model, parameters, (inputs.to(models.flat.device),))
        return 100 * float((logits.argmax(1).cpu() == labels).float().mean())

    def look(event: callbacks.Event) -> None:
        if event.kind != "round":
            return
        models, others = event.models, [i for i in range(clients.n) if i != client]
        shuffled = toolkit.stream(experiment.options["seed"], "peers", event.round).permutation(
            others
        )
        found["own"].append(accuracy(models, client))
        found["random"].append([accuracy(models, i) for i in shuffled[:k].tolist()])
        found["near"].append([accuracy(models, i) for i in nearest(models, client, k)])

    experiment.run(progress=False, callbacks=[look])
    return found


def nearest(models: Any, client: int, k: int) -> list[int]:
    """Return the k other nodes whose heads are most like that of a client, by cosine."""
    heads = torch.cat(
        [models.flat[:, part] for part in models.columns(algorithms.head)], dim=1
    ).double()
    cosines = torch.nn.functional.cosine_similarity(heads, heads[client : client + 1])
    cosines[client] = -torch.inf
    return cosines.topk(k).indices.tolist()


def draw_peers(kind: str) -> Callable[[Data], Picture]:
    """Return a function that draws a panel of figure 2, of the first seed: accuracies per round."""

    def draw(data: Data) -> Picture:
        seed = data["seeds"][0]
        picture, (ax,) = side_by_side(1, (6.4, 3.0))
        rounds = np.arange(1, len(seed["own"]) + 1)
        for t, values in zip(rounds, seed[kind], strict=True):
            ax.plot([t] * len(values), values, "_", color="#D55E00", markersize=4, alpha=0.7)
        means = [np.mean(values) for values in seed[kind]]
        ax.plot(rounds, means, color="#D55E00", label="models of selected peers")
        ax.plot(rounds, seed["own"], color="#009E73", label="its own model")
        ax.set(xlabel="round", ylabel="accuracy on client 0's images, %", ylim=(0, 100))
        picture.legend(loc="outside lower center", ncols=2, fontsize=8)
        return picture

    return draw


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


def sensitivity_arms(setting: Setting) -> Arms:
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


def compute_sensitivity(setting: Setting, store: Store) -> Data:
    """Return constants and outcomes of every arm, one entry a seed."""
    scale, constants = _scale(setting), _constants(setting)
    first = min(explored(scale.clients, scale.neighbors), scale.rounds - 1)
    (panel,) = sensitivity_arms(setting).values()
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


def sensitivity_tables(data: Data) -> list[Table]:
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


def draw_sensitivity(data: Data) -> Picture:
    """Return accuracies and shared labels of all arms, a row each."""
    panels = {
        OUTCOMES[name].removesuffix(", %"): {
            label: _values(arm, name) for label, arm in data["arms"].items()
        }
        for name in ("accuracy", "overlap")
    }
    return dots(panels, xlabel="%")


def sensitivity_differences(setting: Setting) -> tuple[str, ...]:
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
