"""The record ``run.json`` of a finished run: its contents, and how it differs from another run."""

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from topofl import config
from topofl._support.check import shown
from topofl.history import History
from topofl.runs.cost import environment, peak_memory_megabytes, versions
from topofl.runs.curves import curves_of
from topofl.runs.records import flat_settings
from topofl.runs.run import determining, key_of

__all__ = ["asked_for", "differences", "is_same", "note_of", "other_settings", "record_of"]

Tables = Mapping[str, Mapping[str, Any]]

_CHOSEN = ("executor", "chunk")
"""Settings of ``compute`` that a run can be asked to choose."""


def record_of(
    key: str, history: History, tables: Mapping[str, Any], note: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the contents of ``run.json``: key, configuration, curves and further entries."""
    return {"key": key, "tables": tables, "curves": curves_of(history), **(note or {})}


def note_of(history: History, seconds: float, digest: str = "") -> dict[str, Any]:
    """Return what a record says about the cost and the circumstances of a run.

    Parameters
    ----------
    history
        The history of the run.
    seconds
        Its time, without saving; of a run that was continued, that of its last part.
    digest
        The hash of its dataset; empty: not recorded.
    """
    return {
        "seconds": seconds,
        "megabytes": peak_memory_megabytes(),
        "environment": environment(history),
        "asked": dict(history.meta["asked"]),
        **({"data": digest} if digest else {}),
    }


def asked_for(tables: Tables, record: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return tables in which choices of an earlier run are replaced by what it was asked for.

    ``config.toml`` of a finished run names the executor that the run chose. A run with this
    executor, or with ``"auto"``, is the same run.

    Examples
    --------
    >>> record = {"tables": {"compute": {"executor": "batched"}}, "asked": {"executor": "auto"}}
    >>> asked_for({"compute": {"executor": "batched"}}, record)
    {'compute': {'executor': 'auto'}}
    >>> asked_for({"compute": {"executor": "looped"}}, record)
    {'compute': {'executor': 'looped'}}
    """
    found = {name: dict(table) for name, table in tables.items()}
    own = found.get("compute", {})
    if record is not None:
        chosen = record.get("tables", {}).get("compute", {})
        for name, value in record.get("asked", {}).items():
            if name in own and own[name] in ("auto", chosen.get(name)):
                own[name] = value
    return found


def is_same(record: Mapping[str, Any], tables: Tables, digest: str) -> bool:
    """Return whether a record is that of the run with these tables and this dataset, now."""
    return record["key"] == key_of(asked_for(tables, record), digest)


def differences(record: Mapping[str, Any], tables: Tables, digest: str) -> list[str]:
    """Return what distinguishes the run of a record from another one; empty if it is the same.

    Parameters
    ----------
    record
        The contents of ``run.json``.
    tables
        The configuration of the other run, with all defaults, as JSON values.
    digest
        The hash of its dataset.

    Returns
    -------
    list of str
        Phrases such as ``"algorithm.lr was 0.5, is 0.1"``: settings, then data, then versions.
    """
    if is_same(record, tables, digest):
        return []
    found = other_settings(record["tables"], asked_for(tables, record), record.get("asked", {}))
    if record.get("data", digest) != digest:
        found.append("the contents of the data files are others")
    recorded = record.get("environment", {}).get("versions", {})
    found += [
        f"the version of {name} was {recorded.get(name)}, is {now}"
        for name, now in versions().items()
        if name != "python" and recorded.get(name) != now
    ]
    return found or [f"its key is {record['key']}, not {key_of(tables, digest)}"]


def other_settings(own: Tables, other: Tables, asked: Mapping[str, Any] | None = None) -> list[str]:
    """Return the settings in which two runs differ, among those that determine results.

    Parameters
    ----------
    own, other
        Their configurations.
    asked
        What the first was asked for where its configuration names what it chose; None: unknown, and
        executor and chunk are not compared.

    Examples
    --------
    >>> other_settings({"run": {"rounds": 3, "seed": 0}}, {"run": {"rounds": 5, "seed": 0}}, {})
    ['run.rounds was 3, is 5']
    """
    one, two = _comparable(own), _comparable(other)
    for name in _CHOSEN:
        if asked is None:
            one.pop(f"compute.{name}", None)
            two.pop(f"compute.{name}", None)
        elif name in asked:
            one[f"compute.{name}"] = asked[name]
    return [
        f"{name} was {_value(one, name)}, is {_value(two, name)}"
        for name in sorted({*one, *two})
        if json.dumps(one.get(name)) != json.dumps(two.get(name))
    ]


def _comparable(tables: Tables) -> dict[str, Any]:
    """Return the settings that determine results, as a file has them: without those of None."""
    plain = config.dumps(determining(tables))
    return flat_settings(tomllib.loads(plain))


def _value(settings: Mapping[str, Any], name: str) -> str:
    return shown(settings[name]) if name in settings else "none"
