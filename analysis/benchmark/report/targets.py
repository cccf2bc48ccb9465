"""The targets of the engine, with measured values and verdicts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from topofl import NotApplicable, Table

from .measured import Measured, first_reason, quotient

FLOOR = 1.5
"""Logistic regression: maximum ratio to the floor."""

LENET_FLOOR = 1.1
"""GN-LeNet, looped: maximum ratio to the floor."""

BF16 = 2.0
"""GN-LeNet: minimum speedup of bf16."""

AUTO = 1.05
"""Maximum ratio to the step time of the better executor."""

MEMORY = 1.3
"""Maximum ratio to parameters, optimizer state, activations of one chunk, and data."""

EVALUATION = 2.0
"""Maximum ratio to one matrix product of that size."""

WHOLE_RUN = 100.0
"""A run with evaluation every epoch: minimum speedup over the authors' simulator."""

SIMULATOR: Mapping[str, float] = {
    "D-Cliques + CA, 100 x 128": 9,
    "fully-connected, 100 x 128": 25,
    "D-Cliques + CA, 1000 x 13": 30,
    "fully-connected, 1000 x 13": 1000,
    "GN-LeNet, 100 x 20": 2.3,
    "GN-LeNet, 100 x 20, bf16": 4.5,
}
"""Training steps: minimum speedup over the D-Cliques authors' simulator."""


@dataclass(frozen=True)
class TargetCheck:
    """A target and its measured value.

    Parameters
    ----------
    what
        The quantity that is compared.
    measured
        The measured value, or the reason why there is none.
    target
        The limit.
    at_least
        Whether the target is a minimum.
    """

    what: str
    measured: float | NotApplicable
    target: float
    at_least: bool = False

    @property
    def verdict(self) -> str | NotApplicable:
        """``"met"`` or ``"not met"``; the reason if there is no measured value."""
        if isinstance(self.measured, NotApplicable):
            return self.measured
        met = self.measured >= self.target if self.at_least else self.measured <= self.target
        return "met" if met else "not met"


def verdicts(checks: Iterable[TargetCheck], title: str = "") -> Table:
    """Return the table of targets."""
    rows = tuple(
        (
            check.what,
            check.measured,
            f"{'at least' if check.at_least else 'at most'} {check.target:g}",
            check.verdict,
        )
        for check in checks
    )
    return Table(("what", "measured", "target", "verdict"), rows, title=title)


def checks_of_training(
    found: Iterable[Measured], evaluation: float | NotApplicable, whole_run: float | NotApplicable
) -> list[TargetCheck]:
    """Return the checks of the training steps.

    Parameters
    ----------
    found
        Measurements of the cases of :data:`TRAINING`.
    evaluation
        Ratio of the time of evaluating 100 logistic models to that of one product of that size.
    whole_run
        Ratio of the authors' simulator's time per epoch with evaluation to the engine's.
    """
    found = list(found)
    checks = [check for measured in found for check in _of_case(measured)]
    checks += _faster_in_bf16({measured.case.label: measured for measured in found})
    checks.append(
        TargetCheck(
            "evaluation of 100 logistic models on 10,000 images / one product",
            evaluation,
            EVALUATION,
        )
    )
    return [
        *checks,
        TargetCheck(
            "simulator / ours: run with evaluation every epoch *",
            whole_run,
            WHOLE_RUN,
            at_least=True,
        ),
    ]


def _of_case(measured: Measured) -> Iterator[TargetCheck]:
    case = measured.case
    if case.network.is_linear:
        yield TargetCheck(f"ours / floor: {case.label}", measured.ratio("auto"), FLOOR)
    elif case.precision == "fp32":
        yield TargetCheck(f"looped / floor: {case.label}", measured.ratio("looped"), LENET_FLOOR)
    yield TargetCheck(f"auto / better executor: {case.label}", measured.auto_over_better(), AUTO)
    yield TargetCheck(
        f"peak memory / lower bound: {case.label}", memory_ratio(measured, "auto"), MEMORY
    )
    if case.label in SIMULATOR:
        against = quotient(case.simulator, measured.step("auto"))
        yield TargetCheck(
            f"simulator / ours: {case.label} *", against, SIMULATOR[case.label], at_least=True
        )


def _faster_in_bf16(by: Mapping[str, Measured]) -> Iterator[TargetCheck]:
    for label, measured in by.items():
        if (half := by.get(f"{label}, bf16")) is not None:
            faster = quotient(measured.step("looped"), half.step("looped"))
            yield TargetCheck(f"fp32 / bf16, looped: {label}", faster, BF16, at_least=True)


def memory_ratio(measured: Measured, executor: str) -> float | NotApplicable:
    """Return the ratio of peak memory to its lower bound, or the reason why it is unknown."""
    found = measured.memory.get(executor)
    if isinstance(found, Mapping):
        return found["peak"] / found["bound"]
    if found is not None:
        return found
    return first_reason(measured.step(executor)) or NotApplicable("not requested")


def checks_of_matrix(found: Iterable[Measured]) -> list[TargetCheck]:
    """Return the checks of the matrix cases."""
    return [
        TargetCheck(f"auto / better executor: {m.case.label}", m.auto_over_better(), AUTO)
        for m in found
    ]
