"""Estimated time and memory of a run, measured in a few of its rounds."""

import time
from dataclasses import replace

from topofl import config
from topofl.runs.cost import peak_memory_megabytes, reset_peak_memory
from topofl.runs.run import Run

__all__ = ["probe"]

PROBED_ROUNDS = 2
"""Rounds of a probe's short runs; its long run has three times as many."""


PROBED_EXAMPLES = 300
"""Largest number of test examples in a probe's evaluations."""


def probe(run: Run) -> tuple[float, float]:
    """Return the estimated seconds of a run and its peak memory in MiB, from a few rounds.

    The times of a round and of an evaluation are differences between probes of different lengths,
    so that one-time costs are counted once.
    """
    reset_peak_memory()
    start = time.perf_counter()
    experiment = config.build(run.tables)
    prepared = time.perf_counter() - start
    # Both of these probes have two evaluations, before the first and after the last round.
    short = _seconds(experiment, PROBED_ROUNDS, every=PROBED_ROUNDS)
    long = _seconds(experiment, 3 * PROBED_ROUNDS, every=3 * PROBED_ROUNDS)
    evaluated = _seconds(experiment, PROBED_ROUNDS, every=1)
    per_round = max(long - short, 0.0) / (2 * PROBED_ROUNDS)
    per_evaluation = max(evaluated - short, 0.0) / (PROBED_ROUNDS - 1)  # of the probe's examples
    once = max(short - PROBED_ROUNDS * per_round - 2 * per_evaluation, 0.0)
    rounds = experiment.options["rounds"]
    evaluations = 1 + -(-rounds // experiment.options["evaluation"].every)
    seconds = prepared + once + rounds * per_round
    seconds += evaluations * per_evaluation / _share(experiment)
    return seconds, peak_memory_megabytes()


def _share(experiment: config.Experiment) -> float:
    """Return the share of a run's test examples on which a probe evaluates."""
    all_examples = experiment.options["evaluation"].examples or len(experiment.clients.dataset.test)
    return (_examples(experiment) or all_examples) / all_examples


def _examples(experiment: config.Experiment) -> int | None:
    """Return the number of test examples of a probe; None for those of the run."""
    evaluation = experiment.options["evaluation"]
    if any(name.startswith("own_") for name in evaluation.on):
        return None
    return min(evaluation.examples or len(experiment.clients.dataset.test), PROBED_EXAMPLES)


def _seconds(experiment: config.Experiment, rounds: int, every: int) -> float:
    evaluation = experiment.options["evaluation"]
    fine_tune_every = None if evaluation.fine_tune_every is None else every
    evaluation = replace(
        evaluation, every=every, examples=_examples(experiment), fine_tune_every=fine_tune_every
    )
    options = {**experiment.options, "rounds": rounds, "evaluation": evaluation}
    start = time.perf_counter()
    replace(experiment, options=options).run(progress=False)
    return time.perf_counter() - start
