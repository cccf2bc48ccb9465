"""What is refused, one file a package: the error, its message, and the call that raises it."""

import re
from inspect import signature

import pytest


def named(row):
    """Return the name of a row of refusals in the output of pytest: what its message says."""
    message = row[1]
    return re.sub(r"\W+", " ", message if isinstance(message, str) else message[0]).strip()[:60]


def rows(calls, *others):
    """Return the rows of dictionaries by class of error, {message: call or (call, accepted)}."""
    found = [
        (error, message, *(call if isinstance(call, tuple) else (call,)))
        for error, own in calls.items()
        for message, call in own.items()
    ]
    return [*found, *others]


def refused(error, message, call, accepted=None, *, path=None):
    """Check that a call raises an error with a message, and that its nearest neighbor does not.

    Parameters
    ----------
    error
        The class of the error, not one above it.
    message
        A part of the message, or a tuple of parts.
    call
        A function of a folder, `path`, or one that needs nothing.
    accepted
        The nearest call that is accepted, likewise.
    """
    with pytest.raises(error) as raised:
        _called(call, path)
    assert type(raised.value) is error
    for part in (message,) if isinstance(message, str) else message:
        assert part in str(raised.value)
    if accepted is not None:
        _called(accepted, path)


def _called(call, path):
    given = [one for one in signature(call).parameters.values() if one.default is one.empty]
    return call(path) if given else call()
