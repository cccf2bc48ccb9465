"""Methods with a server: mixing matrices with equal rows, of the nodes that take part in a round."""

from typing import Any

from topofl._check import check_int, check_nonnegative, check_positive
from topofl.algorithms.exchange import server_average
from topofl.algorithms.local import check_epochs, sgd
from topofl.algorithms.participation import sampled
from topofl.algorithms.parts import Part, as_part, head
from topofl.algorithms.phase import Algorithm, Phase, beside, chain
from topofl.algorithms.terms import proximal

__all__ = ["ditto", "fedavg", "fedbabu", "fedper", "fedprox", "fedrep", "fine_tuning", "steps"]


def fedavg(
    lr: float,
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
    """Return FedAvg: a server averages the models of the nodes that take part, after some passes over their data.

    Per round, for nodes A drawn at random::

        y_i = x - lr * grad F_i(...)                  (`epochs` passes from the server's model x, i in A)
        x   = sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    All nodes then hold ``x``: evaluated is the server's model. Needs no topology.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    participation
        Number or share of the nodes that take part in a round, as in :func:`topofl.algorithms.sampled`.
    epochs
        Passes over a node's data a round.
    fine_tune_epochs
        Passes of every node over its own data, from the server's model, before that is evaluated a further time (as
        ``accuracy_fine_tuned``): what FedAvg is worth as a personal model. The step size is `lr` in all rounds. None:
        the server's model only. DPFL fine-tunes the model that is best on a node's validation set:
        ``history.best_on_validation("accuracy_fine_tuned", "accuracy_own_val")``, of runs that fine-tune every time.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017), Algorithm 1.
    """
    who = sampled(participation)
    rest = steps(batch_size, momentum, weight_decay, clip)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, who=who, **rest)
    fine_tune = fine_tuning(lr, fine_tune_epochs, **rest)
    return chain("fedavg", local=local, server=server_average(who=who), fine_tune=fine_tune)


def fedprox(
    lr: float,
    *,
    strength: float = 0.1,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedProx: FedAvg whose local steps are drawn to the model that the server sent.

    Per round, for nodes A drawn at random::

        y_i <- y_i - lr * (grad F_i(y_i) + strength * (y_i - x))      (`epochs` passes from y_i = x, i in A)
        x   =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    which descends on ``F_i(y) + strength / 2 * |y - x|^2``. All nodes then hold ``x``: evaluated is the server's model.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`fedavg`.
    strength
        The paper's mu, at least 0; 0: FedAvg.
    fine_tune_epochs
        As in :func:`fedavg`; in fine-tuning nothing draws the models.

    References
    ----------
    Li et al., "Federated optimization in heterogeneous networks" (2020), Algorithm 2, with local solvers that are some
    passes of SGD; a baseline of Kharrat, Canini and Horváth (2025), DPFL, whose strength is 0.1.
    """
    who, rest = sampled(participation), steps(batch_size, momentum, weight_decay, clip)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, who=who, terms=[proximal(strength)], **rest)
    fine_tune = fine_tuning(lr, fine_tune_epochs, **rest)
    return chain("fedprox", local=local, server=server_average(who=who), fine_tune=fine_tune)


def steps(batch_size: int, momentum: float, weight_decay: float, clip: float | None) -> dict[str, Any]:
    """Return the arguments of all local steps of a method; its models come from elsewhere, so momentum starts anew."""
    return {
        "batch_size": batch_size, "momentum": momentum, "reset_momentum": True, "weight_decay": weight_decay,
        "clip": clip,
    }  # fmt: skip


def fine_tuning(lr: float, epochs: int | None, **rest: Any) -> Phase | None:
    """Return the passes of every node over its own data, of whole models; None if there are none."""
    if epochs is None:
        return None
    return sgd(lr, epochs=check_int("fine_tune_epochs", epochs, minimum=1), **rest)


def fedper(
    lr: float,
    *,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedPer: body and head are trained together, the server averages bodies only.

    Per round, for nodes A drawn at random::

        (u_i, v_i) <- (u_i, v_i) - lr * grad F_i(u_i, v_i)        (`epochs` passes from the server's body, i in A)
        u          =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip
        As in :func:`fedavg`.
    head
        What stays at its node: a part of the model, or the name of a layer.
    fine_tune_epochs
        As in :func:`fedavg`: what all nodes' models are worth after local passes, not only those that took part.

    References
    ----------
    Arivazhagan et al., "Federated learning with personalization layers" (2019), Algorithms 1 and 2.
    """
    who, personal = sampled(participation), as_part("head", head)
    rest = steps(batch_size, momentum, weight_decay, clip)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, who=who, **rest)
    fine_tune = fine_tuning(lr, fine_tune_epochs, **rest)
    return chain("fedper", local=local, server=server_average(personal.rest, who=who), fine_tune=fine_tune)


def fedrep(
    lr: float,
    *,
    head_lr: float | None = None,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    head_epochs: int = 1,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: int | None = None,
) -> Algorithm:
    """Return FedRep: the head is trained, then the body while the head is frozen; the server averages bodies.

    Per round, for nodes A drawn at random::

        v_i <- v_i - head_lr * grad_v F_i(u, v_i)           (`head_epochs` passes, i in A)
        u_i <- u_i - lr * grad_u F_i(u_i, v_i)              (`epochs` passes)
        u   =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip, head, fine_tune_epochs
        As in :func:`fedper`.
    head_lr
        Step size of the head; None: that of the body.
    head_epochs
        Passes with the body frozen.

    References
    ----------
    Collins et al., "Exploiting shared representations for personalized federated learning" (2021), Algorithm 1.
    """
    who, personal = sampled(participation), as_part("head", head)
    head_lr = lr if head_lr is None else check_positive("head_lr", head_lr)
    rest = steps(batch_size, momentum, weight_decay, clip)
    of_round = rest | {"lr_decay": lr_decay, "who": who}
    return chain(
        "fedrep",
        head=sgd(head_lr, epochs=check_epochs("head_epochs", head_epochs), part=personal, **of_round),
        body=sgd(lr, epochs=epochs, part=personal.rest, **of_round),
        server=server_average(personal.rest, who=who),
        fine_tune=fine_tuning(lr, fine_tune_epochs, **rest),
    )


def fedbabu(
    lr: float,
    *,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 5,
    momentum: float = 0.9,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
    head: Part | str = head,
    fine_tune_epochs: int | None = 5,
    fine_tune_lr: float | None = None,
) -> Algorithm:
    """Return FedBABU: only bodies are trained and averaged, all heads stay what they were at the start.

    Per round, for nodes A drawn at random, with the head ``v`` that all nodes share from the start on::

        u_i <- u_i - lr * grad_u F_i(u_i, v)                (`epochs` passes from the server's body, i in A)
        u   =  sum_{i in A} (m_i / sum_{k in A} m_k) u_i

    Heads are the same only if models start the same, as by default. The method evaluates models after fine-tuning, as
    ``accuracy_fine_tuned``: copies of all nodes' models, trained head and body on their own data.

    Parameters
    ----------
    lr, participation, batch_size, epochs, momentum, lr_decay, weight_decay, clip, head
        As in :func:`fedper`.
    fine_tune_epochs
        Passes of every node over its own data before the evaluation; the paper's 5. None: no fine-tuning.
    fine_tune_lr
        Step size of fine-tuning, the same after all rounds; None: `lr`.

    References
    ----------
    Oh, Kim and Yun, "FedBABU" (2022), Algorithm 1.
    """
    who, personal = sampled(participation), as_part("head", head)
    rest = steps(batch_size, momentum, weight_decay, clip)
    local = sgd(lr, epochs=epochs, lr_decay=lr_decay, who=who, part=personal.rest, **rest)
    fine_tune = fine_tuning(lr if fine_tune_lr is None else fine_tune_lr, fine_tune_epochs, **rest)
    return chain("fedbabu", body=local, server=server_average(personal.rest, who=who), fine_tune=fine_tune)


def ditto(
    lr: float,
    *,
    strength: float = 0.5,
    personal_lr: float | None = None,
    participation: float | int = 1.0,
    batch_size: int = 128,
    epochs: int = 2,
    personal_epochs: int = 3,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> Algorithm:
    """Return Ditto: a personal model a node, drawn to the model that FedAvg finds beside it.

    Per round, for nodes A drawn at random and the server's model ``w``::

        theta_i <- theta_i - personal_lr * (grad F_i(theta_i) + strength * (theta_i - w))     (`personal_epochs` passes)
        y_i     <- w - lr * grad F_i(...)                                                     (`epochs` passes)
        w       =  sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    Evaluated are the personal models ``theta_i``; the consensus distance is theirs too, though only ``w`` travels.

    Parameters
    ----------
    lr, participation, batch_size, momentum, lr_decay, weight_decay, clip
        As in :func:`fedavg`.
    strength
        The paper's lambda, at least 0; 0: each node trains alone.
    personal_lr
        Step size of the personal models; None: `lr`.
    epochs, personal_epochs
        Passes a round for the server's and for the personal model.

    References
    ----------
    Li et al., "Ditto: fair and robust federated learning through personalization" (2021), Algorithm 1.
    """
    strength, who = check_nonnegative("strength", strength), sampled(participation)
    personal_lr = lr if personal_lr is None else check_positive("personal_lr", personal_lr)
    rest = steps(batch_size, momentum, weight_decay, clip) | {"lr_decay": lr_decay, "who": who}
    return chain(
        "ditto",
        personal=sgd(
            personal_lr,
            epochs=check_epochs("personal_epochs", personal_epochs),
            terms=[proximal(strength, kept="anchor")],
            **rest,
        ),
        common=beside("personal", sgd(lr, epochs=epochs, **rest)),
        server=beside("personal", server_average(who=who)),
    )
