"""Runs on a device: results equal those of the CPU, and the host rarely waits."""

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.arrays import numbers
from tests.rows import tasks as cases
from tests.rows.methods import ARGUMENTS
from tests.simulated_device import DEVICES, SimulatedDevice, summary
from topofl import algorithms, data
from topofl.engine.recorder import GradientStatistics


def test_gradient_diversity_does_not_wait_for_the_device():
    gradients, rows, found = (
        numbers(4, 2, 3),
        torch.tensor([True, False, True, True], device="cpu"),
        [],
    )
    gradients[1] = torch.nan
    for where in ("cpu", "cuda"):
        statistics = GradientStatistics()
        with SimulatedDevice() as device:
            there, chosen = gradients.to(where), rows.to(where)
            statistics.observe([there, there[:, 0, 0]], chosen)
            assert not device.waits
            found.append(statistics.diversity)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def clients_of(n):
    """Return clients with own sets of 3 to 5 examples; every other one has more for training."""
    blobs, held = problems.dataset(n_examples=50 * n), [3 + i % 3 for i in range(n)]
    order = np.random.default_rng(0).permutation(blobs.train)
    starts = np.cumsum([0, *(2 * k + 8 + 8 * (i % 2) for i, k in enumerate(held))])
    parts = [order[start:stop] for start, stop in pairwise(starts)]
    return data.Partition(
        blobs,
        tuple(part[2 * k :] for part, k in zip(parts, held, strict=True)),
        tuple(part[:k] for part, k in zip(parts, held, strict=True)),
        tuple(part[k : 2 * k] for part, k in zip(parts, held, strict=True)),
        name="uneven",
    )


def run(algorithm, n=4, model=None, augment=None, clients=None, **options):
    """Run 2 rounds with all evaluations, in float64."""
    clients = clients or clients_of(n)
    if augment is not None:
        clients = data.augmented(clients, augment)
    settings = {
        "model": model or problems.perceptron(),
        "topology": problems.cliques(clients, 2),
        "rounds": 2,
        "seed": 0,
        "every": 2,
        "on": ("test", "own_test"),
        "before_exchange": True,
        "fine_tune": algorithms.sgd(lr=0.1, batch_size=8),
        "dtype": torch.float64,
    }
    return topofl.run(algorithm, clients=clients, **problems.options(**settings | options))


@cache
def on_host(name, linear=False, **options):
    """Return the history of an algorithm of the table on CPU."""
    algorithm = getattr(algorithms, name)(**ARGUMENTS[name])
    return run(
        algorithm,
        model=problems.linear() if linear else None,
        device="cpu",
        executor="looped",
        **options,
    )


def check_same(found, wanted):
    """Check that two histories are equal up to the order of sums in float64."""
    for name, column in (wanted.rounds | wanted.evaluations).items():
        np.testing.assert_allclose(found[name], column, rtol=1e-9, atol=1e-9, err_msg=name)


EXECUTORS = {"batched": {"executor": "batched", "chunk": 3}, "looped": {"executor": "looped"}}


LOOPED = ("clique_averaging", "dpfl", "per_fedavg")
"""Algorithms that need more of an executor than local steps, each in another way."""


@cache
def on_device(name, executor="batched", kind="simulated"):
    """Return an algorithm's history on a device, and counts of waits and copies."""
    with DEVICES[kind]() as found:
        history = run(
            getattr(algorithms, name)(**ARGUMENTS[name]), device="cuda", **EXECUTORS[executor]
        )
    return history, counted(found.events if found else [])


def counted(events):
    """Return how often each function waited or copied.

    Copies of dense and sparse matrices are counted together.
    """
    same = {"sparse_tensor": "as_tensor"}
    return Counter((event.kind, same.get(event.function, event.function)) for event in events)


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize(
    ("name", "executor"),
    [*((name, "batched") for name in ARGUMENTS), *((name, "looped") for name in LOOPED)],
)
def test_every_algorithm_runs_on_a_device(name, executor, kind):
    found, _ = on_device(name, executor, kind)
    check_same(found, on_host(name))
    assert found.meta["device"] == "cuda:0"


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["clique_averaging", "dpfl"])
def test_linear_models_run_on_a_device(name, executor, device):
    algorithm = getattr(algorithms, name)(**ARGUMENTS[name])
    check_same(
        run(algorithm, model=problems.linear(), device="cuda", **EXECUTORS[executor]),
        on_host(name, linear=True),
    )


OPTIONS = {
    "frozen": {"on_divergence": "freeze"},
    "recorded": {"on_divergence": "record"},
    "independent": {"init": "independent"},
    "some nodes": {"nodes": 3},
    "moved images": {"augment": data.crop_and_flip(padding=1)},
    "float32 is mixed otherwise": {"dtype": torch.float32},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_works_on_a_device(name, device):
    options = OPTIONS[name] | EXECUTORS["batched"]
    algorithm = algorithms.dfedavgm(**ARGUMENTS["dfedavgm"])
    found, wanted = (run(algorithm, device=where, **options) for where in ("cuda", "cpu"))
    tolerance = 1e-4 if "dtype" in options else 1e-9
    for column in ("loss", "train_loss", "loss_own_test", "consensus_distance"):
        np.testing.assert_allclose(
            found[column], wanted[column], rtol=tolerance, atol=tolerance, err_msg=column
        )


@pytest.mark.parametrize("case", ["regression", "next token", "F1 of classes"])
def test_every_kind_of_task_runs_on_a_device(case, device):
    """They include scores of whole sets, which are computed on the host."""
    task, build, dataset, _ = cases.CASES[case]
    clients = data.match_test(cases.clients_of(dataset), rule="per_client")
    options = {"task": task, "clients": clients, "fine_tune": None} | EXECUTORS["batched"]
    algorithm = algorithms.fedavg(**ARGUMENTS["fedavg"])
    found, wanted = (
        run(algorithm, model=build(), device=where, **options) for where in ("cuda", "cpu")
    )
    check_same(found, wanted)


def stepping(*terms, lr=0.05, part=algorithms.everything, at=None):
    return algorithms.chain(
        "own",
        local=algorithms.train(
            algorithms.descend(*terms, lr=lr), batch_size=8, epochs=2, part=part, at=at
        ),
    )


STEPS = {
    "adam": lambda: stepping(algorithms.clip(0.1), algorithms.adam()),
    "adamw": lambda: stepping(algorithms.adamw(reset=True), lr=algorithms.cosine(0.05, rounds=2)),
    "apart": lambda: stepping(
        algorithms.weight_decay(0.1), algorithms.momentum(0.9, nesterov=True), part="5"
    ),
    "pulled": lambda: stepping(algorithms.proximal(0.1), algorithms.cosine_pull(0.1)),
    "ahead": lambda: stepping(algorithms.momentum(0.9), at=algorithms.lookahead(0.01)),
    "upwards": lambda: stepping(algorithms.adam(), at=algorithms.ascent(0.05)),
}


@pytest.mark.parametrize(("name", "policy"), list(zip(STEPS, ["freeze", "raise"] * 3, strict=True)))
def test_every_kind_of_step_works_on_a_device(name, policy, device):
    """If diverged nodes freeze, each step may be undone."""
    options = {
        "on_divergence": policy,
        "topology": None,
        "before_exchange": False,
        "rounds": 1,
    } | EXECUTORS["batched"]
    found, wanted = (run(STEPS[name](), device=where, **options) for where in ("cuda", "cpu"))
    check_same(found, wanted)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_errors_name_failing_terms_on_a_device(executor, device):
    def update(g, theta, own, step):
        return torch.where(own["number"].view(-1, *[1] * (g.dim() - 1)) >= 2, torch.nan, g)

    def init(models):
        flat = models.flat
        return {"number": torch.arange(len(flat), dtype=flat.dtype, device=flat.device)}

    algorithm = stepping(algorithms.Term("mine", update, init))
    with pytest.raises(
        ValueError, match=r"the term 'mine' must return finite .* for node 2 in round 1"
    ):
        run(algorithm, device="cuda", topology=None, before_exchange=False, **EXECUTORS[executor])


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_divergence_is_the_same_on_a_device(policy, device):
    algorithm = algorithms.fedavg(**ARGUMENTS["fedavg"] | {"lr": 1e200})
    options = {"on_divergence": policy} | EXECUTORS["batched"]
    found, wanted = (run(algorithm, device=where, **options) for where in ("cuda", "cpu"))
    assert found.meta["diverged"] == wanted.meta["diverged"] != []
    np.testing.assert_array_equal(np.isfinite(found["loss"]), np.isfinite(wanted["loss"]))


def test_divergence_errors_are_the_same_on_a_device(device):
    algorithm = algorithms.dsgd(**ARGUMENTS["dsgd"] | {"lr": 1e200})
    with pytest.raises(topofl.DivergenceError, match=r"node 0 is (inf|nan)"):
        run(algorithm, device="cuda", rounds=5)


def test_a_run_on_a_device_resumes(device, tmp_path):
    algorithm = algorithms.dfedavgm(**ARGUMENTS["dfedavgm"])
    options = {"device": "cuda", "executor": "looped"}
    run(algorithm, rounds=1, saving=topofl.Saving(tmp_path, every=1), **options)
    check_same(
        run(algorithm, saving=topofl.Saving(tmp_path, resume=True), **options), on_host("dfedavgm")
    )


def squared(outputs, targets):
    """Return the squared distance of each example from its class."""
    return (
        (outputs - (targets[:, None] == torch.arange(3, device=targets.device)).to(outputs))
        .square()
        .sum(1)
    )


WAITED = {
    **{
        name: {} for name in ARGUMENTS if name != "random_walks"
    },  # each step of a walk waits for the one before
    "linear": {"name": "dsgd", "model": problems.linear()},
    "frozen": {"name": "fedavg", "on_divergence": "freeze"},
    "some nodes": {"name": "dsgd", "nodes": 3},
    "another loss": {
        "name": "fedavg",
        "task": topofl.Task("squares", squared, {"distance": squared}),
    },
    "looped": {"name": "fedavg", "executor": "looped"},
    "looped and tried": {"name": "pfeddst", "executor": "looped"},
}


DEPENDING = {
    # looks at all models where the first and the last are equal
    "clique_averaging": "_all_equal",
    # waits as often as the node with most requests, here for its candidates
    "dpfl": "_answers",
}
"""Functions whose number of waits depends on values or on the algorithm."""


def waits_of(n, times, name, executor="batched", **options):
    """Return the waits and copies of a run on n nodes with `times` as many steps."""
    longer = {"epochs": times * ARGUMENTS[name]["epochs"]} if "epochs" in ARGUMENTS[name] else {}
    algorithm = getattr(algorithms, name)(
        **ARGUMENTS[name] | ({"local_steps": times} if name == "dsgd" else longer)
    )
    with SimulatedDevice() as found:
        run(algorithm, n, device="cuda", **EXECUTORS[executor] | options)
    return found.events


@pytest.mark.parametrize("case", WAITED)
def test_waits_do_not_depend_on_nodes_and_steps(case):
    """The whole run counts, from its first check to its last evaluation.

    Some runs check terms in their first step.
    """
    options = {"name": case} | WAITED[case]
    many = waits_of(7, 2, **options)
    few = counted(waits_of(4, 1, **options)) if WAITED[case] else on_device(case)[1]
    changed = (few - counted(many)) + (counted(many) - few)
    functions = {function for _, function in changed} - {DEPENDING.get(case)}
    assert not functions, summary([event for event in many if event.function in functions])
