"""Scores and losses of model outputs, as defined by the task of a run."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topofl.tasks import Function, Score, Task, accuracy, cross_entropy

__all__ = ["Scorer", "loss_of"]


class Scorer(NamedTuple):
    """Function from model outputs and targets to scores.

    Attributes
    ----------
    loss
        Loss of the task; cross-entropy and accuracy are computed in one pass.
    scores
        Reported scores, by name.
    joins
        Whether the outputs of one job are scored together, since they are small, or since some
        score is of a whole set.
    """

    loss: Function
    scores: Mapping[str, Score]
    joins: bool

    @classmethod
    def of(cls, task: Task) -> "Scorer":
        """Return the scorer of a task."""
        scores = task.reported
        joins = task.loss is cross_entropy or any(score.whole for score in scores.values())
        return cls(task.loss, scores, joins)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return sums over examples, (scores, k) float64, for outputs (b, k, ...) of k models.

        Scores of whole sets are returned as they are.
        """
        outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
        known: dict[Any, Tensor] = {}
        if self.loss is cross_entropy:
            known[accuracy], known[cross_entropy] = _accuracy_and_loss(
                outputs.permute(1, 2, 0), targets
            )
        rows = []
        on_host = (outputs, targets)
        if any(score.whole for score in self.scores.values()):
            on_host = outputs.cpu(), targets.cpu()  # once for all scores
        for name, score in self.scores.items():
            if score.whole:
                per_model = (on_host[0][:, k] for k in range(outputs.shape[1]))
                found = [score_of_set(name, score, own, on_host[1]) for own in per_model]
                rows.append(torch.tensor(found, dtype=torch.float64, device=targets.device))
                continue
            if score.function not in known:
                known[score.function] = _score_per_example(name, score.function, outputs, targets)
            rows.append(known[score.function].sum(1, dtype=torch.float64))
        return torch.stack(rows)

    def finished(self, means: Tensor) -> dict[str, Tensor]:
        """Return the reported scores, (k,) each, from means over examples, (scores, k)."""
        pairs = zip(self.scores.items(), means, strict=True)
        return {
            name: values if score.finish is None else score.finish(values)
            for (name, score), values in pairs
        }


def _score_per_example(name: str, function: Function, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the score (k, b) of each example, for outputs (b, k, ...) and targets (b, ...)."""
    b, k = outputs.shape[:2]
    wanted = targets.expand(k, *targets.shape).flatten(0, 1)
    found = function(outputs.transpose(0, 1).flatten(0, 1), wanted)
    if not isinstance(found, Tensor) or found.shape != (k * b,):
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"`task` must have a number per example for {name!r}, shape (b,)=({k * b},), got "
            f"{got}; leave out the mean over the batch, or mark it as a score of a whole set by "
            "Score(function, whole=True)"
        )
    return found.view(k, b)


def score_of_set(name: str, score: Score, outputs: Tensor, targets: Tensor) -> float:
    """Return the score of one model on a whole set, computed on the CPU."""
    try:
        return float(score.function(outputs.cpu(), targets.cpu()))
    except Exception as error:  # whatever the user's function raises
        shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
        raise ValueError(
            f"`task` must have a number for {name!r} of {shapes}, got {type(error).__name__}: "
            f"{error}; return NaN where it is not defined"
        ) from error


def loss_of(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the losses (k, b) in float64 of outputs (k, b, ...) for targets (k, b, ...)."""
    return task.loss(outputs.flatten(0, 1), targets.flatten(0, 1)).view(targets.shape[:2]).double()


def _accuracy_and_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether predictions are correct, and cross-entropies, (k, b) each.

    `logits` are (k, classes, b). One pass for the largest logit serves both. If examples are
    contiguous, as in the outputs of linear models, it takes a fifth of the time of
    ``cross_entropy`` and ``argmax``.
    """
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    largest, predicted = logits.max(1)
    own = logits.gather(1, labels.expand(len(logits), 1, -1)).squeeze(1)
    losses = (logits - largest.unsqueeze(1)).exp_().sum(1).log_().add_(largest - own)
    return predicted == labels, losses
