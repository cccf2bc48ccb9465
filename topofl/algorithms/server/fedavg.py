"""FedAvg, and FedProx, which pulls local steps to the server's model."""

from collections.abc import Sequence

from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import fine_tuning
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.terms import proximal
from topofl.algorithms.exchanges.average import averaged_by_server

__all__ = ["fedavg", "fedprox"]


@public
def fedavg(
    lr: Rate,
    *,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedAvg: a server averages the locally trained models of participating nodes.

    Per round, with a random set A of participating nodes::

        y_i = x - lr * grad F_i(...)  (`epochs` passes from the server's model x, i in A)
        x   = sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    All nodes then hold ``x``, so the server's model is evaluated. No topology is needed; one that
    is given is ignored.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    participation
        Number or fraction of the nodes that participate in each round, as in
        :func:`topofl.algorithms.sampled`.
    epochs
        Passes over a node's data per round.
    fine_tune_epochs
        Passes over a node's own data that turn the server's model into a personal one for a second
        evaluation, reported as ``accuracy_fine_tuned``. The step size is `lr` in all rounds. None:
        only the server's model is evaluated. DPFL fine-tunes the model that is best on a node's
        validation set: ``history.best_on_validation("accuracy_fine_tuned", "accuracy_own_val")`` in
        runs that fine-tune at every evaluation.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), Algorithm 1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0, test_fraction=0.2)
    >>> history = topofl.run(fedavg(lr=0.1, epochs=1, fine_tune_epochs=1),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=2, seed=0, evaluation="own_test")
    >>> bool(history.last("accuracy_fine_tuned").mean() > history.last("accuracy").mean())
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    return averaged_by_server("fedavg", participation, lr, batch_size, epochs, *how, tuned=tuned)


@public
def fedprox(
    lr: Rate,
    *,
    strength: float | Sequence[float] = 0.1,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedProx: FedAvg with a proximal term that pulls local models to the server's model.

    Per round, with a random set A of participating nodes::

        y_i <- y_i - lr * (grad F_i(y_i) + mu_i * (y_i - x))  (`epochs` passes from y_i = x, i in A)
        x   =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    which descends on ``F_i(y) + mu_i / 2 * |y - x|^2``. All nodes then hold ``x``, so the server's
    model is evaluated.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.fedavg`.
    strength
        The paper's mu, at least 0: one number, or one per node, for example to hold nodes with
        unusual data closer to the server's model. 0 gives FedAvg.
    fine_tune_epochs
        As in :func:`topofl.algorithms.fedavg`; fine-tuning has no proximal term.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if the length of
        `strength` is not the number of nodes.

    References
    ----------
    Li et al., "Federated optimization in heterogeneous networks" (2020), Algorithm 2, with a few
    passes of SGD as the local solver; a baseline of Kharrat, Canini and Horváth (2025), DPFL, with
    a strength of 0.1.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> held = fedprox(lr=0.1, strength=[0.0, 0.1, 0.1, 1.0], epochs=1)
    >>> history = topofl.run(held, model=models.logistic_regression(64), clients=clients,
    ...                      rounds=5, seed=0)
    >>> bool(history["train_loss"][-1] < history["train_loss"][0])
    True
    """
    how = (momentum, lr_decay, weight_decay, clip)
    tuned = fine_tuning(lr, fine_tune_epochs, batch_size, momentum, weight_decay, clip)
    terms = [proximal(strength)]
    return averaged_by_server(
        "fedprox", participation, lr, batch_size, epochs, *how, terms=terms, tuned=tuned
    )
