"""The page of the study: an interactive scatter plot, spectra, and the results in sentences."""

import os
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from topofl import Table, report

from .page_data import page_data
from .sentences import sentences
from .statistics import DRAWS, CellTable

__all__ = ["check_page", "write_page"]


def check_page(path: Path) -> None:
    """Raise unless a page can be written to `path`, the option ``--html``; nothing is written.

    Raises
    ------
    ValueError
        If it does not end in .html or .htm.
    OSError
        If it is a folder or a read-only file, or the folder that it is in is not one, or cannot be
        written. Links are followed.
    ModuleNotFoundError
        If ``vl-convert-python`` is not installed.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`--html` must be a file that ends in .html, got {path}")
    if path.is_dir():
        raise IsADirectoryError(f"`--html` must be a file, got {path}, a folder; name a file in it")
    _check_writable(path)
    _vl_convert("`--html`")


def _check_writable(path: Path) -> None:
    """Raise ``OSError`` unless a file can be written, in folders that may have to be created."""
    must = f"`--html` must be a file that can be written, got {path}"
    target = path.resolve()  # where :func:`write_page` writes: links are followed
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{must}, which is read-only; name another file")
    there = next(folder for folder in target.parents if folder.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise type(error)(
            f"{must}: {error.strerror}: {there}; name a file in another folder"
        ) from error


def write_page(
    tables: Sequence[CellTable],
    path: Path,
    *,
    verdicts: Table | None = None,
    spectra: bool = True,
    draws: int = DRAWS,
) -> Path:
    """Write the page of the study, which needs no network and no other files, and return its path.

    Parameters
    ----------
    tables
        Cells as returned by :func:`analysis.study.tables.cell_tables`. The plots show means over
        seeds; sentences are about cells of single seeds.
    path
        HTML file to write. An existing file is replaced, links are followed, and missing folders
        are created.
    verdicts
        Table of hypotheses to show; None: none.
    spectra
        Whether to show spectra of graphs of this study, on digits with 60 nodes.
    draws
        Bootstrap draws of the intervals in the sentences.

    Raises
    ------
    ValueError
        If there are no cells.
    ModuleNotFoundError
        If ``vl-convert-python`` is not installed.
    """
    if not tables:
        raise ValueError("`tables` must contain at least one cell, got none; run the study first")
    # The package is analysis.study in a checkout, topofl.analysis.study where it is installed.
    text = report.page_template(__name__.rpartition(".")[0], "study.html").render(
        title="What predicts convergence",
        libraries=_libraries(),
        study=page_data(tables, spectra=spectra),
        sentences=sentences(tables, draws=draws),
        verdicts=verdicts,
        seeds=sorted({table.seed for table in tables}),
        runs=sum(len(table.graphs) for table in tables),
        cells=len(tables),
        version=version("topofl"),
    )
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    with report.replacing(path) as file:
        file.write(text)
    return path


def _libraries() -> Markup:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    vl_convert = _vl_convert("`write_page`")
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _vl_convert(who: str) -> Any:
    """Return the module, or raise with what needs it and how to install it."""
    try:
        return import_module("vl_convert")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{who} needs vl-convert-python, which is not installed; install it with pip install "
            "'topofl[pages]'"
        ) from error
