"""The error of commands that were right but failed, without torch, which takes long to load."""

__all__ = ["CommandFailed"]


class CommandFailed(RuntimeError):
    """A command failed for a reason that its message gives; the exit code is 1."""
