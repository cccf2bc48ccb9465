"""``topofl explore``: a page in the browser that compares two topologies."""

import argparse

from topofl.explore.serve import serve

__all__ = ["explore"]

LAST = 65_535
"""Last port."""


def explore(options: argparse.Namespace) -> None:
    """Serve the explorer until Ctrl-C."""
    if not 0 <= options.port <= LAST:
        raise ValueError(f"`--port` must be between 0 and {LAST}, got {options.port}")
    serve(options.port, browser=not options.no_browser, folder=options.data)
