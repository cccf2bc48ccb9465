"""Phases in which nodes exchange models."""

from topofl.algorithms.phase import Models, Phase, Round, State

__all__ = ["gossip"]


def gossip() -> Phase:
    """Return the phase that replaces all models by ``W @ X``, with the round's mixing matrix ``W``.

    All models are read before any is replaced (synchronous).
    """

    def init(models: Models) -> State:
        del models
        return {}

    def apply(models: Models, state: State, round: Round) -> State:
        round.mix(round.weights, models.flat)
        return state

    return Phase(init, apply, {"weights": "round"}, exchanges="models")
