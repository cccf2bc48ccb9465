"""Validate ``topologies.recommend`` on partitions and numbers of nodes that are not in the study.

``python -m analysis.advice --data DIR --out analysis/results/advice`` asks for advice in each case
below, trains every candidate with D-SGD, and writes ``advice.md``: how many more rounds the first
choice needs than the best candidate. Training runs are kept in the folder ``runs`` (``topofl runs``
lists them), advice in ``predictions.jsonl``; the same command continues an interrupted one. DIR
contains the folder ``mnist``; without it the cases on the embedded digits are computed.

Everything here was fixed before the first run:

- Cases are those of :data:`CASES` (cases.py): digits and MNIST as in the study, to whose records
  the predictions are fitted, but no pair of partition and number of nodes that is in it. Seeds 0,
  1 and 2 draw the partition, the random graphs and the minibatches.
- Training: D-SGD, logistic regression, 60 rounds with minibatches of 8 on digits, 40 with 16 on
  MNIST; evaluation after every round on digits, after every second on MNIST.
- Learning rate: as in the study, the one of 0.02, 0.05, 0.1, 0.2 and 0.5 with the highest mean
  accuracy over the run on a random 4-regular graph with seed 100, which is not reported.
- Target: 90 % of the final accuracy (last fifth of the evaluations) of the complete graph with the
  same partition. Rounds to target are interpolated linearly between evaluations; a run that does
  not reach the target counts as twice its rounds.
- The first choice is that of ``recommend(clients, <budget>, lr=lr, rounds=rounds)``, without a
  model, for each seed. Its rounds, averaged over seeds, are compared with those of the best
  candidate: the one with the fewest rounds, averaged over seeds, among those of all seeds. The
  first choice should be within 10 % of it in at least 9 of 10 cases.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from topofl import data

from ..program import as_installed
from .cases import CASES, SEEDS
from .report import page
from .runs import compute, outcome, records_of, tuned_rate

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the validation from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.advice"),
        description=as_installed(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="folder with MNIST in it or below")
    parser.add_argument("--out", type=Path, default=Path("out", "advice"), help="folder of results")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    datasets = {"digits": data.digits()}
    if options.data is not None:
        datasets["MNIST"] = data.mnist(options.data)
    records, found = records_of(options.out, CASES, datasets), []
    for case in CASES:
        if case.dataset not in datasets:
            continue
        dataset = datasets[case.dataset]
        lr = tuned_rate(case, dataset, records)
        for seed in SEEDS:
            compute(case, dataset, lr, seed, records)
        found.append(outcome(case, lr, records))
        print(f"{case.name}: {found[-1].ratio(found[-1].first):.3f}", flush=True)
    path = options.out / "advice.md"
    path.write_text(page(found), encoding="utf-8")
    print(f"written: {path}")
    return 0
