"""What all pages share: templates, tables with reasons and meanings, titles, and files."""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from numbers import Real
from pathlib import Path
from typing import IO, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined, Template
from markupsafe import Markup

from topofl._support.table import NotApplicable, Spread, Table, as_text
from topofl._support.text import printable, split_at_commas
from topofl.metrics._columns import GROUPS, MetricColumn
from topofl.metrics.compare import all_columns

_SPELLED = {
    "ad_psgd": "AD-PSGD", "apfl": "APFL", "barabasi_albert": "Barabási-Albert", "beer": "BEER",
    "choco_sgd": "CHOCO-SGD", "d2": "D²", "d_equistatic": "D-EquiStatic", "dadam": "DAdam",
    "davis_southern_women": "Davis' southern women", "dcliques": "D-Cliques",
    "de_bruijn": "de Bruijn", "deepsqueeze": "DeepSqueeze", "demuon": "DeMuon",
    "dfedavgm": "DFedAvgM",
    "dfedpgp": "DFedPGP", "dfedsam": "DFedSAM", "dinno": "DiNNO",
    "dispfl": "DisPFL", "dp_dsgd": "DP-DSGD", "dp_fedavg": "DP-FedAvg",
    "dpfl": "DPFL", "dsgd": "D-SGD", "dsgd_ceca": "DSGD-CECA", "dsgt": "DSGT", "edm": "EDM",
    "erdos_renyi": "Erdős-Rényi", "extra": "EXTRA", "fedala": "FedALA", "fedasync": "FedAsync",
    "fedavg": "FedAvg", "fedbuff": "FedBuff",
    "feddecorr": "FedDecorr", "fedlay": "FedLay", "fedprox": "FedProx", "fedrep": "FedRep",
    "gt_hsgd": "GT-HSGD", "karate_club": "Zachary's karate club", "kautz": "Kautz", "led": "LED",
    "matcha": "MATCHA", "moon": "MOON",
    "motef": "MoTEF", "od_equidyn": "OD-EquiDyn", "osgp": "OSGP", "ou_equidyn": "OU-EquiDyn",
    "pfeddst": "PFedDST", "pfedgraph": "pFedGraph", "pfedme": "pFedMe", "proxskip": "ProxSkip",
    "proxyfl": "ProxyFL",
    "qg_dsgdm": "QG-DSGDm", "relay_sgd": "RelaySGD", "sab": "SAB", "stl_fw": "STL-FW",
    "u_equistatic": "U-EquiStatic",
}  # fmt: skip
"""Names that are not spelled as their identifier with spaces."""

_CALL = re.compile(r"(\w+)\((.*)\)")
_PAIR = re.compile(r"(\w+)=(.+)")
_COUNTS = re.compile(r"label_counts\[(\d+)x\d+\]")
_ATTACK = re.compile(r"(?=, \d+ attackers? \()")


def title_of(name: str) -> str:
    """Return the title of a graph or run by its name; names given by users are unchanged.

    Parameters
    ----------
    name
        Name of a topology, or of a run as "method over topology".

    Examples
    --------
    >>> title_of("dcliques(n=100, clique_size=10, inter='small_world', seed=0)")
    'D-Cliques, 100 nodes, clique size 10, inter small world, seed 0'
    >>> title_of("clique_averaging over link_failures(torus(n=9), fail=0.1)")
    'Clique averaging over link failures, torus (9 nodes), fail 0.1'
    >>> title_of("my graph")
    'my graph'
    """
    method, over, graph = name.partition(" over ")
    if over and re.fullmatch(r"\w+", method):
        return f"{_capitalized(_spelled(method))} over {_graph(graph)}"
    graph = _graph(name)
    return name if graph == name else _capitalized(graph)


def _graph(name: str) -> str:
    """Return "ring, 9 nodes" for "ring(n=9)", followed by a note on attackers if there is one."""
    name, *attack = _ATTACK.split(name, maxsplit=1)
    call = _CALL.fullmatch(name)
    words = name if call is None else ", ".join([_spelled(call[1]), *_arguments(call[2])])
    return words + "".join(attack)


def _arguments(text: str) -> list[str]:
    parts, _ = split_at_commas(text, {"(": ")", "[": "]", "{": "}"})
    return [_argument(part.strip()) for part in parts if part.strip()]


def _argument(text: str) -> str:
    if counts := _COUNTS.fullmatch(text):
        return f"{counts[1]} nodes"
    pair = _PAIR.fullmatch(text)
    if pair is None:
        return _value(text)
    key, value = pair[1].replace("_", " "), pair[2]
    if key == "n":
        return f"{value} nodes"
    if value in ("True", "False"):
        return key if value == "True" else f"no {key}"
    return f"{key} {_value(value)}"


def _value(text: str) -> str:
    if call := _CALL.fullmatch(text):
        inner = ", ".join(_arguments(call[2]))
        return _spelled(call[1]) + (f" ({inner})" if inner else "")
    return text.strip("'").replace("_", " ") if text.startswith("'") else text


def _spelled(identifier: str) -> str:
    return _SPELLED.get(identifier, identifier.replace("_", " "))


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].islower() and text[:2] != "pF" else text


@cache
def _described() -> dict[str, MetricColumn]:
    """Return the columns of :func:`topofl.metrics.compare` by name and in order."""
    return {column.name: column for column in all_columns()}


def by_group(columns: Sequence[str]) -> list[tuple[dict[str, str], list[str]]]:
    """Return the columns by group, with groups in the order of :func:`topofl.metrics.compare`.

    A group has a key and a label, its heading. Unknown columns are in the last one, "other".

    Examples
    --------
    >>> [(group["label"], names) for group, names in by_group(["slem", "luck", "spectral gap"])]
    [('averaging', ['slem', 'spectral gap']), ('other numbers', ['luck'])]
    """
    members: dict[str, list[str]] = {key: [] for key in (*GROUPS, "other")}
    for name in columns:
        members[_described()[name].group if name in _described() else "other"].append(name)
    labels = {**GROUPS, "other": "other numbers"}
    return [({"key": key, "label": labels[key]}, names) for key, names in members.items() if names]


def view(table: Table, key: str, caption: str, *, grouped: bool = True) -> dict[str, Any]:
    """Return what templates show of a table, whose first column has the names of the rows.

    It has the id, caption, name of the first column, groups with their columns, rows with their
    cells, and reasons of missing values. A cell of these has the number of its reason.

    Parameters
    ----------
    table
        Any table.
    key
        Prefix of all ids; unique among the tables of a page.
    caption
        Text above the table.
    grouped
        Whether columns are sorted by groups; otherwise, they keep their order.
    """
    first, *others = table.columns
    missing = (cell.reason for row in table.rows for cell in row if isinstance(cell, NotApplicable))
    reasons = list(dict.fromkeys(missing))
    groups = [
        (group, [_column(table, name, group) for name in names])
        for group, names in (by_group(others) if grouped else [({"key": key, "label": ""}, others)])
    ]
    columns = [column for _, members in groups for column in members]
    rows = [
        {
            "number": k,
            "name": printable(str(row[0])),
            "title": printable(title_of(str(row[0]))),
            "cells": [_cell(row, column, reasons) for column in columns],
        }
        for k, row in enumerate(table.rows, start=1)
    ]
    shown = {"id": key, "caption": caption, "first": first}
    return shown | {"groups": groups, "rows": rows, "reasons": reasons}


def _column(table: Table, name: str, group: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "place": table.columns.index(name),
        "group": group,
        "meaning": _described()[name].meaning if name in _described() else "",
        "is_number": not any(isinstance(cell, str) for cell in table.column(name)),
    }


def _cell(row: Sequence[Any], column: dict[str, Any], reasons: list[str]) -> dict[str, Any]:
    """Return text, sort key and column; for a missing value, its reason and footnote number."""
    value = row[column["place"]]
    if isinstance(value, NotApplicable):
        number = reasons.index(value.reason) + 1
        about = {"text": str(value), "key": "", "note": number, "reason": value.reason}
    else:
        about = {"text": as_text(value), "key": _sort_key(value), "note": 0, "reason": ""}
    return about | {"column": column}


def _sort_key(value: Any) -> str:
    """Return a sort key for JavaScript's ``Number``; empty for NaN, which is sorted last."""
    number = value.mean if isinstance(value, Spread) else value
    if not isinstance(number, Real):
        return str(number)
    key = repr(float(number))
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": ""}.get(key, key)


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


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[str]]:
    """Open a text file that atomically replaces `path` when the ``with`` block is completed.

    It is opened immediately, so that a missing write permission raises before the block is
    executed. If the block raises, or the disk is full, the file at `path` is unchanged.

    Parameters
    ----------
    path
        The file; its folder must exist. Links are followed.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If its folder does not exist or is a file.
    IsADirectoryError
        If `path` is a folder.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as file:
    ...         _ = file.write("whole")
    ...     print(Path(folder, "a.txt").read_text())
    whole
    """
    path, target = Path(path), Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file in it")
    if not target.parent.exists():
        raise FileNotFoundError(
            f"cannot write {path}: there is no folder {path.parent}; create it first"
        )
    if not target.parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {path.parent} is not a folder")
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        file = partial.open("x", encoding="utf-8", newline="\n")
    except OSError as error:
        raise type(error)(f"cannot write {path}: {error.strerror} in {target.parent}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        # The error of a failed write does not name the file.
        if error.filename is None and error.errno is not None:
            raise type(error)(f"cannot write {path}: {error.strerror}") from error
        raise
    finally:
        partial.unlink(missing_ok=True)
