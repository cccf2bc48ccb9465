"""Learning tasks: a loss per example, and the scores that evaluations report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from topofl._columns import OWN_COLUMNS
from topofl._support.check import check_choice, shown
from topofl._support.public import public

__all__ = ["Score", "Task", "classification", "multi_label", "next_token", "regression"]


Function = Callable[[Tensor, Tensor], Any]
"""(outputs (b, ...), targets (b, ...)) -> a number per example, (b,), or one for the whole set."""


@public
@dataclass(frozen=True)
class Score:
    """A score that evaluations report for each node.

    Parameters
    ----------
    function
        (outputs, targets) -> one number per example, shape (b,), whose mean over the evaluated
        examples is reported.
    low_is_good
        Whether lower is better, as for errors.
    whole
        Whether `function` is instead called once per node, with its outputs and targets on all
        evaluated examples, as tensors on the CPU, and returns one number, for scores that are not
        means over examples, such as F1 and AUC. The outputs of one node on the whole set must then
        fit into memory.
    finish
        Function applied to the (n,) means before they are reported, such as ``torch.exp`` or
        ``torch.sqrt``; None: the means are reported as they are.

    Examples
    --------
    The largest error over examples, as a score of a task:

    >>> def largest_error(outputs, targets):
    ...     return (outputs[:, 0] - targets).abs().max()
    >>> score = Score(largest_error, low_is_good=True, whole=True)
    >>> Task("regression", lambda outputs, targets: (outputs[:, 0] - targets) ** 2,
    ...      {"largest_error": score}).directions
    {'largest_error': 'low', 'loss': 'low'}
    """

    function: Function
    low_is_good: bool = False
    whole: bool = False
    finish: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("function", "finish"):
            value = getattr(self, name)
            if not callable(value) and (name == "function" or value is not None):
                raise TypeError(f"`{name}` of a Score must be a function, got {shown(value)}")


Scores = str | Sequence[str | Score | Function] | Mapping[str, Score | Function]
"""Names of known scores, functions and Scores, or a dictionary of functions and Scores by name."""


@public
@dataclass(frozen=True)
class Task:
    """A learning task: a loss per example, and the scores that evaluations report.

    The engine concatenates the examples of many nodes, so that `loss` sees one flat batch: outputs
    (b, ...) are what the model returns for b examples, and targets (b, ...) are those of the
    dataset, in its own dtype (floating-point targets in that of the run).

    See the page :doc:`Write your own task </docs/write-your-own-task>`.

    Parameters
    ----------
    name
        Short label, used in ``history.meta`` and in errors.
    loss
        (outputs, targets) -> (b,), the loss of each example, differentiable by torch. The loss of
        an example must not depend on other examples. A node's loss is the mean over its minibatch.
    scores
        Name -> :class:`Score`; a plain function is a score per example, high values of which are
        good. The columns of a history have these names. The first score is the primary one, by
        which a history finds the best round; without scores, it is ``loss``.
    misfit
        (outputs of some examples, targets of all examples) -> why they do not match, or an empty
        text. Called once, before training. None: only `loss` itself is tried.
    logits
        Whether `loss` applies a softmax to the last axis of outputs. A model that returns
        probabilities then causes a warning.

    Raises
    ------
    TypeError
        If `name` is not text, or `loss` or a score is not a function.
    ValueError
        If the name of a score is not an identifier, or is the name of another column.

    Examples
    --------
    The median absolute error as a score, with the Huber loss:

    >>> from torch.nn import functional
    >>> def huber(outputs, targets):
    ...     return functional.huber_loss(outputs[:, 0], targets, reduction="none")
    >>> def median_error(outputs, targets):
    ...     return (outputs[:, 0] - targets).abs().median()
    >>> score = Score(median_error, low_is_good=True, whole=True)
    >>> task = Task("robust regression", huber, {"median_error": score})
    >>> task.directions
    {'median_error': 'low', 'loss': 'low'}
    """

    name: str
    loss: Function
    scores: Mapping[str, Score | Function] = field(default_factory=dict)
    misfit: Callable[[Tensor, Tensor], str] | None = None
    logits: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"`name` of a Task must be text, got {shown(self.name)}")
        if not callable(self.loss):
            raise TypeError(
                "`loss` of a Task must be a function of (outputs, targets), got "
                f"{shown(self.loss)}; e.g. topofl.tasks.regression()"
            )
        if not isinstance(self.scores, Mapping):
            raise TypeError(
                f"`scores` of a Task must be a dict of functions by name, got {shown(self.scores)}"
            )
        for name, score in self.scores.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(
                    "`scores` of a Task must have names that are identifiers, such as 'f1', got "
                    f"{shown(name)}; rename it"
                )
            if name in OWN_COLUMNS:
                raise ValueError(
                    "names in `scores` must differ from all columns that histories have anyway, "
                    f"got {name!r}; rename it"
                )
            if not callable(score) and not isinstance(score, Score):
                raise TypeError(
                    f"`scores` of a Task must be functions or Scores, got {shown(score)} for "
                    f"{name!r}"
                )
        scores = self.scores.items()
        made = {name: own if isinstance(own, Score) else Score(own) for name, own in scores}
        object.__setattr__(self, "scores", made)

    @property
    def reported(self) -> Mapping[str, Score]:
        """The scores, then the loss, by name: everything that evaluations report."""
        return {**self.scores, "loss": Score(self.loss, low_is_good=True)}  # pyright: ignore[reportReturnType]

    @property
    def directions(self) -> dict[str, str]:
        """Whether ``"high"`` or ``"low"`` is better, by column; the primary one is first."""
        return {
            name: "low" if score.low_is_good else "high" for name, score in self.reported.items()
        }


def _choose_scores(known: Mapping[str, Score], scores: Scores) -> dict[str, Score | Function]:
    """Return the scores that `scores` names or holds, by name, in its order.

    A function, or a :class:`Score`, has the name of its function, or in a dictionary its key.
    """
    if isinstance(scores, Mapping):
        return dict(scores)
    given = (scores,) if isinstance(scores, str | Score) or callable(scores) else tuple(scores)
    found = [_named_score(known, one) for one in given]
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise ValueError(
            f"`scores` must name each score once, got {', '.join(names)}; remove the duplicates"
        )
    return dict(found)


def _named_score(known: Mapping[str, Score], given: Any) -> tuple[str, Score]:
    """Return a score with its name, from a known name, a function or a Score."""
    if not isinstance(given, Score) and not callable(given):
        name = check_choice("scores", given, list(known))
        return name, known[name]
    score = given if isinstance(given, Score) else Score(given)
    name = getattr(score.function, "__name__", None)
    if name is None or not name.isidentifier():
        raise ValueError(
            "`scores` must have functions with a name, which their columns get, got "
            f"{shown(score.function)}; define it by def"
        )
    return name, score


@public
def classification(scores: Scores = ("accuracy",)) -> Task:
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
    The calibration error is equation 3 of Guo, Pleiss, Sun and Weinberger (2017), On calibration of
    modern neural networks.

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
    chosen = _choose_scores(known, scores)
    return Task("classification", cross_entropy, chosen, _misfit_of_classes, logits=True)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropies (b,) of logits (b, classes) and classes (b,)."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return for each example (b,) whether the largest logit is that of its class."""
    return outputs.argmax(1) == targets


def macro_f1(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean F1 score over the classes that occur or are predicted."""
    return _mean_f1(targets, outputs.argmax(1))


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


def _misfit_of_classes(outputs: Tensor, targets: Tensor) -> str:
    """Return why targets are not valid classes for the outputs, or an empty text."""
    if targets.dtype != torch.int64 or targets.dim() != 1:
        return f"classes (N,) of int64, got shape {tuple(targets.shape)} of {targets.dtype}"
    return _out_of_range("classes", outputs, targets)


def _out_of_range(what: str, outputs: Tensor, targets: Tensor) -> str:
    """Return which integers do not number the last axis of outputs, or an empty text."""
    low, high, size = int(targets.min()), int(targets.max()), outputs.shape[-1]
    if low >= 0 and high < size:
        return ""
    return f"{what} in 0..{size - 1} for outputs {tuple(outputs.shape)}, got {low}..{high}"


@public
def multi_label(scores: Scores = ("subset_accuracy",)) -> Task:
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
    chosen = _choose_scores(known, scores)
    return Task("multi_label", binary_cross_entropy, chosen, _misfit_of_labels)


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
    return _mean_f1(targets > 0, outputs > 0)


def _mean_f1(targets: Tensor, predicted: Tensor) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(targets.numpy(), predicted.numpy(), average="macro", zero_division=0.0))


def _misfit_of_labels(outputs: Tensor, targets: Tensor) -> str:
    """Return why targets are not valid labels for the outputs, or an empty text."""
    labels, got = tuple(outputs.shape[1:]), tuple(targets.shape)
    if len(got) != 2 or got[1:] != labels:
        return f"(N, labels) with labels={labels} as the model's outputs, got {got}"
    odd = targets[(targets != 0) & (targets != 1)]
    return f"0 or 1, got {odd[0].item():g}" if len(odd) else ""


@public
def next_token(scores: Scores = ("accuracy", "perplexity"), *, ignored: int = -100) -> Task:
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
    loss = partial(_token_loss, ignored=ignored)
    known = {
        "accuracy": Score(partial(_token_accuracy, ignored=ignored)),
        "perplexity": Score(loss, low_is_good=True, finish=torch.exp),
    }
    misfit = partial(_misfit_of_tokens, ignored=ignored)
    return Task("next_token", loss, _choose_scores(known, scores), misfit, logits=True)


def _token_mean(values: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """Return means (b,) over the positions that are not ignored, or 0 if there are none."""
    counts = targets != ignored
    values = values.masked_fill(~counts, 0).reshape(len(targets), -1)
    return values.sum(1) / counts.reshape(len(targets), -1).sum(1).clamp(min=1)


def _token_loss(outputs: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """Return the mean cross-entropies (b,) over positions of logits (b, T, vocabulary)."""
    logits, wanted = outputs.flatten(0, -2), targets.flatten()
    losses = functional.cross_entropy(logits, wanted, reduction="none", ignore_index=ignored)
    return _token_mean(losses.view(targets.shape), targets, ignored)


def _token_accuracy(outputs: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """Return the fractions (b,) of positions at which the token has the largest logit."""
    return _token_mean((outputs.argmax(-1) == targets).double(), targets, ignored)


def _misfit_of_tokens(outputs: Tensor, targets: Tensor, ignored: int) -> str:
    """Return why targets are not valid token ids for the outputs, or an empty text."""
    each, shape = tuple(outputs.shape[1:]), tuple(targets.shape)
    if targets.dtype != torch.int64 or outputs.dim() < 3 or each[:-1] != shape[1:]:
        turned = len(each) == 2 and each[1:] == shape[1:]
        return (
            "token ids (N, T) of int64 for outputs (T, vocabulary) per example, which are "
            f"{each}{', so transpose them' if turned else ''}, got shape {shape} of {targets.dtype}"
        )
    counted = targets[targets != ignored]
    return _out_of_range("token ids", outputs, counted) if len(counted) else ""


@public
def regression(scores: Scores = ("mse",)) -> Task:
    """Return the task of regression by the mean squared error.

    Outputs and targets are numbers of the same shape (b, ...); targets (b,) also match outputs (b,
    1).

    Parameters
    ----------
    scores
        Some of ``"mse"``, ``"mae"`` (the mean absolute error), ``"rmse"`` (the root of ``"mse"``),
        and ``"r2"``, the coefficient of determination, by scikit-learn; or functions, as in
        :func:`topofl.tasks.classification`. The first is the primary one.

    Raises
    ------
    ValueError
        If a score is unknown or given twice, or a function has no name.

    Examples
    --------
    >>> import numpy as np
    >>> import topofl
    >>> from torch import nn
    >>> from topofl import algorithms, data, tasks, topologies
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = x @ [1.0, -2.0, 0.5]
    >>> dataset = data.from_arrays(x, data.binned(y, 5), targets=y, test=0.25)
    >>> clients = data.shards(dataset, n=5, per_node=1, seed=0)  # each node holds a range of y
    >>> history = topofl.run(algorithms.dsgd(lr=0.1), model=nn.Linear(3, 1), clients=clients,
    ...                      topology=topologies.ring(5), rounds=50, seed=0,
    ...                      task=tasks.regression(scores=("mse", "r2")))
    >>> bool((history.last("r2") > 0.99).all())
    True
    """
    known = {
        "mse": Score(squared_error, low_is_good=True),
        "mae": Score(absolute_error, low_is_good=True),
        "rmse": Score(squared_error, low_is_good=True, finish=torch.sqrt),
        "r2": Score(r2, whole=True),
    }
    return Task("regression", squared_error, _choose_scores(known, scores), _misfit_of_numbers)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared errors (b,), each the mean over the coordinates of an example."""
    return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1).mean(1)


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the absolute errors (b,), each the mean over the coordinates of an example."""
    return (outputs.reshape(targets.shape) - targets).abs().reshape(len(targets), -1).mean(1)


def r2(outputs: Tensor, targets: Tensor) -> float:
    """Return the coefficient of determination, averaged over coordinates.

    It is NaN for a single example, or if an output is not finite.
    """
    from sklearn.metrics import r2_score

    wanted, given = (x.double().reshape(len(targets), -1).numpy() for x in (targets, outputs))
    is_defined = len(wanted) > 1 and np.isfinite(given).all()
    return float(r2_score(wanted, given)) if is_defined else np.nan


def _misfit_of_numbers(outputs: Tensor, targets: Tensor) -> str:
    """Return why targets do not have the shape of outputs, or an empty text."""
    each, given = tuple(outputs.shape[1:]), tuple(targets.shape[1:])
    if each == given or (each, given) == ((1,), ()):
        return ""
    return f"of the shape of the model's outputs, {each} per example, got {given}"
