"""Runs on a device: host and device do not mix, results are the CPU's, the host waits rarely."""

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.test_conformance import ARGUMENTS
from tests.simulated_device import DEVICES, DeviceError, SimulatedDevice, told
from tests.tasks import cases
from topofl import algorithms, data, topologies
from topofl.engine.exchange import mixer
from topofl.engine.train.diversity import GradientStatistics


@pytest.fixture(params=DEVICES)
def device(request):
    with DEVICES[request.param]():
        yield torch.device("cuda", 0)


@pytest.fixture
def simulated():
    with SimulatedDevice() as found:
        yield found


def numbers(*shape, device="cpu"):
    return torch.arange(np.prod(shape), dtype=torch.float64, device="cpu").view(shape).to(device)


def mixed(weights, device):
    mixer(weights, device, torch.float64)(values := numbers(weights.n, 2, device=device))
    return values


MADE = {
    "moved": lambda device: numbers(2, 3).to(device),
    "moved and converted": lambda device: numbers(2, 3).to(device, torch.float32),
    "moved like another": lambda device: numbers(2, 3).to(
        torch.zeros(1, dtype=torch.float64, device=device)
    ),
    "made there": lambda device: torch.zeros(2, 3, dtype=torch.float64, device=device),
    "made of a list": lambda device: torch.tensor([[1.0, 2.0]], dtype=torch.float64, device=device),
    "made like another": lambda device: torch.empty_like(
        torch.zeros(2, dtype=torch.float64, device=device)
    ),
    "computed": lambda device: numbers(2, 3, device=device).exp() * 2,
    "a view": lambda device: numbers(4, 3, device=device)[1:3].flatten().view(3, 2).T,
    "with a number of the host": lambda device: (
        numbers(3, device=device) + torch.tensor(2.0, device="cpu")
    ),
    "filled": lambda device: torch.ones(3, dtype=torch.float64, device=device).copy_(numbers(3)),
    "vmapped": lambda device: torch.func.vmap(lambda x: x.mul(2).sum())(
        numbers(4, 3, device=device)
    ),
    "padded": lambda device: torch.nn.utils.rnn.pad_sequence(
        [numbers(2, device=device), numbers(3, device=device)]
    ),
    "a parameter": lambda device: torch.nn.Linear(2, 3, device="cpu").to(device).weight,
    "a gradient": lambda device: torch.autograd.grad(
        (x := numbers(3, device=device).requires_grad_()).square().sum(), x
    )[0],
    "a sparse product": lambda device: mixed(
        topofl.mixing.metropolis_hastings(topologies.ring(40)), device
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_on_the_device_is_there(name, device):
    found = MADE[name](device)
    assert (found.device, found.is_cuda) == (device, True)
    assert (found.cpu().device.type, found.cpu().is_cuda) == ("cpu", False)
    assert np.isfinite(np.asarray(found.detach().cpu().to_dense())).all()


@pytest.mark.parametrize("name", ["new_zeros", "zeros_like", "to"])
def test_what_is_asked_for_on_the_host_is_there(name, device):
    x = numbers(3, device=device)
    makes = {
        "new_zeros": lambda: x.new_zeros(3, device="cpu"),
        "zeros_like": lambda: torch.zeros_like(x, device="cpu"),
        "to": lambda: x.to("cpu"),
    }
    assert makes[name]().numpy().shape == (3,)


MIXED = {
    "sum": lambda host, there: host + there,
    "product": lambda host, there: there @ host,
    "choice": lambda host, there: torch.where(there > 0, there, host),
    "stack": lambda host, there: torch.stack([there, host]),
    "numbers in a stack": lambda host, there: torch.stack([there[0, 0], host[0, 0]]),
    "in place on the host": lambda host, there: host.add_(there),
    "a number into the host": lambda host, there: host.add_(there[0, 0]),
    "index": lambda host, there: host[there[0].long()],
    "gather": lambda host, there: torch.index_select(there, 0, host[0].long()),
    "put": lambda host, there: there.__setitem__(
        torch.zeros(2, dtype=torch.int64, device=there.device), host[:2]
    ),
    "batched": lambda host, there: torch.func.vmap(torch.dot)(host, there),
    "model": lambda host, there: torch.nn.functional.linear(there, host),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_operands_are_refused(name, device):
    host = numbers(3, 3)
    with pytest.raises(RuntimeError):
        MIXED[name](host, host.to(device))


@pytest.mark.parametrize(
    "convert",
    [np.asarray, torch.Tensor.numpy, lambda x: np.add(x, 1)],
    ids=["array", "numpy", "add"],
)
def test_arrays_are_of_the_host(convert, device):
    with pytest.raises(TypeError, match="cuda:0"):
        convert(numbers(3, device=device))


def test_a_refusal_names_operation_operand_and_place(simulated):
    with pytest.raises(
        DeviceError,
        match=r"mm got operands on cuda:0, and `self` of shape \(6, 6\) on cpu, in engine/exchange",
    ):
        mixer(
            topofl.mixing.metropolis_hastings(problems.cliques(problems.equal_clients())),
            torch.device("cpu"),
            torch.float64,
        )(numbers(6, 2, device="cuda"))


WAITS = {
    "item": (lambda x: x[0].item(), "_local_scalar_dense"),
    "bool": (lambda x: bool((x > 0).any()), "_local_scalar_dense"),
    "float": (lambda x: float(x[1]), "_local_scalar_dense"),
    "tolist": (lambda x: x.tolist(), "tolist"),
    "cpu": (lambda x: x.cpu(), "copy to the host"),
    "to": (lambda x: x.to("cpu", torch.float32), "copy to the host"),
    "copied": (lambda x: torch.empty_like(x, device="cpu").copy_(x), "copy to the host"),
    "nonzero": (lambda x: torch.nonzero(x), "nonzero"),
    "mask": (lambda x: x[x > 0], "index"),
    "set by mask": (lambda x: x.__setitem__(x > 0, x[x > 0]), "index_put_"),
    "equal": (lambda x: torch.equal(x, x + 1), "equal"),
    "unique": (lambda x: torch.unique(x), "_unique2"),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_are_noted(name, simulated):
    does, kind = WAITS[name]
    x = numbers(3, device="cuda")
    assert not simulated.waits
    does(x)
    assert simulated.waits[-1] == (kind, "elsewhere", 0, "")
    assert len(simulated.waits) == (2 if name == "set by mask" else 1)


@pytest.mark.parametrize(
    "target", [torch.device("meta"), torch.empty(1, device="meta")], ids=["device", "tensor"]
)
def test_shapes_without_numbers_are_on_no_device(target, device):
    found = numbers(2, 3).to(target)
    assert (found.device.type, found.shape) == ("meta", (2, 3))
    assert torch.where(found > 0, found, torch.empty_like(found)).is_meta


def test_what_does_not_wait():
    with SimulatedDevice() as found:
        x = numbers(4, device="cuda")
        x[x > 2] = 0
        x[1:3].mul_(2)
        y = torch.where(x > 0, x, 1.0).clone()
        y[torch.zeros(2, dtype=torch.int64, device="cuda")] = 3.0
    assert not found.waits
    assert len(found.uploads) == 1


def test_places_are_lines_of_the_package(simulated):
    topofl.metrics.consensus_distance(numbers(4, 3, device="cuda"))
    assert [event[1::2] for event in simulated.waits] == [
        ("metrics/averaging/consensus.py", "consensus_distance")
    ]
    assert "metrics/averaging/consensus.py:" in told(simulated.waits)


def test_nothing_remains():
    there = torch.cuda.is_available()
    with SimulatedDevice():
        x = torch.zeros(2, dtype=torch.float32, device="cuda")
        assert (torch.cuda.is_available(), x.device.type) == (True, "cuda")
    assert (torch.cuda.is_available(), x.device.type) == (there, "cpu")


def test_diversity_of_some_rows_needs_no_answer_from_the_device():
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
    """Clients with sets of their own of 3 to 5, every other one with twice as many examples."""
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
    """Run 2 rounds with everything that is evaluated, in float64."""
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
    """Check that two histories hold the same, up to the order of sums in float64."""
    for name, column in (wanted.rounds | wanted.evaluations).items():
        np.testing.assert_allclose(found[name], column, rtol=1e-9, atol=1e-9, err_msg=name)


EXECUTORS = {"batched": {"executor": "batched", "chunk": 3}, "looped": {"executor": "looped"}}


LOOPED = ("clique_averaging", "dpfl", "per_fedavg")
"""Algorithms that ask more of an executor than steps, each something else."""


@cache
def on_device(name, executor="batched", kind="simulated"):
    """Return an algorithm's history on a device, and how often the host waited and copied."""
    with DEVICES[kind]() as found:
        history = run(
            getattr(algorithms, name)(**ARGUMENTS[name]), device="cuda", **EXECUTORS[executor]
        )
    return history, counted(found.events if found else [])


def counted(events):
    """Return how often each function waited or copied.

    A matrix is copied dense or sparse, by its density.
    """
    same = {"_sparse": "to_torch"}
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
    """Scores of whole sets among them, which are computed on the host."""
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
    """Where nodes that diverge freeze, each step may be undone."""
    options = {
        "on_divergence": policy,
        "topology": None,
        "before_exchange": False,
        "rounds": 1,
    } | EXECUTORS["batched"]
    found, wanted = (run(STEPS[name](), device=where, **options) for where in ("cuda", "cpu"))
    check_same(found, wanted)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_term_that_errs_is_named_on_a_device(executor, device):
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
def test_nodes_diverge_alike(policy, device):
    algorithm = algorithms.fedavg(**ARGUMENTS["fedavg"] | {"lr": 1e200})
    options = {"on_divergence": policy} | EXECUTORS["batched"]
    found, wanted = (run(algorithm, device=where, **options) for where in ("cuda", "cpu"))
    assert found.meta["diverged"] == wanted.meta["diverged"] != []
    np.testing.assert_array_equal(np.isfinite(found["loss"]), np.isfinite(wanted["loss"]))


def test_divergence_is_refused_alike(device):
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
    # waits as often as the node asks that asks most, here for its candidates
    "dpfl": "_answer_all",
}
"""Functions whose waits depend on numbers, or on what an algorithm asks."""


def waits_of(n, times, name, executor="batched", **options):
    """Return what the host waited for, and copied, in a run with so many times the steps."""
    longer = {"epochs": times * ARGUMENTS[name]["epochs"]} if "epochs" in ARGUMENTS[name] else {}
    algorithm = getattr(algorithms, name)(
        **ARGUMENTS[name] | ({"local_steps": times} if name == "dsgd" else longer)
    )
    with SimulatedDevice() as found:
        run(algorithm, n, device="cuda", **EXECUTORS[executor] | options)
    return found.events


@pytest.mark.parametrize("case", WAITED)
def test_the_host_waits_as_often_for_many_nodes_and_steps(case):
    """All of a run counts, from its first check to its last evaluation.

    This includes runs that look at terms in their first step.
    """
    options = {"name": case} | WAITED[case]
    many = waits_of(7, 2, **options)
    few = counted(waits_of(4, 1, **options)) if WAITED[case] else on_device(case)[1]
    changed = (few - counted(many)) + (counted(many) - few)
    functions = {function for _, function in changed} - {DEPENDING.get(case)}
    assert not functions, told([event for event in many if event.function in functions])
