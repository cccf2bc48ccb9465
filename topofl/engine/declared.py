"""What phases do in a round, against what they have declared."""

from topofl.algorithms.phase import Phase

__all__ = ["UndeclaredError", "check_declared", "check_gradients"]


class UndeclaredError(ValueError):
    """A phase does something that it has not declared."""


def check_declared(name: str, phase: Phase | None, door: str, exchanged: str = "models") -> None:
    """Raise unless a phase has declared that nodes exchange something, by what it may ask of the round.

    A run would otherwise not ask for a topology, and exchange nothing along the edges of a graph that has none.

    Parameters
    ----------
    name, phase
        The phase; None: whatever it does is accepted.
    door
        The attribute of the round that it uses, such as ``"mix"``.
    exchanged
        What travels, as in :attr:`topofl.algorithms.Phase.exchanges`.

    Raises
    ------
    UndeclaredError
        If it has not. A ValueError.
    """
    if phase is None or (phase.exchanges and not (phase.over == "server" and door == "weights")):
        return
    remedy = f"exchanges={exchanged!r}" + (", over='graph'" if phase.exchanges else "")
    declared = f"over={phase.over!r}" if phase.exchanges else "exchanges=''"
    raise UndeclaredError(
        f"the phase {name!r} must declare what nodes exchange, it uses round.{door} and has {declared}; build it by "
        f"Phase(init, apply, settings, {remedy}), so that runs ask for a topology"
    )


def check_gradients(name: str, phase: Phase | None) -> None:
    """Raise ``UndeclaredError`` unless a phase has declared that it asks for the gradients of all nodes at once."""
    if phase is not None and not phase.gradients:
        raise UndeclaredError(
            f"the phase {name!r} must declare that it takes all nodes' gradients at once, it uses round.gradients; "
            "build it by Phase(init, apply, settings, gradients=True), so that runs plan memory for them"
        )
