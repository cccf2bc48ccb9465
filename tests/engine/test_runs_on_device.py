"""Runs on a device: how errors and resuming work there, and that the host rarely waits."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.arrays import numbers
from tests.rows.methods import ARGUMENTS
from tests.rows.runs import differences, in_float64, stepping
from tests.simulated_device import SimulatedDevice, summary
from topofl import algorithms, data
from topofl.engine.recorder import GradientSums

EXECUTORS = {"batched": {"executor": "batched", "chunk": 3}, "looped": {"executor": "looped"}}


def test_gradient_diversity_does_not_wait_for_the_device():
    gradients, found = numbers(4, 2, 3), []
    rows = torch.tensor([True, False, True, True], device="cpu")
    gradients[1] = torch.nan
    for where in ("cpu", "cuda"):
        statistics = GradientSums()
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


@pytest.mark.parametrize("executor", EXECUTORS)
def test_errors_name_failing_terms_on_a_device(executor, device):
    def update(g, theta, own, step):
        return torch.where(own["number"].view(-1, *[1] * (g.dim() - 1)) >= 2, torch.nan, g)

    def init(models):
        flat = models.flat
        return {"number": torch.arange(len(flat), dtype=flat.dtype, device=flat.device)}

    how = in_float64("adam", device="cuda", **EXECUTORS[executor])
    how["algorithm"] = stepping(algorithms.Term("mine", update, init))
    message = r"the term 'mine' must return finite .* for node 2 in round 1"
    with pytest.raises(ValueError, match=message):
        topofl.run(**how)


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_divergence_is_the_same_on_a_device(policy, device):
    algorithm = algorithms.fedavg(**ARGUMENTS["fedavg"] | {"lr": 1e200})
    options = {"algorithm": algorithm, "on_divergence": policy, "model": problems.perceptron()}
    options |= EXECUTORS["batched"]
    found, wanted = (
        topofl.run(**in_float64("fedavg", device=where, **options)) for where in ("cuda", "cpu")
    )
    assert found.meta["diverged"] == wanted.meta["diverged"] != []
    np.testing.assert_array_equal(np.isfinite(found["loss"]), np.isfinite(wanted["loss"]))


def test_divergence_errors_are_the_same_on_a_device(device):
    algorithm = algorithms.dsgd(**ARGUMENTS["dsgd"] | {"lr": 1e200})
    how = {"model": problems.perceptron(), "device": "cuda"}
    with pytest.raises(topofl.DivergenceError, match=r"node 0 is (inf|nan)"):
        topofl.run(**in_float64("dsgd", algorithm=algorithm, **how))


def test_a_run_on_a_device_resumes(device, tmp_path):
    options = {"device": "cuda", "executor": "looped"}
    topofl.run(**in_float64("dfedavgm", rounds=1, **options), saving=tmp_path)
    saving = topofl.Saving(tmp_path, resume=True)
    found = topofl.run(**in_float64("dfedavgm", **options), saving=saving)
    assert differences(found, topofl.run(**in_float64("dfedavgm")), 1e-8) == []


def counted(events):
    """Return how often each function waited or copied.

    Copies of dense and sparse matrices are counted together.
    """
    same = {"sparse_tensor": "as_tensor"}
    return Counter((event.kind, same.get(event.function, event.function)) for event in events)


def squared(outputs, targets):
    """Return the squared distance of each example from its class."""
    is_class = targets[:, None] == torch.arange(3, device=targets.device)
    return (outputs - is_class.to(outputs)).square().sum(1)


WAITED = {
    # each step of a walk waits for the one before; the others need six nodes, or more than four
    **{
        name: {} for name in ARGUMENTS if name not in ("random_walks", "hierfavg", "krum", "bulyan")
    },
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
    "clique_averaging": {"_all_equal"},
    # waits as often as the node with most requests, here for its candidates
    "dpfl": {"_answers"},
    # evaluate the models of the nodes, one after another
    **{name: {"_local_losses"} for name in ("drfa", "dr_dsgd", "ad_gda")},
    # uploads the numbers of the nodes that train, except if these are consecutive; looks at all
    # models where the first and the last have equal bits, which depends on a processor's rounding
    "teleportation": {"_all_equal", "_uploaded"},
    # averages over all nodes, whose models are then equal, if they chose the same
    "ifca": {"_all_equal", "_mean_mixer", "as_tensor", "evaluate"},
}
"""Functions whose number of waits depends on values or on the algorithm."""


def waits_of(n, times, name, executor="batched", **options):
    """Return the waits and copies of a run on n nodes with `times` as many steps."""
    longer = {"epochs": times * ARGUMENTS[name]["epochs"]} if "epochs" in ARGUMENTS[name] else {}
    algorithm = getattr(algorithms, name)(
        **ARGUMENTS[name] | ({"local_steps": times} if name == "dsgd" else longer)
    )
    clients = clients_of(n)
    how = {
        "model": problems.perceptron(),
        "topology": problems.cliques(clients, 2),
        "every": 2,
        "on": ("test", "own_test"),
        "before_exchange": True,
        "fine_tune": algorithms.sgd(lr=0.1, batch_size=8),
        "dtype": torch.float64,
        "device": "cuda",
    }
    how |= EXECUTORS[executor] | options
    with SimulatedDevice() as found:
        topofl.run(algorithm, clients=clients, rounds=2, seed=0, **problems.options(**how))
    return found.events


@problems.by_turns(12, case=WAITED)
def test_waits_do_not_depend_on_nodes_and_steps(case):
    """The whole run counts, from its first check to its last evaluation.

    Some runs check terms in their first step.
    """
    options = {"name": case} | WAITED[case]
    many = waits_of(7, 2, **options)
    few = counted(waits_of(4, 1, **options))
    changed = (few - counted(many)) + (counted(many) - few)
    functions = {function for _, function in changed} - DEPENDING.get(case, set())
    assert not functions, summary([event for event in many if event.function in functions])
