"""The record of one run, and all that is computed, drawn, saved and loaded of it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._columns import SECONDS, ScoreColumn, as_json
from topofl._support.check import (
    check_choice,
    check_number,
    check_probability,
    check_switch,
    shown,
)
from topofl._support.notebook import as_html
from topofl._support.table import NotApplicable
from topofl._support.text import node_name
from topofl.history import files, plots
from topofl.history.record import Record, series_of, why_not_scored
from topofl.history.statistics import Personal, goodness, over_nodes, records_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False, repr=False)
class History(Record):
    """The record of one run: losses, scores, costs, mixing matrices and models.

    Parameters
    ----------
    meta
        What determined the run, as JSON values: algorithm, topology, seed, sizes, versions.
        ``meta["groups"]`` has the groups of nodes of its topology, such as cliques, if any,
        ``meta["nodes"]`` the labels of its nodes, integers or texts, if they have any, and
        ``meta["server"]`` is true if nodes send to a server. ``meta["partition"]`` has the ``seed``
        of the partition, None if it is not known, and a digest of the ``members`` of its nodes.
        ``meta["task"]`` has the name of the task and its scores, the primary one first, each with
        ``"high"`` or ``"low"``, whichever is better; without it the task is classification with
        accuracy. ``meta["columns"]`` has the ``score`` of each column of scores, the ``stage`` at
        which models were scored (``""`` at the end of a round), and the ``set`` of examples;
        without it these follow from the names of the columns.
    rounds
        Columns of length R, one entry per round 1..R: ``train_loss`` (mean over nodes of the
        minibatch loss before each step), ``steps`` (local steps of all nodes; SAM and Per-FedAvg
        compute two gradients in each), ``messages``, ``bytes`` (sums over nodes),
        ``busiest_messages``, ``busiest_bytes`` (in + out of the node, or server, with the most),
        and ``messages_paper``, ``bytes_paper`` (the D-Cliques paper's accounting, in which
        gradients go to all neighbors); with push-sum ``smallest_push_weight``; on a simulated clock
        ``simulated_seconds``, the time at the end of the round; and numbers that phases note.
    evaluations
        Entries of length E, one per evaluation: ``round`` (0 is before training); the scores of the
        task, such as ``accuracy``, and ``loss``, (E, n), of every node's model at the end of the
        round (NaN for nodes that were not evaluated); ``consensus_distance``; and
        ``gradient_diversity`` of the round's first step (NaN for round 0, which has none).

        With ``before_exchange=True`` also ``accuracy_before_exchange`` and
        ``loss_before_exchange``, with fine-tuning ``accuracy_fine_tuned`` and ``loss_fine_tuned``
        (NaN where models were evaluated without), and with nearest neighbors ``accuracy_knn`` and
        ``loss_knn``, all (E, n). If several sets are evaluated, columns of the second and later
        ones end in their names, as in ``accuracy_own_val`` and ``loss_before_exchange_own_val``;
        :meth:`column` finds names. With push-sum also ``push_weight`` (E, n), and values per node
        that phases note or ``Evaluation(per_node=)`` computes, (E, n), which are NaN in evaluations
        without. If only a part of the models is exchanged, distances are of that part. With
        ``Evaluation(on=())`` there are no scores and losses.
    node_loss
        (R, n) minibatch loss of each node, mean over the steps of the last phase that trains
        parameters used for prediction; NaN where the node did not train.
    matrices
        The distinct mixing matrices, in order of first use. A large matrix with equal rows is
        stored as its distinct rows and assembled on access.
    matrix_of_round
        (R,) index into `matrices`; of a round without an exchange, that of the identity.
    models
        The nodes' models after the last round: their parameters ``models.flat``, (n, d) on the CPU,
        ``models.state_dict(node)`` and ``models.module(node)``. None if the run did not keep them
        (``topofl.Saving(models=False)``) or the history was saved without.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> history = topofl.run(
    ...     algorithms.dsgd(lr=0.5),
    ...     model=models.logistic_regression(64),
    ...     clients=clients,
    ...     topology=topologies.ring(4),
    ...     rounds=2,
    ...     seed=0,
    ... )
    >>> history["messages"].tolist()  # of each round; each node sends to 2 neighbors
    [8, 8]
    >>> history["round"].tolist(), history["accuracy"].shape  # of each evaluation; 4 nodes
    ([0, 2], (2, 4))
    """

    def __repr__(self) -> str:
        rows: Any = self.evaluations.get(self.primary, ())
        values = rows[-1] if len(rows) else np.full(self.node_loss.shape[-1], np.nan)
        text = f"{self._run}: {self.n_rounds} rounds, n={len(values)}, "
        mean = float(over_nodes(values)["mean"])
        text += f"final {self.primary} {mean:.4f}" if len(rows) else "not evaluated"
        sampled = self.meta.get("evaluation", {})
        sizes = [f"{k} {what}" for what in ("nodes", "examples") if (k := sampled.get(what))]
        text += f" of a sample of {' and '.join(sizes)}" if sizes else ""
        text = self._with_attack(text)
        if self.n_rounds and SECONDS in self.rounds:
            text += f", {float(self.rounds[SECONDS][-1]):.4g} simulated seconds"
        if share := self.meta.get("largest_share"):
            name = node_name(self.meta.get("nodes", ()), share[0])
            text += f", node {name} has {share[1]:.3f} of the average, not 1/{len(values)}"
        if diverged := self.meta.get("diverged"):
            text += f", {len(diverged)} nodes diverged"
        return f"History({text})"

    def _repr_html_(self) -> str:
        values = self.evaluations.get(self.primary, np.zeros(0))
        if np.ndim(values) != 2 or len(values) < 2 or not np.isfinite(values).any():
            return as_html(repr(self))
        curve = series_of(self, self.primary, "rounds", "curve")
        return as_html(repr(self), plots.small_picture(curve))

    def last(self, column: str | None = None) -> np.ndarray:
        """Return the nodes' scores after the last round, (n,); NaN for nodes without one.

        Parameters
        ----------
        column
            A column with one value per node, such as ``"accuracy_fine_tuned"``; None: the task's
            primary score.

        Raises
        ------
        KeyError
            If there is no such column, with the nearest name.
        ValueError
            If it has a single value for all nodes.
        """
        return self._scores_of_nodes("column", column)[-1]

    def _scores_of_nodes(self, argument: str, name: str | None) -> np.ndarray:
        """Return a column of shape (E, n), or raise an error that names the argument."""
        name = self.primary if name is None else name
        try:
            values = self[name]
        except TypeError as error:
            raise TypeError(str(error).replace("`column`", f"`{argument}`")) from None
        except KeyError as error:
            remedy = ""
            if argument == "validation":
                remedy = "; run with evaluation=('own_test', 'own_val')"
            raise KeyError(f"`{argument}`: {error.args[0]}{remedy}") from None
        if values.ndim != 2:
            known = ", ".join(key for key, column in self.evaluations.items() if column.ndim == 2)
            raise ValueError(
                f"`{argument}` must have one score per node, as {known} do, got {shown(name)}, "
                "which has one number for all nodes"
            )
        return values

    def best(self, column: str | None = None) -> np.ndarray:
        """Return the nodes' scores, (n,), at the evaluation with the best mean over nodes.

        Ties go to the latest evaluation. On a test set, this selects the round on test data and is
        optimistic; it is available because papers report it. For an unbiased choice use
        :meth:`best_on_validation`.

        Parameters
        ----------
        column
            A score; the task says whether high or low is best. None: its primary score.

        Raises
        ------
        KeyError, ValueError
            As :meth:`last`.
        """
        column = self.primary if column is None else column
        values = self._scores_of_nodes("column", column)
        means = goodness(over_nodes(values)["mean"], self.low_is_good(column))
        return values[len(means) - 1 - means[::-1].argmax()]

    def best_on_validation(
        self, column: str | None = None, validation: str | None = None
    ) -> np.ndarray:
        """Return each node's score, (n,), at the evaluation with its best validation score.

        Each node keeps the model of its own best round; ties go to the latest round. Evaluations in
        which either score is NaN are skipped; the result is NaN for nodes that have no other.

        Parameters
        ----------
        column
            The reported score; None: the task's primary score.
        validation
            A score on other examples at the same stage: for ``"accuracy_before_exchange"`` take
            ``"accuracy_before_exchange_own_val"``. None: the primary score on ``"own_val"``.

        Raises
        ------
        KeyError
            If there is no such column; validation needs ``topofl.run(evaluation=("own_test",
            "own_val"))``.
        ValueError
            As :meth:`last`.

        References
        ----------
        Kharrat, Canini and Horváth (2025), DPFL, appendix F and its code.
        """
        if validation is None:
            default = ScoreColumn(self.primary, "", "own_val")
            names = (name for name, known in self.score_columns.items() if known == default)
            validation = next(names, f"{self.primary}_own_val")
        values = self._scores_of_nodes("column", column)
        judged = self._scores_of_nodes("validation", validation)
        usable = ~(np.isnan(values) | np.isnan(judged))
        judgment = np.where(usable, goodness(judged, self.low_is_good(validation)), -np.inf)
        latest_best = len(judgment) - 1 - judgment[::-1].argmax(0)
        chosen = np.take_along_axis(values, latest_best[None], axis=0)[0]
        return np.where(usable.any(0), chosen, np.nan)

    def personal(self, column: str | None = None, *, validation: str | None = None) -> Personal:
        """Return mean, variance and worst tenth of the nodes' scores.

        Parameters
        ----------
        column
            A score; None: the task's primary score.
        validation
            Take each node's best evaluation by this column, as :meth:`best_on_validation`; None:
            the last evaluation.

        Raises
        ------
        KeyError, ValueError
            As :meth:`best_on_validation`.
        """
        best = None if validation is None else self.best_on_validation(column, validation)
        values = self.last(column) if best is None else best
        return Personal.of(values, low_is_good=self.low_is_good(column or self.primary))

    def rounds_to(self, value: float, column: str | None = None) -> int | NotApplicable:
        """Return the first evaluated round whose mean score over nodes reaches a target.

        If no evaluation reaches it, the result is a :class:`topofl.NotApplicable` with the reason.
        A score reaches the target at `value` or above if high is good, at `value` or below if low
        is good. The resolution is the run's ``evaluation.every``: evaluate every round to count
        single rounds.

        Parameters
        ----------
        value
            The target; for accuracies between 0 and 1.
        column
            A score, such as ``"accuracy_before_exchange"``; None: the task's primary score.

        Raises
        ------
        ValueError
            If `value` is not a number (for accuracies, one between 0 and 1), or `column` is not a
            score.
        KeyError
            If there is no such column.
        """
        column = self.primary if column is None else column
        values = self._scores_of_nodes("column", column)
        score = self.score_of(column)
        if score is None:
            raise ValueError(
                "`column` must be a score, which can reach a target, such as "
                f"{', '.join(self.scores)}, got {shown(column)}"
            )
        (check_probability if score == "accuracy" else check_number)("value", value)
        low_is_good, means = self.low_is_good(column), over_nodes(values)["mean"]
        reached = means <= value if low_is_good else means >= value
        if reached.any():
            return int(self.evaluations["round"][reached.argmax()])
        known = means[~np.isnan(means)]
        if not len(known):
            best = "it has no value"
        elif low_is_good:
            best = f"the lowest is {known.min():.4g}"
        else:
            best = f"the highest is {known.max():.4g}"
        return NotApplicable(
            f"no mean {column} of {len(means)} evaluations in {self.n_rounds} rounds is {value:g} "
            f"or {'less' if low_is_good else 'more'}: {best}"
        )

    def bytes_to(self, value: float, column: str | None = None) -> int | NotApplicable:
        """Return the bytes that all nodes sent up to the round of :meth:`rounds_to`.

        If no evaluation reaches the target, the result is a :class:`topofl.NotApplicable` with the
        reason.

        Parameters
        ----------
        value, column
            As in :meth:`rounds_to`, with the same errors. For scores before an exchange, the bytes
            of that exchange do not count.
        """
        done = self.rounds_to(value, column)
        if isinstance(done, NotApplicable):
            return done
        return int(self._elapsed("megabytes", [done], column or self.primary)[0])

    def seconds_to(self, value: float, column: str | None = None) -> float | NotApplicable:
        """Return the simulated seconds until the end of the round of :meth:`rounds_to`.

        If no evaluation reaches the target, or the run has no simulated clock, the result is a
        :class:`topofl.NotApplicable` with the reason.

        Parameters
        ----------
        value, column
            As in :meth:`rounds_to`, with the same errors.

        Examples
        --------
        >>> import topofl
        >>> from topofl import algorithms, data, models, topologies
        >>> clients = data.iid(data.digits(), n=5, seed=0)
        >>> clock = {"compute": [1, 1, 1, 1, 4], "delay": 0.5}
        >>> history = topofl.run(algorithms.timed(algorithms.dsgd(lr=1.0), clock), clients=clients,
        ...                      model=models.logistic_regression(64), topology=topologies.ring(5),
        ...                      rounds=5, evaluation=1, seed=0)
        >>> history.rounds_to(0.2), history.seconds_to(0.2)
        (1, 4.5)
        >>> print(history.rounds_to(1.0), history.seconds_to(1.0))
        n/a n/a
        """
        done = self.rounds_to(value, column)
        if SECONDS not in self.rounds:
            return NotApplicable(self._why_unrecorded("seconds"))
        if isinstance(done, NotApplicable):
            return done
        return float(self._elapsed("seconds", [done], column or self.primary)[0])

    def with_seconds(
        self, hardware: Any, *, waiting: str = "all", seed: int | None = None
    ) -> "History":
        """Return the history with the simulated seconds that its rounds take on some hardware.

        The models are those of the run, in which time plays no role. Plots against ``"seconds"``,
        :meth:`seconds_to` and :func:`topofl.summarize` then use these seconds.

        Parameters
        ----------
        hardware, waiting, seed
            As in :func:`topofl.metrics.round_time`, with the same errors.

        Examples
        --------
        >>> import topofl
        >>> from topofl import algorithms, data, models, topologies
        >>> clients = data.iid(data.digits(), n=5, seed=0)
        >>> history = topofl.run(algorithms.dsgd(lr=1.0), model=models.logistic_regression(64),
        ...                      clients=clients, topology=topologies.ring(5), rounds=3, seed=0)
        >>> hardware = {"compute": 0.1, "latency": 0.4}
        >>> history.with_seconds(hardware)["simulated_seconds"].tolist()
        [0.5, 1.0, 1.5]
        """
        from topofl.metrics import round_time  # imports torch, which few histories need

        found = round_time(self, hardware=hardware, waiting=waiting, seed=seed)
        meta = {**self.meta, "hardware": {**found.hardware.settings, "waiting": waiting}}
        return replace(self, meta=meta, rounds={**self.rounds, SECONDS: found.elapsed})

    def predict(
        self, x: Any, node: int | None = None, *, network: "nn.Module | None" = None
    ) -> "Tensor":
        """Return the outputs of the models after the last round, on the CPU in plain precision.

        Parameters
        ----------
        x
            (b, ...) array or tensor of examples, shaped like those of the run's dataset. uint8
            pixels are divided by 255 and normalized like the dataset; numbers and token ids are
            used unchanged. Floating-point numbers for a dataset of pixels count as already
            normalized, as ``dataset.examples()`` returns them.
        node
            The node whose model is used; None: all nodes.
        network
            The model that :func:`topofl.run` was called with; only needed for a loaded history,
            since files do not contain the network.

        Returns
        -------
        torch.Tensor
            (b, ...) outputs of one model, such as logits, or (n, b, ...) of all models.

        Raises
        ------
        ValueError, TypeError
            If the history has no models, there is no such node or no network, or the examples have
            another shape or dtype.

        Examples
        --------
        >>> import topofl
        >>> from topofl import algorithms, data, models, topologies
        >>> clients = data.iid(data.digits(), n=4, seed=0)
        >>> history = topofl.run(algorithms.dsgd(lr=0.5), model=models.logistic_regression(64),
        ...                      clients=clients, topology=topologies.ring(4), rounds=5, seed=0)
        >>> pixels = clients.dataset.inputs[:7]
        >>> history.predict(pixels, node=2).shape, history.predict(pixels).shape
        (torch.Size([7, 10]), torch.Size([4, 7, 10]))
        """
        if self.models is None:
            raise ValueError(
                "`history` must have models to predict, got one without; keep them with "
                "topofl.Saving(models=True), and save them with history.save(path, models=True)"
            )
        return self.models.predict(x, node, network)

    def to_pandas(self, per: str = "round") -> "pd.DataFrame":
        """Return a tidy pandas table.

        Parameters
        ----------
        per
            ``"round"``: one row per round with statistics over nodes, NaN where the round was not
            evaluated. ``"node"``: one row per evaluation and node, with a column ``label`` if the
            nodes of the topology have labels.
        """
        import pandas as pd

        check_choice("per", per, ["round", "node"])
        if per == "round":
            records = records_of(self.rounds, self.evaluations, self.n_rounds)
            return pd.DataFrame(records).set_index("round")
        why = why_not_scored(self)
        shape = (len(self.evaluations["round"]), self.node_loss.shape[1])
        if why and all(values.shape != shape for values in self.evaluations.values()):
            raise ValueError(f"`per` must be 'round', got 'node': {why}")
        if not why:
            shape = self.evaluations[self.primary].shape
        table: dict[str, Any] = {
            "round": np.repeat(self.evaluations["round"], shape[1]),
            "node": np.tile(np.arange(shape[1]), shape[0]),
        }
        if labels := self.meta.get("nodes"):
            table["label"] = list(labels) * shape[0]
        for name, values in self.evaluations.items():
            if values.shape == shape:
                table[name] = values.reshape(-1)
        return pd.DataFrame(table)

    def plot(
        self,
        column: str | None = None,
        *,
        kind: str = "band",
        x: str | None = None,
        at: int | Sequence[int] | None = None,
        quantiles: tuple[float, float] | None = None,
        worst: int | None = None,
        ax: "Axes | None" = None,
        label: str | None = None,
    ) -> "Figure":
        """Plot a column over rounds or costs, or over the nodes.

        See :func:`topofl.compare_histories` for several histories in one figure.

        Parameters
        ----------
        column
            Any name in :attr:`columns`; None: the task's primary score. Kinds other than
            ``"band"`` need one value per node.
        kind
            ``"band"``
                The mean over nodes and a band between `quantiles`. Several histories may be drawn
                on one `ax`, each in a style of its own.
            ``"violin"``
                The distribution over nodes after the last evaluation, or one per round of `at`.
            ``"nodes"``
                A line per node, with the worst ones in color and named, by labels if the graph has
                any.
            ``"pareto"``
                The mean score of each evaluation against its cost; evaluations with a score that no
                cheaper one reaches are filled.
        x
            ``"rounds"``; ``"steps"``: local steps, mean over nodes; ``"megabytes"`` (10^6 bytes)
            sent by all nodes so far (for scores before an exchange, without that exchange); or, on
            a simulated clock, ``"seconds"``: simulated seconds. For ``kind="nodes"`` also
            ``"rank"``: the last scores, sorted from the worst to the best node. None: megabytes for
            ``kind="pareto"``, else rounds.
        at
            Evaluated round or rounds of violins; None: the last evaluation.
        quantiles
            Ends of the band as quantiles over nodes; None: (0.1, 0.9). (0, 1) is the range from the
            lowest to the highest node. Between nodes, quantiles are interpolated linearly.
        worst
            Number of nodes with the worst last scores that ``kind="nodes"`` highlights; None: 3.
        ax
            The axes to draw on; None: a new figure.
        label
            Name of the run; default is algorithm and topology.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, to show or to save; notebooks show it.

        Raises
        ------
        ValueError
            If `kind` or `x` is none of these, `x` was not recorded, with how to record it, an
            option belongs to another kind, a round in `at` or the column was not evaluated, or `ax`
            is too small for the labels (those of violins are not checked).
        TypeError
            If an argument has the wrong type.
        KeyError
            If there is no such column, with the nearest name.

        Examples
        --------
        >>> import topofl
        >>> from topofl import algorithms, data, models, topologies
        >>> clients = data.shards(data.digits(), n=6, per_node=2, seed=0)
        >>> history = topofl.run(algorithms.dsgd(lr=0.5), model=models.logistic_regression(64),
        ...                      clients=clients, topology=topologies.ring(6), rounds=4, seed=0)
        >>> figure = history.plot(kind="nodes", worst=1)
        >>> [text.get_text() for text in figure.axes[0].texts][0]
        'mean'
        """
        options = plots.check_options(kind, x=x, at=at, quantiles=quantiles, worst=worst)
        column = self.primary if column is None else column
        run = f"{self.meta.get('algorithm')}, {self.meta.get('topology')}"
        series = series_of(self, column, options["x"], label or self._with_attack(run))
        return plots.plot(series, kind, ax, **options)

    def save(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, models: bool = False
    ) -> Path:
        """Write the history to a folder: ``meta.json``, ``rounds.jsonl`` and ``arrays.npz``.

        JSON has neither NaN nor infinity: where a run diverged, ``rounds.jsonl`` has null, and
        :meth:`load` returns NaN.

        The folder appears under its name only when it is complete. An older history there is
        replaced; whenever the process is killed, :meth:`load` finds either the old or the new one.

        Parameters
        ----------
        path
            A new or empty folder, or one with only the files of an older history.
        overwrite
            Also replace a folder with other contents: **everything in it is removed**.
        models
            Also write the models after the last round, as ``models.safetensors``: n * d numbers,
            without the network. Models of an older history in the folder are always removed.

        Raises
        ------
        FileExistsError
            If `path` is a file, or a folder with other contents and `overwrite` is False.
        ValueError
            If `path` is empty, a link that leads back to itself, or the current folder or one above
            it; if `models` is True and the history has none; if `meta` has an entry with a name
            that ``meta.json`` needs, such as ``format``.
        """
        check_switch("models", models, auto=False)
        if models and self.models is None:
            raise ValueError(
                "`models` must be False for a history without models, got True; leave it out"
            )
        meta = {**self.meta, "columns": as_json(self.score_columns)}
        return files.save(path, self, meta, overwrite=overwrite, models=models)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "History":
        """Return the history in a folder that :meth:`save` or ``topofl run`` wrote.

        Files are compared with their SHA-256 in ``meta.json``; histories of older versions have
        none. Saved models are memory-mapped, and compared when they are first read.

        Raises
        ------
        FileNotFoundError
            If there is no history at `path`.
        ValueError
            If it is incomplete or damaged, naming the file, or `path` is empty.
        """
        return files.load(path, cls._of_files)
