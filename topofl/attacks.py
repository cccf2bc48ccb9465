"""Byzantine attacks: nodes that send forged models, gradients or other values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import (
    check_int,
    check_nodes,
    check_nonnegative,
    check_number,
    check_probability,
    check_sequence,
    check_takes,
    shown,
)
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl._support.text import printable

__all__ = [
    "Attack",
    "alie",
    "dissensus",
    "drawn",
    "inner_product",
    "model_replacement",
    "noise",
    "sign_flip",
]

Forge = Callable[[Tensor, Tensor, Tensor, np.random.Generator], Tensor]
"""(sent, bad, weights, rng) -> forged messages; see :class:`Attack`."""


@public
@dataclass(frozen=True)
class Attack:
    """An attack: which nodes attack, and what they send; an argument of :func:`topofl.run`.

    Attackers train and average as other nodes do, and know all messages of a round before they send
    theirs. Only what others receive from them is forged: models, tracked gradients and all other
    values that are mixed, aggregated, averaged by a server or shown to nodes that choose their
    peers. Attackers are not evaluated and do not count in the consensus distance.

    Parameters
    ----------
    name
        Name that appears in error messages and files.
    nodes
        The attackers.
    forge
        ``forge(sent, bad, weights, rng)`` -> (n, m) tensor like `sent`. `sent`, (n, m), holds some
        columns of what all nodes, including attackers, would send; `bad`, (n,) booleans, marks the
        attackers; `weights`, (n, n) in float64, is the round's mixing matrix (with equal weights
        while nodes still choose their peers); `rng` is the round's random generator. It is called
        for blocks of columns, so it must treat columns independently, and it must not modify its
        arguments.
    to_each
        False: each attacker sends its row of what `forge` returns to all nodes. True: row i is what
        node i receives from every attacker.
    settings
        Arguments of the attack, stored with results.

    Raises
    ------
    ValueError, TypeError
        If nodes are not distinct nonnegative integers, or `forge` is not a function.

    Examples
    --------
    Node 2 sends zeros to all others:

    >>> silent = Attack("silent", (2,), lambda sent, bad, weights, rng: sent * 0)
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=5, seed=0)
    >>> history = topofl.run(algorithms.dsgd(lr=0.1), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.ring(5), rounds=1, seed=0,
    ...                      attackers=silent)
    >>> bool(np.isnan(history["accuracy"][-1, 2])), history.meta["attackers"]["nodes"]
    (True, [2])
    """

    name: str
    nodes: Sequence[int]
    forge: Forge
    to_each: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = check_sequence("nodes", self.nodes)
        attackers = sorted(check_int("nodes", node, minimum=0) for node in nodes)
        if not attackers or len(set(attackers)) < len(attackers):
            raise ValueError(
                f"`nodes` must name at least one attacker, each once, got {shown(self.nodes)}"
            )
        object.__setattr__(self, "nodes", tuple(attackers))
        check_takes(
            f"`forge` of the attack {self.name!r}", self.forge, "sent", "bad", "weights", "rng"
        )

    def __str__(self) -> str:
        count = len(self.nodes)
        return f"{count} attacker{'s' * (count > 1)} ({printable(self.name)})"

    @property
    def description(self) -> dict[str, Any]:
        """Name, nodes and settings as JSON values, stored with results."""
        return {"name": self.name, "nodes": list(self.nodes), **self.settings}


@public
def drawn(n: int, share: float, *, seed: int = 0) -> tuple[int, ...]:
    """Return randomly drawn attackers: a fraction of n nodes, in ascending order.

    Parameters
    ----------
    n
        Number of nodes.
    share
        Fraction of nodes, above 0 and below 1; rounded half up to whole nodes.
    seed
        Seed of the draw.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or if the fraction is no node or every
        node.

    Examples
    --------
    >>> drawn(10, 0.2), drawn(10, 0.2, seed=1)
    ((1, 2), (0, 5))
    """
    n = check_nodes(n, minimum=2)
    share = check_probability("share", share)
    count = int(np.floor(share * n + 0.5))
    if not 0 < count < n:
        raise ValueError(
            f"`share` must give at least one attacker and one honest node of n={n}, got {share}, "
            f"which is {count} nodes; give another share, or list the nodes"
        )
    return tuple(sorted(stream(seed, "attackers").permutation(n)[:count].tolist()))


@public
def sign_flip(nodes: Sequence[int], scale: float = 1.0) -> Attack:
    """Return the sign-flipping attack: attackers send their models with the opposite sign.

    ::

        sent_j = -scale * x_j                                        for every attacker j

    Parameters
    ----------
    nodes
        The attackers, such as ``[3, 7]``, or in Python ``drawn(n, 0.2)``; in a configuration, leave
        them out for ``share = 0.2``.
    scale
        Factor of the models, at least 0; with 0, attackers send zeros.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or `nodes` is empty or has duplicates.

    References
    ----------
    Li, Xu, Chen, Giannakis and Ling, "RSA: Byzantine-robust stochastic aggregation methods for
    distributed learning from heterogeneous datasets" (2019).

    Examples
    --------
    >>> attack, models = sign_flip([1], scale=2.0), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> bad, rng = torch.tensor([False, True]), np.random.default_rng(0)
    >>> attack.forge(models, bad, torch.eye(2), rng).tolist()
    [[1.0, 2.0], [-6.0, -8.0]]
    """
    scale = check_nonnegative("scale", scale)

    def forge(sent: Tensor, bad: Tensor, weights: Tensor, rng: np.random.Generator) -> Tensor:
        del weights, rng
        return torch.where(bad[:, None], -scale * sent, sent)

    return Attack("sign_flip", nodes, forge, settings={"scale": scale})


@public
def noise(nodes: Sequence[int], std: float) -> Attack:
    """Return the Gaussian noise attack: attackers send normal noise in place of their models.

    The noise is independent for each attacker and exchange, also of asynchronous methods.

    ::

        sent_j = std * xi_j,   xi_j ~ N(0, I)                        for every attacker j

    Parameters
    ----------
    nodes
        As in :func:`sign_flip`.
    std
        Standard deviation of each coordinate, at least 0.

    Raises
    ------
    ValueError, TypeError
        As :func:`sign_flip`.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine learning with adversaries: Byzantine
    tolerant gradient descent" (2017), the Gaussian attack of the experiments, there on gradients.

    Examples
    --------
    >>> attack, models = noise([1], std=0.5), torch.zeros(2, 4)
    >>> bad, rng = torch.tensor([False, True]), np.random.default_rng(0)
    >>> attack.forge(models, bad, torch.eye(2), rng).count_nonzero(1)
    tensor([0, 4])
    """
    std = check_nonnegative("std", std)

    def forge(sent: Tensor, bad: Tensor, weights: Tensor, rng: np.random.Generator) -> Tensor:
        del bad, weights
        # drawn by column, so that numbers do not depend on the blocks of columns
        drawn_by_column = rng.standard_normal((sent.shape[1], len(attack.nodes)))
        forged = sent.clone()
        forged[list(attack.nodes)] = std * torch.from_numpy(drawn_by_column.T.copy()).to(sent)
        return forged

    attack = Attack("noise", nodes, forge, settings={"std": std})
    return attack


@public
def alie(nodes: Sequence[int], z: float | None = None) -> Attack:
    """Return the attack "a little is enough" (ALIE): small shifts that look like honest models.

    Colluding attackers send, in each coordinate, with mean and deviation over honest nodes::

        sent_j = mean_i(x_i) - z * std_i(x_i)                        for every attacker j

    Parameters
    ----------
    nodes
        As in :func:`sign_flip`.
    z
        Number of standard deviations from the mean (population standard deviation over all honest
        nodes). None: the paper's choice, for which attackers and the honest nodes that lie farther
        from the mean form a majority: with n nodes of which m attack, ``z = Phi^-1((n - m - s) / (n
        - m))``, ``s = floor(n / 2 + 1) - m``, where ``Phi`` is the normal distribution function.
        With few attackers it is negative, on the other side of the mean.

    Raises
    ------
    ValueError, TypeError
        As :func:`sign_flip`; during the run, if `z` is None and more than half of the nodes attack
        or there are fewer than 3 nodes.

    Notes
    -----
    In the paper, attackers estimate mean and deviation from their own data; here they know those of
    the honest nodes. The attack forges whatever is sent, which is models in most methods but
    gradients in the paper. The published code of He, Karimireddy and Jaggi uses the mean and sample
    deviation over one honest node and its honest neighbors.

    References
    ----------
    Baruch, Baruch and Goldberg, "A little is enough: circumventing defenses for distributed
    learning" (2019), the attack that prevents convergence.

    Examples
    --------
    >>> attack, models = alie([0], z=1.0), torch.tensor([[9.0], [1.0], [3.0]])
    >>> bad, rng = torch.tensor([True, False, False]), np.random.default_rng(0)
    >>> attack.forge(models, bad, torch.eye(3), rng).tolist()
    [[1.0], [1.0], [3.0]]
    """
    chosen = None if z is None else check_number("z", z)

    def forge(sent: Tensor, bad: Tensor, weights: Tensor, rng: np.random.Generator) -> Tensor:
        del weights, rng
        honest = _honest(sent, attack.nodes)
        deviations = _normal_quantile(len(sent), len(attack.nodes)) if chosen is None else chosen
        shifted = honest.mean(0) - deviations * honest.std(0, correction=0)
        return torch.where(bad[:, None], shifted, sent)

    attack = Attack("alie", nodes, forge, settings={"z": chosen})
    return attack


def _honest(sent: Tensor, attackers: Sequence[int]) -> Tensor:
    """Return the rows that honest nodes send."""
    return sent[[i for i in range(len(sent)) if i not in attackers]]


def _normal_quantile(n: int, attackers: int) -> float:
    """Return the paper's `z` of ALIE, or raise ``ValueError`` if there are too many attackers."""
    supporters = n // 2 + 1 - attackers
    share = (n - attackers - supporters) / (n - attackers)
    if not 0 < share < 1:
        raise ValueError(
            f"`nodes` must be at most half of at least 3 nodes for the paper's `z`, got "
            f"{attackers} of {n}; give a number as `z`"
        )
    return NormalDist().inv_cdf(share)


@public
def dissensus(nodes: Sequence[int], strength: float) -> Attack:
    """Return the dissensus attack, which drives each node away from its honest neighbors.

    ::

        received_ij = x_i - strength * sum_{k honest} W[i, k] (x_k - x_i) / sum_{k attacks} W[i, k]

    is what node i receives from every attacker j, so attackers send a different model to each
    neighbor. In plain gossip with a `strength` of 1, the model of a node with attackers among its
    neighbors does not change; above 1, it moves away from its honest neighbors.

    Parameters
    ----------
    nodes
        As in :func:`sign_flip`.
    strength
        ``epsilon`` in the paper, at least 0; with 0, each node receives its own model.

    Raises
    ------
    ValueError, TypeError
        As :func:`sign_flip`.

    References
    ----------
    He, Karimireddy and Jaggi, "Byzantine-robust decentralized learning via ClippedGossip" (2022),
    the dissensus attack.

    Examples
    --------
    >>> attack, models = dissensus([2], strength=1.0), torch.tensor([[0.0], [1.0], [5.0]])
    >>> bad, rng = torch.tensor([False, False, True]), np.random.default_rng(0)
    >>> attack.forge(models, bad, torch.full((3, 3), 1 / 3), rng)[:2].tolist()
    [[-1.0], [2.0]]
    """
    strength = check_nonnegative("strength", strength)

    def forge(sent: Tensor, bad: Tensor, weights: Tensor, rng: np.random.Generator) -> Tensor:
        del rng
        others = weights.clone().fill_diagonal_(0)
        honest = others * ~bad
        attacking = (others * bad).sum(1)
        disagreement = (
            honest.to(sent.dtype) @ sent - honest.sum(1, keepdim=True).to(sent.dtype) * sent
        )
        factors = torch.where(attacking > 0, strength / attacking, 0)
        return sent - factors.to(sent.dtype)[:, None] * disagreement

    return Attack("dissensus", nodes, forge, to_each=True, settings={"strength": strength})


@public
def inner_product(nodes: Sequence[int], epsilon: float = 0.1) -> Attack:
    """Return the inner-product manipulation attack (IPM): the negative mean of honest messages.

    ::

        sent_j = -epsilon * mean_i(x_i)    over honest nodes i, for every attacker j

    The attack was made for gradients. With m attackers among n nodes, the mean of all gradients
    points against that of honest nodes if `epsilon` is above ``(n - m) / m``. If it is small, the
    mean only gets shorter, but robust rules that choose messages of small norm or distance may
    prefer those of attackers. The attack forges whatever is sent, which is models in most methods:
    it then pulls them towards 0 and beyond.

    Parameters
    ----------
    nodes
        As in :func:`sign_flip`.
    epsilon
        Factor of the mean, at least 0; with 0, attackers send zeros. The published code takes 0.1.

    Raises
    ------
    ValueError, TypeError
        As :func:`sign_flip`.

    References
    ----------
    Xie, Koyejo and Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product
    manipulation" (2019), as in epfml/byzantine-robust-decentralized-optimizer, ``IPMAttack`` in
    codes/attacks.py, there over one honest node and its honest neighbors.

    Examples
    --------
    >>> attack, models = inner_product([0], epsilon=0.5), torch.tensor([[9.0], [1.0], [3.0]])
    >>> bad, rng = torch.tensor([True, False, False]), np.random.default_rng(0)
    >>> attack.forge(models, bad, torch.eye(3), rng).tolist()
    [[-1.0], [1.0], [3.0]]
    """
    epsilon = check_nonnegative("epsilon", epsilon)

    def forge(sent: Tensor, bad: Tensor, weights: Tensor, rng: np.random.Generator) -> Tensor:
        del weights, rng
        mean = _honest(sent, attack.nodes).mean(0)
        return torch.where(bad[:, None], -epsilon * mean, sent)

    attack = Attack("inner_product", nodes, forge, settings={"epsilon": epsilon})
    return attack


@public
def model_replacement(nodes: Sequence[int], boost: float | None = None) -> Attack:
    """Return the model replacement attack: attackers boost the difference of their models.

    ::

        sent_j = g + boost * (x_j - g),   g = mean_i(x_i) over honest nodes i, for every attacker j

    With the default `boost`, n nodes over m attackers, the mean of all n messages is the mean of
    the attackers' models, as if honest nodes had sent nothing: so an average over all nodes, by a
    server or on the fully connected graph with equal weights, is replaced. The attackers' models
    are those that they trained on their own data, so give them data with a backdoor, such as
    examples of another label.

    Parameters
    ----------
    nodes
        As in :func:`sign_flip`.
    boost
        Factor of the difference, at least 0: 1 sends models as they are. None: n / m.

    Raises
    ------
    ValueError, TypeError
        As :func:`sign_flip`.

    Notes
    -----
    In the published code, attackers boost the difference from the last global model. Here, as all
    attackers of this module, they know the messages of the round, and graphs have no global model.

    References
    ----------
    Bagdasaryan, Veit, Hua, Estrin and Shmatikov, "How to backdoor federated learning" (2020), as
    in the authors' code ebagdasa/backdoor_federated_learning, training.py (``scale_weights``).

    Examples
    --------
    >>> attack, models = model_replacement([0]), torch.tensor([[9.0], [1.0], [3.0]])
    >>> bad, rng = torch.tensor([True, False, False]), np.random.default_rng(0)
    >>> sent = attack.forge(models, bad, torch.eye(3), rng)
    >>> sent.tolist(), sent.mean().item()
    ([[23.0], [1.0], [3.0]], 9.0)
    """
    factor = None if boost is None else check_nonnegative("boost", boost)

    def forge(sent: Tensor, bad: Tensor, weights: Tensor, rng: np.random.Generator) -> Tensor:
        del weights, rng
        mean = _honest(sent, attack.nodes).mean(0)
        scale = len(sent) / len(attack.nodes) if factor is None else factor
        return torch.where(bad[:, None], mean + scale * (sent - mean), sent)

    attack = Attack("model_replacement", nodes, forge, settings={"boost": factor})
    return attack
