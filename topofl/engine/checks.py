"""What a run refuses before any work is done."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor, nn

from topofl._check import check_choice, check_int
from topofl._seeding import stream
from topofl.algorithms.phase import Algorithm
from topofl.data import Partition
from topofl.engine.evaluate import Evaluated
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology

__all__ = ["check_device", "check_options", "check_output", "check_topology", "evaluated_by"]

EVALUATION_SETS = ("test", "val", "own_test", "own_val")


def check_options(options: Mapping[str, Any]) -> None:
    """Check those arguments of :func:`topofl.run` that can be checked one by one."""
    if not isinstance(options["algorithm"], Algorithm):
        kind = type(options["algorithm"]).__name__
        raise TypeError(f"`algorithm` must be an Algorithm such as algorithms.dsgd(lr=0.1), got {kind}")
    if not isinstance(options["clients"], Partition):
        kind = type(options["clients"]).__name__
        raise TypeError(f"`clients` must be a Partition such as data.shards(data.digits(), n=10, seed=0), got {kind}")
    for name, minimum in (("rounds", 1), ("seed", 0), ("eval_every", 1)):
        check_int(name, options[name], minimum=minimum)
    if options["chunk"] != "auto":
        check_int("chunk", options["chunk"], minimum=1)
    check_choice("precision", options["precision"], ["fp32", "bf16"])
    if options["precision"] == "bf16" and options["dtype"] != torch.float32:
        raise ValueError(f"`dtype` must be torch.float32 with precision='bf16', got {options['dtype']}; leave it out")
    check_choice("on_divergence", options["on_divergence"], ["raise", "freeze", "record"])
    for name, choices in (("channels_last", (True, False, "auto")), ("compile", (True, False))):
        if options[name] not in choices:
            raise ValueError(f"`{name}` must be {' or '.join(map(repr, choices))}, got {options[name]!r}")
    check_choice("evaluate_on", options["evaluate_on"], EVALUATION_SETS)
    check_choice("moments", options["moments"], ["after", "both"])
    check_choice("executor", options["executor"], ["auto", "batched", "looped"])
    check_choice("on_disconnected", options["on_disconnected"], ["raise", "allow"])
    if not isinstance(options["dtype"], torch.dtype):
        raise TypeError(f"`dtype` must be a torch dtype such as torch.float32, got {options['dtype']!r}")
    if options["progress"] not in (True, False, "auto"):
        raise ValueError(f"`progress` must be True, False or 'auto', got {options['progress']!r}")
    check_device(options["device"])
    _check_evaluated(options)
    if not options["dtype"].is_floating_point:
        raise ValueError(f"`dtype` must be a floating point type such as torch.float32, got {options['dtype']}")


def _check_evaluated(options: Mapping[str, Any]) -> None:
    """Check what is evaluated: that there are examples, and as many of them and of nodes as are asked for."""
    clients = options["clients"].pooled() if options["algorithm"].pooled else options["clients"]
    where, examples, nodes = (options[name] for name in ("evaluate_on", "eval_examples", "eval_nodes"))
    indices = _evaluation_indices(clients, where)
    if nodes is not None:
        own = where.startswith("own_")
        there = int(np.count_nonzero([len(i) for i in indices])) if own else clients.n
        named = "the number of nodes with such examples" if own else "n"
        check_int("eval_nodes", nodes, minimum=1, maximum=there, maximum_name=named, remedy="None takes all")
    if examples is None:
        return
    if where.startswith("own_"):
        raise ValueError(
            f"`eval_examples` must be None with evaluate_on={where!r}, whose sets are small, got {examples!r}; "
            "leave it out, or evaluate fewer nodes by eval_nodes"
        )
    check_int(
        "eval_examples", examples, minimum=1, maximum=len(indices), maximum_name=f"len(dataset.{where})",
        remedy="None takes all",
    )  # fmt: skip


def check_device(device: Any) -> None:
    """Check that torch knows the device, and has it; None is fine."""
    try:
        kind = "cpu" if device is None else torch.device(device).type
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"`device` must be such as 'cpu' or 'cuda:0', got {device!r}") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` must be one that is there, got {device!r} without CUDA; leave it out or use 'cpu'")


def check_output(module: nn.Module, inputs: Tensor, n_classes: int) -> None:
    """Apply the model to one example, so that a misfit is told before training."""
    with torch.enable_grad():
        try:
            logits = module(inputs[:1])
            shape = tuple(logits.shape)
        except RuntimeError as error:
            raise ValueError(
                f"`model` cannot take examples of shape {tuple(inputs.shape[1:])}: {error}; build it for that shape, "
                f"e.g. models.logistic_regression({inputs[0].numel()})"
            ) from error
    if len(shape) != 2 or shape[0] != 1 or shape[1] < n_classes:
        raise ValueError(
            f"`model` must return at least n_classes={n_classes} logits an example, got shape {shape} for one example"
        )
    named = dict(module.named_parameters())
    gradients = torch.autograd.grad(logits.sum(), list(named.values()), allow_unused=True)
    unused = [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]
    if unused:
        raise ValueError(f"`model` must use all its parameters, {unused[0]!r} does not change its output; remove it")


def check_topology(algorithm: Algorithm, topology: Any, n: int, on_disconnected: str) -> Topology | TopologySequence:
    """Return the graphs of a run of `algorithm` on n nodes, or raise if they do not fit."""
    if algorithm.pooled or (topology is None and not algorithm.exchanges):
        return Topology(sparse.csr_array((n, n)), name="no edges")
    if topology is None:
        name = algorithm.name
        raise TypeError(f"`topology` must be given, since {name} exchanges models: e.g. topologies.ring({n})")
    graphs = _once(as_topology(topology))
    if graphs.n != n:
        sizes = f"{graphs.name} has n={graphs.n}, `clients` has n={n}"
        raise ValueError(f"`topology` must have one node a client: {sizes}")
    if algorithm.exchanges and on_disconnected == "raise" and graphs.period is not None:
        _check_connected(graphs)
    return graphs


def _once(graphs: Topology | TopologySequence) -> Topology | TopologySequence:
    """Return periodic sequences with their graphs made, so that each has its weights computed once."""
    if isinstance(graphs, Topology) or graphs.period is None:
        return graphs
    members = [graphs.at(t) for t in range(graphs.period)]
    return replace(graphs, generate=members.__getitem__)


def _check_connected(graphs: Topology | TopologySequence) -> None:
    """Refuse graphs whose union over a period is not strongly connected."""
    members = [graphs.at(t).adjacency for t in range(graphs.period or 1)]
    if not Topology(sum(members[1:], members[0])).is_connected:
        raise TopologyError(
            f"`topology` must be connected for nodes to agree, {graphs.name} is not; connect it, or train its parts on "
            "their own with on_disconnected='allow'"
        )


def _evaluation_indices(clients: Partition, evaluate_on: str) -> Any:
    """Return the indices of the shared set, or of each node's own, or raise if there are none."""
    own = evaluate_on.startswith("own_")
    indices = getattr(clients if own else clients.dataset, evaluate_on.removeprefix("own_"))
    if sum(map(len, indices)) == 0 if own else len(indices) == 0:
        remedy = "partition with test_fraction or val_fraction" if own else "choose another `evaluate_on`"
        raise ValueError(f"`evaluate_on` must name a set with examples, {evaluate_on!r} is empty; {remedy}")
    return indices


def evaluated_by(
    clients: Partition, evaluate_on: str, examples: int | None, nodes: int | None, seed: int, device: torch.device
) -> Evaluated:
    """Return what a run evaluates: `examples` and `nodes` are numbers of those drawn from the run's seed, None all.

    More examples or nodes include fewer. Of nodes with examples of their own only those are drawn that have some.
    """
    indices = _evaluation_indices(clients, evaluate_on)
    if evaluate_on.startswith("own_"):
        on = [torch.tensor(np.asarray(i), device=device) for i in indices]
        able = np.flatnonzero([len(i) > 0 for i in indices])
    else:
        on = torch.tensor(_some(np.asarray(indices), examples, stream(seed, "evaluated examples")), device=device)
        able = np.arange(clients.n)
    chosen = range(clients.n) if nodes is None else _some(able, nodes, stream(seed, "evaluated nodes")).tolist()
    return Evaluated(on, chosen)


def _some(values: np.ndarray, size: int | None, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the values at random, in the order they have; None: all."""
    return values if size is None else values[np.sort(rng.permutation(len(values))[:size])]
