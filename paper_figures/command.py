"""Reproduce figures of papers from Python; the functions behind ``topofl reproduce``."""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topofl import NotApplicable, Table
from topofl.toolkit import check_int, did_you_mean

from . import dcliques, dfedpgp, dpfl, pfeddst
from .kit.claims import Claim, shown_number, shown_statement
from .kit.decided import Decided, Limits, decide, predict
from .kit.paper import LOOKS, Figure, Paper, Setting, make_setting
from .kit.report import write_report
from .kit.reproduce import (
    LeftOut,
    Result,
    missing_data,
    panels_lacking,
    plan,
    reproduce_each,
    stored,
)
from .kit.second_look import looked_at, orderings_table, save_verdicts
from .kit.sequential import FIRST
from .kit.store import Failed, Store, load_earlier_report
from .kit.until_decided import with_seeds

PAPERS: tuple[Paper, ...] = (dcliques.PAPER, dfedpgp.PAPER, pfeddst.PAPER, dpfl.PAPER)
"""The papers whose figures are reproduced. A new paper is a package and one entry here."""


def reproduce(
    name: str,
    *,
    scale: str = "quick",
    seeds: int | None = None,
    data: str | Path | None = None,
    datasets: str | Sequence[str] | None = None,
    out: str | Path = "out/reproduce",
    kept: str | Path | None = None,
    device: str | None = None,
    jobs: int = 1,
    report: bool = False,
    until_decided: bool = False,
    max_seeds: int | None = None,
    hours: float | None = None,
    progress: bool | str = "auto",
    show: Callable[[object], object] | None = None,
) -> list[Result]:
    """Compute and draw a figure, or all figures of a paper, and judge the paper's claims.

    Finished runs are not repeated.

    Parameters
    ----------
    name
        A figure, such as ``"dcliques-fig09"``, or a paper, ``"dcliques"``; :func:`listed` shows
        all.
    scale
        ``"smoke"`` tests every part in seconds on embedded data. ``"quick"`` gives evidence on a
        2-core CPU, at the paper's scale where that takes minutes. ``"paper"`` is the paper's own
        setting. ``"mnist14"`` and ``"mnist1d"`` judge orderings of methods on other data sets; the
        report of another scale in the same folder then shows on how many they hold.
    seeds
        Number of runs per arm, with seeds 0, 1, ...; by default 2, 3, 5, 20 and 20 at these scales,
        or the paper's own number. The comparison with the simulator uses at least 20.
    data
        Folder that contains the files of MNIST, CIFAR-10 and CIFAR-100, possibly in subfolders.
        Figures and panels whose data are missing are left out.
    datasets
        Datasets to use: ``"mnist"``, ``"cifar10"``, ``"mnist,cifar10"`` or a sequence of names. Not
        at the scales of other data sets.
    out
        Output folder: runs (``runs/``, shared by all figures and scales) and, per scale, each
        figure's picture (PNG and PDF), data (JSON) and claims (Markdown). Runs made with other
        versions of torch or numpy, or with one of topofl that had other results, are ignored; use a
        new folder after changing the code.
    kept
        Folder with the JSON files of an earlier report, such as
        ``"paper_figures/results/pfeddst/quick"``. Results whose runs have the same settings, data
        and versions are read from there, except pages with a slider over rounds, which need the
        runs themselves. Other runs are trained, and everything is judged and drawn again.
    device
        As for :func:`topofl.run`.
    jobs
        Number of processes, which share the CPU cores.
    report
        Also write a report of all figures, as one HTML page and as Markdown.
    until_decided
        Whether to add seeds to the arms of claims that may still be decided, from 3 on. They are
        chosen by expected decisions per hour, and claims are judged by intervals that stay valid
        under repeated looks (:mod:`paper_figures.kit.sequential`). Not with `seeds` and `kept`.
    max_seeds
        Largest number of seeds of an arm, from 3 to 40; by default 40. Only with `until_decided`.
    hours
        Time of the runs of added seeds, divided by `jobs`, in all commands that use the folder;
        None: no limit. Only with `until_decided`.
    progress
        True or False; ``"auto"``: a bar on terminals only.
    show
        Function that is called with every text as soon as it is available, for example ``print``;
        None shows nothing.

    Returns
    -------
    list of Result
        One result per figure that could be computed.

    Raises
    ------
    ValueError, TypeError
        If there is no such figure, or an argument has an invalid value.
    FileNotFoundError
        If `name` is a single figure and its data are missing.
    Failed
        If runs failed, for example diverged; raised after everything else is done.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     (result,) = reproduce("dcliques-fig06", scale="smoke", out=folder, progress=False)
    >>> result.claims[0].verdict
    'HOLDS'
    """
    output = show or (lambda text: None)
    limits = _limits(until_decided, max_seeds, hours, seeds=seeds, kept=kept)
    paper, figures, setting = _named(name, scale, seeds, data, datasets, device)
    missing = _without_data(figures, setting)
    if len(missing) == len(figures):
        raise FileNotFoundError(f"every figure of {name} {next(iter(missing.values()))}")
    if limits is None:
        _check_undecided(figures, setting, out)
    jobs = check_int("jobs", jobs, minimum=1)
    how: dict[str, Any] = {"out": out, "jobs": jobs, "progress": progress}
    decided = Decided([(figures, setting)])
    results: list[Result] = []
    left_out: list[LeftOut] = []
    try:
        if limits is not None:
            decided = decide(name, figures, setting, limits, **how)
        for outcome in _outcomes(decided, kept=kept, **how):
            if isinstance(outcome, LeftOut):
                left_out.append(outcome)
                status = "failed" if outcome.failed else "left out"
                output(f"{outcome.figure.id}: {status}: {outcome.reason}\n")
            else:
                results.append(outcome)
                output(shown(outcome))
    except KeyboardInterrupt:
        output(f"finished runs are stored in {Path(out, 'runs')}; repeat the command to continue")
        raise
    if setting.scale in LOOKS:
        save_verdicts(results, out)
    for table in decided.tables:
        output(f"{table}\n")
    if limits is not None and left_out:
        names = ", ".join(each.figure.id for each in left_out)
        output(f"still undecided: all claims of {names}, left out for the reasons above")
    if report:
        setting = max((one for _, one in decided.figures), key=lambda one: len(one.seeds))
        more: dict[str, Any] = {
            "moves": decided.tables,
            "options": limits.words if limits is not None else (),
        }
        if setting.scale not in LOOKS:
            more["orderings"] = orderings_table(results, out)
        pages = write_report(name, paper, figures, results, left_out, setting, Path(out), **more)
        output(f"wrote {' and '.join(map(str, pages))}")
    failed = [f"{each.figure.id}: {each.reason}" for each in left_out if each.failed]
    if failed or decided.errors:
        raise Failed("; ".join(failed or decided.errors.values()))
    return results


def _outcomes(decided: Decided, **how: Any) -> Iterator[Result | LeftOut]:
    """Yield the outcomes of figures, each with its own setting."""
    for figures, setting in decided.figures:
        yield from reproduce_each(figures, setting, **how)


def _check_undecided(figures: Sequence[Figure], setting: Setting, out: str | Path) -> None:
    """Raise ``ValueError`` if a figure's verdicts were decided with seeds that would be left out.

    Its file would be overwritten by that of the setting's seeds.
    """
    for figure in figures:
        path = Path(out, setting.scale, f"{figure.id}.json")
        found = stored(path)
        own, most = found.get("seeds"), found.get("seeds_of_verdicts")
        if isinstance(own, list) and isinstance(most, int) and most > len(own):
            raise ValueError(
                f"`out` must be another folder, got {out}, where {path} has verdicts that took up "
                f"to {most} seeds and would be overwritten; name another folder, or go on there "
                "with `until_decided`"
            )


def _limits(
    until_decided: bool,
    max_seeds: int | None,
    hours: float | None,
    *,
    seeds: int | None,
    kept: str | Path | None,
) -> Limits | None:
    """Return the limits of a command that adds seeds; None for others."""
    given = {"max_seeds": max_seeds, "hours": hours}
    if not until_decided:
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` must be given with `until_decided`, got {value} without it; add "
                    "`until_decided`, or leave it out"
                )
        return None
    for name, value in {"seeds": seeds, "kept": kept}.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be left out with `until_decided`, got {value}: every arm starts "
                f"with {FIRST} seeds, whose runs are needed"
            )
    return Limits.of(max_seeds, hours)


def planned(
    name: str,
    *,
    scale: str = "quick",
    seeds: int | None = None,
    data: str | Path | None = None,
    datasets: str | Sequence[str] | None = None,
    out: str | Path = "out/reproduce",
    kept: str | Path | None = None,
    device: str | None = None,
    jobs: int = 1,
    until_decided: bool = False,
    max_seeds: int | None = None,
    hours: float | None = None,
) -> Table:
    """Return the runs that :func:`reproduce` would train, with time and memory from probes.

    Nothing is stored. Times are for a single process. Figures that would be left out have the
    reason in place of numbers. With `until_decided`, once the first runs are finished, there is one
    row per undecided claim instead, with the number of seeds and the hours until its decision if
    means and spreads stay as they are.

    Parameters
    ----------
    name, scale, seeds, data, datasets, out, kept, device, until_decided, max_seeds, hours
        As for :func:`reproduce`.
    jobs
        Number of processes by which the hours of `until_decided` are divided.

    Returns
    -------
    Table
        One row per figure, and one for all of them, or one row per claim.

    Raises
    ------
    ValueError, TypeError, FileNotFoundError
        As for :func:`reproduce`.

    Examples
    --------
    >>> planned("dcliques-fig05", scale="smoke").rows[0]
    ('dcliques-fig05', 0, 0, 0.0, 0.0)
    """
    limits = _limits(until_decided, max_seeds, hours, seeds=seeds, kept=kept)
    _, figures, setting = _named(name, scale, seeds, data, datasets, device)
    missing = _without_data(figures, setting)
    if limits is not None:
        found = predict(name, figures, setting, limits, out=out, jobs=jobs)
        if found is not None:
            return found
        setting = with_seeds(setting, FIRST)
    table = plan(
        [figure for figure in figures if figure.id not in missing],
        setting,
        Store(Path(out, "runs"), load_earlier_report(kept)),
    )
    blank = len(table.columns) - 1
    left_out = [(key, *[NotApplicable(reason)] * blank) for key, reason in missing.items()]
    return Table(table.columns, (*table.rows[:-1], *left_out, table.rows[-1]), title=table.title)


def _named(
    name: str,
    scale: str,
    seeds: int | None,
    data: str | Path | None,
    datasets: str | Sequence[str] | None,
    device: str | None,
) -> tuple[Paper, Sequence[Figure], Setting]:
    """Return the paper and the figures of a name, and their setting."""
    paper, figures = figures_named(name)
    setting = make_setting(
        scale,
        seeds=paper.seeds.get(scale) if seeds is None else seeds,
        root=data,
        device=device,
        datasets=datasets.split(",") if isinstance(datasets, str) else datasets,
    )
    if scale in LOOKS:
        figures = [looked_at(figure, scale) for figure in figures if figure.id in paper.ordering]
        if not figures:
            raise ValueError(
                f"{name} has no claim about an ordering of methods, which is what scale {scale} "
                f"judges; of this paper {', '.join(paper.ordering)} have some"
            )
    return paper, figures, setting


def _without_data(figures: Sequence[Figure], setting: Setting) -> Mapping[str, str]:
    """Return why figures are left out; a single figure without its data is an error."""
    missing = {figure.id: reason for figure in figures if (reason := missing_data(figure, setting))}
    if len(figures) == len(missing) == 1:
        raise FileNotFoundError(f"{figures[0].id} {missing[figures[0].id]}")
    return missing


def figures_named(name: str) -> tuple[Paper, tuple[Figure, ...]]:
    """Return a paper and its figures by an id, for example "dcliques" or "dcliques-fig9".

    Raises
    ------
    ValueError
        If the id is unknown, or the figure is not reproduced; the message then gives the reason.

    Examples
    --------
    >>> paper, figures = figures_named("dcliques-fig9")
    >>> paper.id, [figure.id for figure in figures]
    ('dcliques', ['dcliques-fig09'])
    """
    name = re.sub(r"(fig|tab)(\d[ab]?)$", r"\g<1>0\2", name)
    for paper in PAPERS:
        chosen = tuple(figure for figure in paper.figures if name in (paper.id, figure.id))
        if chosen:
            return paper, chosen
        if name in paper.absent:
            raise ValueError(
                f"{name} is not reproduced: {paper.absent[name]}; topofl reproduce --list shows "
                "what is"
            )
    known = [paper.id for paper in PAPERS] + [
        figure.id for paper in PAPERS for figure in paper.figures
    ]
    raise ValueError(
        f"there is no figure {name!r}{did_you_mean(name, known)}; topofl reproduce --list shows all"
    )


def listed() -> Table:
    """Return a table of papers and figures with their required and optional datasets.

    Examples
    --------
    >>> listed().rows[0]
    ('dcliques', 'all of: D-Cliques: Compensating for Data Heterogeneity with Topology in ...', '-')
    """
    rows: list[tuple[str, ...]] = []
    for paper in PAPERS:
        rows.append((paper.id, f"all of: {paper.title}", "-"))
        for figure in paper.figures:
            data = [*figure.datasets, *(f"{name} (optional)" for name in figure.optional)]
            rows.append((figure.id, figure.title, ", ".join(data) or "-"))
    return Table(("name", "what it shows", "data"), tuple(rows))


def absent() -> Table:
    """Return a table of the papers' figures that are not reproduced, with the reasons.

    Examples
    --------
    >>> absent().rows[0]
    ('dcliques-fig02', 'pseudocode of D-SGD: topofl.algorithms.dsgd')
    """
    rows = tuple((name, reason) for paper in PAPERS for name, reason in paper.absent.items())
    return Table(("not reproduced", "what it is, and why it is not reproduced"), rows)


def shown(result: Result) -> str:
    """Return a figure's claims, verdicts and picture as text for the shell."""
    head = f"{result.figure.id}: {result.figure.title}"
    cost = f"{result.runs} runs, {result.seconds:,.0f} s, {result.megabytes:,.0f} MiB"
    lines = [line for claim in result.claims for line in _claim_lines(claim)]
    if result.setting.scale == "smoke":
        lines.append("  scale smoke only tests the code; its verdicts say nothing about the paper")
    if lacking := panels_lacking(result):
        lines.append(f"  without {lacking}")
    return "\n".join([head, *lines, f"  {result.picture} ({cost})", ""])


def _claim_lines(claim: Claim) -> list[str]:
    paper = f"; paper: {claim.paper}" if claim.paper else ""
    texts = [
        shown_statement(claim),
        f"{claim.statistic}: {shown_number(claim)}{paper}",
        f"holds if {claim.threshold}",
    ]
    first, *rest = (textwrap.wrap(text, 105) for text in texts)
    lines = [f"  {claim.verdict:<10}{first[0]}", *(f"{'':12}{line}" for line in first[1:])]
    return lines + [f"{'':12}{line}" for wrapped in rest for line in wrapped]
