"""Compare training on designed topologies with D-Cliques and other graphs of equal messages.

``python -m analysis.designed_topologies --data DIR --out analysis/results/designed`` runs what is
missing and writes ``report.md``, ``runs.csv`` and ``differences.png``. Training runs are kept in
the folder ``runs`` (``topofl runs`` lists them), numbers of graphs in ``predictions.jsonl``. DIR
contains the folders ``mnist`` and ``cifar10-subset``; without ``--data`` only digits are used.

Protocol, written before the first reported run, but for the item on incomplete comparisons:

* **Question.** Does training on ``topologies.designed`` learn faster than on D-Cliques that send
  as many messages per round, and how does it compare with STL-FW, ``designed_directed``, base
  graphs, exponential graphs and random regular graphs?
* **Settings.** Two shards per node and D-SGD in all of them. Digits: 60 nodes, logistic regression,
  minibatches of 8, 120 rounds. MNIST: 100 nodes, logistic regression, minibatches of 128, 80
  rounds. CIFAR-10 subset (5,085 training and 1,017 test images, averaged to 16 x 16 pixels): 20
  nodes, GN-LeNet, minibatches of 10, momentum 0.9, 120 rounds. Accuracies on this subset cannot be
  compared with published ones.
* **Seeds.** 0 to 9. A seed is that of the partition, of the graphs and of the training, so that
  both runs of a pair have the same data, initial model and minibatches.
* **Learning rates.** Per setting, the one of 0.02, 0.05, 0.1, 0.2 and 0.5 (times 0.1 with momentum
  0.9) with the highest mean accuracy over all rounds on a random 4-regular graph with seed 100,
  which is not reported. All graphs use it.
* **Equal messages.** D-Cliques of 10 and of 5, joined in a ring, set two budgets (about 9.2 and 4.4
  messages per node and round; an undirected edge carries two messages). STL-FW,
  ``designed_directed`` and random regular graphs get the degree nearest to the budget; base graphs
  and exponential graphs are those with the nearest number of messages, on average over their
  period. Each of these graphs is compared with a designed topology of its own, which has as many
  edges as fit into its number of messages: designed topologies never send more. All arguments of
  ``designed`` but ``edges`` and ``seed`` have their default values.
* **Outcomes.** Primary: test accuracy averaged over nodes and over the evaluations of the first
  half of the rounds ("learning phase"). Also: averaged over nodes and the evaluations of the last
  fifth ("final"), and that of the worst node after the last round ("worst node").
* **Verdicts.** The paired difference, designed minus other, has a 95 % t-interval over seeds. An
  interval above 0 is "better", one below 0 "worse", one that contains 0 "undecided". Intervals are
  not corrected for the number of comparisons.
* **Incomplete comparisons.** Comparisons without all seeds have no verdict and are listed. Runs
  that diverge count with an accuracy of 0. Results of other seeds (``--seeds``) have a section of
  their own.
* **Hypotheses.** In each setting, against D-Cliques of 10 and of 5: the learning phase is better
  (1), and the worst node is better (2). Comparisons with other graphs have no hypothesis.

The seeds 100 to 105 of the partitions were used to develop ``designed`` and to choose the numbers
of rounds; no reported seed was.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..program import as_installed
from .report import write_report
from .runs import compute, records_of
from .settings import SEEDS, SETTINGS

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    known = [name for name in SETTINGS if options.data is not None or name == "digits"]
    seeds = range(options.seeds[0], options.seeds[1] + 1)
    end = time.monotonic() + 60 * options.minutes
    try:
        records = records_of(options.out, options.data)
        compute(
            options.settings or known,
            records,
            root=options.data,
            seeds=seeds,
            more=lambda: time.monotonic() < end,
        )
    except (ValueError, OSError) as error:
        print(
            as_installed(f"python -m analysis.designed_topologies: error: {error}"), file=sys.stderr
        )
        return 2
    if records.failures:
        print(f"{records.failures}; the same command tries them again")
    for path in write_report(records, options.out):
        print(f"written: {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.designed_topologies"),
        description=as_installed(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "settings",
        nargs="*",
        choices=[*SETTINGS, []],
        metavar="SETTING",
        help=f"one of {', '.join(SETTINGS)}; default: all whose data are given",
    )
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs=2,
        default=(SEEDS[0], SEEDS[-1]),
        metavar=("FIRST", "LAST"),
        help=f"seeds that are run (default {SEEDS[0]} {SEEDS[-1]})",
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run after this time")
    parser.add_argument(
        "--out", type=Path, default=Path("out", "designed"), help="folder (default out/designed)"
    )
    return parser
