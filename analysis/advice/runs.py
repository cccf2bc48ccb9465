"""Training runs of the validation, each computed once, and the outcomes of cases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from topofl import Compute, algorithms, data, topologies
from topofl.advice.calibration import stored
from topofl.advice.prediction import horizon, noise_of
from topofl.metrics.data_fit.labels import label_spread
from topofl.runs.run import digest_of

from ..study.cells import TUNING_GRAPH, TUNING_SEED, Cell
from ..study.records import Records, train
from ..study.scenarios import RATES
from ..study.tables import TARGET, reached_at
from .cases import SEEDS, Case

__all__ = ["Outcome", "compute", "outcome", "records_of", "tuned_rate"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a case.

    Parameters
    ----------
    case, lr
        The case and its learning rate.
    rounds
        Candidate -> (seeds,) rounds to target; NaN for seeds in which it is not a candidate.
    deviation
        The same for predicted deviations.
    first, first_with_model
        (seeds,) names of the first choices.
    covered
        Share of predictions whose interval holds the measured ratio to the complete graph; the
        intervals are those of the calibration in the package.
    """

    case: Case
    lr: float
    rounds: Mapping[str, np.ndarray]
    deviation: Mapping[str, np.ndarray]
    first: Sequence[str]
    first_with_model: Sequence[str]
    covered: float

    @property
    def common(self) -> list[str]:
        """Candidates of all seeds."""
        return [name for name, values in self.rounds.items() if np.isfinite(values).all()]

    @property
    def best(self) -> str:
        """The candidate of all seeds with the fewest rounds."""
        return min(self.common, key=lambda name: self.rounds[name].mean())

    def ratio(self, chosen: Sequence[str]) -> float:
        """Return the rounds of choices, one per seed, over those of the best candidate."""
        mean = np.mean([self.rounds[name][k] for k, name in enumerate(chosen)])
        return float(mean / self.rounds[self.best].mean())

    @property
    def median(self) -> float:
        """Rounds of the median candidate over those of the best one: choosing at random."""
        means = [self.rounds[name].mean() for name in self.common]
        return float(np.median(means) / self.rounds[self.best].mean())

    @property
    def correlation(self) -> float:
        """Rank correlation of predicted deviation and rounds, mean over seeds."""
        found = []
        for k in range(len(SEEDS)):
            pairs = [
                (self.deviation[name][k], self.rounds[name][k])
                for name in self.rounds
                if np.isfinite(self.rounds[name][k])
            ]
            found.append(spearmanr(*zip(*pairs, strict=True)).statistic)
        return float(np.mean(found))


def records_of(
    folder: Path, cases: Sequence[Case], datasets: Mapping[str, data.Dataset]
) -> Records:
    """Return the results of cases in a folder."""
    named = {case.name: case for case in cases}
    digests = {name: digest_of(dataset) for name, dataset in datasets.items()}

    def about(name: str) -> list[Any]:
        case = named[name]
        return [case.n, case.rounds, case.batch_size, digests[case.dataset]]

    return Records(folder, about)


def _cell(case: Case, seed: int, graph: str = "") -> Cell:
    return Cell(case.name, case.partition, "D-SGD", seed, graph)


def _train(
    case: Case,
    clients: data.Partition,
    graphs: Mapping[str, Any],
    rates: Sequence[float],
    seed: int,
    records: Records,
) -> None:
    """Perform the runs on graphs with learning rates that are missing, in this process."""

    def arguments(point: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "algorithm": algorithms.dsgd(point["lr"], batch_size=case.batch_size),
            "model": case.model(),
            "clients": clients,
            "topology": graphs[point["cell"].graph],
            "rounds": case.rounds,
            "evaluation": 1 if case.dataset == "digits" else 2,
            "compute": Compute(device="cpu", on_disconnected="allow"),
            "seed": seed,
        }

    runs = [(_cell(case, seed, name), lr) for name in graphs for lr in rates]
    train(runs, records, arguments, title=case.name)
    if records.failed:
        raise RuntimeError(f"training: {records.failures}; the same command tries them again")


def tuned_rate(case: Case, dataset: data.Dataset, records: Records) -> float:
    """Return the tuned learning rate; see the module's docstring."""
    clients = case.split(dataset, n=case.n, seed=TUNING_SEED)
    graph = topologies.random_regular(case.n, 4, seed=TUNING_SEED)
    _train(case, clients, {TUNING_GRAPH: graph}, RATES, TUNING_SEED, records)
    mean = {
        lr: float(np.mean(_outcomes(case, TUNING_SEED, TUNING_GRAPH, lr, records).get("curve", -1)))
        for lr in RATES
    }
    return max(RATES, key=mean.__getitem__)


def _outcomes(case: Case, seed: int, graph: str, lr: float, records: Records) -> Mapping[str, Any]:
    found = records.outcomes(_cell(case, seed, graph), lr)
    assert found is not None  # it was performed
    return found


def _advised(case: Case, clients: data.Partition, lr: float, seed: int) -> tuple[Any, float]:
    """Return the recommendation, and the ratio of noise to heterogeneity of a measured model."""
    found = topologies.recommend(clients, **case.options, lr=lr, rounds=case.rounds, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = case.model()
    ratio = noise_of(clients, label_spread(clients), model, case.batch_size, seed)
    assert ratio is not None  # there are a model, a batch size and nodes with different labels
    return found, ratio


def compute(case: Case, dataset: data.Dataset, lr: float, seed: int, records: Records) -> None:
    """Compute and keep the advice and all runs of a case and a seed that are missing."""
    if records.prediction(_cell(case, seed)) is not None:
        return
    clients = case.split(dataset, n=case.n, seed=seed)
    found, noise_ratio = _advised(case, clients, lr, seed)
    graphs = {candidate.name: candidate.topology for candidate in found.candidates}
    graphs["complete"] = topologies.fully_connected(case.n)
    _train(case, clients, graphs, [lr], seed, records)
    rows = [[c.name, c.heterogeneity, c.noise, c.deviation] for c in found.candidates]
    records.add(_cell(case, seed), {"noise ratio": noise_ratio, "candidates": rows})


def outcome(case: Case, lr: float, records: Records) -> Outcome:
    """Return the outcome of a case whose runs are all recorded."""
    rounds: dict[str, np.ndarray] = {}
    deviation: dict[str, np.ndarray] = {}
    first, with_model, covered = [], [], []
    curve = stored().curve("default", horizon(lr, case.rounds, stored().hops))
    assert curve is not None  # no case has fewer rounds than hops
    for k, seed in enumerate(SEEDS):
        kept = records.prediction(_cell(case, seed))
        runs = {
            name: _outcomes(case, seed, name, lr, records)
            for name in ["complete", *(row[0] for row in kept["candidates"])]
        }
        reached = runs["complete"]["curve"]
        target = TARGET * float(np.mean(reached[-max(1, len(reached) // 5) :]))
        needed = {name: _needed(run, target, case.rounds) for name, run in runs.items()}
        for name, _, _, predicted, *_ in kept["candidates"]:
            _, low, high = curve.predict(predicted)
            for columns, value in ((rounds, needed[name]), (deviation, predicted)):
                columns.setdefault(name, np.full(len(SEEDS), np.nan))[k] = value
            covered.append(low <= needed[name] / needed["complete"] <= high)
        first.append(kept["candidates"][0][0])
        ratio = kept["noise ratio"]
        with_model.append(min(kept["candidates"], key=lambda r, c=ratio: r[1] + c * r[2])[0])
    return Outcome(case, lr, rounds, deviation, first, with_model, float(np.mean(covered)))


def _needed(run: Mapping[str, Any], target: float, rounds: int) -> float:
    """Return the rounds to a target, twice the rounds of the run if it was not reached."""
    found = reached_at(target, run["curve"], run["rounds"]) if "curve" in run else None
    return 2.0 * rounds if found is None else found
