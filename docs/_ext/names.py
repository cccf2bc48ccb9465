"""Links from names in docstrings: to the page of a public name, if there is one.

- In docstrings, `word` is an argument or a name. It becomes a link if it is a public name of the
  module, and code otherwise.
- Annotations name classes where they are defined (``topofl.topology.graph.Topology``); their pages
  are under the public names (``topofl.Topology``). Classes of other packages and private aliases
  stay text: the site is built without a network.
"""

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from docutils import nodes
from reference import public_names
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
        return title, target


@cache
def _public_path(target: str) -> str | None:
    """Return the public name of what is defined as `target`, or None."""
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return None
    return public_names().get(id(found))


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
    members = [name for name in domain.objects if name.endswith(f".{target}")]
    if path := _public_path(target) or (members[0] if len(members) == 1 else None):
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", path, node, content)
    of_annotation = "refexplicit" not in node
    of_another_package = target.partition(".")[0] != "topofl"
    return content if of_annotation and (of_another_package or "." in target) else None


def setup(app: Sphinx) -> Mapping[str, Any]:
    """Connect to Sphinx."""
    app.add_role("name", Name())
    app.connect("missing-reference", _missing)
    return {"parallel_read_safe": True}
