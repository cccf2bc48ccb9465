"""Time the choice of peers (DPFL), compared with the forward passes that it requires.

In ``python -m analysis.benchmark.choice``, 100 nodes with the DPFL CNN choose among all others,
with and without a budget. In turns with it, the same network is applied as often to the same
images on as many threads, without sums of models. ``--out DIR`` writes cpu-choice.md there.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import topofl
from topofl import Table, algorithms, data, models
from topofl.engine.executor import worker_threads

from ..program import parser_of, torch_threads, write

REPEATS = 3


def _clients(n: int, validation: int) -> data.Partition:
    rng = np.random.default_rng(0)
    each = validation + 16
    inputs = rng.standard_normal((each * n, 3, 32, 32), dtype=np.float32)
    dataset = data.from_arrays(inputs, np.arange(len(inputs)) % 10, name="random")
    nodes = np.arange(len(inputs)).reshape(n, each)
    train, val = tuple(nodes[:, :16]), tuple(nodes[:, 16:])
    return data.Partition(dataset, train, val, tuple(nodes[:, :0]), name="random")


class _CountingRound:
    """A round that counts the models that nodes try in cross-evaluation."""

    def __init__(self, round: Any, tried: list[int]) -> None:
        self.round = round
        self.tried = tried

    def __getattr__(self, name: str) -> Any:
        return getattr(self.round, name)

    def cross_evaluate(self, trials: Any, on: str) -> Any:
        """Evaluate models as the round does, and count them."""
        return self.round.cross_evaluate(
            {i: self._counted(trial) for i, trial in trials.items()}, on
        )

    def _counted(self, trial: Any) -> Any:
        answer = None
        while True:
            try:
                models = next(trial) if answer is None else trial.send(answer)
            except StopIteration as end:
                return end.value
            self.tried[0] += len(models)
            answer = yield models


def _time_choice(clients: data.Partition, budget: int | None) -> tuple[float, int]:
    """Return the seconds of one choice of peers, and the number of models that were tried."""
    policy = algorithms.greedy_peers(budget)
    tried = [0]
    seconds = [0.0]

    def choose(flat: Any, state: Any, round: Any) -> Any:
        counting: Any = _CountingRound(round, tried)
        start = time.perf_counter()
        choice = policy.choose(flat, state, counting)
        seconds[0] = time.perf_counter() - start
        return choice

    # with local steps, as in every run with such a choice: threads are planned by training
    local = algorithms.sgd(0.01, batch_size=16)
    exchange = algorithms.average_over_peers(policy._replace(choose=choose))
    topofl.run(
        algorithms.chain("choice", local=local, exchange=exchange),
        model=models.dpfl_cnn(),
        clients=clients,
        rounds=1,
        seed=0,
        init="independent",
        compute=topofl.Compute(executor="looped"),
        evaluation=topofl.Evaluation(on="own_val", nodes=1),
        progress=False,
    )
    return seconds[0], tried[0]


@torch.no_grad()
def _bare(clients: data.Partition, passes: int, threads: int) -> float:
    """Return the seconds of `passes` forward passes and losses, each on one node's images."""
    layout: Any = {"memory_format": torch.channels_last}
    networks = [models.dpfl_cnn().to(**layout) for _ in range(threads)]
    own = [clients.dataset.inputs[list(val)].contiguous(**layout) for val in clients.val]
    labels = [clients.dataset.labels[list(val)] for val in clients.val]
    each_node = -(-passes // clients.n)

    @torch.no_grad()
    def work(k: int) -> None:
        for i in range(k, clients.n, threads):
            for _ in range(each_node):
                functional.cross_entropy(networks[k](own[i]), labels[i]).item()

    with worker_threads(threads) as parallel_map:
        start = time.perf_counter()
        parallel_map(work, range(threads))
        return time.perf_counter() - start


def _row(
    clients: data.Partition, budget: int | None, threads: int, repeats: int
) -> tuple[str, int, float, float, float]:
    """Time the choice and the forward passes in turns; return medians and the median ratio."""
    turns, limit = [], "none" if budget is None else str(budget)
    for turn in range(repeats):
        print(f"budget {limit}, turn {turn + 1} of {repeats} ...", file=sys.stderr, flush=True)
        seconds, passes = _time_choice(clients, budget)
        turns.append((seconds, _bare(clients, passes, threads), passes))
    ours, bare = (statistics.median(turn[k] for turn in turns) for k in (0, 1))
    return limit, turns[0][2], ours, bare, statistics.median(turn[0] / turn[1] for turn in turns)


def measure(
    n: int = 100,
    validation: int = 80,
    budgets: Sequence[int | None] = (None, 10),
    threads: int = 2,
    repeats: int = REPEATS,
) -> Table:
    """Return one row per budget: seconds of the choice and of the passes, and their ratio.

    Parameters
    ----------
    n, validation
        Number of nodes, and of images on which each node evaluates models.
    budgets
        Maximum number of peers, one per row.
    threads, repeats
        Number of threads, and of turns, of which medians are reported.
    """
    clients = _clients(n, validation)
    with torch_threads(threads):
        rows = [_row(clients, budget, threads, repeats) for budget in budgets]
    columns = ("budget", "models tried", "choice s", "bare passes s", "choice / bare")
    title = f"{n} nodes choose among all others, DPFL CNN, {validation} images each, {threads}"
    return Table(columns, tuple(rows), title=f"{title} thread{'s' * (threads > 1)}")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and write it to the folder given by ``--out``."""
    options = parser_of(
        "benchmark.choice",
        __doc__,
        repeats=(REPEATS, "turns, of 3 minutes each"),
        out=(Path, "folder for cpu-choice.md"),
    ).parse_args(argv)
    table = measure(repeats=options.repeats)
    print(table)
    if options.out is not None:
        command = (
            f"python -m analysis.benchmark.choice --repeats {options.repeats} --out {options.out}"
        )
        page = f"`{command}`, torch {torch.__version__}.\n\n{table.to_markdown()}\n"
        write(options.out, **{"cpu-choice": page})


if __name__ == "__main__":
    main()
