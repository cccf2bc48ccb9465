"""One-line summaries of a history: its run, attack, and final score."""

from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.text import node_name, printable
from topofl.history.statistics import over_nodes

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = ["attack_label", "run_name", "summary", "with_attack"]


def summary(history: "History") -> str:
    """Return the text of ``repr(history)``: run, rounds, nodes, final score and attack."""
    rows: Any = history.evaluations.get(history.primary, ())
    values = rows[-1] if len(rows) else np.full(history.node_loss.shape[-1], np.nan)
    mean = float(over_nodes(values)["mean"])
    sampled = history.meta.get("evaluation", {})
    sizes = [
        f"{sampled[what]} {what}" for what in ("nodes", "examples") if sampled.get(what) is not None
    ]
    text = f"{run_name(history)}: {history.n_rounds} rounds, n={len(values)}, "
    text += f"final {history.primary} {mean:.4f}" if len(rows) else "not evaluated"
    text += f" of a sample of {' and '.join(sizes)}" if sizes else ""
    text = with_attack(history, text)
    if history.n_rounds and "simulated_seconds" in history.rounds:
        seconds = float(history.rounds["simulated_seconds"][-1])
        text += f", {seconds:.4g} simulated seconds"
    if share := history.meta.get("largest_share"):
        name = node_name(history.meta.get("nodes", ()), share[0])
        text += f", node {name} has {share[1]:.3f} of the average, not 1/{len(values)}"
    if diverged := history.meta.get("diverged"):
        text += f", {len(diverged)} nodes diverged"
    return f"History({text})"


def run_name(history: "History") -> str:
    """Return algorithm and topology as printable text."""
    algorithm = history.meta.get("algorithm", "the run")
    return printable(f"{algorithm} on {history.meta.get('topology', 'no graph')}")


def attack_label(history: "History") -> str:
    """Return the text of :attr:`topofl.History.attack`."""
    count = len(history.attackers)
    if count == 0:
        return ""
    name = printable(str(history.meta["attackers"].get("name", "")))
    return f"{count} attacker{'s' if count > 1 else ''}{f' ({name})' if name else ''}"


def with_attack(history: "History", text: str) -> str:
    """Return the text followed by the attack, if there is one."""
    return f"{text}, {history.attack}" if history.attack else text
