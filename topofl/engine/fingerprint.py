"""Fingerprint of a run: JSON values that differ if two runs would give different results."""

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import scipy.sparse as sparse
from torch import nn

from topofl._support.digests import digest_of, digest_of_code, plain, without_addresses
from topofl.data import Partition
from topofl.engine.checkpoint import OtherRunError
from topofl.engine.plan import Plan
from topofl.engine.requests import Setup

SAMPLED_ROUNDS = 3
"""Number of rounds whose graphs are compared if the sequence has no period."""

_ROUNDING_OPTIONS = ("precision", "channels_last", "compile", "dtype")
"""Options of a Compute that affect rounding, in addition to the plan."""


def fingerprint(setup: Setup, plan: Plan) -> dict[str, Any]:
    """Return everything that determines the results of a run except the number of rounds.

    Not included: graphs of sequences without a period after their first rounds, code of a model's
    ``forward``, and functions that users' functions call by name.
    """
    algorithm, clients, attack, graphs = setup.algorithm, setup.clients, setup.attack, setup.graphs
    found = {"algorithm": f"{algorithm.name}: {' -> '.join(algorithm.phases)}"}
    for name, settings in algorithm.settings.items():
        found |= {f"{name}.{key}": plain(value) for key, value in settings.items()}
    for name, phase in algorithm.phases.items():
        found |= _code_of(name, phase.init, phase.apply, phase.settings)
    for name, some in setup.trace.steps.items():
        if some:
            training = some[0][0]
            parts = [*training.descend.terms, *([] if training.at is None else [training.at])]
            found[f"{name}.steps"] = " -> ".join(part.name for part in parts) or "plain"
    members = (graphs.at(t) for t in range(graphs.period or SAMPLED_ROUNDS))
    edges = (
        part for one in members for part in (*_csr(one.adjacency), one.groups, one.own_weights)
    )
    used = setup.trace.exchanged
    rules = ", ".join(dict.fromkeys(weights.name for weights in used)) or "none"
    shares = digest_of(part for weights in used for part in _csr(weights.weights))
    data = {field.name: getattr(clients.dataset, field.name) for field in fields(clients.dataset)}
    examples = (part for item in data.items() if item[1] is not None for part in item)
    found |= {
        "topology": f"{graphs.name} {digest_of(edges)}",
        "mixing": f"{rules} {shares}",
        "clients": f"{clients.name} {digest_of(_partition_parts(clients))}",
        "dataset": f"{clients.dataset.name} {digest_of(examples)}",
        "model": f"{type(setup.model).__name__} {digest_of(_model_parts(setup))}",
        "task": plain(setup.task),
        **_code_of("task", setup.task),
        **plan._asdict(),
    }
    if attack is not None:
        found |= {"attackers": plain(attack.description), **_code_of("attackers", attack.forge)}
    return found | {
        "seed": setup.seed,
        "init": setup.init,
        "augment": None if clients.augment is None else clients.augment.name,
        **{f"evaluation.{key}": plain(value) for key, value in setup.evaluation_settings.items()},
        **{f"compute.{key}": plain(getattr(setup.compute, key)) for key in _ROUNDING_OPTIONS},
    }


def members_of(clients: Partition) -> str:
    """Return a short digest of the examples that each node holds, as positions in the dataset."""
    return digest_of([clients.dataset.name, *_partition_parts(clients)]).removeprefix("#")


def structure_of(model: nn.Module) -> str:
    """Return the type of a model, with a short digest of its modules and the parameters' shapes."""
    parts = [without_addresses(repr(model))]
    parts += [f"{name} {tuple(one.shape)}" for name, one in model.named_parameters()]
    return f"{type(model).__name__} {digest_of(parts)[:9]}"


def _code_of(name: str, *values: Any) -> dict[str, str]:
    code = digest_of_code(*values)
    return {f"{name}.code": code} if code else {}


def _csr(matrix: sparse.csr_array) -> tuple[np.ndarray, ...]:
    return matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)


def _partition_parts(clients: Partition) -> Iterator[Any]:
    for key in ("train", "val", "test"):
        nodes = getattr(clients, key)
        yield from (key, np.array([len(node) for node in nodes]), np.concatenate(nodes))


def _model_parts(setup: Setup) -> Iterator[Any]:
    """Yield the structure, the buffers, and the parameters: values if they are used, or shapes."""
    yield without_addresses(repr(setup.model))
    for name, parameter in setup.model.named_parameters():
        yield from (name, parameter if setup.init == "given" else tuple(parameter.shape))
    for name, buffer in setup.model.named_buffers():
        yield from (name, buffer)


def check_same(marker: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ``OtherRunError`` if a checkpoint belongs to another run; warn about other versions.

    Parameters
    ----------
    marker
        The marker of the checkpoint.
    now
        The marker that this process would write.
    """
    if different := _differences(marker["run"], now["run"]):
        raise OtherRunError(
            f"`resume` must continue the same run: {'; '.join(different)}; start another run in "
            "another folder"
        )
    loose = ({**one["versions"], "device": one["device"]} for one in (marker, now))
    if different := _differences(*loose):
        warnings.warn(
            f"the resumed run may round differently: {'; '.join(different)}",
            RuntimeWarning,
            stacklevel=6,
        )


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each entry that has changed."""
    now = json.loads(json.dumps(now))
    keys = dict.fromkeys([*was, *now])
    return [
        f"{key} was {was.get(key)}, is {now.get(key)}"
        for key in keys
        if was.get(key) != now.get(key)
    ]
