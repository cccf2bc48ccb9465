"""What local steps minimize, where that is not the loss of the run's task alone."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from topofl._support.check import check_takes, shown
from topofl.algorithms.contract.round import Models, Part, State, head, no_state


class Apply(Protocol):
    """A node's model in a local step, as an :class:`Objective` sees it."""

    def __call__(self, inputs: Tensor, model: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outputs (b, ...) and features (b, m) of the model, or of another one (d,)."""
        ...


class Objective(NamedTuple):
    """What local steps minimize in place of the mean loss of the task.

    Attributes
    ----------
    name
        Its name in settings and messages.
    losses
        ``losses(apply, inputs, targets, own, loss) -> (b,)``, for one node: its minibatch, inputs
        (b, ...) and targets (b, ...); its rows of the tensors in the state of the phase, by name;
        and the loss of the task, ``loss(outputs, targets) -> (b,)``. ``apply(inputs)`` returns the
        outputs of the node's model and its features, ``apply(inputs, row)`` those of a model (d,)
        that is constant. It is called for several nodes at a time by ``torch.func.vmap``, and so
        must not branch on values.
    features
        The layer whose inputs are the features, (b, m), one for all nodes.
    init
        ``init(models) -> {name: tensor}``: the state that it reads, one row per node. Other phases
        change it by ``round.state``.
    settings
        Its arguments, saved with results.

    Examples
    --------
    An objective that also keeps features small:

    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> def losses(apply, inputs, targets, own, loss):
    ...     outputs, features = apply(inputs)
    ...     return loss(outputs, targets) + 0.01 * features.square().mean(1)
    >>> small = Objective("small features", losses, settings={"strength": 0.01})
    >>> local = algorithms.train(algorithms.descend(lr=0.1), objective=small)
    >>> history = topofl.run(
    ...     algorithms.chain("D-SGD of small features", local=local, exchange=algorithms.gossip()),
    ...     model=models.logistic_regression(64),
    ...     clients=data.iid(data.digits(), n=4, seed=0),
    ...     topology=topologies.ring(4),
    ...     rounds=2,
    ...     seed=0,
    ... )
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """

    name: str
    losses: Callable[..., Tensor]
    features: Part = head
    init: Callable[[Models], State] = no_state
    settings: Mapping[str, Any] = MappingProxyType({})

    def begin(self, models: Models) -> State:
        """Return the state that starts anew in every round: none."""
        del models
        return {}


def check_objective(objective: Any) -> Objective | None:
    """Return what local steps minimize, or raise ``TypeError``; None: the loss of the task."""
    if objective is None:
        return None
    if not isinstance(objective, Objective):
        raise TypeError(
            "`objective` must be an Objective, or None for the loss of the task, got "
            f"{shown(objective)}"
        )
    what = f"`losses` of the objective {objective.name!r}"
    check_takes(what, objective.losses, "apply", "inputs", "targets", "own", "loss")
    check_takes(f"`init` of the objective {objective.name!r}", objective.init, "models")
    return objective
