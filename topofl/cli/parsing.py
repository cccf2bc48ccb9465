"""The argument parser of all commands: its errors, and their suggestions."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from topofl._support.words import did_you_mean

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors as ``ValueError`` instead of exiting."""

    def parse_known_args(  # type: ignore[override]  # the overloads of argparse
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments; unknown ones are an error of the command that they were given to."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return options, unknown

    def _nearest(self, unknown: Iterable[str]) -> str:
        """Return a suggestion for the first unknown option that resembles a known one."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        given = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        return next(filter(None, (did_you_mean(word, known) for word in given)), "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise if `value` is not one of the choices, suggesting the nearest one."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            wanted = (
                f"must be one of {', '.join(known)}, got {value!r}{did_you_mean(str(value), known)}"
            )
            raise argparse.ArgumentError(action, wanted)

    def error(self, message: str) -> NoReturn:
        """Raise ``ValueError``, with the command whose help describes the arguments."""
        raise ValueError(f"{message} (see {self.prog} --help)")
