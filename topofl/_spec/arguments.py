"""Checked arguments, with defaults, of functions that are named in text."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from topofl._spec.names import Function, parameters
from topofl._spec.parse import NONE
from topofl._support.check import did_you_mean, shown

__all__ = ["Built", "arguments_of", "at", "check_keys", "is_ours", "recorded", "with_seed"]


class Built(NamedTuple):
    """The result of a call, its arguments as a saved configuration holds them, and notes."""

    value: Any
    arguments: dict[str, Any]
    notes: list[str]


@contextmanager
def at(place: str) -> Iterator[None]:
    """Prefix error messages by a place, such as the name of a table."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{place} {error}") from error
    except RuntimeError as error:  # from torch, for sizes too large for it or for memory
        raise ValueError(
            f"{place} cannot be built: {str(error).partition(chr(10))[0]}; lower its sizes"
        ) from error
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{place} {error}") from error


def check_keys(what: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``ValueError`` for the first unknown key, suggesting the nearest known one."""
    known = list(known)
    for key in keys:
        if key not in known:
            takes = ", ".join(known) or "no arguments"
            hint = did_you_mean(key, known) or (
                "; a number after a colon is `n`, as in ring:100" if key == "n" else ""
            )
            raise ValueError(f"{what} takes {takes}, not {key!r}{hint}")


def arguments_of(
    function: Function, arguments: Mapping[str, Any], *, hidden: Iterable[str] = ()
) -> dict[str, Any]:
    """Return all arguments of a call, given or default, except the `hidden` ones.

    Defaults of custom functions that no configuration can hold, such as functions, are left out.

    Raises
    ------
    ValueError
        If a key is unknown (the message suggests the nearest), a key without a default is missing,
        or a value whose default is a boolean is not a boolean.
    """
    takes = {key: p for key, p in parameters(function).items() if key not in set(hidden)}
    own = {
        key: p.default
        for key, p in takes.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if all(p.kind is not p.VAR_KEYWORD for p in takes.values()):
        check_keys(f"`{function.__name__}`", arguments, own)
    missing = [
        key
        for key, default in own.items()
        if default is inspect.Parameter.empty and key not in arguments
    ]
    if missing:
        raise ValueError(
            f"`{function.__name__}` needs {' and '.join(f'`{key}`' for key in missing)}"
        )
    for key, value in arguments.items():
        if isinstance(own.get(key), bool) and not isinstance(value, bool):
            raise ValueError(f"`{key}` must be true or false, got {shown(value)}")
    defaults = {key: value for key, value in own.items() if is_ours(function) or _is_plain(value)}
    given = {key: _read_none(takes.get(key), value) for key, value in arguments.items()}
    return defaults | given


def _read_none(parameter: inspect.Parameter | None, value: Any) -> Any:
    """Return None for ``"none"``, unless the parameter takes text."""
    if parameter is not None and parameter.annotation in (str, "str"):
        return NONE if value is None else value
    if isinstance(value, list):
        return [_read_none(None, item) for item in value]
    return None if isinstance(value, str) and value == NONE else value


def recorded(function: Function, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as a saved configuration holds them.

    None becomes the text ``"none"``, which :func:`arguments_of` reads back, unless it is the
    default of its parameter; other entries that are None may be left out.

    Examples
    --------
    >>> recorded(lambda steps=5, seed=None: None, {"steps": None, "seed": None})
    {'steps': 'none', 'seed': None}
    """
    takes = parameters(function)

    def is_default(key: str) -> bool:
        return key in takes and takes[key].default is None

    return {
        key: NONE if value is None and not is_default(key) else value
        for key, value in arguments.items()
    }


def is_ours(function: Function) -> bool:
    """Return whether a function is part of topofl."""
    return (getattr(function, "__module__", "") or "").partition(".")[0] == "topofl"


def _is_plain(value: Any) -> bool:
    """Return whether a configuration can hold a value."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def with_seed(function: Function, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments, with ``seed=0`` and a note if a required seed is missing."""
    seed = parameters(function).get("seed")
    if seed is None or seed.default is not inspect.Parameter.empty or "seed" in arguments:
        return dict(arguments), []
    return {**arguments, "seed": 0}, ["no `seed` given; 0 is used"]
