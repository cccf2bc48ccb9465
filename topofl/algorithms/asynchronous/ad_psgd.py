"""AD-PSGD: asynchronous pairwise averaging with stale gradients."""

import numpy as np

from topofl._support.check import check_int
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.needs import needing, undirected
from topofl.algorithms.contract.phase import Algorithm, Phase, chain
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.contract.schedules import Rate, rate_at
from topofl.algorithms.contract.terms import descend
from topofl.algorithms.exchanges.events import (
    groups_without_repeats,
    kept_gradient,
    model_bytes,
    node_mask,
    send_along,
    zero_times,
)
from topofl.clocks import AnyClock, Clock, as_clock

__all__ = ["ad_psgd"]


@needing(undirected)
def ad_psgd(lr: Rate, *, batch_size: int = 128, clock: AnyClock = None) -> Algorithm:
    """Return AD-PSGD, asynchronous decentralized parallel SGD, as events on a simulated clock.

    A node i begins at time ``s``: it keeps ``theta'_i = theta_i`` of that moment, draws one
    neighbor j, each as likely as the others, and computes ``grad F(theta'_i; S_i)`` while it
    exchanges models with j. Both are done at time ``s + max(compute_i, delay_ij + bytes /
    bandwidth, delay_ji + bytes / bandwidth)``, when at once::

        theta_i = theta_j = (theta_i + theta_j) / 2
        theta_i = theta_i - lr * grad F(theta'_i; S_i)

    and the node begins again. Others may have averaged with it in the meantime, so that gradients
    are as stale as in a real run. A round is the next n such events in order of time, ties broken
    by node number: as many gradients as a round of D-SGD. The history's ``simulated_seconds`` is
    the time of the last of them, and ``staleness`` the most events that lie between the model of a
    gradient and its step in the round. An event sends two messages, a model each way; the history's
    mixing matrix is the mean of those of the round's averagings.

    Needs undirected graphs, which may change: neighbors are those of the round in which a node
    begins. Averagings keep the sum of all models. A node's data count as often as it steps: those
    of slow nodes less than those of fast ones.

    Parameters
    ----------
    lr
        A number, or ``lr(round, step)`` such as :func:`topofl.algorithms.cosine`, of which the step
        is always 0.
    batch_size
        As in :func:`topofl.algorithms.train`. Minibatches are those of the phase for the first
        event of every node in a round, and others for each group of events after one in which no
        node is twice.
    clock
        A :class:`topofl.clocks.Clock`, or a dictionary of its arguments; None: a step takes a
        second, a message none.

    Raises
    ------
    ValueError, TypeError
        If a number is out of its range or of another type, or a table of the clock is of another
        number of nodes.

    Notes
    -----
    As in the paper an averaging is atomic: it uses both models as they are when it ends, and delays
    only take time. The paper makes graphs bipartite so that exchanges cannot wait for each other in
    a circle, which events do not. In the implementation in stochastic_gradient_push a process of
    its own averages without pause, so that a node can average several times per gradient.

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
    how = Training(descend(kept_gradient(), lr=lr), check_int("batch_size", batch_size, minimum=1))

    def init(models: Models) -> State:
        n = len(models.flat)
        times.check(n)
        return {"stale": models.flat.clone()} | zero_times(
            due=(n,), peer=(n,), begun=(n,), seconds=(1,)
        )

    def apply(models: Models, state: State, round: Round) -> State:
        events = _timeline(models, state, round, times)
        theta, own, stale = models.flat, how.init(models), models.like(state["stale"])
        rate = rate_at(how.descend.lr, round.t, 0, theta.dtype)
        for group in groups_without_repeats(events, lambda event: event[:1]):
            participants = node_mask(round.n, [i for i, _ in group])
            steps = round.train(stale, how, own, participants=participants)
            for i, j in group:
                if j >= 0:
                    sent = round.shown(theta)
                    mine, theirs = sent[i].clone(), sent[j].clone()
                    theta[i].add_(theirs).mul_(0.5)
                    theta[j].add_(mine).mul_(0.5)
                if steps[i]:  # none are taken by a node that is frozen
                    theta[i].sub_(own["gradient"][i], alpha=rate)
                stale.flat[i] = theta[i]
        pairs = [(i, j) for i, j in events if j >= 0]
        send_along(round, [*pairs, *((j, i) for i, j in pairs)], model_bytes(models), "averagings")
        return state

    return chain("ad_psgd", events=Phase(init, apply, how.settings | {"clock": times.settings}))


def _timeline(models: Models, state: State, round: Round, clock: Clock) -> list[tuple[int, int]]:
    """Simulate a round, and return its pairs (node, neighbor or -1 for none) in order of time."""
    due, peer, begun, seconds = (
        state[name].numpy() for name in ("due", "peer", "begun", "seconds")
    )
    rng, graph, nbytes = round.rng("events"), round.topology, model_bytes(models)

    def begin(i: int, now: float, count: int) -> None:
        others = graph.out_neighbors(i)
        j = int(others[rng.integers(len(others))]) if len(others) else -1
        links = clock.messages(rng, [i, j], [j, i], nbytes) if len(others) else np.zeros(1)
        due[i], peer[i], begun[i] = now + max(clock.steps(rng, [i])[0], links.max()), j, count

    for i in range(round.n if round.t == 0 else 0):
        begin(i, 0.0, 0)
    events, stale = [], 0
    for count in range(round.t * round.n, (round.t + 1) * round.n):
        i = int(due.argmin())
        events.append((i, int(peer[i])))
        stale, seconds[0] = max(stale, count - int(begun[i])), due[i]
        begin(i, due[i], count + 1)
    round.note("simulated_seconds", float(seconds[0]))
    round.note("staleness", stale)
    return events
