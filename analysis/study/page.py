"""The page of the study: an interactive scatter plot, spectra, and the results in sentences."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from topofl import Table, report

from .page_data import page_data
from .sentences import sentences
from .statistics import DRAWS, CellTable

__all__ = ["write_page"]


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
        HTML file to write. An existing file is replaced.
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with report.replacing(path) as file:
        file.write(text)
    return path


def _libraries() -> Markup:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`write_page` needs the package vl-convert-python; install it with "
            "`pip install 'topofl[pages]'`"
        ) from error
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
