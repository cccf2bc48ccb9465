"""AD-PSGD and random walks: events one after the other, on a simulated clock."""

import numpy as np
import torch

from topofl._support.check import check_int, check_switch
from topofl._support.public import public
from topofl.algorithms.contract.descent import Rate, descend, rate_at
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.needs import needing, undirected
from topofl.algorithms.contract.phase import Algorithm, Phase, chain, on_all_models
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.exchanges.events import (
    groups_without_repeats,
    kept_gradient,
    model_bytes,
    next_node,
    send_along,
    zero_times,
)
from topofl.clocks import AnyClock, Clock, as_clock

__all__ = ["ad_psgd", "random_walks"]


@public
@needing(undirected)
def ad_psgd(lr: Rate, *, batch_size: int = 128, clock: AnyClock = None) -> Algorithm:
    """Return AD-PSGD: asynchronous decentralized parallel SGD on a simulated clock.

    A node i that begins at time ``s`` stores its model as ``theta'_i = theta_i``, draws a neighbor
    j uniformly at random, and computes ``grad F(theta'_i; S_i)`` while it exchanges models with j.
    At time ``s + max(compute_i, delay_ij + bytes / bandwidth, delay_ji + bytes / bandwidth)`` both
    are done, and in one atomic event::

        theta_i = theta_j = (theta_i + theta_j) / 2
        theta_i = theta_i - lr * grad F(theta'_i; S_i)

    and the node begins again. Others may have averaged with it in the meantime, so that gradients
    are as stale as in a real run. A round consists of the next n events in order of time, with ties
    broken by node number: as many gradients as a round of D-SGD. In the history,
    ``simulated_seconds`` is the time of the round's last event, and ``staleness`` the largest
    number of events in the round between storing a model and applying its gradient. An event sends
    two messages, one model each way; the mixing matrix in the history is the mean of the matrices
    of the round's events.

    Graphs must be undirected and may change: neighbors are those of the round in which a node
    begins. Averaging preserves the sum of all models. A node's data count in proportion to its
    steps, so those of slow nodes count less.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`, called
        with step 0.
    batch_size
        As in :func:`topofl.algorithms.train`. A round's events are processed in groups in which no
        node occurs twice; each group draws different minibatches.
    clock
        A :class:`topofl.clocks.Clock`, or a dictionary of its arguments; None: steps take one
        second, and messages no time.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or if a table of the clock has another
        number of nodes.

    Notes
    -----
    As in the paper, averaging is atomic: it uses both models as they are when it ends, and delays
    only take time. The paper uses bipartite graphs to avoid deadlocks, which cannot occur with
    simulated events. In the implementation in stochastic_gradient_push, a separate process averages
    continuously, so that a node can average several times per gradient.

    References
    ----------
    Lian, Zhang, Zhang and Liu, "Asynchronous decentralized parallel stochastic gradient descent"
    (ICML 2018).

    Examples
    --------
    >>> import topofl
    >>> from topofl import clocks, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> slow = clocks.Clock(compute=[1.0] * 9 + [10.0], delay=0.1)  # one straggler
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 20, "seed": 0}
    >>> history = topofl.run(ad_psgd(lr=0.1, batch_size=32, clock=slow), **how)
    >>> seconds = history["simulated_seconds"][-1]
    >>> bool(seconds < 20 * 1.2), bool(history["staleness"].max() > 80)  # D-SGD takes 202 seconds
    (True, True)
    """
    times = as_clock(clock)
    training = Training(
        descend(kept_gradient(), lr=lr), check_int("batch_size", batch_size, minimum=1)
    )

    def init(models: Models) -> State:
        n = len(models.flat)
        times.check(n)
        return {"stale": models.flat.clone()} | zero_times(
            due=(n,), peer=(n,), begun=(n,), seconds=(1,)
        )

    def apply(models: Models, state: State, round: Round) -> State:
        events = _exchanges_by_time(models, state, round, times)
        theta = models.flat
        own = training.init(models)
        stale = models.like(state["stale"])
        rate = rate_at(training.descend.lr, round.t, 0, theta.dtype)
        message = 0
        for group in groups_without_repeats(events, lambda event: event[:1]):
            participants = np.isin(np.arange(round.n), [i for i, _ in group])
            steps = round.train(stale, training, own, participants=participants)
            for i, j in group:
                if j >= 0:
                    sent = round.published(theta, message)
                    message += 1
                    mine, theirs = sent[i].clone(), sent[j].clone()
                    theta[i].add_(theirs).mul_(0.5)
                    theta[j].add_(mine).mul_(0.5)
                if steps[i]:  # frozen nodes take none
                    theta[i].sub_(own["gradient"][i], alpha=rate)
                stale.flat[i] = theta[i]
        pairs = [(i, j) for i, j in events if j >= 0]
        send_along(round, [*pairs, *((j, i) for i, j in pairs)], model_bytes(models), "averagings")
        return state

    return chain(
        "ad_psgd",
        events=on_all_models(Phase(init, apply, training.settings | {"clock": times.settings})),
    )


def _exchanges_by_time(
    models: Models, state: State, round: Round, clock: Clock
) -> list[tuple[int, int]]:
    """Simulate a round and return its events (node, neighbor or -1 for none) in order of time."""
    due, peer, begun, seconds = (
        state[name].numpy() for name in ("due", "peer", "begun", "seconds")
    )
    rng = round.rng("events")
    graph = round.topology
    nbytes = model_bytes(models)

    def begin(i: int, now: float, count: int) -> None:
        others = graph.out_neighbors(i)
        j = int(others[rng.integers(len(others))]) if len(others) else -1
        links = clock.messages(rng, [i, j], [j, i], nbytes) if len(others) else np.zeros(1)
        due[i] = now + max(clock.steps(rng, [i])[0], links.max())
        peer[i] = j
        begun[i] = count

    for i in range(round.n if round.t == 0 else 0):
        begin(i, 0.0, 0)
    events, stale = [], 0
    for count in range(round.t * round.n, (round.t + 1) * round.n):
        i = int(due.argmin())
        events.append((i, int(peer[i])))
        stale = max(stale, count - int(begun[i]))
        seconds[0] = due[i]
        begin(i, due[i], count + 1)
    round.note("simulated_seconds", float(seconds[0]))
    round.note("staleness", stale)
    return events


@public
@needing(undirected)
def random_walks(
    lr: Rate, *, walks: int = 1, merge: bool = False, batch_size: int = 128, clock: AnyClock = None
) -> Algorithm:
    """Return random-walk SGD: models walk from node to node, on a simulated clock.

    When walk r, with its model ``z_r``, has been at node i for ``compute_i`` seconds::

        z_r     = z_r - lr * grad F(z_r; S_i)
        theta_i = z_r                                    (a copy stays at the node, for evaluation)

    and the walk moves to node j with probability ``W[i, j]``, where it arrives after ``delay_ij +
    bytes / bandwidth`` seconds; with probability ``W[i, i]``, it stays for another step. A node
    works on one walk at a time, in order of arrival. A round consists of the next n steps of all
    walks in order of time: as many gradients as a round of D-SGD. In the history,
    ``simulated_seconds`` is the time of the round's last step. A walk that moves sends one message,
    a model.

    ``W`` is the mixing matrix of the run. The shares of visits converge to its stationary
    distribution ``pi = pi W``, and models to the optimum of ``sum_i pi_i F_i``. With doubly
    stochastic weights, such as Metropolis-Hastings weights ``1 / (1 + max(deg_i, deg_j))``, all
    nodes are visited equally often; with :func:`topofl.mixing.uniform`, in proportion to ``1 +
    deg_i``.

    Graphs must be undirected, since a walk moves against the direction of weights: ``W[i, j]``
    means that i receives from j, and here i sends to j. They may change from round to round; a walk
    moves by the weights of the round in which its step ends. A run raises an error without a graph,
    if the graph of any round is directed, or if it is disconnected (unless
    ``topofl.Compute(on_disconnected="allow")`` is given, which keeps walks within their
    components). Attackers forge the models of walks that leave them. The number of messages per
    round is random, so estimates are means.

    Parameters
    ----------
    lr
        A number, or a schedule ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`, called
        with step 0.
    walks
        Number of walks, from 1 to n. They start at distinct random nodes, with the models of these
        nodes.
    merge
        Whether an arriving walk is first averaged with the previous model that arrived at this
        node, in the form in which it arrived (initially, the node's own model). Otherwise walks are
        independent of each other.
    batch_size
        As in :func:`topofl.algorithms.train`. A round's steps are processed in groups in which no
        node and no walk occurs twice; each group draws different minibatches.
    clock
        A :class:`topofl.clocks.Clock`, or a dictionary of its arguments; None: steps take one
        second, and messages no time.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, if there are more walks than nodes, or
        if a table of the clock has another number of nodes.

    Notes
    -----
    With `merge`, the library gossipy instead averages an arriving model with the node's own updated
    model.

    References
    ----------
    Johansson, Rabi and Johansson, "A randomized incremental subgradient method for distributed
    optimization in networked systems" (2009), for one walk; Ormandi, Hegedus and Jelasity, "Gossip
    learning with linear models on fully distributed data" (2013), for many, independent (RW) or
    merged before the step (MU). There, nodes send on their own timers; here, walks move when their
    step is done, so that none is lost or duplicated.

    Examples
    --------
    >>> import topofl
    >>> from topofl import clocks, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, seed=0)
    >>> how = {"model": models.logistic_regression(64), "clients": clients}
    >>> how |= {"topology": topologies.ring(10), "rounds": 10, "seed": 0}
    >>> clock = clocks.Clock(compute=clocks.exponential(1.0), delay=0.1)
    >>> walks = (random_walks(lr=0.1, walks=k, batch_size=32, clock=clock) for k in (1, 4))
    >>> one, four = (topofl.run(walk, **how) for walk in walks)
    >>> bool(four["simulated_seconds"][-1] < one["simulated_seconds"][-1] / 2)
    True
    """
    times = as_clock(clock)
    walks = check_int("walks", walks, minimum=1)
    check_switch("merge", merge, auto=False)
    training = Training(descend(lr=lr), check_int("batch_size", batch_size, minimum=1))

    def init(models: Models) -> State:
        n, d = models.flat.shape
        times.check(n)
        check_int("walks", walks, minimum=1, maximum=n, maximum_name="n")
        own = {"came": models.flat.clone()} if merge else {}
        clocks = zero_times(due=(1, walks), at=(1, walks), came_at=(1, walks), stage=(1, walks))
        return own | {"models": models.flat.new_zeros(1, walks, d)} | clocks

    def apply(models: Models, state: State, round: Round) -> State:
        theta, walking = models.flat, state["models"][0]
        if round.t == 0:
            state["at"][0].copy_(torch.from_numpy(round.rng("walks").permutation(round.n)[:walks]))
            for r, i in enumerate(state["at"][0].tolist()):
                walking[r] = theta[int(i)]
        events = _timeline(models, state, round, times)
        groups = groups_without_repeats(events, lambda one: [("walk", one[0]), one[1]])
        for message, group in enumerate(groups):
            for r, i, _ in group:
                theta[i] = (walking[r] + state["came"][i]) / 2 if merge else walking[r]
                if merge:
                    state["came"][i] = walking[r]
            here = np.isin(np.arange(round.n), [i for _, i, _ in group])
            round.train(models, training, {}, participants=here)
            sent = round.published(theta, message)
            for r, i, j in group:
                walking[r] = theta[i] if i == j else sent[i]
        send_along(round, [(i, j) for _, i, j in events if i != j], model_bytes(models), "hops")
        return state

    settings = training.settings | {"walks": walks, "merge": merge, "clock": times.settings}
    return chain("random_walks", events=on_all_models(Phase(init, apply, settings)))


MOVES, WAITS, WORKS = 0, 1, 2
"""Stages of a walk: traveling to a node, waiting at a busy one, and training."""


def _timeline(
    models: Models, state: State, round: Round, clock: Clock
) -> list[tuple[int, int, int]]:
    """Simulate a round and return (walk, node, next node) of its steps in order of time."""
    due, at, came_at, stage = (state[name][0].numpy() for name in ("due", "at", "came_at", "stage"))
    rng = round.rng("events")
    nbytes = model_bytes(models)
    events = []
    now = 0.0
    while len(events) < round.n:
        r = int(due.argmin())
        now = float(due[r])
        i = int(at[r])
        if stage[r] == MOVES:
            stage[r], came_at[r], due[r] = WAITS, now, np.inf
        else:
            j = next_node(i, round.weights, rng)
            events.append((r, i, j))
            stage[r], at[r] = MOVES, j
            due[r] = now + (clock.messages(rng, [i], [j], nbytes)[0] if j != i else 0.0)
        here = np.flatnonzero((at == i) & (stage != MOVES))
        if len(here) and not (stage[here] == WORKS).any():
            first = here[came_at[here].argmin()]
            stage[first] = WORKS
            due[first] = now + clock.steps(rng, [i])[0]
    round.note("simulated_seconds", now)
    return events
