"""What ``topofl run`` prints about a finished run."""

from topofl.cli.compare import check_column, table_of_runs
from topofl.cli.notes import print_notes
from topofl.history import History

__all__ = ["print_report"]


def print_report(name: str, history: History) -> None:
    """Print the scores of a finished run, and a note if nodes diverged."""
    check_column({name: history}, history.primary)
    print(table_of_runs({name: history}, 0.8, history.primary))
    if diverged := history.meta["diverged"]:
        first = diverged[0]
        print_notes(
            [
                f"{len(diverged)} nodes diverged, first node {first['node']} in round "
                f"{first['round']}"
            ]
        )
