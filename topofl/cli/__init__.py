"""Command-line interface ``topofl``; see ``topofl --help``."""

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from topofl._support.plugins import current_folder, installed_only
from topofl._support.processes import process_number
from topofl._support.text import notes_of, printable
from topofl.cli.commands import make_parser
from topofl.cli.output import CommandFailed, print_notes

__all__ = ["main"]

_USAGE_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    ImportError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv
        Arguments after ``topofl``; default: those of this process.

    Returns
    -------
    int
        0 on success; 1 if a run failed (it diverged, was interrupted, or a file could not be
        written); 2 if the command or the configuration is wrong. If it is not 0, one line on stderr
        gives the reason.

    Examples
    --------
    >>> main(["run", "missing.toml"])
    2
    """
    try:
        with _warnings_as_notes(), current_folder():
            _perform(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stopped:
        _print("", _how_to_continue(stopped), stopped)
        return 1
    except Exception as error:
        if not (is_usage := isinstance(error, _USAGE_ERRORS)) and not _is_failed_run(error):
            raise
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        text = "; ".join([f"{text}{_remedy_of_ranks(error)}", *notes_of(error)])
        text = " ".join(text.split())
        _print("error: ", text or type(error).__name__, error)
        return 2 if is_usage else 1
    return 0


def _perform(argv: Sequence[str]) -> None:
    """Perform a command.

    Stored runs import no code without ``--trust`` in commands that have this option, since they
    build something from the configuration in a folder.
    """
    options = make_parser().parse_args(argv)
    module, _, function = options.command.partition(":")
    trusting = shlex.join(["topofl", argv[0], "--trust", *argv[1:]])
    remedy = f"if you trust it, as a run of your own: {trusting}"
    with nullcontext() if getattr(options, "trust", True) else installed_only(remedy):
        getattr(import_module(module), function)(options)


def _is_failed_run(error: Exception) -> bool:
    """Return whether an error is an expected way for a run to fail, and not a bug in topofl."""
    if isinstance(error, CommandFailed | OSError | MemoryError):
        return True
    from torch import OutOfMemoryError

    from topofl.engine import DivergenceError, RankError

    return isinstance(error, DivergenceError | RankError | OutOfMemoryError)


def _print(kind: str, text: str, error: BaseException) -> None:
    """Print why a command ended; of several processes that torchrun started, one does."""
    if process_number() is not None:
        from topofl.cli.run import speaks

        if not speaks(error):
            return
    print(f"topofl: {kind}{printable(text)}", file=sys.stderr)


def _how_to_continue(stopped: KeyboardInterrupt) -> str:
    """Return the message about an interruption, with the command that resumes the run, if any."""
    if "topofl.engine" not in sys.modules:  # it was interrupted while the library was imported
        return str(stopped) or "interrupted"
    from topofl.engine import Interrupted
    from topofl.runs.folder import command_to_resume, is_finished

    if not isinstance(stopped, Interrupted):
        return str(stopped) or "interrupted"  # sweeps and stores say how to continue
    done = f"interrupted after round {stopped.done} of {stopped.rounds}"
    folder = stopped.folder.parent
    if stopped.saved is None and is_finished(folder):
        return f"{done}, saved nothing; the finished run is unchanged"
    saved = "" if stopped.saved == stopped.done else f", saved up to round {stopped.saved or 0}"
    return f"{done}{saved}; resume with: {command_to_resume(folder, started_here=True)}"


def _remedy_of_ranks(error: BaseException) -> str:
    """Return the command that continues a run of which a rank ended; empty for other errors."""
    if "topofl.engine" not in sys.modules:
        return ""
    from topofl.engine import RankError
    from topofl.runs.folder import NEXT, command_to_resume

    if not isinstance(error, RankError) or error.saved is None:
        return ""
    folder = error.saved[0].parent
    folder = folder.parent if folder.name == NEXT else folder  # a run that was to replace another
    return f"; from the command line: {command_to_resume(folder, started_here=True)}"


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show warnings as notes, without source lines."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print_notes([" ".join(str(message).split())])

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
