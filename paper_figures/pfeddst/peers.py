"""The peers that PFedDST's clients choose: shared labels, and rounds decided by scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from topofl import History, NotApplicable, Table, config
from topofl.runs.identity import Run

from ..kit.claims import OUR_QUESTION, Claim
from ..kit.figure import Arms, Data
from ..kit.judging import judge_seeds
from ..kit.personalization.arms import scale_of, split
from ..kit.personalization.settings import Scale
from ..kit.setting import Setting
from ..kit.tables import plus_minus
from ..kit.training.store import Store

CHOSEN, CHANCE = "#0072B2", "#000000"


def explored(n: int, k: int) -> int:
    """Return the number of rounds until all n - 1 peers were tried once, k per round."""
    return -(-(n - 1) // k)


def exploration(setting: Setting, titles: list[str]) -> str:
    """Return a sentence on how many rounds PFedDST spends on trying every peer once, per split."""
    scales = {title: scale_of(setting).of(split(title).dataset) for title in titles}
    rounds = [
        f"{_explored(scale)} of {scale.rounds} rounds ({title})" for title, scale in scales.items()
    ]
    paper = scale_of(Setting("paper", (0,)))
    there = (
        ""
        if setting.scale == "paper"
        else f"; at the paper's scale it is {_explored(paper)} of {paper.rounds}"
    )
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
    return {"panels": {title: _of_panel(panel[label], store) for title, panel in arms.items()}}


def _of_panel(runs: Any, store: Store) -> dict[str, Any]:
    n, k = runs[0].tables["data"]["n"], runs[0].tables["algorithm"]["k"]
    return {
        "explored": explored(n, k),
        "peers": n - 1,
        "seeds": [choices_of(run, store.load(run)[0]) for run in runs],
    }


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
    claims = []
    for title, panel in _decided(data).items():
        chosen, chance = _overlaps(panel)
        claims.append(
            judge_seeds(
                f"{title}: PFedDST's clients choose peers whose labels are like their own.",
                "labels shared with chosen peers minus labels shared with all peers, rounds after "
                "every peer was tried, points",
                chosen - chance,
                at_least=0,
                why=(
                    "“particularly those undertaking similar tasks”: any consistent difference "
                    "over seeds counts"
                ),
                kind=OUR_QUESTION,  # the paper describes this but does not measure it
            )
        )
    return claims


def tables(data: Data) -> list[Table]:
    """Return a table with one row per split."""
    columns = (
        "split",
        "rounds of trying",
        "chosen peers, %",
        "all peers, %",
        "different peers",
        "of",
    )
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
    picture = Picture(figsize=(1.2 + 3.6 * len(data["panels"]), 3.0), layout="constrained")
    axes = picture.subplots(1, len(data["panels"]), squeeze=False)[0]
    for ax, (title, panel) in zip(axes, data["panels"].items(), strict=True):
        overlap = np.array([seed["overlap"] for seed in panel["seeds"]])
        rounds = np.arange(1, overlap.shape[1] + 1)
        ax.plot(rounds, overlap.T, color=CHOSEN, linewidth=0.7, alpha=0.6)
        ax.plot(rounds, overlap.mean(axis=0), color=CHOSEN, linewidth=1.8, label="chosen peers")
        ax.axhline(
            np.mean([seed["chance"] for seed in panel["seeds"]]),
            color=CHANCE,
            ls="--",
            label="all peers",
        )
        ax.axvspan(
            0.5,
            panel["explored"] + 0.5,
            color="#BBBBBB",
            alpha=0.4,
            label="every peer is tried once",
        )
        ax.set(
            title=title,
            xlabel="round",
            ylabel="labels shared, %",
            ylim=(0, None),
            xlim=(0.5, len(rounds) + 0.5),
        )
        ax.spines[["top", "right"]].set_visible(False)
    picture.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8
    )
    return picture
