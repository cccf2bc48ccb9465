"""Worst-node objectives: DR-DSGD and AD-GDA over graphs, and DRFA with a server."""

import numpy as np
import torch
from torch import Tensor

from topofl._linalg.distributions import simplex_projection
from topofl._support.check import check_int, check_nonnegative, check_positive, check_share
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.needs import doubly_stochastic, equal_shares, needing, static
from topofl.algorithms.contract.phase import (
    Algorithm,
    AnyParticipation,
    Participation,
    Phase,
    Sampled,
    chain,
    participation_setting,
    sampled,
)
from topofl.algorithms.contract.round import Models, Round, State, Trial, everything, no_state
from topofl.algorithms.contract.terms import Step, Term, per_row
from topofl.algorithms.exchanges.average import gossip
from topofl.algorithms.exchanges.compressors import (
    Compressor,
    check_compressor,
    compressed,
    compressed_exchange,
    disagreement,
    message_bytes,
)
from topofl.algorithms.exchanges.events import zero_times
from topofl.mixing import average_of

__all__ = ["ad_gda", "dr_dsgd", "drfa"]


@public
@needing(equal_shares)
def dr_dsgd(lr: Rate, *, mu: float = 6.0, batch_size: int = 128, local_steps: int = 1) -> Algorithm:
    """Return DR-DSGD: D-SGD on a distributionally robust objective, which favors the worst nodes.

    Per round, for every node i with loss ``F_i`` on its training examples::

        h_i     = exp(F_i(theta_i) / mu) / mu
        theta_i = theta_i - lr * h_i * grad F(theta_i; S_i)           (`local_steps` times)
        theta_i = sum_j W[i, j] theta_j

    Steps descend on ``sum_i exp(F_i / mu)``, so nodes with larger losses take larger steps. The
    minimum is that of ``max_p sum_i p_i F_i - mu KL(p || 1/n)``: the mean loss under the worst
    distribution p of nodes, where the Kullback-Leibler divergence from the uniform distribution
    penalizes p. As `mu` grows, the method becomes :func:`topofl.algorithms.dsgd` with a step size
    of ``lr / mu``. If columns of ``W`` do not sum to 1, nodes count by their shares,
    :func:`topofl.metrics.perron_vector`, too. Where the loss is NaN or infinite, ``h_i`` is the
    largest number of its type: the node thus diverges, and by default the run stops with an error.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`. Steps
        are about ``lr / mu`` times the gradient.
    mu
        Strength of the regularization, above 0; the smaller, the more the worst nodes count. The
        paper's theorem requires more than 1, and losses far above `mu` make steps explode.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        Steps between two exchanges, the same at all nodes.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The paper computes ``h_i`` from the loss of the minibatch of a step; here it is that of all
    training examples of the node at the start of the round, for which each round evaluates them.

    References
    ----------
    Ben Issaid, Elgabli and Bennis, "DR-DSGD: a distributionally robust decentralized learning
    algorithm over graphs" (2022), as implemented in MatteoEURECOM/AD-GDA,
    ``CIFAR10_20_Users/DR-DSGD/node.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0, test_fraction=0.2)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.exponential(10), "rounds": 60, "seed": 0}
    >>> how |= {"evaluation": topofl.Evaluation(every=60, on="own_test")}
    >>> methods = dr_dsgd(lr=0.6, mu=6.0), algorithms.dsgd(lr=0.1)
    >>> robust, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(robust.last("loss").max() < plain.last("loss").max())
    True
    """
    mu = check_positive("mu", mu)
    training = Training(
        descend(_scaled(), lr=lr),
        check_int("batch_size", batch_size, minimum=1),
        check_int("local_steps", local_steps, minimum=1),
    )

    def apply(models: Models, state: State, round: Round) -> State:
        factors = torch.exp(_local_losses(models.flat, models, round) / mu) / mu
        state["factor"].copy_(_finite(factors))
        round.train(models, training, state)
        return state

    local = Phase(training.init, apply, training.settings | {"mu": mu}, rowwise=True)
    return chain("dr_dsgd", local=local, exchange=gossip())


def _scaled() -> Term:
    """Return the term that multiplies gradients by ``factor``, (n,), in the phase's state."""

    def init(models: Models) -> State:
        return {"factor": torch.ones_like(models.flat[:, 0])}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        # an infinite direction of a finite gradient would be an error of the term
        return _finite(g.mul_(per_row(own["factor"], g)))

    return Term("scaled", update, init, elementwise=True)


def _finite(values: Tensor) -> Tensor:
    """Set infinite values to the largest number of their type, in place, and return them."""
    largest = torch.finfo(values.dtype).max
    return values.clamp_(-largest, largest)


def _local_losses(
    flat: Tensor, models: Models, round: Round, asked: np.ndarray | None = None
) -> Tensor:
    """Return the loss of each row of `flat`, (k, d), on its node's training examples, (k,).

    The loss is 0 at nodes that are not `asked`, of (n,) booleans. A loss that is not finite is the
    largest number there is, since a model that diverged is worse than all others.
    """
    found = torch.zeros_like(flat[:, 0])
    places = [
        (k, node)
        for k, node in enumerate(models.nodes.tolist())
        if not found.is_meta and (asked is None or asked[node])
    ]
    losses = round.cross_evaluate({i: _trial(flat[k : k + 1]) for k, i in places}, "train")
    for k, node in places:
        found[k] = losses[node]
    return torch.where(found.isfinite(), found, torch.finfo(found.dtype).max)


def _trial(row: Tensor) -> Trial[float]:
    """Yield a model (1, d), and return its loss."""
    losses = yield row
    return float(losses[0])


@public
@needing(static, doubly_stochastic)
def ad_gda(
    lr: Rate,
    *,
    dual_lr: float = 0.01,
    mu: float = 0.001,
    compressor: Compressor | str = "no_compression",
    gamma: float = 0.7,
    batch_size: int = 128,
) -> Algorithm:
    """Return AD-GDA: agnostic decentralized gradient descent and ascent, for the worst nodes.

    It solves ``min_theta max_p sum_i p_i F_i(theta)`` over distributions p of nodes, regularized
    by `mu`. Per round, for every node i with a fraction ``m_i`` of all examples, an estimate
    ``p^i`` of p, initially equal shares, and an estimate ``e_i`` of its model, initially 0::

        p^i     = projection of p^i + dual_lr * (F_i(theta_i) - mu * (p^i_i - m_i)) on coordinate i
        theta_i = theta_i - lr * p^i_i * grad F(theta_i; S_i)
        theta_i = theta_i + gamma * sum_j W[i, j] (e_j - e_i)
        q_i     = Q(theta_i - e_i)  (this is sent)
        e_j     = e_j + q_j  (for j = i and neighbors j)
        p^i     = sum_j W[i, j] p^j

    The projection is onto the simplex. A node whose loss is NaN or infinite counts as the worst
    one: all of its ``p^i`` is on itself. A message holds a compressed difference of models and the
    n numbers of ``p^i``. The graph must be static, and its weights doubly stochastic.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`. Since
        shares are about 1/n, steps are about ``lr / n`` times the gradient.
    dual_lr
        Step size of the ascent in p, at least 0; with 0, all nodes count equally.
    mu
        Strength of the pull of p toward fractions of examples, at least 0.
    compressor
        Q, as in :func:`topofl.algorithms.choco_sgd`.
    gamma
        Consensus step size, above 0 and at most 1; smaller for stronger compression.
    batch_size
        As in :func:`topofl.algorithms.train`.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type; at the start of a run, if Q makes
        messages larger.

    Notes
    -----
    The authors compute ``F_i`` on the minibatch of the step; here it is the loss of all training
    examples of the node, for which each round evaluates them. Their projection divides by one
    less than the number of positive coordinates, so that its result does not sum to 1.

    References
    ----------
    Zecchin, Kountouris and Gesbert, "Communication-efficient distributionally robust decentralized
    learning" (2022), as in the authors' code MatteoEURECOM/AD-GDA,
    ``CIFAR10_20_Users/ADGDA/node.py`` and ``network.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0, test_fraction=0.2)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.exponential(10), "rounds": 60, "seed": 0}
    >>> how |= {"evaluation": topofl.Evaluation(every=60, on="own_test")}
    >>> methods = (ad_gda(lr=2.0, dual_lr=rate) for rate in (0.01, 0.0))
    >>> robust, plain = (topofl.run(method, **how) for method in methods)
    >>> bool(robust.last("loss").max() < plain.last("loss").max())
    True
    """
    dual_lr, mu = check_nonnegative("dual_lr", dual_lr), check_nonnegative("mu", mu)
    gamma, compressor = check_share("gamma", gamma), check_compressor(compressor)
    size = check_int("batch_size", batch_size, minimum=1)
    training = Training(descend(_scaled(), lr=lr), size)

    def init(models: Models) -> State:
        shares = torch.full_like(models.flat[:, :1], 1 / models.n).repeat(1, models.n)
        return training.init(models) | {"shares": shares}

    def ascend(models: Models, state: State, round: Round) -> State:
        shares, nodes = state["shares"], torch.from_numpy(models.nodes).to(models.flat.device)
        rows = torch.arange(len(nodes), device=nodes.device)
        fractions = torch.from_numpy(round.own_rows(round.sizes / round.sizes.sum())).to(shares)
        losses = _local_losses(models.flat, models, round)
        own = shares[rows, nodes]
        shares[rows, nodes] = own + dual_lr * (losses - mu * (own - fractions))
        shares.copy_(_on_simplex(shares))
        state["factor"].copy_(shares[rows, nodes])
        round.train(models, training, state)
        return state

    def exchange(models: Models, state: State, round: Round) -> State:
        estimate, shares = state["estimate"], round.state("local")["shares"]
        models.flat.add_(disagreement(round, estimate), alpha=gamma)
        rng = round.rng("compression")
        estimate.add_(compressed(compressor, models, models.flat - estimate, rng))
        nbytes = message_bytes(compressor, models.flat) + models.n * shares.element_size()
        round.send(round.weights, nbytes)
        round.mix(round.weights, shares, counted=False)
        return state

    settings = training.settings | {"dual_lr": dual_lr, "mu": mu}
    local = Phase(init, ascend, settings, rowwise=True)
    sending = compressed_exchange(compressor, gamma, ("estimate",), exchange)
    return chain("ad_gda", local=local, exchange=sending)


def _on_simplex(values: Tensor) -> Tensor:
    """Return the Euclidean projection of rows (k, n) onto the simplex: at least 0, with sum 1."""
    if values.is_meta:
        return values
    # a common shift changes no projection, and next to huge values 1 would be rounded away
    finite = _finite(values.cpu().clone())
    below = (finite - finite.amax(1, keepdim=True)).clamp(min=-1)
    return torch.from_numpy(simplex_projection(below.numpy()))


@public
def drfa(
    lr: Rate,
    *,
    dual_lr: float = 0.1,
    participation: AnyParticipation = 0.5,
    batch_size: int = 128,
    local_steps: int = 5,
) -> Algorithm:
    """Return DRFA: distributionally robust federated averaging, for the worst nodes.

    It solves ``min_x max_p sum_i p_i F_i(x)`` over distributions p of nodes. ``p`` starts at the
    fractions of all examples. Per round, with K local steps and a random step k of 1 to K::

        A    = random nodes, drawn with probabilities p without replacement
        y_i  = x - lr * grad F_i(...)  (K steps from the server's model x, i in A)
        z_i  = y_i after k steps
        x, z = means of y_i and z_i over A
        p    = projection of p + dual_lr * K * (n / |B|) * F_i(z) on coordinates i in B

    with another random set B, of the same size, and a projection onto the simplex. If fewer than
    ``|A|`` nodes have a share above 0, the others of A are drawn uniformly from the rest. Nodes of
    B whose losses are NaN or infinite count as the worst, and share all of p. All nodes then
    hold ``x``, so the server's model is evaluated. If all nodes participate, p has no effect. A
    participant sends two models, and the server sends each of A and B one: messages of B hold a
    model down and one number up. No topology is needed; one that is given is ignored.

    Parameters
    ----------
    lr
        Step size of the local steps: a number, or a schedule ``lr(round, step)`` such as
        :func:`topofl.algorithms.cosine`.
    dual_lr
        Step size of the ascent in p, at least 0.
    participation
        Number or fraction of the nodes in A, and in B, as in :func:`topofl.algorithms.sampled`;
        fewer than all nodes. With a trace, or a rule of your own, A and B are both the nodes that
        it names: all that are there train, and p has no effect.
    batch_size
        As in :func:`topofl.algorithms.train`.
    local_steps
        K, the same at all nodes.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    The authors compute ``F_i(z)`` on a minibatch; here it is the loss of all training examples of
    the node. Their code draws A uniformly, and adds the changes of models times ``p_i n / |A|``
    instead. There, k is 1 to K - 1, and ``z_i`` the model before step k; in ``centered/drfa.py``,
    which simulates all nodes in one process, each node draws its own k. The code multiplies
    `dual_lr` by 0.9 in every round, and raises shares of at most 0.001 to 0.001 before it divides
    all by their sum.

    References
    ----------
    Deng, Kamani and Mahdavi, "Distributionally robust federated averaging" (2020), as in the
    authors' code MLOPTPSU/FedTorch, ``fedtorch/comms/trainings/federated/drfa.py`` and
    ``fedtorch/comms/algorithms/federated/misc.py``.

    Examples
    --------
    >>> import topofl
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=10, seed=0, test_fraction=0.2)
    >>> history = topofl.run(drfa(lr=0.1, dual_lr=0.001, participation=0.8), rounds=30, seed=0,
    ...                      model=models.logistic_regression(64), clients=clients)
    >>> bool(history.last("accuracy").mean() > 0.8)
    True
    """
    dual_lr = check_nonnegative("dual_lr", dual_lr)
    amount = sampled(participation)
    count = check_int("local_steps", local_steps, minimum=1)
    size = check_int("batch_size", batch_size, minimum=1)
    training = Training(descend(_snapshot(), lr=lr), size, count)

    def init(models: Models) -> State:
        return training.init(models) | zero_times(shares=(1, models.n))

    def local(models: Models, state: State, round: Round) -> State:
        if round.t == 0:
            state["shares"][0].copy_(torch.from_numpy(round.sizes / round.sizes.sum()))
        k = int(round.rng("snapshot").integers(1, count + 1))
        state["at"].fill_(k)
        round.train(models, training, state, participants=_drawn(state, amount, round))
        if k == count or models.flat.is_meta:
            state["snapshot"].copy_(models.flat)
        return state

    def server(models: Models, state: State, round: Round) -> State:
        own, asked, ones = round.state("local"), amount(round), np.ones(round.n)
        nbytes = models.bytes_of(everything)
        weights = average_of(ones, _drawn(own, amount, round))
        for values in (models, own["snapshot"]):
            round.mix(weights, values, server=True, counted=False)
        round.send(weights, 3 * nbytes // 2, server=True)
        round.send(average_of(ones, asked), (nbytes + models.dtype.itemsize) // 2, server=True)
        losses = round.all_rows(_local_losses(own["snapshot"], models, round, asked))
        if not losses.is_meta:
            gain = dual_lr * count * round.n / asked.sum()
            own["shares"].copy_(_on_simplex(own["shares"] + gain * losses.double().cpu()))
        return state

    who = participation_setting(amount)
    settings = training.settings | {"dual_lr": dual_lr} | who
    return chain(
        "drfa",
        local=Phase(init, local, settings, rowwise=True),
        server=Phase(no_state, server, {"weights": "equal"} | who, rowwise=True),
    )


def _snapshot() -> Term:
    """Return the term that stores models before step ``at``, (n,), as ``snapshot``, (n, d)."""

    def init(models: Models) -> State:
        at = torch.zeros_like(models.flat[:, 0])
        return {"at": at, "snapshot": torch.zeros_like(models.flat)}

    def update(g: Tensor, theta: Tensor, own: State, step: Step) -> Tensor:
        now = per_row(own["at"] == step.k, g)
        own["snapshot"].copy_(torch.where(now, theta, own["snapshot"]))
        return g

    return Term("snapshot", update, init)


def _drawn(state: State, amount: Participation, round: Round) -> np.ndarray:
    """Return (n,) booleans: as many nodes as are sampled, drawn by their shares, one by one.

    The largest sums of log shares and Gumbel noise are such draws without replacement. Among shares
    of 0, the noise alone decides. Nodes that another rule names are not drawn.
    """
    present = amount(round)
    if not isinstance(amount, Sampled):
        return present
    noise = round.rng("drawn").gumbel(size=round.n)
    with np.errstate(divide="ignore"):
        keys = np.log(state["shares"][0].numpy()) + noise
    chosen = np.lexsort((-noise, -keys))[: int(present.sum())]
    return np.isin(np.arange(round.n), chosen)
