"""Specs: calls of named functions, with arguments checked against their signatures.

The command line and configuration files share this package. Names refer to the exports of topofl,
to custom functions as ``module:function``, and to entry points of installed packages.
"""

from topofl._spec.arguments import Built, arguments_of, at, check_keys, is_ours, recorded, with_seed
from topofl._spec.graphs import build_topology
from topofl._spec.names import catalogue, find, first, offers, parameters
from topofl._spec.parse import NONE, Spec, named, parse_spec, parse_value, table_of

__all__ = [
    "NONE",
    "Built",
    "Spec",
    "arguments_of",
    "at",
    "build_topology",
    "catalogue",
    "check_keys",
    "find",
    "first",
    "is_ours",
    "named",
    "offers",
    "parameters",
    "parse_spec",
    "parse_value",
    "recorded",
    "table_of",
    "with_seed",
]
