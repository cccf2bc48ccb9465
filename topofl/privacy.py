"""Privacy accounting of runs with noise; needs ``pip install topofl[privacy]``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from topofl._support.check import (
    check_int,
    check_kind,
    check_nonnegative,
    check_positive,
    check_probability,
)
from topofl._support.plugins import imported
from topofl._support.public import public
from topofl.history import History

__all__ = ["spent", "spent_by"]


@public
def spent(noise: float, *, steps: int, delta: float, sampling: float = 1.0) -> float:
    """Return the epsilon of (epsilon, delta)-differential privacy that Gaussian noise spends.

    It applies to :func:`topofl.algorithms.dp_dsgd`, without a trusted party: an adversary that sees
    all messages learns no more than this about one node, or one record. It also applies to
    :func:`topofl.algorithms.dp_fedavg`, with a trusted server: an adversary that sees the server's
    models of all rounds, but neither the updates nor who participates, learns no more than this
    about one node. It is an upper bound from Renyi differential privacy, computed by the accountant
    of Google's package dp-accounting.

    ``dp_fedavg``
        Hides whether the clipped updates of a node are included or replaced by 0. `steps` is the
        number of rounds, and `sampling` the `participation`.
    ``dp_dsgd``, ``level="node"``
        Hides whether the clipped updates of a node are included or replaced by 0. `steps` is the
        number of rounds.
    ``dp_dsgd``, ``level="record"``
        Hides whether the clipped gradient of a record is included or replaced by 0. At a node with
        m records, `steps` is ``local steps * ceil(rounds * batch_size / m)``, since a record is in
        at most one minibatch of a pass.

    Neighboring runs differ in this only (zero-out adjacency): the numbers of records, which are
    public, and their order are the same. Adding a record to a node is not covered, since it would
    shift all later minibatches of a pass. Replacing a record, or a node's data, by another changes
    twice as much: halve `noise`. The bound holds for runs in which every loss stays finite: if one
    becomes NaN or infinite, the run stops or freezes the node, which all nodes can observe.

    Parameters
    ----------
    noise
        Standard deviation in units of the clipping bound: the `noise` of the method. With 0,
        epsilon is infinite.
    steps
        Number of noise additions to quantities that depend on the record or node.
    delta
        Above 0 and below 1; usually far below one over the number of records, or nodes.
    sampling
        Probability with which the record, or node, is sampled in each step, independently of all
        others and in secret (Poisson sampling), as nodes are by ``dp_fedavg``. It does not cover a
        fixed number of sampled nodes or records, with which one that is sampled displaces another:
        there, the same noise can spend more. Minibatches of a run are consecutive parts of shuffled
        passes, for which less is known: 1 gives a bound, with the numbers of steps above. It is
        common to use ``sampling=batch_size / m`` with ``steps=local steps * rounds`` instead, which
        is then an estimate and not a bound.

    Raises
    ------
    ImportError
        If the package dp-accounting is missing.
    ValueError, TypeError
        If a number is out of its range or of another type.

    Notes
    -----
    Without sampling, the RDP accountant of opacus gives the same number. With sampling, it can give
    a smaller one, since dp-accounting only bounds the Renyi divergence from above at non-integer
    orders. Accountants by numerical convolution mostly give smaller values than both. Orders at
    which dp-accounting cannot compute its bound are left out, which keeps the result a bound; its
    log lines about them are suppressed.

    References
    ----------
    Abadi et al., "Deep learning with differential privacy" (2016); Mironov, "Renyi differential
    privacy" (2017); the package dp-accounting of the Google differential privacy team.

    Examples
    --------
    Fewer steps and sampling spend less::

        spent(2.0, steps=100, delta=1e-5)                    # 35.1
        spent(2.0, steps=50, delta=1e-5)                     # 22.0
        spent(2.0, steps=100, delta=1e-5, sampling=0.1)      # 2.6

    Without noise there is no privacy:

    >>> spent(0.0, steps=100, delta=1e-5)
    inf
    """
    noise = check_nonnegative("noise", noise)
    steps = check_int("steps", steps, minimum=1)
    delta = check_positive("delta", check_probability("delta", delta))
    sampling = check_positive("sampling", check_probability("sampling", sampling))
    if delta == 1:
        raise ValueError(
            "`delta` must be below 1, got 1, which guarantees nothing; give less than one over the "
            "number of records"
        )
    if noise == 0:
        return float("inf")
    accounting = imported("dp_accounting", "privacy", "`spent`", name="the package dp-accounting")
    step = accounting.GaussianDpEvent(noise)
    step = step if sampling == 1 else accounting.PoissonSampledDpEvent(sampling, step)
    accountant = import_module("dp_accounting.rdp").RdpAccountant()
    with _without_lines_about_orders():
        accountant.compose(accounting.SelfComposedDpEvent(step, steps))
        return float(accountant.get_epsilon(delta))


@public
def spent_by(
    history: History, *, delta: float, records: int | None = None, rounds: int | None = None
) -> float:
    """Return the epsilon of (epsilon, delta)-differential privacy that a run has spent.

    It is that of :func:`spent`, which says what it hides and from whom, with the noise, the steps
    and the sampling that the history of the run records.

    Parameters
    ----------
    history
        The history of a run of :func:`topofl.algorithms.dp_dsgd` or
        :func:`topofl.algorithms.dp_fedavg`, also one that was loaded.
    delta
        As for :func:`spent`.
    records
        Number of training examples of a node, for ``dp_dsgd`` with ``level="record"``, which hides
        one of them: that of the node with the fewest bounds what all nodes spend. None at the
        level of nodes.
    rounds
        Number of rounds, from the first, that are counted; None: all rounds of the run.

    Raises
    ------
    ImportError
        If the package dp-accounting is missing.
    ValueError, TypeError
        If the method of the run has no privacy, or nodes of it diverged, for which the bound does
        not hold; if `records` is missing or has no meaning; if a number is out of its range or of
        another type.

    Notes
    -----
    At the level of records, the ``steps`` of :func:`spent` are at most one per local step.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models
    >>> history = topofl.run(
    ...     algorithms.dp_fedavg(lr=0.1, noise=2.0),
    ...     model=models.logistic_regression(64),
    ...     clients=data.iid(data.digits(), n=20, seed=0),
    ...     rounds=3,
    ...     seed=0,
    ... )

    The bound after each round::

        [spent_by(history, delta=1e-3, rounds=t) for t in (1, 2, 3)]    # 1.5, 2.3, 3.0
    """
    check_kind("history", history, History, "the History of a run")
    settings = _private_settings(history)
    if diverged := history.meta.get("diverged"):
        raise ValueError(
            "`history` must be of a run in which every loss stayed finite, since others can "
            f"observe nodes that diverged, got one in which {len(diverged)} did; lower `lr`"
        )
    count = history.n_rounds
    if rounds is not None:
        count = check_int("rounds", rounds, minimum=1, maximum=count, maximum_name="rounds run")
    steps = _additions(settings, count, records)
    sampling = str(settings.get("participation", "1")).removeprefix("each with probability ")
    return spent(settings["noise"], steps=steps, delta=delta, sampling=float(sampling))


def _private_settings(history: History) -> dict[str, Any]:
    """Return the settings of the phase that adds noise, or raise if the method has none."""
    phase = {"dp_dsgd": "local", "dp_fedavg": "server"}.get(history.meta["algorithm"])
    if phase is None:
        raise ValueError(
            "`history` must be of a run with differential privacy, by dp_dsgd or dp_fedavg, got "
            f"one of {history.meta['algorithm']}, whose messages have no guarantee; call `spent` "
            "with the noise and the steps of a method of your own"
        )
    return history.meta["settings"][phase]


def _additions(settings: dict[str, Any], rounds: int, records: int | None) -> int:
    """Return how often noise is added to what depends on one node, or on one of its records."""
    if settings.get("level") != "record":
        if records is not None:
            raise ValueError(
                "`records` must be None for a run that hides nodes, with all of their records, got "
                f"{records!r}; leave it out"
            )
        return rounds
    if records is None:
        raise ValueError(
            "`records` must be the number of training examples of a node for a run with "
            'level="record", got None; clients.sizes.min() bounds what all nodes spend'
        )
    m = check_int("records", records, minimum=1)
    return settings["steps"] * min(rounds, -(-rounds * settings["batch_size"] // m))


@contextmanager
def _without_lines_about_orders() -> Iterator[None]:
    """Drop the log lines of dp-accounting about Renyi orders that it leaves out."""
    logger = logging.getLogger("absl")

    def keep(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("_compute_log_a_frac")

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
