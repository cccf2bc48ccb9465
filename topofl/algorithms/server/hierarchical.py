"""Hierarchical FedAvg: clients, edge servers that average groups of them, and a cloud server."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_int, check_sequence, check_share, shown
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate
from topofl.algorithms.contract.local import Epochs, Steps, sgd_of_rounds
from topofl.algorithms.contract.phase import Algorithm, Participation, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State, everything
from topofl.mixing import MixingMatrix, average_of

__all__ = ["hierfavg"]


@public
def hierfavg(
    lr: Rate,
    *,
    groups: Sequence[Sequence[int]],
    cloud_every: int = 2,
    participation: float = 1.0,
    batch_size: int = 128,
    epochs: Epochs = None,
    steps: Steps = None,
    momentum: float = 0.0,
    lr_decay: float = 1.0,
) -> Algorithm:
    """Return hierarchical FedAvg: edge servers average groups of clients, a cloud averages them.

    Per round t, in every group G with a random set A of participating nodes and m_i examples::

        y_i = x_G - lr * grad F_i(...)  (local steps from the edge server's model x_G, i in A)
        x_G = sum_{i in A} (m_i / sum_{k in A} m_k) y_i

    and in every `cloud_every`-th round, with ``M_G`` examples in all of G::

        x_G = sum_H (M_H / sum_K M_K) x_H                             (for every group G)

    Nodes hold the model of their edge server, which is evaluated. Edge servers and the cloud hold
    no data and are no nodes: a round multiplies the stack of models by a matrix that averages
    within groups, and every `cloud_every`-th one by a matrix with equal rows. If groups are of
    equal size, nodes have equally many examples, and all participate, the method is thus
    :func:`topofl.algorithms.dfedavgm` over a sequence of graphs: cliques, and every
    `cloud_every`-th one complete. No topology is needed; one that is given is ignored.

    A participant sends one model to its edge server and receives one. The history counts edge
    servers together as one server. In addition, in every `cloud_every`-th round each edge server
    sends one model to the cloud and receives one: ``history["cloud_messages"]`` has their number.

    Parameters
    ----------
    lr, batch_size, momentum, lr_decay
        As in :func:`topofl.algorithms.sgd`; momentum starts from zero in every round.
    groups
        The nodes of each edge server, such as ``[[0, 1, 2], [3, 4]]``, or the ``groups`` of a
        topology: those of :func:`topofl.topologies.greedy_swap` have similar label distributions,
        those of :func:`topofl.topologies.random_cliques` are random. Each node is in one.
    cloud_every
        Rounds per average of the cloud, the paper's ``kappa_2``, at least 1; 1 gives
        :func:`topofl.algorithms.fedavg` if all nodes participate.
    participation
        Fraction of the nodes of each group that participate in each round, rounded half up, at
        least one node; above 0 and at most 1.
    epochs, steps
        As in :func:`topofl.algorithms.fedavg`; `steps` are the paper's ``kappa_1``.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; if both `epochs` and `steps` are given;
        at the start of a run, if `groups` do not hold each node once.

    References
    ----------
    Liu, Zhang, Song and Letaief, "Client-edge-cloud hierarchical federated learning" (2020), as
    in the authors' code LuminLiu/HierFL, ``hierfavg.py``, ``edge.py`` and ``cloud.py``. There,
    participants are drawn with probabilities in proportion to numbers of examples, and their
    number is rounded down; here, they are drawn uniformly, and it is rounded half up.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=12, seed=0)
    >>> groups = topologies.greedy_swap(clients, clique_size=4, seed=0).groups
    >>> history = topofl.run(hierfavg(lr=0.1, groups=groups, epochs=1, batch_size=32),
    ...                      model=models.logistic_regression(64), clients=clients,
    ...                      rounds=10, seed=0)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True
    >>> history["cloud_messages"].tolist()  # 3 edge servers, in every second round
    [0.0, 6.0, 0.0, 6.0, 0.0, 6.0, 0.0, 6.0, 0.0, 6.0]
    """
    every = check_int("cloud_every", cloud_every, minimum=1)
    labels = _labels(groups)
    participants = _sampled_within(labels, check_share("participation", participation))
    how = (momentum, lr_decay, 0.0, None)
    local = sgd_of_rounds(lr, batch_size, epochs, *how, steps=steps, participants=participants)
    settings = {"weights": "data", "groups": [list(map(int, group)) for group in groups]}
    settings |= {"cloud_every": every, "participation": f"{participation:g} of each group"}
    servers = _servers(labels, participants, every, settings)
    return chain("hierfavg", local=local, servers=servers)


def _labels(groups: Any) -> np.ndarray:
    """Return the group of each node, (n,), or raise unless each node is in one group."""
    held = [
        [check_int("groups", i, minimum=0) for i in check_sequence("groups", group, "nodes")]
        for group in check_sequence("groups", groups, "sequences of nodes")
    ]
    nodes = [i for group in held for i in group]
    if not all(held) or not nodes or sorted(nodes) != list(range(len(nodes))):
        raise ValueError(
            "`groups` must hold each of the nodes 0 to n - 1 once, and no empty group, got "
            f"{shown(held)}; give those of a topology, such as "
            "topologies.random_cliques(n, clique_size=10, seed=0).groups"
        )
    labels = np.empty(len(nodes), dtype=np.int64)
    labels[nodes] = np.repeat(np.arange(len(held)), [len(group) for group in held])
    return labels


def _sampled_within(labels: np.ndarray, share: float) -> Participation:
    """Return the rule by which a share of the nodes of each group participates, at least one."""

    def share_of_each_group(round: Round) -> np.ndarray:
        order = round.rng("participation").permutation(round.n)
        chosen = np.zeros(round.n, dtype=bool)
        for label in range(labels.max() + 1):
            members = order[labels[order] == label]
            chosen[members[: max(1, int(share * len(members) + 0.5))]] = True
        return chosen

    return share_of_each_group


def _servers(
    labels: np.ndarray, participants: Participation, every: int, settings: Mapping[str, Any]
) -> Phase:
    """Return the phase of edge servers, which the cloud averages in every `every`-th round."""

    @lru_cache(maxsize=2)
    def weights_of(sizes: bytes, chosen: bytes, by_cloud: bool) -> MixingMatrix:
        return _weights(labels, np.frombuffer(sizes), np.frombuffer(chosen, bool), by_cloud)

    def init(models: Models) -> State:
        if models.n != len(labels):
            raise ValueError(
                f"`groups` must hold the n={models.n} nodes of the run, got {len(labels)} nodes; "
                "make them from the same clients"
            )
        return {}

    def apply(models: Models, state: State, round: Round) -> State:
        given = round.sizes.astype(float).tobytes(), participants(round).tobytes()
        now = (round.t + 1) % every == 0
        for by_cloud in (False, True):
            if by_cloud == now or models.flat.is_meta:  # a dry run may not reach the cloud
                round.mix(weights_of(*given, by_cloud), models, server=by_cloud, counted=False)
        round.send(weights_of(*given, now), models.bytes_of(everything), server=True)
        round.note("cloud_messages", 2 * (labels.max() + 1) if now else 0)
        return state

    return Phase(init, apply, settings, rowwise=True)


def _weights(
    labels: np.ndarray, sizes: np.ndarray, chosen: np.ndarray, by_cloud: bool
) -> MixingMatrix:
    """Return the matrix that averages participants within groups, or over all of them.

    Participants are weighted by examples; for the cloud, groups by those of all their nodes.
    """
    present = np.where(chosen, sizes, 0.0)
    shares = present / np.bincount(labels, weights=present)[labels]
    if by_cloud:
        return average_of(shares * np.bincount(labels, weights=sizes)[labels], chosen)
    nodes = np.arange(len(labels))
    inside = sparse.csr_array((np.ones(len(labels)), (nodes, labels)))
    weights = inside @ sparse.csr_array((shares, (labels, nodes)))
    weights.eliminate_zeros()
    return MixingMatrix(weights, f"edge_servers({chosen.sum()} of {len(labels)})")
