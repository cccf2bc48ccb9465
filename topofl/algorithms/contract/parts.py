"""Parts of a model, selected by parameter names: what a phase trains, and what it sends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from topofl._support.check import did_you_mean, shown
from topofl._support.public import public

__all__ = ["Part", "as_part", "body", "everything", "head", "part"]


@dataclass(frozen=True)
class Part:
    """A selection of a model's parameters by name; see :func:`part`.

    Parameters
    ----------
    patterns
        Names of parameters or of layers, with the wildcards ``*``, ``?`` and ``[...]`` of file
        names.
    complement
        Whether the part consists of all other parameters instead.

    Examples
    --------
    >>> bias = Part(("*.bias",))
    >>> bias.places(["conv.weight", "conv.bias", "head.weight", "head.bias"])
    [1, 3]
    >>> bias.rest
    part('*.bias').rest
    """

    patterns: tuple[str, ...] = ("*",)
    complement: bool = False

    @property
    def rest(self) -> "Part":
        """The complement: all parameters that do not belong to this part."""
        return replace(self, complement=not self.complement)

    @property
    def is_everything(self) -> bool:
        """Whether the part contains every parameter, whatever the model."""
        return self.patterns == ("*",) and not self.complement

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the indices of the parameters that belong to the part.

        Raises
        ------
        ValueError
            If a pattern matches no name, or if the part is empty.
        """
        for pattern in self.patterns:
            if not any(_matches(name, pattern) for name in names):
                layers = [name.rpartition(".")[0] or name for name in names]
                hint = did_you_mean(pattern, list(dict.fromkeys([*layers, *names])))
                raise ValueError(
                    f"`head`, or a part, must name parameters of the model, {pattern!r} matches "
                    f"none{hint}; the model's layers are {', '.join(dict.fromkeys(layers))}"
                )
        chosen = [any(_matches(name, pattern) for pattern in self.patterns) for name in names]
        found = [k for k, inside in enumerate(chosen) if inside != self.complement]
        if not found:
            raise ValueError(
                "`head`, or a part, must leave some parameters, "
                f"{', '.join(map(repr, self.patterns))} matches all {len(names)} of the model; "
                "name only its last layer, or use a model with a body"
            )
        return found

    def __repr__(self) -> str:
        if self.is_everything:
            return "everything"
        return f"part({', '.join(map(repr, self.patterns))}){'.rest' * self.complement}"

    def __str__(self) -> str:
        if self.is_everything:
            return "everything"
        return (
            f"all but {', '.join(self.patterns)}" if self.complement else ", ".join(self.patterns)
        )


everything = Part()
"""All parameters."""

head = Part(("head",))
"""The last layer of the networks in :mod:`topofl.models`; personalized methods do not send it."""

body = head.rest
"""All parameters but the :data:`head`."""


@public
def part(*patterns: str) -> Part:
    """Return the part of a model whose parameter or layer names match one of some patterns.

    Patterns are matched when a run starts.

    Raises
    ------
    TypeError
        If there is no pattern, or one is not text.

    Examples
    --------
    >>> part("classifier", "encoder.*.bias")
    part('classifier', 'encoder.*.bias')
    >>> head.places(["conv.weight", "conv.bias", "head.weight", "head.bias"])
    [2, 3]
    >>> head.rest == body
    True
    """
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise TypeError(f"`patterns` must be names such as 'head', got {shown(patterns)}")
    return Part(tuple(patterns))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def as_part(name: str, value: object) -> Part:
    """Return a part of a model, given as a Part or as the name of a layer, or raise."""
    if isinstance(value, str) and value:
        return part(value)
    if not isinstance(value, Part):
        raise TypeError(
            f"`{name}` must be a part of the model such as algorithms.head or a layer's name, got "
            f"{shown(value)}"
        )
    return value
