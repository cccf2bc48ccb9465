"""Classification by cross-entropy, and its scores."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from topofl._support.public import public
from topofl.tasks.task import Function, Score, Task, choose_scores

__all__ = [
    "accuracy",
    "calibration_error",
    "classification",
    "cross_entropy",
    "macro_auc",
    "macro_f1",
]


@public
def classification(
    scores: Sequence[str | Score | Function] | Mapping[str, Score | Function] = ("accuracy",),
) -> Task:
    """Return the task of classification by cross-entropy.

    Outputs are logits (b, classes), targets are classes (b,) of int64.

    Parameters
    ----------
    scores
        Some of ``"accuracy"``; ``"f1"``, the mean over classes of the F1 score, by scikit-learn;
        ``"auc"``, the mean one-vs-rest area under the ROC curve, over classes that some but not all
        examples have, by scikit-learn; ``"calibration"``, the expected calibration error with 15
        bins (Guo et al., 2017). A function of outputs and targets that returns a number per
        example, (b,), or a :class:`topofl.tasks.Score` of one, is a score under the function's
        name; a dictionary, name -> function or Score, gives other names. The first is the
        primary one.

    Raises
    ------
    ValueError
        If a score is unknown or given twice, or a function has no name.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks, equation 3.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, tasks, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> history = topofl.run(algorithms.dsgd(lr=0.5), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.ring(10), rounds=2, seed=0,
    ...                      task=tasks.classification(scores=("f1", "accuracy")))
    >>> history["f1"].shape
    (2, 10)

    A score of your own beside the accuracy:

    >>> def top3(outputs, targets):
    ...     return (outputs.topk(3).indices == targets[:, None]).any(1)
    >>> tasks.classification(scores=("accuracy", top3)).directions
    {'accuracy': 'high', 'top3': 'high', 'loss': 'low'}
    >>> tasks.classification(scores={"in_top3": top3}).directions
    {'in_top3': 'high', 'loss': 'low'}
    """
    known = {
        "accuracy": Score(accuracy),
        "f1": Score(macro_f1, whole=True),
        "auc": Score(macro_auc, whole=True),
        "calibration": Score(calibration_error, whole=True, low_is_good=True),
    }
    return Task("classification", cross_entropy, choose_scores(known, scores), _misfit, logits=True)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropies (b,) of logits (b, classes) and classes (b,)."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return for each example (b,) whether the largest logit is that of its class."""
    return outputs.argmax(1) == targets


def macro_f1(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean F1 score over the classes that occur or are predicted."""
    from sklearn.metrics import f1_score

    return float(
        f1_score(targets.numpy(), outputs.argmax(1).numpy(), average="macro", zero_division=0.0)
    )


def macro_auc(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean one-vs-rest area under the ROC curve over classes.

    It is NaN if there is only one class, or a logit is not finite.
    """
    from sklearn.metrics import roc_auc_score

    found = np.unique(targets.numpy())
    shares = torch.softmax(outputs.double(), 1).numpy()
    if len(found) < 2 or not np.isfinite(shares).all():
        return np.nan
    return float(
        np.mean([roc_auc_score(targets.numpy() == label, shares[:, label]) for label in found])
    )


def calibration_error(outputs: Tensor, targets: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error over equal-width bins of confidence.

    This is the gap between confidence and accuracy, weighted by the examples in each bin.
    """
    confidence, predicted = torch.softmax(outputs.double(), 1).max(1)
    places = (confidence * bins).ceil().clamp(1, bins).nan_to_num(bins).long() - 1
    gaps = confidence.new_zeros(bins).index_add_(
        0, places, confidence - (predicted == targets).double()
    )
    return float(gaps.abs().sum() / len(targets))


def _misfit(outputs: Tensor, targets: Tensor) -> str:
    """Return why targets are not valid classes for the outputs, or an empty text."""
    if targets.dtype != torch.int64 or targets.dim() != 1:
        return f"classes (N,) of int64, got shape {tuple(targets.shape)} of {targets.dtype}"
    if int(targets.min()) < 0 or int(targets.max()) >= outputs.shape[-1]:
        low, high = int(targets.min()), int(targets.max())
        limits = f"0..{outputs.shape[-1] - 1}"
        return f"classes in {limits} for outputs {tuple(outputs.shape)}, got {low}..{high}"
    return ""
