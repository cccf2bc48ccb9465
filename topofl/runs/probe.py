"""Estimated time and memory of a run, measured in some of its rounds."""

import time
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from topofl import config
from topofl.callbacks import Callback, Event
from topofl.engine.options import Evaluation
from topofl.runs.cost import peak_memory_megabytes, reset_peak_memory
from topofl.runs.run import Run

__all__ = ["probe"]

PROBED_SECONDS = 0.5
"""A probe goes on until its rounds took this long, so that fluctuations average out."""

PROBED_ROUNDS = 20
"""Largest number of rounds that a probe times."""

EVERY = 3
"""Rounds between evaluations of a probe; rounds without one are timed."""

PROBED_EXAMPLES = 300
"""Largest number of test examples in a probe's evaluations."""


class Timed(NamedTuple):
    """Seconds of a probe's parts: all that happens once, a round, an evaluation, fine-tuning."""

    once: float
    round: float
    evaluation: float
    fine_tuning: float


class _Enough(Exception):
    """Ends the rounds of a probe, which is no error."""


def probe(run: Run) -> tuple[float, float]:
    """Return the estimated seconds of a run and its peak memory in MiB, from some rounds.

    The first round warms up and counts once. The others are timed apart from evaluations, and
    their median counts.
    """
    reset_peak_memory()
    start = time.perf_counter()
    experiment = config.build(run.tables)
    prepared = time.perf_counter() - start
    timed = _timed(experiment)
    rounds, evaluation = (experiment.options[name] for name in ("rounds", "evaluation"))
    evaluations = 1 + -(-rounds // evaluation.every)
    tuned = -(-rounds // (evaluation.fine_tune_every or rounds))
    seconds = prepared + timed.once + rounds * timed.round + tuned * timed.fine_tuning
    evaluations += tuned if timed.fine_tuning else 0  # tuned models are evaluated, too
    seconds += evaluations * timed.evaluation / _share(experiment)
    return seconds, peak_memory_megabytes()


def _share(experiment: config.Experiment) -> float:
    """Return the share of a run's test examples on which a probe evaluates."""
    if (examples := _examples(experiment)) is None:
        return 1.0
    evaluation = experiment.options["evaluation"]
    return examples / (evaluation.examples or len(experiment.clients.dataset.test))


def _examples(experiment: config.Experiment) -> int | None:
    """Return the number of test examples of a probe; None for those of the run."""
    evaluation = experiment.options["evaluation"]
    if not evaluation.on or any(name.startswith("own_") for name in evaluation.on):
        return None
    return min(evaluation.examples or len(experiment.clients.dataset.test), PROBED_EXAMPLES)


def _timed(experiment: config.Experiment) -> Timed:
    """Train until enough rounds are timed, and once more for a round if models are fine-tuned."""
    began = time.perf_counter()
    once: list[float] = []
    rounds: list[float] = []
    evaluations: list[float] = []

    def note(event: Event) -> None:
        if event.kind == "start":
            once.append(time.perf_counter() - began)
        elif event.kind == "evaluation" and event.round > 0:  # equal models are evaluated once
            evaluations.append(event.values["seconds"])
        elif event.kind == "round" and event.round % EVERY:  # evaluated rounds measure gradients
            rounds.append(event.values["seconds"])
        enough = sum(rounds[1:]) >= PROBED_SECONDS or len(rounds) > PROBED_ROUNDS
        if enough and evaluations:
            raise _Enough

    longest = min(experiment.options["rounds"], EVERY * PROBED_ROUNDS)
    evaluation = replace(_evaluation(experiment), every=EVERY, fine_tune=False)
    with suppress(_Enough):
        _run(experiment, max(longest, 2 * EVERY), evaluation, note)
    per_round, per_evaluation = median(rounds[1:]), median(evaluations)
    return Timed(
        once[0] + max(rounds[0] - per_round, 0.0),
        per_round,
        per_evaluation,
        _fine_tuning(experiment, per_evaluation),
    )


def _fine_tuning(experiment: config.Experiment, per_evaluation: float) -> float:
    """Return the seconds of fine-tuning all models once, 0 without fine-tuning."""
    own = experiment.options["evaluation"].fine_tune
    if own is False or (own is None and experiment.algorithm.fine_tune is None):
        return 0.0
    seconds = [0.0]

    def note(event: Event) -> None:
        if event.kind == "evaluation":
            seconds.append(event.values["seconds"])

    _run(experiment, 1, _evaluation(experiment), note)
    return max(seconds[-1] - 2 * per_evaluation, 0.0)  # before and after fine-tuning


def _evaluation(experiment: config.Experiment) -> Evaluation:
    """Return the evaluations of a run on the examples of a probe, fine-tuned at its end."""
    evaluation = experiment.options["evaluation"]
    return replace(evaluation, every=1, examples=_examples(experiment), fine_tune_every=None)


def _run(
    experiment: config.Experiment, rounds: int, evaluation: Evaluation, note: Callback
) -> None:
    options = {**experiment.options, "rounds": rounds, "evaluation": evaluation}
    replace(experiment, options=options).run(progress=False, callbacks=[note])
