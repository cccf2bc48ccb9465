"""What ``topofl doctor`` trains: D-SGD against a loop in numpy, and each layer of a network.

It is in a file of its own, since the other checks work where torch is missing.
"""

import copy
import math
from argparse import Namespace
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import topofl
from topofl import algorithms, data, models, topologies
from topofl._spec import arguments_of, at, find, parameters
from topofl._support.calls import named, table_of
from topofl._support.plugins import load_function
from topofl._support.seeding import seeded_torch
from topofl._support.table import Table
from topofl.cli.output import CommandFailed, print_notes, print_rows
from topofl.data import Partition
from topofl.engine.model_checks import OF_GRAPHS, Layer, layers_of, takes_edges

Shape = tuple[int, ...]

NODES, ROUNDS, LR = 6, 10, 0.5


def losses() -> tuple[np.ndarray, np.ndarray]:
    """Return the final test losses of all nodes, by topofl and by a loop in numpy.

    Nodes on a ring train logistic regression on all of their examples in every round, from zero.
    Hence the result depends on no random numbers, apart from those of the partition.

    Examples
    --------
    >>> ours, reference = losses()
    >>> bool(np.abs(ours - reference).max() < 1e-4), bool(reference.max() < np.log(10))
    (True, True)
    """
    clients = data.shards(data.digits(), n=NODES, per_node=2, seed=0)
    model = models.logistic_regression(64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    history = topofl.run(
        algorithms.dsgd(lr=LR, batch_size=int(clients.sizes.max())),
        model=model,
        clients=clients,
        topology=topologies.ring(NODES),
        rounds=ROUNDS,
        evaluation=ROUNDS,
        init="given",
        seed=0,
        progress=False,
    )
    return np.asarray(history.last("loss")), _reference(clients)


def _reference(clients: Partition) -> np.ndarray:
    """Return the losses of D-SGD in float64: a gradient step, then the mean with two neighbors."""
    dataset = clients.dataset
    inputs = dataset.inputs.flatten(1).double().numpy()
    inputs = np.hstack([inputs, np.ones((len(inputs), 1))])  # a last weight for the bias
    classes = np.eye(10)[dataset.labels.numpy()]
    weights = np.zeros((NODES, inputs.shape[1], 10))
    for _ in range(ROUNDS):
        for node, own in enumerate(clients.train):
            errors = _softmax(inputs[own] @ weights[node]) - classes[own]
            weights[node] -= LR * inputs[own].T @ errors / len(own)
        weights = (weights + np.roll(weights, 1, axis=0) + np.roll(weights, -1, axis=0)) / 3
    likelihoods = _softmax(inputs[dataset.test] @ weights)  # (node, example, class)
    return -np.log((likelihoods * classes[dataset.test]).sum(2)).mean(1)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def print_layers(options: Namespace) -> None:
    """Print how layers are trained; raise :class:`CommandFailed` if runs refuse the network."""
    given = None if options.shape is None else _shape(options.shape)
    with at("`--model`:"):
        model = _model(options.model or "", given)
    if takes_edges(model):
        raise ValueError(f"`--model` must be a network of one input; {OF_GRAPHS}")
    shape, inputs = _examples(model, given)
    found = layers_of(model, inputs)
    if given is None:
        sizes = ",".join(map(str, shape))
        print_notes([f"examples of shape {sizes}, as the first layer takes; --shape gives another"])
    if options.json:
        print_rows(layer._asdict() for layer in found)
    else:
        print(Table(Layer._fields, tuple(_grouped(found))))
    if found[-1].executor == "refused":
        raise CommandFailed(f"runs refuse {options.model}: {found[-1].why}")


def _grouped(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Yield one row for all layers of one type that are trained alike, in order of the first."""
    groups = dict[tuple[str, ...], list[str]]()
    for layer, *alike in layers:
        groups.setdefault(tuple(alike), []).append(layer)
    for alike, names in groups.items():
        few = names if len(names) < 4 else [*names[:2], "...", f"{names[-1]} ({len(names)})"]
        yield Layer(", ".join(few), *alike)


def _shape(text: str) -> Shape:
    sizes = [size.strip() for size in text.split(",")]
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise ValueError(f"`--shape` must be numbers from 1, such as 3,32,32, got {text!r}")
    return tuple(map(int, sizes))


def _model(spec: str, shape: Shape | None) -> nn.Module:
    """Return the network of a spec, a module itself or what a function returns."""
    name, arguments = named(table_of(spec))
    if ":" in name and isinstance(found := load_function(name), nn.Module):
        return found
    function = find("model", name)
    sizes = {"in_shape": shape, "in_features": math.prod(shape)} if shape else {}
    own = {key: size for key, size in sizes.items() if key in parameters(function)}
    with seeded_torch(0):
        return function(**arguments_of(function, own | arguments))


def _examples(model: nn.Module, given: Shape | None) -> tuple[Shape, Tensor]:
    """Return the shape of an example, by default one that the network takes, and two examples."""
    layer = next(
        (m for m in model.modules() if next(m.parameters(recurse=False), None) is not None), None
    )
    shapes, why = [given] if given else [*_taken_by(layer)], ""
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    for shape in shapes:
        with seeded_torch(0), torch.no_grad():
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                inputs = torch.randint(layer.num_embeddings, (2, *shape), device="cpu")
            else:
                inputs = torch.rand(2, *shape, dtype=dtype, device="cpu")
            if given:
                return given, inputs
            try:
                copy.deepcopy(model).eval()(inputs)
                return shape, inputs
            except Exception as error:  # whatever the user's forward raises
                why = f", but {shape} was tried: {type(error).__name__}: {error}"
    raise ValueError(
        "`--shape` must be given for this network, whose first layer does not say what it takes"
        f"{why}; give the shape of an example, such as --shape 3,32,32"
    )


def _taken_by(layer: nn.Module | None) -> Iterator[Shape]:
    """Yield usual shapes of examples that a layer takes."""
    if isinstance(layer, nn.Linear):
        yield (layer.in_features,)
    elif isinstance(layer, nn.Conv2d):
        yield from ((layer.in_channels, side, side) for side in (32, 28, 64, 224))
    elif isinstance(layer, nn.Conv1d):
        yield (layer.in_channels, 128)
    elif isinstance(layer, nn.RNNBase):
        yield (16, layer.input_size)
    elif isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        yield (16,)
