"""What phases see of a run, and do to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from topofl._seeding import stream
from topofl.algorithms.phase import LocalSGD, Mixture, Models, Phase, Proximal, Rule, Trial, check_key
from topofl.engine.asking import ask
from topofl.engine.batches import Batch
from topofl.engine.declared import check_declared, check_gradients
from topofl.engine.divergence import Diverged
from topofl.engine.diversity import GradientStatistics
from topofl.engine.executors import Descent, all_gradients, local_sgd
from topofl.engine.mixer import Mixer
from topofl.engine.population import Population
from topofl.engine.recorder import Ledger
from topofl.engine.threads import Each
from topofl.engine.world import World
from topofl.mixing import MixingMatrix

__all__ = ["WorldRound"]

T = TypeVar("T")


@dataclass(eq=False)
class WorldRound:
    """The round that phases see; see :class:`topofl.algorithms.phase.Round`."""

    world: World
    each: Each
    t: int
    statistics: GradientStatistics | None
    phase: str = ""
    declared: Phase | None = None
    only: np.ndarray | None = None
    losses: Tensor | None = None
    lr: float | None = None
    used: MixingMatrix | None = None
    seen: dict[str, list[Tensor]] = field(default_factory=dict)
    diverged: list[Diverged] = field(default_factory=list)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.world.models.flat.element_size())
        self.topology = self.world.graphs.at(self.t)

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; asking for it records it as used."""
        check_declared(self.phase, self.declared, "weights")
        self.used = self.world.weights(self.topology)
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """The column stochastic matrix of the round; asking for it records it as used."""
        check_declared(self.phase, self.declared, "push_weights")
        self.used = self.world.push_weights(self.topology)
        return self.used

    @property
    def sizes(self) -> np.ndarray:
        """See the protocol."""
        return self.world.learner.batches.sizes

    def rng(self, purpose: str) -> np.random.Generator:
        """See the protocol."""
        return stream(self.world.seed, purpose, self.t)

    def local_sgd(
        self,
        models: Models,
        how: LocalSGD,
        *,
        velocity: Tensor | None = None,
        proximal: Proximal | None = None,
        mask: Tensor | None = None,
        toward: Tensor | None = None,
        who: np.ndarray | None = None,
        mixture: Mixture | None = None,
    ) -> None:
        """See the protocol."""
        if how.gradient is not None:
            check_declared(self.phase, self.declared, "local_sgd with a `gradient` rule", "gradients")
        world = self.world
        whole = how.counts(self.sizes)
        counts = self._counts(whole, who)
        if not counts.any():
            return
        steps = int(counts.max())
        even = bool((counts == steps).all())
        firsts, drawn = self.t * whole * how.minibatches, steps * how.minibatches
        batches = [world.learner.batches.at(firsts + k, how.batch_size, self.phase) for k in range(drawn)]
        descent = self._descent(cast(Population, models), how, velocity, proximal, mask, toward)
        descent = replace(descent, inner_lr=how.inner_lr, mixture=mixture)
        bad = world.guard.frozen(models.flat.device)
        mix_gradients = None if how.gradient is None else self._gradient_mixer(how.gradient, steps)
        statistics = None if self.losses is not None else self.statistics  # of the first phase that trains
        options = {"mix_gradients": mix_gradients, "statistics": statistics}
        if even or world.learner.plan.chunk == 1:
            options["counts"] = None if even else counts
            losses, bad = local_sgd(world.learner, self.each, descent, batches, world.guard, bad=bad, **options)
        else:
            losses = self._compact(descent, batches, counts, bad, options)
        self._note(losses, bad, counts, how.lr, predicts=models is world.models)

    def _counts(self, counts: np.ndarray, who: np.ndarray | None) -> np.ndarray:
        """Return how many steps each node takes: none where it does not take part, or the round is not about it."""
        if who is not None and (who.dtype != bool or who.shape != counts.shape):
            raise ValueError(
                f"`who` must return one boolean a node, shape {counts.shape}, got {who.dtype} of shape {who.shape}"
            )
        for taking_part in (who, self.only):
            counts = counts if taking_part is None else np.where(taking_part, counts, 0)
        return counts

    def _descent(
        self,
        models: Population,
        how: LocalSGD,
        velocity: Tensor | None,
        proximal: Proximal | None,
        mask: Tensor | None,
        toward: Tensor | None,
    ) -> Descent:
        layout = models.layout
        trained = None if how.train.is_everything else tuple(how.train.places(layout.names))
        weighted = () if bool((models.mass == 1).all()) else tuple(self.world.pushed.places(layout.names))
        return Descent(
            models, how.lr, how.momentum, velocity, how.weight_decay, how.clip, trained, proximal, mask,
            models.mass if weighted else None, weighted, toward=toward,
        )  # fmt: skip

    def _compact(
        self, descent: Descent, batches: Sequence[Batch], counts: np.ndarray, bad: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """Train in one piece the nodes that take steps, those that take most first; return all losses."""
        world = self.world
        nodes = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        rows = torch.from_numpy(nodes).to(bad.device)
        models = descent.models.like(descent.models.flat[rows])
        small = replace(
            descent,
            models=models,
            **{name: _taken(getattr(descent, name), rows) for name in ("velocity", "mask", "mass", "toward")},
            proximal=descent.proximal and Proximal(_taken(descent.proximal.anchor, rows), descent.proximal.strength),
            mixture=descent.mixture and _some_of(descent.mixture, rows),
        )
        few = [batch.of(nodes) for batch in batches]
        some, found = local_sgd(
            world.learner, self.each, small, few, world.guard, counts=counts[nodes], bad=bad[rows], **options
        )
        descent.models.flat[rows], bad[rows] = models.flat, found
        if descent.velocity is not None and small.velocity is not None:
            descent.velocity[rows] = small.velocity
        if descent.mixture is not None and small.mixture is not None:
            descent.mixture.common.flat[rows] = small.mixture.common.flat
            descent.mixture.share[rows] = small.mixture.share
        losses = some.new_zeros(len(counts), some.shape[1])
        losses[rows] = some
        return losses

    def _note(self, losses: Tensor, bad: Tensor, counts: np.ndarray, lr: float, predicts: bool) -> None:
        """Keep the losses of the last phase that trains the models that predict, and who diverged."""
        taken = torch.from_numpy(counts).to(losses.device)
        idle = self.world.guard.frozen(losses.device) | (taken == 0)  # what they computed is not theirs
        if predicts or self.losses is None:
            self.losses, self.lr = (losses.sum(1) / taken.clamp(min=1)).masked_fill(idle, torch.nan), lr
        self.diverged += self.world.guard.note(losses, bad, self.t, lr)

    def ask(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See the protocol."""
        return ask(self.world, self.each, trials, self.world.held[on])

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See the protocol."""
        check_gradients(self.phase, self.declared)
        learner = self.world.learner
        batch = learner.batches.at(self.t, batch_size, f"{self.phase}/{key}" if check_key(key) else self.phase)
        losses, gradients = all_gradients(learner, self.each, cast(Population, models), batch, key)
        if models is self.world.models:
            self._note_gradients(losses)
        return gradients

    def _note_gradients(self, losses: Tensor) -> None:
        """Keep the losses at which gradients were taken, by phase; they count in rounds without local steps."""
        self.seen.setdefault(self.phase, []).append(losses)
        if self.losses is None:
            bad = ~torch.isfinite(losses)
            self.diverged += self.world.guard.note(losses[:, None], bad, self.t, float("nan"))

    @property
    def node_losses(self) -> Tensor | None:
        """(n,) the losses of the round: of local steps, else where gradients were taken by the last phase that did."""
        if self.losses is not None or not self.seen:
            return self.losses
        return torch.stack(list(self.seen.values())[-1]).mean(0)

    def _gradient_mixer(self, rule: Rule, steps: int) -> Mixer:
        """Return what mixes all nodes' gradients, on all threads."""
        weights = self.world.weights(self.topology, rule)
        for _ in range(steps):
            self.ledger.add(weights, self.world.models.layout.d, gradients=True)
        return self.world.mixer(weights)._replace(apply=partial(self._mix, weights))

    def _mix(self, weights: MixingMatrix, values: Tensor) -> None:
        """Mix without counting; each worker takes a share of the columns."""
        mix = self.world.mixer(weights)
        self.each(mix, values.tensor_split(self.world.learner.plan.workers if mix.by_columns else 1, dim=1))

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """See the protocol."""
        check_declared(self.phase, self.declared, "mix")
        parts = [values[:, part] for part in columns]
        if counted:
            self.ledger.add(weights, sum(part.shape[1] for part in parts) + scalars, server=server)
        self.used = self.used or weights
        for part in parts:
            if server:
                _serve(weights, part)
            else:
                self._mix(weights, part)

    def send(self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False) -> None:
        """See the protocol."""
        check_declared(self.phase, self.declared, "send")
        self.ledger.send(weights, nbytes, server=server)
        self.used = self.used or weights


def _serve(weights: MixingMatrix, values: Tensor) -> None:
    """Replace all rows by the mean that each row of `weights` is."""
    row = slice(*weights.weights.indptr[:2])
    nodes = torch.from_numpy(weights.weights.indices[row].astype(np.int64)).to(values.device)
    shares = torch.from_numpy(weights.weights.data[row].copy()).to(values)
    values.copy_((shares @ values[nodes]).expand_as(values))


def _taken(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values[rows]


def _some_of(mixture: Mixture, rows: Tensor) -> Mixture:
    """Return a copy of a mixture, of some nodes."""
    return mixture._replace(common=mixture.common.like(mixture.common.flat[rows]), share=mixture.share[rows])
