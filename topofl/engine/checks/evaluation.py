"""Checks of evaluations and fine-tuning, and the random choice of evaluated nodes and examples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import check_int
from topofl._support.seeding import stream
from topofl.algorithms.contract.phase import Algorithm, check_fine_tune
from topofl.data import Partition
from topofl.engine.evaluation import Evaluated, uploaded
from topofl.engine.options import Evaluation

__all__ = ["check_evaluated", "check_fine_tuning", "evaluation_sets", "with_fine_tuning"]


def with_fine_tuning(algorithm: Algorithm, fine_tune: Any) -> Algorithm:
    """Return the algorithm with its fine-tuning replaced (None: unchanged; False: removed)."""
    phase = algorithm.fine_tune if fine_tune is None else fine_tune
    if phase is None:
        return algorithm
    return replace(algorithm, fine_tune=None if phase is False else check_fine_tune(phase))


def check_fine_tuning(
    algorithm: Algorithm, evaluation: Evaluation, n: int, rounds: int | None
) -> None:
    """Raise ``ValueError`` unless fine-tuning fits a run of `rounds` rounds (None: unknown)."""
    if (every := evaluation.fine_tune_every) is not None:
        if algorithm.fine_tune is None:
            raise ValueError(
                f"`evaluation.fine_tune_every` must be None without fine-tuning, got {every}; give "
                "a phase as `fine_tune`, e.g. Evaluation(fine_tune=sgd(lr=0.1, epochs=5))"
            )
        if every % evaluation.every and (rounds is None or every < rounds):
            raise ValueError(
                f"`evaluation.fine_tune_every` must be a multiple of every={evaluation.every}, "
                f"since it is part of an evaluation, got {every}; None fine-tunes after the last "
                "round"
            )


def check_evaluated(clients: Partition, evaluation: Evaluation) -> None:
    """Raise ``ValueError`` if there are fewer examples or nodes than `evaluation` requests."""
    eligible = _nodes_with_examples(clients, evaluation.on)
    if evaluation.nodes is not None:
        has_own_set = any(map(_is_own, evaluation.on))
        named = "the number of nodes with such examples" if has_own_set else "n"
        check_int(
            "evaluation.nodes", evaluation.nodes, minimum=1, maximum=len(eligible),
            maximum_name=named, remedy="None takes all",
        )  # fmt: skip
    if evaluation.examples is not None:
        for name in evaluation.on:
            _check_examples(clients, name, evaluation.examples)


def _check_examples(clients: Partition, where: str, examples: int) -> None:
    """Raise ``ValueError`` unless `examples` examples of a set can be drawn."""
    if _is_own(where):
        raise ValueError(
            f"`evaluation.examples` must be None with on={where!r}, whose sets are small, got "
            f"{examples}; leave it out, or evaluate fewer nodes by evaluation.nodes"
        )
    available = len(getattr(clients.dataset, where))
    check_int(
        "evaluation.examples",
        examples,
        minimum=1,
        maximum=available,
        maximum_name=f"len(dataset.{where})",
        remedy="None takes all",
    )


def _is_own(where: str) -> bool:
    return where.startswith("own_")


_HELPERS = {"test": "match_test", "val": "with_validation"}


def _evaluation_indices(clients: Partition, where: str) -> Any:
    """Return the indices of a shared set or of each node's own set; raise if there are none."""
    own = _is_own(where)
    indices = getattr(clients if own else clients.dataset, where.removeprefix("own_"))
    if sum(map(len, indices)) == 0 if own else len(indices) == 0:
        kind = where.removeprefix("own_")
        remedy = (
            f"partition with {kind}_fraction, see data.{_HELPERS[kind]}"
            if own
            else f"load the data with {kind}=, choose another set"
        )
        raise ValueError(
            f"`evaluation.on` must name a set with examples, {where!r} is empty; {remedy}, or "
            "train without scores by Evaluation(on=())"
        )
    return indices


def _nodes_with_examples(clients: Partition, names: Sequence[str]) -> np.ndarray:
    """Return the nodes with examples in all sets, ascending; raise if a set is empty."""
    eligible = np.ones(clients.n, dtype=bool)
    for name in names:
        indices = _evaluation_indices(clients, name)
        if _is_own(name):
            eligible &= np.array([len(own) > 0 for own in indices])
    return np.flatnonzero(eligible)


def evaluation_sets(
    clients: Partition,
    evaluation: Evaluation,
    seed: int,
    device: torch.device,
    left_out: Sequence[int] = (),
) -> dict[str, Evaluated]:
    """Return the evaluated nodes and examples, by the name of the set.

    Examples and nodes are drawn from the run's seed; larger samples contain smaller ones. Nodes are
    drawn among those with examples in all sets, without `left_out`, and are the same for all sets.
    """
    eligible = np.setdiff1d(_nodes_with_examples(clients, evaluation.on), left_out)
    if evaluation.nodes is None:
        nodes = [i for i in range(clients.n) if i not in left_out]
    else:
        nodes = _sample(eligible, evaluation.nodes, stream(seed, "evaluated nodes")).tolist()
    return {
        name: Evaluated(_examples(clients, name, evaluation.examples, seed, device), nodes)
        for name in evaluation.on
    }


def _examples(
    clients: Partition, where: str, size: int | None, seed: int, device: torch.device
) -> Tensor | Sequence[Tensor]:
    """Return the indices of `size` examples of a shared set, or of each node's own examples."""
    indices = _evaluation_indices(clients, where)
    if _is_own(where):
        return uploaded(indices, device)
    return torch.tensor(
        _sample(np.asarray(indices), size, stream(seed, "evaluated examples")), device=device
    )


def _sample(values: np.ndarray, size: int | None, rng: np.random.Generator) -> np.ndarray:
    """Return `size` random values in their original order; None: all of them."""
    return values if size is None else values[np.sort(rng.permutation(len(values))[:size])]
