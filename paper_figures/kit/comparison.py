"""DFedPGP, PFedDST and the methods compared with them, on the setting of ``comparison.toml``.

Training runs, accuracies of personal models at evaluation stages, and what figures of both papers
have in common. A stage is the point of a round at which models are tested, each on its client's own
test images; accuracies are unweighted means over clients. All stages of a method are recorded. The
paper does not specify the stage of every method's printed numbers (its authors' code tests DFedPGP
after the exchange, before local training), so each method is judged by the stage with the highest
final accuracy, averaged over seeds: :func:`reported`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from topofl import History, NotApplicable, Table
from topofl.runs.identity import Run, with_options

from .claims import Claim, at_least, judge
from .curves import Cell, Curve, Panels, final, plus_minus, read_panels, rounds_to, write_panels
from .drawing import dots
from .paper import Arms, Data, Scale, Setting, declared, each_arm
from .store import Store

DECLARED = declared("kit/comparison.toml")

ADDED = tuple(t for t in DECLARED["splits"] if t not in DECLARED.scale("paper").splits)
"""Titles of splits that DFedPGP does not have."""

TERMS: Sequence[str] = DECLARED["terms"]
"""Definitions of terms in the claims."""

STAGES: Mapping[str, str] = {
    "after exchange": "",
    "after training": "before_exchange",
    "fine-tuned": "fine_tuned",
}
"""Evaluation stages of a history by name; not every method has all of them."""

ANY_LEAD = at_least(0, "any consistent lead over seeds counts", tie=0)

STABLE = at_least(0.95, "it ends within a twentieth of its best round")

Measured = Mapping[str, Mapping[str, Mapping[str, Curve]]]
"""Curves by panel title, arm label and stage; epochs are rounds."""


@dataclass(frozen=True)
class Method:
    """One row of the paper's tables, as declared.

    Parameters
    ----------
    name
        Name of the function in :mod:`topofl.algorithms`.
    over
        A kind of graph, ``"server"``, ``"peers"`` (chosen by clients), or ``"nothing"``.
    parts
        Whether the head is trained separately, with the learning rate `head_lr` of the scale.
    fine_tuned
        Whether models are fine-tuned before they are tested.
    more
        Further arguments; the name of a setting of the scale (``"neighbors"``, ``"lr"``) is
        replaced with its value.
    """

    name: str
    over: str
    parts: bool = False
    fine_tuned: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def table(
        self, scale: Scale, *, epochs: Any = None, neighbors: int | None = None
    ) -> dict[str, Any]:
        """Return the method's ``[algorithm]`` table.

        Parameters
        ----------
        scale
            Scale of the experiment.
        epochs
            Epochs per round, one number for all clients or a list; None: those of the scale.
        neighbors
            Number of clients that a server samples; None: that of the scale.
        """
        shared = ("batch_size", "momentum", "lr", "lr_decay", "weight_decay", "clip")
        table = {"name": self.name, **{key: getattr(scale, key) for key in shared}}
        table |= self._passes(scale, scale.epochs if epochs is None else epochs)
        if self.over == "server":
            table["participation"] = neighbors or scale.neighbors
        if self.parts:
            table |= {"head_lr": scale.head_lr, "head_epochs": scale.head_epochs}
        settings = {key: getattr(scale, key) for key in ("rounds", "epochs", "neighbors", "lr")}
        return table | {key: settings.get(value, value) for key, value in self.more.items()}

    def _passes(self, scale: Scale, epochs: Any) -> dict[str, Any]:
        if self.name != "ditto":
            return {"epochs": epochs}
        common, personal = scale.ditto
        passes = {"epochs": common, "personal_epochs": personal}
        if not isinstance(epochs, list):
            return passes
        return {
            key: [max(1, round(e * part / (common + personal))) for e in epochs]
            for key, part in passes.items()
        }


METHODS = {label: Method(**row) for label, row in DECLARED["methods"].items()}


scale_of, scale_on, splits_of = DECLARED.scale_of, DECLARED.scale_on, DECLARED.splits_of
differences = DECLARED.differences


def arm(
    setting: Setting,
    title: str,
    label: str,
    *,
    clients: int | None = None,
    neighbors: int | None = None,
    epochs: Any = None,
) -> list[Run]:
    """Return the runs of a method on a split, one per seed.

    Parameters
    ----------
    setting
        Scale, seeds and data.
    title, label
        Title of the split and label of the method.
    clients, neighbors, epochs
        Values that replace those of the scale.
    """
    scale = scale_on(setting, title)
    scale = scale.but(clients=clients or scale.clients, neighbors=neighbors or scale.neighbors)
    return [Run(_tables(setting, scale, title, label, epochs, seed)) for seed in setting.seeds]


def arms_on(labels: Sequence[str], *titles: str) -> Callable[[Setting], Arms]:
    """Return a function that gives the arms of some methods on some splits, or on all."""
    return lambda setting: {
        title: {label: arm(setting, title, label) for label in labels}
        for title in splits_of(setting, *titles)
    }


def _tables(
    setting: Setting, scale: Scale, title: str, label: str, epochs: Any, seed: int
) -> dict[str, Any]:
    method, (dataset, partition) = METHODS[label], DECLARED.split(title)
    source = setting.source(scale.data[dataset])
    clients = {**partition, "n": scale.clients, "seed": seed, "match_test": "per_client"}
    every = scale.tuned_every if method.fine_tuned else scale.eval_every
    evaluation = {"every": every, "on": "own_test", "before_exchange": True}
    evaluation |= {"fine_tune_every": every} if method.fine_tuned else {}
    graph = {}
    if kind := DECLARED["graphs"].get(method.over):
        graph["topology"] = {"name": kind["topology"], "k": scale.neighbors, "seed": seed}
        graph["mixing"] = dict(kind["mixing"])
    tables = {
        "data": {**source, "split_seed": seed, **clients},
        **graph,
        "algorithm": method.table(scale, epochs=epochs),
        "model": dict(scale.model),
        "run": {"rounds": scale.rounds, "seed": seed},
        "evaluation": evaluation,
        "compute": {"device": setting.device},
    }
    return with_options(tables, scale.options)


def compared(
    arms: Callable[[Setting], Arms],
    *,
    draw: Callable[[Data], Picture],
    claims: Callable[[Data], Sequence[Claim]],
    tables: Callable[[Data], Sequence[Table]],
    targets: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return what makes a figure of curves at all stages of its arms.

    With `targets`, the paper's target accuracies in % by title, data have targets for these splits
    and for those that the paper lacks: the paper's at its own scale, else by rule.
    """

    def compute(setting: Setting, store: Store) -> Data:
        curves = each_arm(arms(setting), lambda label, runs: stage_curves(runs, store, label))
        data = {"panels": write_panels(curves)}
        if targets is None:
            return data
        panels = {
            title: panel
            for title, panel in reported(curves).items()
            if title in targets or title in ADDED
        }
        return data | {"targets": targets_of(setting.scale, panels, targets)}

    return {
        "compute": compute,
        "draw": draw,
        "claims": claims,
        "tables": tables,
        "arms": arms,
        "from_curves": True,
    }


def stage_curves(runs: Sequence[Run], store: Store, label: str) -> dict[str, Curve]:
    """Return a method's curve at each stage; after training, only if all clients train."""
    if (earlier := store.earlier_curves(runs)) is not None:
        return read_panels(earlier)
    histories, numbers, _ = store.load_arm(runs)
    seeds, over = [run.seed for run in runs], METHODS[label].over if label in METHODS else ""
    # Rounds of methods that choose peers end with training.
    stages = {"after training": ""} if over == "peers" else STAGES
    return {
        name: Curve.of(seeds, histories, 1, numbers, column=histories[0].column(stage=stage))
        for name, stage in stages.items()
        if _has(histories[0], stage) and not (name == "after training" and over == "server")
    }


def _has(history: History, stage: str) -> bool:
    """Return whether a history has a separate stage; isolated nodes are tested once per round."""
    alone = stage != "" and not history.matrices
    return any(column.stage == stage for column in history.score_columns.values()) and not alone


def best_stage(curves: Mapping[str, Curve]) -> str:
    """Return the stage with the highest final accuracy, averaged over seeds; the first of ties."""
    return max(curves, key=lambda stage: final(curves[stage]).mean())


def at_best_stages(value: Measured) -> Panels:
    """Return every arm's curve at its best stage, at all rounds that were tested."""
    return each_arm(value, lambda label, curves: curves[best_stage(curves)])


def reported(value: Measured) -> Panels:
    """Return every arm's curve at its best stage, at the rounds that its panel has in common."""
    panels = {}
    for title, panel in at_best_stages(value).items():
        common = reduce(np.intersect1d, [curve.epochs for curve in panel.values()])
        panels[title] = {label: _at_rounds(curve, common) for label, curve in panel.items()}
    return panels


def _at_rounds(curve: Curve, rounds: np.ndarray) -> Curve:
    kept = np.isin(curve.epochs, rounds)
    parts = {name: getattr(curve, name)[:, kept] for name in ("mean", "low", "high")}
    return replace(curve, epochs=curve.epochs[kept], **parts)


def reported_curves(data: Data) -> Panels:
    """Return :func:`reported` curves from a figure's data."""
    return reported(read_panels(data["panels"]))


def targets_of(scale: str, panels: Panels, printed: Mapping[str, float]) -> dict[str, float]:
    """Return the target accuracy of every panel in %.

    At scale ``paper`` these are the printed ones, else 90 % of the best final accuracy, in whole %.
    """
    if scale == "paper":
        return {title: printed[title] for title in panels}
    share = DECLARED["target_share"]
    return {
        title: float(int(share * max(final(curve).mean() for curve in arms.values())))
        for title, arms in panels.items()
    }


def leads(values: Mapping[str, np.ndarray], label: str) -> dict[str, np.ndarray]:
    """Return the leads of one arm over each other arm for the same seeds, by the other's label."""
    return {other: values[label] - value for other, value in values.items() if other != label}


def rounds_needed(arms: Mapping[str, Curve], target: float) -> dict[str, np.ndarray]:
    """Return the rounds to a target, of at least one and at most those of the run, by label."""
    return {
        label: np.minimum(rounds_to(curve, target), curve.epochs[-1])
        for label, curve in arms.items()
    }


def ends_well(statement: str, curve: Curve, of: str) -> Claim:
    """Return the claim that a curve ends within a twentieth of the best of some rounds."""
    ratio = final(curve) / np.maximum(curve.mean.max(axis=1), 1e-9)
    return judge(statement, f"final accuracy over that of the best {of}", ratio, STABLE)


NOTES = (
    "mean over clients of the accuracy on their own test images, in the last tenth of the rounds; "
    "mean ± standard deviation over seeds; best round: the highest accuracy of any round after the "
    "exchange, which the authors' code reports"
)


def accuracy_table(
    title: str, arms: Mapping[str, Mapping[str, Curve]], paper: Mapping[str, str]
) -> Table:
    """Return a table with one row per arm: accuracies at all stages and the paper's number.

    Parameters
    ----------
    title
        Title of the panel.
    arms
        Curves by label and stage.
    paper
        The paper's numbers as text, by label.
    """
    columns = ("method", *(f"{stage}, %" for stage in STAGES), "best round, %", "judged by")
    columns += ("paper, %", "MB per client and round", "MB of the busiest")
    rows = []
    for label, curves in arms.items():
        cells: list[Cell] = [
            plus_minus(final(curves[stage]))
            if stage in curves
            else NotApplicable(f"{label} is not tested at this stage ({stage})")
            for stage in STAGES
        ]
        best = curves.get("after exchange", next(iter(curves.values())))
        cells += [plus_minus(best.mean.max(axis=1)), best_stage(curves)]
        cells.append(paper.get(label) or NotApplicable("the paper does not print it"))
        rows.append((label, *cells, *_megabytes(best)))
    notes = f"{NOTES}; MB per round; busiest: client or server"
    return Table(columns, tuple(rows), title=f"{title}: {notes}")


def _megabytes(curve: Curve) -> tuple[float, float]:
    each, busiest = (float(curve.numbers[key].mean()) / 1e6 for key in ("bytes", "busiest_bytes"))
    return round(each, 9), round(busiest, 9)


Rounds = Mapping[str, Mapping[str, int | None]]
"""A paper's rounds to its target by label and title, None if a method does not reach it."""


def rounds_table(
    title: str,
    arms: Mapping[str, Curve],
    target: float,
    paper: Rounds,
    targets: Mapping[str, float],
) -> Table:
    """Return a table with one row per method: rounds and bytes to the target, ours and the paper's.

    Bytes are the mean per round times the number of rounds, since every round of a method sends the
    same number of messages.

    Parameters
    ----------
    title, arms, target
        Title of the panel, its curves, and the target accuracy in %.
    paper, targets
        The paper's rounds, and its target accuracies by title.
    """
    columns = ("method", "rounds", "over DFedPGP's", "MB per client", "MB of the busiest")
    columns += ("paper: rounds", "paper: over DFedPGP's")
    reference = rounds_to(arms["DFedPGP"], target)
    rows = tuple(
        (label, *_rounds_cells(label, curve, target, reference), *_paper_cells(paper, title, label))
        for label, curve in arms.items()
    )
    papers_target = f"; the paper's target is {targets[title]:g} %" if title in targets else ""
    notes = (
        f"until the mean accuracy over clients on their own test images is {target:g} %, "
        "interpolated linearly between tests; mean ± standard deviation"
    )
    return Table(columns, rows, title=f"{title}: {notes}{papers_target}")


def _rounds_cells(label: str, curve: Curve, target: float, reference: np.ndarray) -> list[Cell]:
    rounds = rounds_to(curve, target)
    if missed := int(np.isinf(rounds).sum()):
        text = f"{label}: {missed} of {len(rounds)} seeds stayed below {target:g} %"
        return [NotApplicable(text)] * 4
    ratio: Cell = NotApplicable("DFedPGP did not reach it in all seeds")
    if np.isfinite(reference).all() and (reference > 0).all():
        ratio = plus_minus(rounds / reference)
    sent = [plus_minus(rounds * megabytes) for megabytes in _megabytes(curve)]
    return [plus_minus(rounds), ratio, *sent]


def _paper_cells(paper: Rounds, title: str, label: str) -> tuple[Cell, Cell]:
    if title not in paper.get(label, {}):
        silent = NotApplicable("the paper does not print it")
        return silent, silent
    rounds, ours = paper[label][title], paper["DFedPGP"][title]
    if rounds is None or ours is None:
        never = NotApplicable("not within its 500 rounds")
        return never, never
    return float(rounds), round(rounds / ours, 2)


def rounds_tables(paper: Rounds, targets: Mapping[str, float]) -> Callable[[Data], Sequence[Table]]:
    """Return a function that makes a :func:`rounds_table` of each panel."""
    return lambda data: [
        rounds_table(title, arms, data["targets"][title], paper, targets)
        for title, arms in reported_curves(data).items()
    ]


def accuracy_tables(paper: Mapping[str, Mapping[str, str]]) -> Callable[[Data], Sequence[Table]]:
    """Return a function that makes an :func:`accuracy_table` of each panel, `paper` by title."""
    return lambda data: [
        accuracy_table(title, arms, paper.get(title, {}))
        for title, arms in read_panels(data["panels"]).items()
    ]


def draw_rounds(paper: Rounds) -> Callable[[Data], Picture]:
    """Return a function that draws the rounds of all methods to the targets."""

    def draw(data: Data) -> Picture:
        panels, printed = {}, {}
        for title, arms in reported_curves(data).items():
            target = data["targets"][title]
            shown = f"{title}: {target:g} %"
            panels[shown] = {label: rounds_to(curve, target) for label, curve in arms.items()}
            printed[shown] = {label: row.get(title) for label, row in paper.items()}
        return dots(panels, xlabel="rounds to the target", paper=printed)

    return draw
