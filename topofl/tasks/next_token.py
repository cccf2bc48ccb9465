"""Next-token prediction by cross-entropy over positions, and its scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from topofl._support.public import public
from topofl.tasks.task import Function, Score, Task, choose_scores

__all__ = ["next_token"]


@public
def next_token(
    scores: Sequence[str | Score | Function] | Mapping[str, Score | Function] = (
        "accuracy",
        "perplexity",
    ),
    *,
    ignored: int = -100,
) -> Task:
    """Return the task of next-token prediction by cross-entropy.

    Outputs are logits (b, T, vocabulary), targets are token ids (b, T) of int64. The loss of an
    example is the mean of the cross-entropy over its positions. To predict the next token, give all
    tokens but the last as inputs, and all but the first as targets: ``from_arrays(tokens[:, :-1],
    targets=tokens[:, 1:])``.

    Parameters
    ----------
    scores
        Some of ``"accuracy"``, the fraction of positions predicted correctly, and ``"perplexity"``,
        the exponential of the mean loss; low is good. Both average over the counted positions of a
        sequence first, and then over sequences: sequences of different lengths have equal weights.
        Also functions, as in :func:`topofl.tasks.classification`. The first is the primary one.
    ignored
        Target of positions that do not count, such as padding.

    Raises
    ------
    ValueError
        If a score is unknown or given twice, or a function has no name.

    Examples
    --------
    >>> next_token().directions
    {'accuracy': 'high', 'perplexity': 'low', 'loss': 'low'}
    """
    tokens = _Tokens(ignored)
    known = {
        "accuracy": Score(tokens.accuracy),
        "perplexity": Score(tokens.loss, low_is_good=True, finish=torch.exp),
    }
    return Task("next_token", tokens.loss, choose_scores(known, scores), tokens.misfit, logits=True)


@dataclass(frozen=True)
class _Tokens:
    """Loss and accuracy of logits (b, T, vocabulary), without positions of the ignored id."""

    ignored: int

    def _mean(self, values: Tensor, targets: Tensor) -> Tensor:
        """Return means (b,) over counted positions, or 0 if there are none."""
        counts = targets != self.ignored
        values = values.masked_fill(~counts, 0).reshape(len(targets), -1)
        return values.sum(1) / counts.reshape(len(targets), -1).sum(1).clamp(min=1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropies (b,) over positions."""
        logits = outputs.flatten(0, -2)
        wanted = targets.flatten()
        losses = functional.cross_entropy(
            logits, wanted, reduction="none", ignore_index=self.ignored
        )
        return self._mean(losses.view(targets.shape), targets)

    def accuracy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the fractions (b,) of positions at which the token has the largest logit."""
        return self._mean((outputs.argmax(-1) == targets).double(), targets)

    def misfit(self, outputs: Tensor, targets: Tensor) -> str:
        """Return why targets are not valid token ids for the outputs, or an empty text."""
        if (
            targets.dtype != torch.int64
            or outputs.dim() < 3
            or outputs.shape[1:-1] != targets.shape[1:]
        ):
            each = tuple(outputs.shape[1:])
            got = f"shape {tuple(targets.shape)} of {targets.dtype}"
            return (
                "token ids (N, T) of int64 for outputs (T, vocabulary) per example, which are "
                f"{each}, got {got}"
            )
        counted = targets[targets != self.ignored]
        if len(counted) and not 0 <= int(counted.min()) <= int(counted.max()) < outputs.shape[-1]:
            low, high = int(counted.min()), int(counted.max())
            limits = f"0..{outputs.shape[-1] - 1}"
            return f"token ids in {limits} for outputs {tuple(outputs.shape)}, got {low}..{high}"
        return ""
