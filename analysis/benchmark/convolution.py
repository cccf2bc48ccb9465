"""Time ways to compute one training step of a small convolutional network on one CPU thread.

In ``python -m analysis.benchmark.convolution``, gradients of pfl-research's SimpleCNN (1.63 million
parameters) on 10 color images of 32 x 32 are computed in turns: as torch does by default, with
channels last, as matrix products of patches, for several nodes at once, in bfloat16, and compiled
(``--compile``, which takes a C++ compiler). ``--out DIR`` writes cpu-convolution.md there.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from topofl import Table

from ..program import at_least_one, parser_of, torch_threads, write

BATCH = 10
NODES = 5
"""Nodes of the ways that compute several at once; times are of one of them."""

LAYERS = (900 * 27 * 32, 784 * 288 * 64, 12544 * 128, 128 * 10)
PRODUCTS = BATCH * (3 * sum(LAYERS) - LAYERS[0])
"""Multiplications of a step: forward, and backward for weights and for inputs other than images."""

Gradients = list[Tensor]


def _network() -> nn.Module:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    pooled = [nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(
        *convolutions, *pooled, nn.Linear(12544, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def _by_patches(own: Sequence[Tensor], images: Tensor) -> Tensor:
    """Apply the network with its convolutions as one product of patches (N H W, 9 C) each."""

    def convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows, height, width, channels = x.shape
        patches = x.unfold(1, 3, 1).unfold(2, 3, 1).reshape(-1, 9 * channels)
        made = torch.addmm(bias, patches, weight.flatten(1).T)
        return functional.relu(made).view(rows, height - 2, width - 2, -1)

    x = convolved(convolved(images.permute(0, 2, 3, 1), *own[:2]), *own[2:4])
    x = functional.max_pool2d(x.permute(0, 3, 1, 2), 2).flatten(1)
    return functional.linear(functional.relu(functional.linear(x, *own[4:6])), *own[6:])


def ways(*, compiled: bool = False) -> dict[str, Callable[[], Gradients]]:
    """Return functions that compute the gradients of a step of one node, or of `NODES`, by name."""
    model, last = _network(), _network()
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    own = [p.detach().clone().requires_grad_() for p in model.parameters()]
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH) % 10
    ordered = images.contiguous(memory_format=torch.channels_last)

    def of(
        network: Callable[[Tensor], Tensor], parameters: Iterable[Tensor], x: Tensor
    ) -> Gradients:
        loss = functional.cross_entropy(network(x), labels)
        return list(torch.autograd.grad(loss, list(parameters)))

    def lowered(network: nn.Module, x: Tensor) -> Gradients:
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(network(x), labels)
        return list(torch.autograd.grad(loss, list(network.parameters())))

    names = [name for name, _ in model.named_parameters()]

    def loss_of(values: list[Tensor], x: Tensor) -> Tensor:
        outputs = functional_call(model, dict(zip(names, values, strict=True)), (x,))
        return functional.cross_entropy(outputs, labels)

    stacked = [p.detach().expand(NODES, *p.shape).contiguous() for p in own]
    shared = images.expand(NODES, *images.shape).contiguous()
    many = vmap(grad(loss_of))
    found = {
        "as it is": lambda: of(model, model.parameters(), images),
        "images with channels last": lambda: of(model, model.parameters(), ordered),
        "network and images with channels last": lambda: of(last, last.parameters(), ordered),
        "one product of patches per convolution": lambda: of(
            lambda x: _by_patches(own, x), own, images
        ),
        f"grouped convolutions over {NODES} nodes": lambda: list(many(stacked, shared)),
        "bfloat16 products": lambda: lowered(model, images),
        "bfloat16 products, channels last": lambda: lowered(last, ordered),
    }
    if compiled:
        fused = torch.compile(model)
        found["torch.compile"] = lambda: of(fused, model.parameters(), images)
    return found


def measure(repeats: int = 25, *, compiled: bool = False) -> Table:
    """Return one row per way: milliseconds of a node's step, speed, and difference of gradients.

    Parameters
    ----------
    repeats
        Turns, of which medians are reported.
    compiled
        Whether torch.compile is among them.
    """
    with torch_threads(1):
        tried = ways(compiled=compiled)
        wanted = tried["as it is"]()
        seconds: dict[str, list[float]] = {name: [] for name in tried}
        apart = {name: _difference(way(), wanted) for name, way in tried.items()}
        for _ in range(repeats):
            for name, way in tried.items():
                start = time.perf_counter()
                way()
                shared = NODES if "nodes" in name else 1
                seconds[name].append((time.perf_counter() - start) / shared)
    plain = seconds["as it is"]
    rows = []
    for name, own in seconds.items():
        faster = statistics.median(a / b for a, b in zip(plain, own, strict=True))
        middle = statistics.median(own)
        rows.append((name, 1e3 * middle, faster, 2e-9 * PRODUCTS / middle, apart[name]))
    columns = ("way", "ms per step", "times as fast", "GFLOP/s", "difference of gradients")
    title = f"Gradients of a CNN of 1.63 million parameters on {BATCH} images, 1 thread"
    return Table(columns, tuple(rows), title=title)


def _difference(found: Gradients, wanted: Gradients) -> float:
    """Return the largest difference of gradients over the largest gradient."""
    first = [a if a.shape == b.shape else a[0] for a, b in zip(found, wanted, strict=True)]
    apart = max(float((a - b).abs().max()) for a, b in zip(first, wanted, strict=True))
    return apart / max(float(b.abs().max()) for b in wanted)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement from the command line; returns the exit code."""
    parser = parser_of(
        "benchmark.convolution",
        __doc__,
        compile=(False, "time torch.compile, too"),
        out=(Path, "folder for the table, such as analysis/results/benchmark"),
    )
    parser.add_argument("--repeats", type=at_least_one, default=25, help="turns (default: 25)")
    options = parser.parse_args(argv)
    table = measure(options.repeats, compiled=options.compile)
    command = "python -m analysis.benchmark.convolution" + " --compile" * options.compile
    page = f"`{command}`, torch {torch.__version__}.\n\n{table.to_markdown()}\n"
    print(page, end="")
    if options.out:
        write(options.out, **{"cpu-convolution": page})
    return 0


if __name__ == "__main__":
    sys.exit(main())
