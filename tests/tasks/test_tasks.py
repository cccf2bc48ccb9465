"""Losses and scores equal plain loops and scikit-learn; both executors equal the reference."""

import json
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from topofl import Task, algorithms, data, topologies
from topofl._support.seeding import seeded_torch
from topofl.engine.train.gradients import in_closed_form
from topofl.tasks import Score, classification, multi_label, next_token, regression
from topofl.tasks.classification import accuracy, cross_entropy, macro_auc
from topofl.tasks.multi_label import f1_of_labels, hamming_loss, subset_accuracy
from topofl.tasks.regression import absolute_error, squared_error

BIG = 2**24 + 1
"""The first whole number that float32 does not have."""

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
NUMBERS = np.stack([X @ [1.0, -2.0, 0.5, 0.0], X[:, 0] ** 2], axis=1)
LABELS = (X[:, :3] + 0.3 * RNG.standard_normal((60, 3)) > 0).astype(np.int64)
TOKENS = RNG.integers(0, 7, (60, 6))
BINS = data.binned(NUMBERS[:, 0], 3)


@seeded_torch(0)
def mlp(outputs):
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))


@seeded_torch(0)
def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 1))


@seeded_torch(0)
def tokens_model():
    return nn.Sequential(nn.Embedding(7, 5), nn.Tanh(), nn.Linear(5, 7))


def dataset_of(inputs, targets):
    return data.from_arrays(inputs, BINS, targets=targets, test=0.25, seed=0)


def token_losses(outputs, targets):
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)


def label_losses(outputs, targets):
    return functional.binary_cross_entropy_with_logits(
        outputs, targets.double(), reduction="none"
    ).mean(1)


CASES = {
    "regression": (
        regression(scores=("mse", "mae", "rmse", "r2")),
        lambda: mlp(2),
        dataset_of(X, NUMBERS),
        lambda outputs, targets: (outputs - targets).square().mean(1),
    ),
    "linear regression": (
        regression(),
        linear,
        dataset_of(X, NUMBERS[:, 0]),
        lambda outputs, targets: (outputs[:, 0] - targets).square(),
    ),
    "several labels": (multi_label(), lambda: mlp(3), dataset_of(X, LABELS), label_losses),
    "next token": (
        next_token(),
        tokens_model,
        dataset_of(TOKENS[:, :-1], TOKENS[:, 1:]),
        token_losses,
    ),
    "a user's own": (
        Task(
            "huber",
            lambda outputs, targets: functional.huber_loss(outputs, targets, reduction="none").sum(
                1
            ),
        ),
        lambda: mlp(2),
        dataset_of(X, NUMBERS),
        lambda outputs, targets: functional.huber_loss(outputs, targets, reduction="none").sum(1),
    ),
    "F1 of classes": (
        classification(scores=("f1", "accuracy")),
        lambda: mlp(3),
        dataset_of(X, None),
        lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none"),
    ),
}


def clients_of(dataset, n=4):
    return data.dirichlet_per_class(dataset, n, alpha=0.5, min_size=3, seed=0)


def run(case, rounds=4, **options):
    task, build, dataset, _ = CASES[case]
    given = {
        "model": build().double(),
        "clients": clients_of(dataset),
        "topology": topologies.ring(4),
        "task": task,
    }
    given |= {"rounds": rounds, "seed": 0, "dtype": torch.float64, "every": 2, "progress": False}
    return topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=4),
        **problems.options(**given | {"init": "given"} | options),
    )


def by_hand(case, rounds):
    """Train one module a node in Python loops; return them."""
    _, build, dataset, losses = CASES[case]
    modules = [build().double() for _ in range(4)]
    inputs = dataset.examples(dtype=torch.float64)
    targets, members = dataset.learned(torch.float64), clients_of(dataset).train
    weights = topofl.mixing.metropolis_hastings(topologies.ring(4)).weights.toarray()
    for t in range(rounds):
        for i, module in enumerate(modules):
            batch = torch.as_tensor(naive.minibatch(members[i], i, t, 4, "local", 0))
            module.zero_grad()
            losses(module(inputs[batch]), targets[batch]).mean().backward()
            naive.descend(
                module,
                [torch.zeros_like(p) for p in module.parameters()],
                [p.grad.clone() for p in module.parameters()],
                0.1,
                0.0,
            )
        naive.average(modules, weights)
    return modules


@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("case", CASES)
def test_training_equals_the_reference(case, executor):
    seen = {}
    seeing = problems.each_round(lambda t, models: seen.update({t: models.flat.clone()}))
    run(case, executor=executor, callbacks=[seeing])
    wanted = [
        nn.utils.parameters_to_vector(module.parameters()).detach() for module in by_hand(case, 4)
    ]
    torch.testing.assert_close(seen[4], torch.stack(wanted), rtol=1e-10, atol=1e-12)


def outputs_of(modules, case, indices):
    dataset = CASES[case][2]
    inputs = dataset.examples(dtype=torch.float64)
    where = torch.tensor(indices)
    with torch.no_grad():
        return [module(inputs[where]) for module in modules], dataset.learned(torch.float64)[where]


def plain_regression(outputs, targets):
    mse = float((outputs - targets).square().mean())
    r2 = sklearn_metrics.r2_score(targets, outputs)
    return {
        "mse": mse,
        "mae": float((outputs - targets).abs().mean()),
        "rmse": mse**0.5,
        "r2": r2,
        "loss": mse,
    }


def plain_tokens(outputs, targets):
    rows = [
        (row[t], int(wanted[t]))
        for row, wanted in zip(outputs, targets, strict=True)
        for t in range(len(wanted))
    ]
    loss = np.mean([float(torch.logsumexp(logits, 0) - logits[token]) for logits, token in rows])
    right = np.mean([int(logits.argmax()) == token for logits, token in rows])
    return {"accuracy": right, "perplexity": np.exp(loss), "loss": loss}


def plain_labels(outputs, targets):
    right = np.mean(
        [
            all((o > 0) == bool(t) for o, t in zip(*pair, strict=True))
            for pair in zip(outputs, targets, strict=True)
        ]
    )
    return {"subset_accuracy": right, "loss": float(label_losses(outputs, targets).mean())}


def plain_classes(outputs, targets):
    f1 = sklearn_metrics.f1_score(targets, outputs.argmax(1), average="macro", zero_division=0.0)
    right = float((outputs.argmax(1) == targets).double().mean())
    return {"f1": f1, "accuracy": right, "loss": float(functional.cross_entropy(outputs, targets))}


PLAIN = {
    "regression": plain_regression,
    "next token": plain_tokens,
    "several labels": plain_labels,
    "F1 of classes": plain_classes,
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("case", PLAIN)
def test_scores_equal_plain_ones(case, own):
    """On one set for all, and on sets of the nodes' own, of which one is empty."""
    clients = clients_of(CASES[case][2])
    parts = np.array_split(clients.dataset.test, 3)
    clients = (
        replace(clients, test=(parts[0], np.zeros(0, np.int64), parts[1], parts[2]))
        if own
        else clients
    )
    history = run(case, clients=clients, on="own_test" if own else "test")
    assert list(history.scores) == list(history.meta["task"]["scores"])
    modules = by_hand(case, 4)
    for i, module in enumerate(modules):
        indices = clients.test[i] if own else clients.dataset.test
        if not len(indices):
            assert all(np.isnan(history.last(name)[i]) for name in history.scores)
            continue
        (outputs,), targets = outputs_of([module], case, indices)
        for name, value in PLAIN[case](outputs, targets).items():
            np.testing.assert_allclose(
                history[name][-1, i], value, rtol=1e-9, err_msg=f"{name} of node {i}"
            )


@pytest.mark.parametrize("threads", [1, 3])
def test_scores_of_linear_models_are_of_each_node_alone(threads, monkeypatch):
    """Linear models are evaluated together, but one by one for scores of whole sets."""
    from topofl.engine.evaluate import scores as module

    monkeypatch.setattr(module, "EXAMPLES", 4)
    monkeypatch.setattr(module, "ROWS", 7)
    blobs = problems.dataset()
    linear = problems.linear().double()
    flat = torch.stack(
        [nn.utils.parameters_to_vector(linear.parameters()).detach() + k for k in range(4)]
    )
    flat += 0.1 * torch.from_numpy(np.random.default_rng(1).standard_normal(flat.shape))
    population = topofl.engine.population.Population(
        flat, topofl.engine.population.Layout.of(linear)
    )
    evaluated = module.Evaluated(torch.tensor(blobs.test), range(4))
    task = classification(scores=("accuracy", "f1", "auc", "calibration"))
    with topofl.engine.train.workers.worker_threads(threads) as each:
        found = module.evaluate(
            linear,
            population,
            blobs.inputs.double().__getitem__,
            blobs.labels,
            evaluated,
            each,
            threads,
            task=task,
        )
    for i in range(4):
        nn.utils.vector_to_parameters(flat[i], linear.parameters())
        with torch.no_grad():
            outputs = linear(blobs.inputs[blobs.test.tolist()].double())
        targets = blobs.labels[blobs.test.tolist()]
        for name, value in plain_classes(outputs, targets).items():
            np.testing.assert_allclose(float(found[name][i]), value, rtol=1e-9)
        shares = torch.softmax(outputs, 1).numpy()
        auc = sklearn_metrics.roc_auc_score(targets, shares, multi_class="ovr", average="macro")
        np.testing.assert_allclose(float(found["auc"][i]), auc)
        np.testing.assert_allclose(
            float(found["calibration"][i]), calibration_by_hand(shares, targets.numpy())
        )


def calibration_by_hand(shares, targets, bins=15):
    total = 0.0
    for k in range(bins):
        inside = [
            row for row in range(len(targets)) if k / bins < shares[row].max() <= (k + 1) / bins
        ]
        if inside:
            right = np.mean([shares[row].argmax() == targets[row] for row in inside])
            total += (
                len(inside)
                / len(targets)
                * abs(right - np.mean([shares[row].max() for row in inside]))
            )
    return total


def test_auc_is_of_the_classes_that_are_there():
    outputs = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    targets = torch.tensor([0, 1, 0])
    assert macro_auc(outputs, targets) == 1.0
    assert np.isnan(macro_auc(outputs[:1], targets[:1])), "one class has no curve"


def test_labels_by_their_own_scores():
    outputs = torch.tensor([[1.0, -1.0], [1.0, 1.0], [-2.0, -3.0]])
    targets = torch.tensor([[1, 0], [0, 1], [1, 0]])
    assert subset_accuracy(outputs, targets).tolist() == [True, False, False]
    assert hamming_loss(outputs, targets).tolist() == [0, 0.5, 0.5]
    assert f1_of_labels(outputs, targets) == pytest.approx((0.5 + 1) / 2)


class Transformer(nn.Module):
    """One layer of attention over tokens before, and normalized layers."""

    def __init__(self, width=8):
        super().__init__()
        self.token, self.place = nn.Embedding(7, width), nn.Embedding(6, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.GroupNorm(2, 6), nn.LayerNorm(width)])
        self.attend, self.further = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, 7)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        q, k, v = self.attend(self.norms[0](x)).chunk(3, dim=-1)
        later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=x.device).triu(1)
        x = x + (q @ k.transpose(-1, -2)).masked_fill(later, -torch.inf).softmax(-1) @ v
        return self.out(self.norms[2](x + self.further(self.norms[1](x)).relu()))


MODERN = {
    "a transformer": (
        next_token(),
        TOKENS,
        np.roll(TOKENS, -1, axis=1),
        seeded_torch(0)(Transformer),
    ),
    "a regression": (regression(), X, NUMBERS, lambda: mlp(2)),
    "several labels": (multi_label(), X, LABELS, lambda: mlp(3)),
}


@pytest.mark.parametrize("case", MODERN)
def test_executors_agree_on_adamw_with_a_schedule(case):
    task, inputs, targets, model = MODERN[case]
    clients = data.dirichlet_per_class(
        dataset_of(inputs, targets), 4, alpha=1.0, min_size=2, seed=0
    )
    kept = []
    steps = algorithms.descend(
        algorithms.clip(1.0),
        algorithms.adamw(decay=0.1),
        lr=algorithms.cosine(0.05, rounds=4, warmup=1),
    )
    local = algorithms.train(steps, batch_size=4, epochs=1)
    for how in (
        {"executor": "batched", "chunk": 3},
        {"executor": "batched"},
        {"executor": "looped"},
    ):
        topofl.run(
            algorithms.chain("adamw", local=local, exchange=algorithms.gossip()),
            model=model(),
            clients=clients,
            topology=topologies.ring(4),
            rounds=4,
            seed=0,
            task=task,
            callbacks=[
                lambda event: (
                    kept.append(event.models.flat.clone()) if event.kind == "end" else None
                )
            ],
            **problems.options(dtype=torch.float64, **how),
        )
    for models in kept[:-1]:
        torch.testing.assert_close(models, kept[-1], rtol=0, atol=1e-9)
    assert len(kept) == 3
    assert torch.linalg.vector_norm(kept[0][0] - kept[0][1]) > 1e-3, "nodes are alike"


def test_padding_does_not_count():
    outputs = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    task = next_token(ignored=-1)
    targets = torch.tensor([[1, 2, -1], [-1, -1, -1]])
    wanted = functional.cross_entropy(outputs[0, :2], targets[0, :2])
    torch.testing.assert_close(
        task.loss(outputs, targets), torch.stack([wanted, torch.zeros_like(wanted)])
    )
    right = (outputs[0, :2].argmax(1) == targets[0, :2]).double().mean()
    assert task.reported["accuracy"].function(outputs, targets).tolist() == [float(right), 0.0]
    assert task.misfit(outputs, targets) == ""


# The default


def test_the_default_is_classification_bit_for_bit():
    clients, options = (
        problems.ragged_clients(),
        {"rounds": 3, "seed": 0, "every": 1, "progress": False},
    )
    options |= {"model": problems.linear(), "clients": clients, "topology": topologies.ring(6)}
    same = Task(
        "mine",
        lambda outputs, targets: cross_entropy(outputs, targets),
        {"accuracy": accuracy},
    )
    plain, named, autograd = (
        topofl.run(algorithms.dsgd(lr=0.1), **problems.options(**options), task=task)
        for task in (None, classification(), same)
    )
    assert np.array_equal(plain["loss"], named["loss"])
    assert np.array_equal(plain["accuracy"], named["accuracy"])
    np.testing.assert_allclose(autograd["loss"], plain["loss"], rtol=1e-5)
    np.testing.assert_array_equal(autograd["accuracy"], plain["accuracy"])


def test_the_closed_form_is_known_by_the_loss():
    linear = problems.linear()
    assert in_closed_form(linear, classification(scores=("f1",)))
    assert in_closed_form(linear, Task("another name", cross_entropy))
    assert not in_closed_form(
        linear, Task("classification", lambda outputs, targets: outputs[:, 0])
    )
    assert not in_closed_form(problems.convolutional(), classification())


# Dtypes and shapes


def test_token_ids_keep_their_value_on_the_way_to_the_model():
    seen = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            seen.append(x.clone())
            return (x % 7).to(self.weight.dtype) * self.weight

    ids = np.array([[BIG, 5], [BIG + 2, 6]] * 4)
    targets = np.array([BIG, BIG + 2] * 4)
    dataset = data.from_arrays(ids, targets=targets, test=(ids[:2], None, targets[:2]))
    assert dataset.inputs.dtype == dataset.learned().dtype == torch.int64
    given = []

    def loss(outputs, wanted):
        given.append(wanted)
        return outputs.sum(1) * (wanted % 5)

    clients = data.iid(dataset, 2, seed=0)
    topofl.run(
        algorithms.local_only(lr=1e-9, batch_size=2),
        model=Spy(),
        clients=clients,
        rounds=1,
        seed=0,
        task=Task("spy", loss),
        compute=topofl.Compute(executor="looped"),
        progress=False,
    )
    assert {x.dtype for x in seen} == {x.dtype for x in given} == {torch.int64}
    assert set(torch.cat([x.flatten() for x in seen]).tolist()) == {BIG, BIG + 2, 5, 6}
    assert set(torch.cat(given).tolist()) == {BIG, BIG + 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float_targets_have_the_dtype_of_the_run(dtype):
    seen = set()

    def loss(outputs, targets):
        seen.add((outputs.dtype, targets.dtype))
        return squared_error(outputs, targets)

    run("linear regression", rounds=1, task=Task("seen", loss), dtype=dtype)
    assert seen == {(dtype, dtype)}


def test_several_nodes_try_models_by_the_loss_of_the_task():
    """Peers are chosen by losses: DPFL asks for them in both executors."""
    found = []
    for executor in ("batched", "looped"):
        clients = data.with_validation(clients_of(CASES["regression"][2]), 0.4, seed=0)
        algorithm = algorithms.dpfl(lr=0.05, budget=2, batch_size=4)
        history = topofl.run(
            algorithm,
            model=mlp(2).double(),
            clients=clients,
            rounds=2,
            seed=0,
            task=regression(),
            compute=topofl.Compute(executor=executor, dtype=torch.float64),
            init="given",
            progress=False,
        )
        found.append(history)
    np.testing.assert_allclose(found[0]["mse"], found[1]["mse"], rtol=1e-9)
    for t in range(2):
        assert (found[0].mixing(t).weights != found[1].mixing(t).weights).nnz == 0


def test_estimates_know_the_task():
    need = [
        topofl.estimate(
            algorithms.dsgd(lr=0.1, batch_size=4),
            model=build(),
            clients=clients_of(dataset),
            topology=topologies.ring(4),
            task=task,
            compute=topofl.Compute(executor="batched"),
            rounds=10,
        )
        for task, build, dataset, _ in (CASES["next token"], CASES["regression"])
    ]
    assert all(one.activations > 0 for one in need)
    few, many = (
        topofl.estimate(
            algorithms.dsgd(lr=0.1),
            model=mlp(3),
            clients=clients_of(CASES["F1 of classes"][2]),
            topology=topologies.ring(4),
            task=classification(scores),
            compute=topofl.Compute(executor="looped"),
            rounds=1000,
        )
        for scores in (("accuracy",), ("accuracy", "f1", "auc"))
    )
    assert many.history - few.history == 8 * 2 * 4 * 101
    assert many.evaluation > few.evaluation, "outputs on a whole set are kept"


# Histories


def test_a_history_follows_its_task(tmp_path):
    history = run("regression")
    assert history.primary == "mse"
    assert history.low_is_good("rmse")
    assert not history.low_is_good("r2")
    assert f"final mse {history.last().mean():.4f}" in repr(history)
    best = history["mse"].mean(1).argmin()
    assert np.array_equal(history.best(), history["mse"][best])
    assert np.array_equal(history.best("r2"), history["r2"][history["r2"].mean(1).argmax()])
    assert history.personal().worst_tenth == history.last().max()
    assert history.rounds_to(history["mse"].mean(1)[-1]) == 4
    assert history.bytes_to(-1.0).reason.endswith(
        f"or less: the lowest is {history['mse'].mean(1).min():.4g}"
    )
    json.dumps(history.meta["task"])
    loaded = topofl.History.load(history.save(tmp_path / "saved"))
    assert loaded.scores == history.scores
    assert np.array_equal(loaded["r2"], history["r2"])
    assert "mse_mean" in loaded.to_pandas()
    assert loaded.to_pandas(per="node").shape[0] == history["mse"].size
    assert loaded.plot().get_ylabel() == "mse"


def test_best_on_validation_by_the_primary_score():
    dataset = CASES["regression"][2]
    clients = data.with_validation(clients_of(dataset), 0.3, seed=0)
    history = run("regression", clients=clients, on=("test", "own_val"))
    chosen = history["mse_own_val"].argmin(0)
    assert np.array_equal(history.best_on_validation(), history["mse"][chosen, np.arange(4)])


def test_resume_refuses_another_task(tmp_path):
    run("regression", saving := 2, saving=tmp_path, task=regression())
    with pytest.raises(
        ValueError, match=r"same run: task was .*squared_error.*, is .*absolute_error"
    ):
        run(
            "regression",
            saving + 2,
            saving=topofl.Saving(tmp_path, resume=True),
            task=Task("mae", absolute_error),
        )
    assert (
        run(
            "regression", saving + 2, saving=topofl.Saving(tmp_path, resume=True), task=regression()
        ).n_rounds
        == 4
    )


def test_runs_before_and_after_fine_tuning_report_every_score():
    tune = algorithms.sgd(lr=0.05, epochs=1)
    history = run("several labels", before_exchange=True, fine_tune=tune)
    for moment in ("before_exchange", "fine_tuned"):
        assert np.isfinite(history[f"subset_accuracy_{moment}"][-1]).all()


def test_tasks_of_the_library_can_be_sent_to_other_processes():
    for task in (
        classification(("f1", "auc")),
        regression(("r2", "rmse")),
        multi_label(("f1",)),
        next_token(),
    ):
        assert repr(pickle.loads(pickle.dumps(task))) == repr(task)


# Bad input


def per_batch(outputs, targets):
    return (outputs - targets).square().mean()


def rounded(outputs, targets):
    return (outputs - targets).round().detach().sum(1)


def among_others(outputs, targets):
    return (outputs - targets).square().mean(1) / outputs.square().mean(1).sum()


WRONG_TASKS = {
    "loss of the batch": (
        per_batch,
        {},
        r"`task` must have a loss per example, shape \(b,\)=\(2,\), got shape \(\);",
    ),
    "loss per number": (
        lambda o, t: (o - t).square(),
        {},
        r"`task` must have a loss per example, .*got shape \(2, 2\); take means",
    ),
    "a number": (lambda o, t: 1.0, {}, r"`task` must have a loss per example, .*got float"),
    "detached": (
        rounded,
        {},
        "`task` must have a loss that can be differentiated, got torch.float64 with",
    ),
    "not finite": (
        lambda o, t: (o.sum(1) - 1e9).log(),
        {},
        r"`task` must have a finite loss of finite outputs",
    ),
    "of others": (among_others, {}, "`task` must have a loss of each example by itself, got"),
    "raises": (
        lambda o, t: functional.cross_entropy(o, t, reduction="none")[:, :, 0],
        {},
        r"`task` must have a loss for outputs of shape \(2, 2\) and targets of shape \(2, 2\) and "
        "torch.float64, got",
    ),
    "score of the batch": (
        squared_error,
        {"mse": per_batch},
        r"`task` must have 'mse' per example, shape \(b,\)=\(2,\), got shape",
    ),
    "whole score raises": (
        squared_error,
        {"auc": Score(sklearn_metrics.roc_auc_score, whole=True)},
        r"`task` must have a number for 'auc' of outputs \(15, 2\) and targets \(15, 2\), "
        "got ValueError",
    ),
    "whole score per example": (
        squared_error,
        {"mse": Score(squared_error, whole=True)},
        "`task` must have a number for 'mse'",
    ),
}


@pytest.mark.parametrize("case", WRONG_TASKS)
def test_wrong_tasks_are_refused(case):
    loss, scores, message = WRONG_TASKS[case]
    with pytest.raises(ValueError, match=message) as error:
        run("regression", task=Task("wrong", loss, scores))
    assert str(error.value).count("\n") == 0 or case == "whole score raises"


MISFITS = {
    "numbers as classes": (
        classification(),
        lambda: mlp(2),
        NUMBERS[:, 0],
        r"classes \(N,\) of int64, got shape",
    ),
    "too many classes": (
        classification(),
        lambda: mlp(2),
        TOKENS[:, 0],
        r"classes in 0\.\.1 for outputs \(2, 2\), got 0\.\.6",
    ),
    "another width": (
        regression(),
        lambda: mlp(3),
        NUMBERS,
        r"of the shape of the model's outputs, \(3,\) per",
    ),
    "labels that are numbers": (multi_label(), lambda: mlp(2), NUMBERS, "0 or 1, got"),
    "labels of another number": (
        multi_label(),
        lambda: mlp(2),
        LABELS,
        r"\(N, labels\) with labels=\(2,\) as",
    ),
    "tokens of one position": (
        next_token(),
        lambda: mlp(7),
        TOKENS,
        r"token ids \(N, T\) of int64 for outputs",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_targets_that_do_not_fit_are_refused(case):
    task, build, targets, message = MISFITS[case]
    dataset = dataset_of(X, targets)
    with pytest.raises(ValueError, match="`targets` must be " + message):
        run("regression", task=task, model=build().double(), clients=clients_of(dataset))


def test_token_ids_beyond_the_vocabulary_are_refused():
    far = dataset_of(np.where(TOKENS[:, :-1] == 3, 9, TOKENS[:, :-1]), TOKENS[:, 1:])
    few = dataset_of(TOKENS[:, :-1], np.where(TOKENS[:, 1:] == 3, 9, TOKENS[:, 1:]))
    with pytest.raises(ValueError, match=r"`model` cannot take ex.*9.*(larg|number of embeddings)"):
        run("next token", clients=clients_of(far))
    with pytest.raises(
        ValueError,
        match=r"`targets` must be token ids in 0\.\.6 for outputs \(2, 5, 7\), got 0\.\.9",
    ):
        run("next token", clients=clients_of(few))


ARGUMENTS = {
    "no task": (
        lambda: run("regression", task="regression"),
        TypeError,
        "`task` must be a Task such as",
    ),
    "no loss": (lambda: Task("x", None), TypeError, "`loss` of a Task must be a function"),
    "no name": (lambda: Task("", per_batch), TypeError, "`name` of a Task must be text"),
    "scores in a list": (
        lambda: Task("x", per_batch, [per_batch]),
        TypeError,
        "`scores` of a Task must be a dict",
    ),
    "score is text": (
        lambda: Task("x", per_batch, {"f1": "f1"}),
        TypeError,
        "`scores` of a Task must be functions",
    ),
    "name of a column": (
        lambda: Task("x", per_batch, {"loss": per_batch}),
        ValueError,
        "such as 'f1', .*got 'loss'",
    ),
    "name with a space": (
        lambda: Task("x", per_batch, {"a b": per_batch}),
        ValueError,
        "such as 'f1', .*got 'a b'",
    ),
    "Score of nothing": (
        lambda: Score(None),
        TypeError,
        "`function` of a Score must be a function",
    ),
    "unknown score": (lambda: classification(("acuracy",)), ValueError, "did you mean 'accuracy'"),
    "score twice": (
        lambda: regression(("mse", "mse")),
        ValueError,
        "`scores` must name each score once, got mse, mse",
    ),
    "no votes": (
        lambda: topofl.run(
            algorithms.knn_per(lr=0.1),
            model=mlp(2),
            clients=clients_of(CASES["regression"][2]),
            task=regression(),
            rounds=1,
            seed=0,
        ),
        ValueError,
        "`task` must be classification for .*, in whose evaluation nearest neighbors vote",
    ),
    "lone linear layer": (
        lambda: run(
            "next token",
            model=nn.Linear(7, 7).double(),
            clients=clients_of(dataset_of(np.eye(7)[TOKENS[:, :-1]], TOKENS[:, 1:])),
        ),
        ValueError,
        "`model` must be more than one nn.Linear for examples of shape (5, 7)",
    ),
    "integers in a linear layer": (
        lambda: run("F1 of classes", clients=clients_of(dataset_of(TOKENS[:, :4], None))),
        ValueError,
        "examples are torch.int64 and stay so: give pixels as uint8, and other numbers as float32",
    ),
    "floats in an embedding": (
        lambda: run(
            "next token", clients=clients_of(dataset_of(TOKENS[:, :-1] / 1.0, TOKENS[:, 1:]))
        ),
        ValueError,
        "give token ids as int64",
    ),
    "batch normalization": (
        lambda: run("regression", model=nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))),
        ValueError,
        "use models.with_group_norm(model)",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_are_refused_by_name(case):
    call, error, message = ARGUMENTS[case]
    with pytest.raises(
        error, match=message.replace("(5, 7)", r"\(5, 7\)").replace("(model)", r"\(model\)")
    ):
        call()


@pytest.mark.parametrize(
    ("layer", "warned"),
    [(nn.Softmax(1), True), (nn.LogSoftmax(1), False), (nn.Identity(), False)],
    ids=str,
)
def test_a_final_softmax_is_warned_about(layer, warned):
    model = nn.Sequential(mlp(3), layer).double()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run("F1 of classes", model=model, rounds=1)
    texts = [str(one.message) for one in found if "probabilities" in str(one.message)]
    assert bool(texts) == warned
    assert not warned or ("remove that layer" in texts[0] and found[0].filename == __file__)


# Data


def test_targets_beside_labels():
    dataset = data.from_arrays(X, BINS, targets=NUMBERS, test=0.25, seed=0)
    assert dataset.targets.dtype == torch.float64
    assert dataset.learned().dtype == torch.float32
    assert np.array_equal(dataset.targets, NUMBERS)
    assert np.array_equal(dataset.labels, BINS)
    assert data.from_arrays(X, BINS).learned() is not None
    assert data.from_arrays(X, BINS).targets is None
    assert data.from_arrays(X, targets=LABELS).n_classes == 1


def test_held_out_triples_are_appended():
    dataset = data.from_arrays(
        X[:40], BINS[:40], targets=LABELS[:40], val=(X[40:], BINS[40:], LABELS[40:])
    )
    assert np.array_equal(dataset.targets[dataset.val.tolist()], LABELS[40:])


def test_from_torch_reads_targets():
    x = torch.from_numpy(X).float()
    y = torch.from_numpy(NUMBERS)
    pairs = data.from_torch(torch.utils.data.TensorDataset(x, y), targets=True)
    triples = data.from_torch(
        torch.utils.data.TensorDataset(x, torch.from_numpy(BINS), y),
        targets=True,
        test=torch.utils.data.TensorDataset(x[:5], torch.from_numpy(BINS[:5]), y[:5]),
    )
    assert torch.equal(pairs.targets, y)
    assert not pairs.labels.any()
    assert torch.equal(triples.targets, torch.cat([y, y[:5]]))
    assert triples.labels.tolist() == [*BINS, *BINS[:5]]
    floats = data.from_torch([(torch.ones(2), 0.5), (torch.zeros(2), 1.5)], targets=True)
    assert floats.targets.tolist() == [0.5, 1.5]


DATA = {
    "neither": (
        lambda: data.from_arrays(X),
        TypeError,
        "`y` must be given, .*or `targets`, got neither",
    ),
    "fewer": (
        lambda: data.from_arrays(X, targets=NUMBERS[:5]),
        ValueError,
        "`targets` must have one target for each",
    ),
    "text": (
        lambda: data.from_arrays(X, targets=["a"] * 60),
        TypeError,
        "`targets` must be real numbers",
    ),
    "infinite": (
        lambda: data.from_arrays(X, targets=[np.inf] * 60),
        ValueError,
        "`targets` must be finite",
    ),
    "pair": (
        lambda: data.from_arrays(X, targets=BINS, test=(X, BINS)),
        ValueError,
        r"a triple \(x, y, targets\)",
    ),
    "other targets": (
        lambda: data.from_arrays(X, targets=BINS, test=(X, None, NUMBERS)),
        ValueError,
        r"targets of shape \(\) each",
    ),
    "labels of one only": (
        lambda: data.from_arrays(X, targets=BINS, test=(X, BINS, BINS)),
        TypeError,
        "if and only if they are given for",
    ),
    "a list": (
        lambda: data.Dataset(
            torch.ones(2, 1), torch.tensor([0, 0]), 1, "x", [0, 1], [], [], targets=[1, 2]
        ),
        TypeError,
        "`targets` must be a dense tensor of real numbers, got list",
    ),
    "floats as classes": (
        lambda: data.from_torch([(torch.ones(2), 0.5)]),
        TypeError,
        "must give integer labels, got 0.5 .*targets=True",
    ),
    "flipped": (
        lambda: data.flip_labels(clients_of(CASES["regression"][2]), 1),
        ValueError,
        "must learn their labels",
    ),
    "bins of a table": (
        lambda: data.binned(X, 3),
        ValueError,
        "`values` must be a vector of numbers",
    ),
    "more bins than numbers": (lambda: data.binned([1.0, 2.0], 3), ValueError, "`n` must be "),
}


@pytest.mark.parametrize("case", DATA)
def test_wrong_targets_are_refused(case):
    call, error, message = DATA[case]
    with pytest.raises(error, match=message):
        call()


def test_bins_hold_as_many_and_keep_the_order():
    values = np.random.default_rng(0).permutation(100) / 7
    bins = data.binned(values, 4)
    assert np.bincount(bins).tolist() == [25] * 4
    assert (np.diff(bins[np.argsort(values)]) >= 0).all()
    assert len(set(data.binned([1, 1, 1, 2], 2)[:3])) == 1
