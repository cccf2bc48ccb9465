"""Multi-label classification by binary cross-entropy, and its scores."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn import functional

from topofl._support.public import public
from topofl.tasks.task import Function, Score, Task, choose_scores

__all__ = ["binary_cross_entropy", "f1_of_labels", "hamming_loss", "multi_label", "subset_accuracy"]


@public
def multi_label(
    scores: Sequence[str | Score | Function] | Mapping[str, Score | Function] = (
        "subset_accuracy",
    ),
) -> Task:
    """Return the task of multi-label classification by binary cross-entropy.

    Outputs are logits (b, labels), targets are 0 or 1 (b, labels). The loss of an example is the
    mean over labels of the binary cross-entropy; labels with a logit above 0 are predicted.

    Parameters
    ----------
    scores
        Some of ``"subset_accuracy"``, the fraction of examples with all labels correct;
        ``"hamming_loss"``, the fraction of wrong labels; ``"f1"``, the mean over labels of the F1
        score, by scikit-learn; or functions, as in :func:`topofl.tasks.classification`. The first
        is the primary one.

    Raises
    ------
    ValueError
        If a score is unknown or given twice, or a function has no name.

    Examples
    --------
    >>> multi_label(scores=("f1", "hamming_loss")).directions
    {'f1': 'high', 'hamming_loss': 'low', 'loss': 'low'}
    """
    known = {
        "subset_accuracy": Score(subset_accuracy),
        "hamming_loss": Score(hamming_loss, low_is_good=True),
        "f1": Score(f1_of_labels, whole=True),
    }
    return Task("multi_label", binary_cross_entropy, choose_scores(known, scores), _misfit)


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the binary cross-entropies (b,) of logits (b, labels), each the mean over labels."""
    losses = functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction="none"
    )
    return losses.reshape(len(targets), -1).mean(1)


def subset_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return for which examples (b,) all labels are predicted correctly."""
    return ((outputs > 0) == (targets > 0)).reshape(len(targets), -1).all(1)


def hamming_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the fractions (b,) of wrong labels."""
    return ((outputs > 0) != (targets > 0)).reshape(len(targets), -1).double().mean(1)


def f1_of_labels(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean F1 score over labels."""
    from sklearn.metrics import f1_score

    return float(
        f1_score((targets > 0).numpy(), (outputs > 0).numpy(), average="macro", zero_division=0.0)
    )


def _misfit(outputs: Tensor, targets: Tensor) -> str:
    """Return why targets are not valid labels for the outputs, or an empty text."""
    if targets.dim() != 2 or targets.shape[1:] != outputs.shape[1:]:
        labels = tuple(outputs.shape[1:])
        got = tuple(targets.shape)
        return f"(N, labels) with labels={labels} as the model's outputs, got {got}"
    odd = targets[(targets != 0) & (targets != 1)]
    return f"0 or 1, got {odd[0].item():g}" if len(odd) else ""
