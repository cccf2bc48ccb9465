"""Clusters of nodes that are found by losses: IFCA, with k models, and Facade, with k heads."""

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import sgd_descent, train
from topofl.algorithms.contract.needs import equal_shares, needing
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import (
    Models,
    Part,
    Round,
    State,
    Trial,
    as_part,
    everything,
    head,
    no_state,
)
from topofl.mixing import MixingMatrix, average_of, from_weights

__all__ = ["facade", "ifca"]


@public
def ifca(
    lr: Rate,
    k: int,
    *,
    participation: AnyParticipation = 1.0,
    batch_size: int = 128,
    local_steps: int = 10,
    momentum: float = 0.0,
) -> Algorithm:
    """Return IFCA: a server keeps k models, and each node trains the one with the lowest loss.

    Per round, with a random set A of participating nodes, and models ``theta_1, ..., theta_k``::

        c_i     = argmin over j of F_i(theta_j)         (F_i: mean loss on node i's training data)
        y_i     = theta_{c_i} - lr * grad F_i(...)      (`local_steps` steps, i in A)
        theta_j = the mean of y_i over all i in A with c_i = j; unchanged if there is none

    The model of a node is the updated ``theta_{c_i}``; nodes that do not participate choose, too.
    The column ``cluster`` of a history has the ``c_i`` at evaluations, from 0 to k-1, and
    ``history.mixings`` the averages, whose blocks are the clusters.

    If the run has ``init="independent"``, the first ``theta_j`` is the initial model of node j.
    With a common start, all would be equal, and no loss lower than another; in the first round each
    node then trains a random one. Which clusters are found depends on the start; all nodes may end
    in one. With one model, the method is FedAvg with equal weights.

    The server sends k models to each participant, which sends one back. The others need the k
    models, too, for a choice that only evaluations use; for it, no bytes are counted. All nodes
    compute k losses on all of their training data per round. Running statistics, if a model has
    any, are averaged with the models.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    k
        Number of models, from 1 to the number of nodes.
    participation
        Number (an integer) or fraction of the nodes that participate in each round, or a trace, as
        in :func:`topofl.algorithms.sampled`: 1 is one node, and 1.0 are all.
    batch_size
        As in :func:`topofl.algorithms.train`. The code takes all examples.
    local_steps
        Steps per round; 10 in the code.
    momentum
        In [0, 1); the velocity starts from zero in every round. 0 in the code.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; in a run, if `k` is above the number of
        nodes.

    References
    ----------
    Ghosh, Chung, Yin and Ramchandran, "An efficient framework for clustered federated learning"
    (2020), model averaging, in the authors' code jichan3751/ifca, mnist/train_cluster_mnist.py.

    Examples
    --------
    Six nodes, three of which number the classes the other way round:

    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.iid(data.digits(), n=6, seed=0)
    >>> clients = data.flip_labels(clients, nodes=[0, 1, 2])
    >>> history = topofl.run(ifca(lr=0.3, k=2), model=models.logistic_regression(64),
    ...                      clients=clients, rounds=5, seed=0, init="independent")
    >>> history["cluster"][-1].tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    count = check_int("k", k, minimum=1)
    participants = sampled(participation)
    local = _from_rest(lr, batch_size, local_steps, momentum, participants)
    return chain(
        "ifca",
        choose=Phase(partial(_first_models, count), _choose_model, {"k": count}),
        local=local,
        server=Phase(
            no_state, partial(_average_clusters, participants), participation_setting(participants)
        ),
    )


def _from_rest(
    lr: Rate,
    batch_size: int,
    local_steps: int,
    momentum: float,
    participants: Participation | None = None,
) -> Phase:
    """Return the phase of local steps whose velocity starts from zero in every round."""
    steps = check_int("local_steps", local_steps, minimum=1)
    descent = sgd_descent(lr, momentum, reset_momentum=True)
    return train(descent, batch_size=batch_size, steps=steps, participants=participants)


def _first_models(k: int, models: Models) -> State:
    """Return the first k models, (1, k, d), and room for the choices of nodes, (n,)."""
    flat = models.flat
    if k > models.n:
        raise ValueError(
            f"`k` must be at most the number of nodes, n={models.n}, whose initial models are the "
            f"first k, got {k}; lower it"
        )
    return {
        "models": flat[:k].clone()[None],
        "cluster": flat.new_zeros(len(flat), dtype=torch.float64),
    }


def _choose_model(models: Models, state: State, round: Round) -> State:
    own = state["models"][0]
    _choose(lambda i: own, own, state["cluster"], round)
    models.flat.copy_(own[state["cluster"].long()])
    return state


def _average_clusters(
    participants: Participation, models: Models, state: State, round: Round
) -> State:
    """Average the models of the participants that chose the same, for all that chose it."""
    own = round.state("choose")
    cluster, active = _numbers(own["cluster"]), participants(round)
    same = (cluster[:, None] == cluster) & active
    alone = np.flatnonzero(~same.any(1))  # nobody trained their model
    same[alone, alone] = True
    weights = from_weights(same / same.sum(1, keepdims=True), name="clusters")
    round.mix(weights, models, counted=False)
    more = (own["models"].shape[1] - 1) * models.d * models.dtype.itemsize  # without statistics
    both_ways = 2 * models.bytes_of(everything) + more
    round.send(average_of(np.ones(round.n), active), both_ways // 2, server=True)
    chosen, first = np.unique(cluster, return_index=True)
    own["models"][0, chosen] = models.flat[first]
    return state


def _numbers(cluster: Tensor) -> np.ndarray:
    """Return the choices of all nodes, (n,) integers; in a dry run, all the same."""
    if cluster.is_meta:
        return np.zeros(len(cluster), dtype=int)
    return cluster.cpu().numpy().astype(int)


def _choose(
    models_of: Callable[[int], Tensor], compared: Tensor, cluster: Tensor, round: Round
) -> None:
    """Set the choice of each node, (n,), by its training losses.

    If all rows to be `compared` (k, ...) are equal in the first round, choices are random.
    """

    def lowest(i: int) -> Trial[int]:
        losses = yield models_of(i)
        return int(losses.nan_to_num(nan=torch.inf).argmin())

    found = round.cross_evaluate({i: lowest(i) for i in range(round.n)}, "train")
    chosen = [found[i] for i in range(round.n)]
    if not cluster.is_meta:
        if round.t == 0 and torch.equal(compared, compared[:1].expand_as(compared)):
            chosen = round.rng("cluster").integers(len(compared), size=round.n)
        cluster.copy_(torch.from_numpy(np.array(chosen)))
    round.note("cluster", cluster)


@public
@needing(equal_shares)
def facade(
    lr: Rate,
    k: int,
    *,
    batch_size: int = 128,
    local_steps: int = 10,
    momentum: float = 0.0,
    head: Part | str = head,
) -> Algorithm:
    """Return Facade: nodes keep a core and k heads, and average heads with nodes that chose them.

    Per round, for every node i with core ``u_i`` and heads ``v_i1, ..., v_ik``::

        c_i  = argmin over j of F_i(u_i, v_ij)          (F_i: mean loss on node i's training data)
        (u_i, v_ic_i) <- (u_i, v_ic_i) - lr * grad F_i(u_i, v_ic_i)    (`local_steps` steps)
        send (u_i, v_ic_i) and c_i to neighbors
        u_i  = sum_m W[i, m] u_m
        v_ij = (W[i, i] v_ij + sum_{m: c_m = j} W[i, m] v_mj) / (W[i, i] + sum_{m: c_m = j} W[i, m])
            (m: neighbors of i)

    The model of a node is ``(u_i, v_ic_i)``. All nodes thus learn one core, whatever their data,
    and nodes with similar data learn a head, without knowing which nodes these are. The authors
    draw a new regular graph in every round, with equal weights. The column ``cluster`` of a history
    has the ``c_i`` at evaluations, from 0 to k-1.

    If the run has ``init="independent"``, the first head j of all nodes is that of the initial
    model of node j. With a common start, all heads would be equal, and no loss lower than another;
    in the first round each node then trains a random one. Which clusters are found depends on the
    start; all nodes may end in one. With one head, the method is :func:`topofl.algorithms.dsgd`. If
    `head` is ``topofl.algorithms.everything``, nodes keep k models that share nothing: IFCA
    (:func:`topofl.algorithms.ifca`) without a server.

    A message holds one model and the number of its head. Nodes compute k losses on all of their
    training data per round. Running statistics, if a model has any, are averaged with the core.

    On directed graphs, static or periodic, the default weights may give nodes unequal shares in the
    average (:func:`topofl.metrics.perron_vector`); a run then warns that it weights their losses by
    these shares.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`.
    k
        Number of heads, from 1 to the number of nodes.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Steps per round.
    momentum
        In [0, 1); the velocity starts from zero in every round.
    head
        The part of which there are k, or the name of a layer.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; in a run, if `k` is above the number of
        nodes.

    Notes
    -----
    In the authors' code, the initial heads of nodes differ, and an option lets nodes train random
    heads in early rounds.

    References
    ----------
    Biswas, Kermarrec, Sharma, Trinca and de Vos, "Fair decentralized learning" (2025), in the
    authors' code for decentralizepy as fannylsn/facade_with_privacy_attack extends it:
    training/TrainingIDCA.py and sharing/CurrentModelSharing.py with ``layers_sharing``.

    Examples
    --------
    Eight nodes, four of which number the classes the other way round:

    >>> import topofl
    >>> from topofl import data, topologies
    >>> from torch import nn
    >>> clients = data.iid(data.digits(), n=8, seed=0)
    >>> clients = data.flip_labels(clients, nodes=[0, 1, 2, 3])
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    >>> history = topofl.run(facade(lr=0.3, k=2, head="3"), model=net, clients=clients, rounds=8,
    ...                      topology=topologies.exponential(8), seed=0)
    >>> history["cluster"][-1].tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    count, personal = check_int("k", k, minimum=1), as_part("head", head)
    settings = {"k": count, "head": str(personal)}
    return chain(
        "facade",
        choose=Phase(
            partial(_first_heads, count, personal), partial(_choose_head, personal), settings
        ),
        local=_from_rest(lr, batch_size, local_steps, momentum),
        exchange=Phase(no_state, partial(_average_heads, personal), {"weights": "round"}),
    )


def _first_heads(k: int, personal: Part, models: Models) -> State:
    """Return k heads of each node, each (n, h), and room for the choices of nodes, (n,)."""
    first = _first_models(k, models)
    heads = _columns(first["models"][0], models, personal)
    rows = {f"head_{j}": own.repeat(len(models.flat), 1) for j, own in enumerate(heads)}
    return rows | {"cluster": first["cluster"]}


def _columns(flat: Tensor, models: Models, personal: Part) -> Tensor:
    """Return the columns of the heads, (..., h), of models (..., d)."""
    return torch.cat([flat[..., part] for part in models.columns(personal)], -1)


def _put(flat: Tensor, models: Models, personal: Part, heads: Tensor) -> None:
    """Replace the columns of the heads of models (..., d) by `heads`, (..., h)."""
    start = 0
    for part in models.columns(personal):
        width = flat[..., part].shape[-1]
        flat[..., part] = heads[..., start : start + width]
        start += width


def _heads(state: State) -> list[Tensor]:
    """Return the k heads of all nodes, each (n, h), in order."""
    return [state[f"head_{j}"] for j in range(len(state) - 1)]


def _choose_head(personal: Part, models: Models, state: State, round: Round) -> State:
    heads, cluster = _heads(state), state["cluster"]

    def with_heads(i: int) -> Tensor:
        tried = models.flat[i].repeat(len(heads), 1)
        _put(tried, models, personal, torch.stack([rows[i] for rows in heads]))
        return tried

    _choose(with_heads, torch.stack([rows[0] for rows in heads]), cluster, round)
    _put(models.flat, models, personal, _chosen(heads, cluster))
    return state


def _chosen(heads: list[Tensor], cluster: Tensor) -> Tensor:
    """Return the head that each node chose, (n, h)."""
    rows = torch.arange(len(cluster), device=cluster.device)
    return torch.stack(heads)[cluster.long(), rows]


def _average_heads(personal: Part, models: Models, state: State, round: Round) -> State:
    """Average cores over all neighbors, and each head over those that trained it."""
    own = round.state("choose")
    heads, cluster = _heads(own), own["cluster"]
    trained = _columns(models.flat, models, personal)
    round.mix(round.weights, models.flat, scalars=1)
    chosen = _numbers(cluster)
    for j, values in enumerate(heads):
        values.copy_(torch.where((cluster == j)[:, None], trained, values))
        round.mix(_of_cluster(round.weights, chosen == j), values, counted=False)
    _put(models.flat, models, personal, _chosen(heads, cluster))
    return state


def _of_cluster(weights: MixingMatrix, members: np.ndarray) -> MixingMatrix:
    """Return the weights of each node itself and of the members, scaled to a sum of 1."""
    own = weights.weights.diagonal()
    others = weights.weights - sparse.diags_array(own)
    kept = others @ sparse.diags_array(members.astype(float))
    sums = own + kept.sum(1)
    own = np.where(sums > 0, own, 1.0)  # a node without a weight of its own keeps its head
    scale = sparse.diags_array(1 / np.where(sums > 0, sums, 1.0))
    return from_weights(sparse.csr_array(scale @ (kept + sparse.diags_array(own))), name="cluster")
