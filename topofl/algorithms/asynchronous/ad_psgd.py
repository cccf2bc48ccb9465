"""AD-PSGD: asynchronous pairwise averaging with stale gradients."""

import numpy as np

from topofl._support.check import check_int
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
    node_mask,
    send_along,
    zero_times,
)
from topofl.clocks import AnyClock, Clock, as_clock

__all__ = ["ad_psgd"]


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
        events = _timeline(models, state, round, times)
        theta = models.flat
        own = training.init(models)
        stale = models.like(state["stale"])
        rate = rate_at(training.descend.lr, round.t, 0, theta.dtype)
        for group in groups_without_repeats(events, lambda event: event[:1]):
            participants = node_mask(round.n, [i for i, _ in group])
            steps = round.train(stale, training, own, participants=participants)
            for i, j in group:
                if j >= 0:
                    sent = round.published(theta)
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


def _timeline(models: Models, state: State, round: Round, clock: Clock) -> list[tuple[int, int]]:
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
