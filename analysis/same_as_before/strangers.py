"""Six methods by someone who has read only the page "Write your own method".

They use what its tables list: models, the round, phases, terms and parts. All names are public, and
none of the methods may need a change when the engine changes.
"""

from collections.abc import Callable

import torch

from topofl import algorithms, mixing

State = dict[str, torch.Tensor]


def stateless(models: algorithms.Models) -> State:
    """Return no state."""
    return {}


def accelerated(lr: float) -> algorithms.Algorithm:
    """Return gossip with memory: the change by the last exchange is repeated in part."""

    def init(models: algorithms.Models) -> State:
        return {"before": models.flat.clone(), "times": torch.zeros(1, dtype=torch.int64)}

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        current = models.flat.clone()
        round.mix(round.weights, models.flat)
        models.flat.add_(current - state["before"], alpha=0.2)
        return {"before": current, "times": state["times"] + 1}

    return algorithms.chain(
        "accelerated",
        local=algorithms.sgd(lr, batch_size=16),
        exchange=algorithms.Phase(init, apply, {"memory": 0.2}),
    )


def two_phases(lr: float) -> algorithms.Algorithm:
    """Return a method whose second phase reads the state of the first: steps along mixed sums."""

    def collect(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        state["sum"].mul_(0.5).add_(round.gradients(models, 16, "collected"))
        round.mix(round.weights, state["sum"])
        return state

    def move(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        noise = torch.from_numpy(round.rng("noise").standard_normal(tuple(models.flat.shape)))
        models.flat.sub_(round.state("collect")["sum"], alpha=lr)
        models.flat.add_(noise.to(models.flat), alpha=1e-3)
        round.mix(round.weights, models.flat)
        return state

    first = algorithms.Phase(lambda models: {"sum": torch.zeros_like(models.flat)}, collect)
    return algorithms.chain("two phases", collect=first, move=algorithms.Phase(stateless, move))


def seldom_head(lr: float) -> algorithms.Algorithm:
    """Return a method that mixes the body in every round, and the head in every other one."""

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        round.mix(round.weights, models.flat, models.columns(algorithms.body))
        if models.flat.is_meta or round.t % 2:
            round.mix(round.weights, models.flat, models.columns(algorithms.head))
        return state

    return algorithms.chain(
        "seldom head",
        local=algorithms.train(
            algorithms.descend(algorithms.momentum(0.9), lr=lr), batch_size=16, steps=2
        ),
        exchange=algorithms.Phase(stateless, apply, rowwise=True),
    )


def cohort(lr: float) -> algorithms.Algorithm:
    """Return a server's average of 3 participants, extrapolated from the average before."""
    participants = algorithms.sampled(3)

    def init(models: algorithms.Models) -> State:
        return {"server": models.start.clone()}

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        members = participants(round)
        round.mix(mixing.average_of(round.sizes, members), models.flat, server=True)
        mean = models.flat.mean(0, keepdim=True)
        models.flat.add_(mean - state["server"], alpha=0.1)
        return {"server": mean}

    local = algorithms.train(
        algorithms.descend(lr=lr), batch_size=16, epochs=1, participants=participants
    )
    return algorithms.chain("cohort", local=local, server=algorithms.Phase(init, apply))


def pushed(lr: float) -> algorithms.Algorithm:
    """Return push-sum with weights of its own, over graphs that may be directed."""

    def init(models: algorithms.Models) -> State:
        return {"weight": torch.ones_like(models.flat[:, :1])}

    def apply(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        sums, weight = models.flat * state["weight"], state["weight"].clone()
        round.mix(round.push_weights, sums, scalars=1)
        round.mix(round.push_weights, weight, counted=False)
        models.flat.copy_(sums / weight)
        return {"weight": weight}

    return algorithms.chain(
        "pushed", local=algorithms.sgd(lr, batch_size=16), push=algorithms.Phase(init, apply)
    )


def noted(lr: float) -> algorithms.Algorithm:
    """Return D-SGD along signs of running means, which notes distances and lengths."""

    def update(
        g: torch.Tensor, theta: torch.Tensor, own: State, step: algorithms.Step
    ) -> torch.Tensor:
        mean = own["mean"].mul_(0.7).add_(g, alpha=0.3)
        return mean + 0.1 * g.sign() + 0.01 * theta

    term = algorithms.Term(
        "sign", update, lambda models: {"mean": torch.zeros_like(models.flat)}, elementwise=True,
        settings={"sign": 0.1},
    )  # fmt: skip

    def note(models: algorithms.Models, state: State, round: algorithms.Round) -> State:
        round.note("moved", (models.flat - state["last"]).norm())
        round.note("length", models.flat.norm(dim=1))
        return {"last": models.flat.clone()}

    return algorithms.chain(
        "noted",
        local=algorithms.train(algorithms.descend(term, lr=lr), batch_size=16, steps=2),
        exchange=algorithms.gossip(),
        note=algorithms.Phase(lambda models: {"last": models.flat.clone()}, note),
    )


METHODS: dict[str, Callable[[float], algorithms.Algorithm]] = {
    "gossip with a state": accelerated,
    "two phases": two_phases,
    "columns": seldom_head,
    "server and participants": cohort,
    "push weights": pushed,
    "own term and notes": noted,
}
"""Functions of a learning rate, by what they use of the interface."""
