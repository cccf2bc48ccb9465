"""Command-line interface ``topofl``; see ``topofl --help``."""

import os
import shlex
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

from topofl._support.module_folders import current_folder, installed_only
from topofl._support.text import printable
from topofl._support.torchrun import process_number
from topofl.cli.failure import CommandFailed
from topofl.cli.notes import print_notes
from topofl.cli.parser import make_parser

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
            options = make_parser().parse_args(argv)
            module, _, function = options.command.partition(":")
            with _opened(options, sys.argv[1:] if argv is None else argv):
                getattr(import_module(module), function)(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stopped:
        if _speaks(stopped):
            print(f"topofl: {printable(_how_to_continue(stopped))}", file=sys.stderr)
        return 1
    except _USAGE_ERRORS as error:
        return _report(error, 2)
    except CommandFailed as error:
        return _report(error, 1)
    except Exception as error:
        if not _is_failed_run(error):
            raise
        return _report(error, 1)
    return 0


def _opened(options: Namespace, argv: Sequence[str]) -> AbstractContextManager[None]:
    """Return the context of a command, in which stored runs import no code without ``--trust``.

    Commands that build something from the configuration in a folder have this option.
    """
    if getattr(options, "trust", True):
        return nullcontext()
    command = shlex.join(["topofl", argv[0], "--trust", *argv[1:]])
    return installed_only(f"if you trust it, as a run of your own: {command}")


def _is_failed_run(error: Exception) -> bool:
    """Return whether an error is an expected way for a run to fail, and not a bug in topofl."""
    from torch import OutOfMemoryError

    from topofl.cli.sweeping import SweepFailed
    from topofl.engine import DivergenceError, RankError

    kinds = DivergenceError | RankError | SweepFailed | OSError | MemoryError | OutOfMemoryError
    return isinstance(error, kinds)


def _speaks(error: BaseException) -> bool:
    """Return whether this process prints an error; of several that torchrun started, one does."""
    if process_number() is None:
        return True
    from topofl.cli.ranks import speaks

    return speaks(error)


def _report(error: BaseException, code: int) -> int:
    """Print an error as one line on stderr and return the exit code."""
    if not _speaks(error):
        return code
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text += _remedy_of_ranks(error)
    print(
        f"topofl: error: {printable(' '.join(text.split())) or type(error).__name__}",
        file=sys.stderr,
    )
    return code


def _how_to_continue(stopped: KeyboardInterrupt) -> str:
    """Return the message about an interruption, with the command that resumes the run, if any."""
    if "topofl.engine" not in sys.modules:  # it was interrupted while the library was imported
        return str(stopped) or "interrupted"
    from topofl.cli.folders import command_to_resume, is_finished
    from topofl.engine import Interrupted

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
    from topofl.cli.folders import NEXT, command_to_resume
    from topofl.engine import RankError

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
