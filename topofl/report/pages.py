"""Templates of pages, which share their head, style sheet and navigation."""

import re
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined, Template
from markupsafe import Markup

__all__ = ["page_template"]


@cache
def page_template(package: str, name: str) -> Template:
    """Return a Jinja template that may extend ``topofl.report/base.html``, the look of all pages.

    Inserted text is escaped, and undefined names raise. The blocks of the base are ``policy``
    (allowed sources of scripts; empty for none), ``title``, ``style``, ``header``, ``lead``,
    ``contents`` (the items of the table of contents), ``main`` and ``scripts``.

    Parameters
    ----------
    package
        Package whose folder ``templates`` has the template.
    name
        File name of the template.

    Raises
    ------
    ModuleNotFoundError
        If there is no such package.
    ValueError
        If it has no folder ``templates``.
    jinja2.TemplateNotFound
        If the folder has no such file.

    Examples
    --------
    >>> page_template("topofl.report", "how.html").render(command="", facts=[("Seed", 0)], notes=[])
    '<section id="how" aria-labelledby="how-heading">...<dt>Seed</dt><dd>0</dd>...</section>'
    """
    shared = PrefixLoader({"topofl.report": PackageLoader("topofl.report")})
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters["breakable"] = _breakable
    return environment.get_template(name)


def _breakable(name: str) -> Markup:
    """Return an escaped name with line break opportunities after underscores and parentheses."""
    return Markup("<wbr>").join(re.split(r"(?<=[_(])", name))
