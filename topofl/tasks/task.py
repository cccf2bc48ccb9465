"""The type of learning tasks: a loss per example, and the scores that evaluations report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from topofl._columns import OWN_COLUMNS
from topofl._support.check import check_choice, shown
from topofl._support.public import public

__all__ = ["Function", "Score", "Task", "choose_scores"]


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
            _check_name(name)
            if not callable(score) and not isinstance(score, Score):
                raise TypeError(
                    f"`scores` of a Task must be functions or Scores, got {shown(score)} for "
                    f"{name!r}"
                )
        scores = {
            name: score if isinstance(score, Score) else Score(score)
            for name, score in self.scores.items()
        }
        object.__setattr__(self, "scores", scores)

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


def _check_name(name: Any) -> None:
    """Raise ``ValueError`` if a name cannot be a column of a history."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            "`scores` of a Task must have names that are identifiers, such as 'f1', got "
            f"{shown(name)}; rename it"
        )
    if name in OWN_COLUMNS:
        raise ValueError(
            f"names in `scores` must differ from all columns that histories have anyway, got "
            f"{name!r}; rename it"
        )


def choose_scores(
    known: Mapping[str, Score],
    scores: str | Sequence[str | Score | Function] | Mapping[str, Score | Function],
) -> dict[str, Score | Function]:
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
