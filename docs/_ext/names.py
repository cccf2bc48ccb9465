"""Links from names in docstrings: to the page of a public name, if there is one.

- In docstrings, `word` is an argument or a name. It becomes a link if it is a public name of the
  module, and code otherwise.
- Code in the text of pages (`data.shards`, `clique_averaging`) becomes a link too.
- Annotations name classes where they are defined (``topofl.topology.graph.Topology``); their pages
  are under the public names (``topofl.Topology``). Classes of other packages and private aliases
  stay text: the site is built without a network.
"""

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from docutils import nodes
from reference import MODULES, public_names
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole

__all__ = ["setup"]


class Name(XRefRole):
    """A name that may be a link."""

    def process_link(
        self,
        env: BuildEnvironment,
        refnode: nodes.Element,
        has_explicit_title: bool,
        title: str,
        target: str,
    ) -> tuple[str, str]:
        """Add what the Python domain needs to look a name up, and that it may be missing."""
        refnode["refdomain"], refnode["reftype"] = "py", "obj"
        refnode["optional"] = True
        for context in ("py:module", "py:class"):
            refnode[context] = env.ref_context.get(context)
        return title, "" if target in _arguments() else target


@cache
def _public_path(target: str) -> str | None:
    """Return the public name of what is defined as `target`, or None."""
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return None
    return public_names().get(id(found))


@cache
def _arguments() -> set[str]:
    """Return the names of the arguments of all public functions and classes."""
    return {
        parameter for path in public_names().values() for parameter in _parameters(_value(path))
    }


@cache
def _by_last_part() -> dict[str, str]:
    """Return the paths of names that text may use alone: unique, and no argument of a function."""
    lasts = Counter(path.rpartition(".")[2] for path in public_names().values())
    return {
        last: path
        for path in public_names().values()
        if lasts[last := path.rpartition(".")[2]] == 1 and last not in _arguments()
    }


def _value(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _parameters(value: Any) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []


def _path_in_text(text: str) -> str | None:
    """Return the public path that code in a text names, as in `data.shards(...)`, or None."""
    named = re.fullmatch(r"(?:topofl\.)?((?:\w+\.)*[A-Za-z_]\w*)(?:\(.*\))?", text, re.DOTALL)
    if named is None:
        return None
    path = f"topofl.{named[1]}"
    is_public = path in public_names().values() or text in MODULES
    return path if is_public else _by_last_part().get(named[1])


def _link_code(app: Sphinx, doctree: nodes.document) -> None:
    """Make code in the text of pages a link where it names something public."""
    if not app.env.docname.startswith("docs/") or "/api/" in app.env.docname:
        return
    for literal in list(doctree.findall(nodes.literal)):
        path = _path_in_text(literal.astext())
        if path and not isinstance(literal.parent, nodes.reference | pending_xref | nodes.title):
            link = pending_xref("", refdomain="py", reftype="obj", reftarget=path)
            link["refdoc"] = app.env.docname
            literal.replace_self(link)
            link += literal


def _missing(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Resolve names by what they refer to."""
    target = str(node.get("reftarget", "")).lstrip(".~")
    if node.get("optional"):
        return content
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    members = [
        name
        for name, entry in domain.objects.items()
        if name.endswith(f".{target}") and not entry.aliased
    ]
    if path := _public_path(target) or (members[0] if len(members) == 1 else None):
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", path, node, content)
    of_annotation = "refexplicit" not in node
    of_another_package = "." in target and target.partition(".")[0] != "topofl"
    return content if of_annotation or of_another_package else None


def setup(app: Sphinx) -> Mapping[str, Any]:
    """Connect to Sphinx."""
    app.add_role("name", Name())
    app.connect("doctree-read", _link_code)
    app.connect("missing-reference", _missing)
    return {"parallel_read_safe": True}
