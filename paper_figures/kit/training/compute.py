"""Train the runs that are not finished yet, in one process or several."""

from collections.abc import Iterable, Mapping

from topofl.runs.execute import Live, as_executor, execute
from topofl.runs.identity import Run, cache_of_process
from topofl.runs.work import Outcome

from .keys import keyed
from .store import Store, job_of


class Failed(RuntimeError):
    """Raised if runs failed; finished runs are stored. ``errors`` has the reasons by run key."""

    def __init__(self, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.errors = dict(errors or {})


def compute_missing(
    runs: Iterable[Run],
    store: Store,
    *,
    jobs: int = 1,
    progress: bool | str = "auto",
    failed: Mapping[str, str] | None = None,
    title: str = "runs",
) -> None:
    """Train all runs that are not finished yet.

    Parameters
    ----------
    runs
        Runs in the order of training; duplicates are trained once.
    store
        Where the runs are stored.
    jobs
        Number of processes, which share the CPU cores evenly; 1 uses this process.
    progress
        True or False; ``"auto"``: a table on terminals only.
    failed
        Reasons of runs that are known to fail, by key; these are not tried again.
    title
        Title of the table.

    Raises
    ------
    Failed
        If runs raised errors, after all others are finished; the message names each with its error.
    OSError
        If a run cannot be saved.
    """
    missing = {key: run for key, run in keyed(runs).items() if not store.has(run)}
    errors = {key: text for key, text in (failed or {}).items() if key in missing}
    store.root.mkdir(parents=True, exist_ok=True)
    todo = [run for key, run in missing.items() if key not in errors]
    live = Live(store.root, len(todo), progress, title=title)
    live.labels.update({run.key: _shown(run) for run in todo})

    def ended(outcome: Outcome) -> None:
        live.ended(outcome)
        if outcome.error:
            errors[outcome.key] = f"{live.labels[outcome.key]}: {outcome.error}"

    executor = as_executor(None, min(jobs, max(len(todo), 1)))
    try:
        with live:
            execute(
                map(job_of, todo),
                store.root,
                executor,
                limit=jobs,
                started=live.started,
                ended=ended,
            )
    finally:
        cache_of_process.cache_clear()
    if errors:
        reasons = "; ".join(errors.values())
        raise Failed(
            f"{len(errors)} of {len(missing)} runs failed, the others are stored: {reasons}", errors
        )


def _shown(run: Run) -> str:
    graph = run.tables.get("topology", {"name": "no graph"})["name"]
    return f"{run.tables['algorithm']['name']} on {graph}, seed {run.seed}"
