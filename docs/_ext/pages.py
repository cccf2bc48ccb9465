"""Pages whose Python blocks are executed, in the order of the page, when the site is built.

The pages are plain Markdown, so that they read well without a site and the test suite can execute
them. This extension turns their blocks of Python into cells of a notebook for MyST-NB:

- a block in an HTML comment is executed and not shown;
- a comment ``<!-- alt: ... -->`` before a block describes the figure that it draws.

Pages that contain the comment ``<!-- not executed -->`` are left as they are.
"""

import atexit
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import kernels
from sphinx.application import Sphinx

__all__ = ["as_notebook", "as_page", "setup"]

NOT_EXECUTED = "<!-- not executed -->"

HEADER = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n"

SETUP = """\
import warnings

from matplotlib.axes import Axes

%config InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "dpi": 110}
formatters = get_ipython().display_formatter
formatters.ipython_display_formatter.for_type(Axes, lambda axes: None)  # figures show themselves
warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", "IProgress not found")
import tqdm.auto
tqdm.auto.tqdm = lambda rounds, **options: rounds  # no progress bars
del formatters, Axes, tqdm, warnings
"""
"""Code of a hidden first cell."""

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
ALT = re.compile(r"<!-- alt: ([^>]*?) -->\s*^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def as_notebook(text: str) -> str:
    """Return a page as a MyST notebook, with its blocks of Python as cells."""
    described = ALT.sub(lambda found: _cell(found[2], alt=found[1]), text)
    hidden = COMMENT.sub(_hidden_cells, described)
    return HEADER + _cell(SETUP, hidden=True) + "\n\n" + BLOCK.sub(lambda b: _cell(b[1]), hidden)


def _cell(code: str, *, hidden: bool = False, alt: str = "") -> str:
    """Return one cell."""
    options = ['tags: ["remove-cell"]'] if hidden else []
    if alt:
        described = " ".join(alt.split()).replace('"', '\\"')
        options += ["mystnb:", "  image:", f'    alt: "{described}"']
    lines = ["```{code-cell} python", "---", *options, "---", code.rstrip("\n"), "```"]
    return "\n".join(lines if options else [lines[0], *lines[-2:]])


def _hidden_cells(comment: re.Match[str]) -> str:
    """Return the blocks of a comment as hidden cells, or the comment if it has none."""
    blocks = BLOCK.findall(comment[1])
    return "\n\n".join(_cell(code, hidden=True) for code in blocks) or comment[0]


def as_page(name: str, text: str) -> str:
    """Return a generated report with a title, and with anchors that are unique in the site."""
    folder = name.split("/")[-2] if "/" in name else ""
    text = re.sub(r'^<a id="([\w-]+)"></a>$', rf"({folder}-\1)=", text, flags=re.MULTILINE)
    anchors = re.findall(rf"^\({folder}-([\w-]+)\)=$", text, flags=re.MULTILINE)
    for anchor in anchors:
        text = text.replace(f"](#{anchor})", f"](#{folder}-{anchor})")
    title = name.split("/", 2)[-1].replace("/", ", ")
    return text if re.search(r"^# ", text, flags=re.MULTILINE) else f"# Table: {title}\n\n{text}"


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn pages of docs/ that have Python blocks into notebooks, and complete the others."""
    if app.env.doc2path(name).suffix != ".md":
        return
    if not name.startswith("docs/"):
        source[0] = as_page(name, source[0])
    elif BLOCK.search(source[0]) and NOT_EXECUTED not in source[0]:
        source[0] = as_notebook(source[0])


def _separate_profile() -> None:
    """Give kernels an IPython profile of their own: results must not depend on that of a user."""
    folder = Path(tempfile.mkdtemp(prefix="topofl-docs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "profile_default").mkdir()
    config = folder / "profile_default" / "ipython_kernel_config.py"
    config.write_text("get_config().IPKernelApp.log_level = 40\n")
    os.environ["IPYTHONDIR"] = str(folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    _separate_profile()
    if hasattr(os, "fork"):
        kernels.start()
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
