"""Configuration of the documentation: ``make docs`` builds the site into out/docs.

The source folder is the repository itself, so that pages link to results, the changelog and the
contributing guide where they are. Code blocks of pages in docs/ are executed (docs/_ext/pages.py),
and the reference is written from the docstrings (docs/_ext/reference.py).
"""

import logging
import os
import sys
import warnings
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]

from topofl import __version__ as release  # noqa: E402 - this checkout's

# Tables of contents may have places for pages that come later.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: "glob pattern" not in str(record.msg)
)
warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=DeprecationWarning)

project = "topofl"
author = "The topofl authors"
project_copyright = author
version = release
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "reference",
    "pages",
    "names",
]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/*/*.md",
    "docs/notebooks/*.ipynb",
    "docs/reference/api/*.rst",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "analysis/results/*/*.md",
    "analysis/results/rotating/mnist/*.md",
    "analysis/study/HYPOTHESES.md",
    "paper_figures/results/**.md",
]
exclude_patterns = ["docs/paper", "out", "build", "dist", ".venv", ".git", "**/.ipynb_checkpoints"]
default_role = "name"
nitpicky = True
show_warning_types = True
suppress_warnings = [
    "myst.header",  # generated reports start with headings of the second level
]

autodoc_typehints_format = "short"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_use_plots = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries = False

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "auto"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "warn"
nb_number_source_lines = False

templates_path: list[str] = []
html_theme = "pydata_sphinx_theme"
html_title = "topofl"
html_static_path = [str(DOCS / "_static" / "site.css")]
html_extra_path = [str(DOCS / "_static" / "root")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": True,
    "show_prev_next": True,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
if (base := os.environ.get("TOPOFL_SITE")) is not None:  # set by `make site`
    from versions import switcher

    html_theme_options |= switcher(version, base)
