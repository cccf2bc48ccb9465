"""Tasks: training equals plain loops, scores equal scikit-learn's, and histories follow both."""

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
from tests import problems
from tests.degenerate import inputs as degenerate
from tests.rows import tasks as cases
from tests.rows.tasks import (
    CASES,
    LABELS,
    NUMBERS,
    PLAIN,
    TOKENS,
    X,
    by_hand,
    clients_of,
    dataset_of,
    mlp,
    plain_classes,
    run,
)
from topofl import Task, algorithms, data, tasks, topologies
from topofl._support.seeding import seeded_torch
from topofl.engine import evaluation
from topofl.engine.gradients import in_closed_form
from topofl.engine.population import Layout, Population
from topofl.tasks import (
    Score,
    absolute_error,
    accuracy,
    classification,
    cross_entropy,
    f1_of_labels,
    hamming_loss,
    macro_auc,
    multi_label,
    next_token,
    regression,
    squared_error,
    subset_accuracy,
)


@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("case", CASES)
def test_training_equals_the_reference(case, executor):
    seen = {}
    seeing = problems.each_round(lambda t, models: seen.update({t: models.flat.clone()}))
    run(case, executor=executor, callbacks=[seeing])
    modules = by_hand(case, 4)
    wanted = [nn.utils.parameters_to_vector(module.parameters()).detach() for module in modules]
    torch.testing.assert_close(seen[4], torch.stack(wanted), rtol=1e-10, atol=1e-12)


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


NEXT = np.roll(TOKENS, -1, axis=1)
MODERN = {
    "transformer": (next_token(), TOKENS, NEXT, seeded_torch(0)(Transformer)),
    "regression": (regression(), X, NUMBERS, lambda: mlp(2)),
    "several labels": (multi_label(), X, LABELS, lambda: mlp(3)),
}


@pytest.mark.parametrize("case", MODERN)
def test_executors_agree_on_adamw_with_a_schedule(case):
    task, inputs, targets, model = MODERN[case]
    dataset, kept = dataset_of(inputs, targets), []
    clients = data.dirichlet_per_class(dataset, 4, alpha=1.0, min_size=2, seed=0)
    rate = algorithms.cosine(0.05, rounds=4, warmup=1)
    steps = algorithms.descend(algorithms.clip(1.0), algorithms.adamw(decay=0.1), lr=rate)
    local = algorithms.train(steps, batch_size=4, epochs=1)

    def keep(event):
        if event.kind == "end":
            kept.append(event.models.flat.clone())

    for executor, chunk in (("batched", {"chunk": 3}), ("batched", {}), ("looped", {})):
        options = problems.options(dtype=torch.float64, executor=executor, **chunk)
        options |= {"model": model(), "clients": clients, "topology": topologies.ring(4)}
        algorithm = algorithms.chain("adamw", local=local, exchange=algorithms.gossip())
        topofl.run(algorithm, **options, rounds=4, seed=0, task=task, callbacks=[keep])
    for models in kept[:-1]:
        torch.testing.assert_close(models, kept[-1], rtol=0, atol=1e-9)
    assert len(kept) == 3
    assert torch.linalg.vector_norm(kept[0][0] - kept[0][1]) > 1e-3, "nodes are alike"


def test_padding_does_not_count():
    outputs = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    task = next_token(ignored=-1)
    targets = torch.tensor([[1, 2, -1], [-1, -1, -1]])
    wanted = functional.cross_entropy(outputs[0, :2], targets[0, :2])
    losses = torch.stack([wanted, torch.zeros_like(wanted)])
    torch.testing.assert_close(task.loss(outputs, targets), losses)
    right = (outputs[0, :2].argmax(1) == targets[0, :2]).double().mean()
    assert task.reported["accuracy"].function(outputs, targets).tolist() == [float(right), 0.0]
    assert task.misfit(outputs, targets) == ""


def test_the_default_is_classification_bit_for_bit():
    same = Task("mine", lambda o, t: cross_entropy(o, t), {"accuracy": accuracy})
    options = {"clients": problems.ragged_clients(), "every": 1}
    plain, named, autograd = (
        degenerate.run(algorithms.dsgd(lr=0.1), task=task, **options)
        for task in (None, classification(), same)
    )
    assert np.array_equal(plain["loss"], named["loss"])
    assert np.array_equal(plain["accuracy"], named["accuracy"])
    np.testing.assert_allclose(autograd["loss"], plain["loss"], rtol=1e-5)
    np.testing.assert_array_equal(autograd["accuracy"], plain["accuracy"])


def test_the_closed_form_is_known_by_the_loss():
    linear, other = problems.linear(), Task("classification", lambda o, t: o[:, 0])
    assert in_closed_form(linear, classification(scores=("f1",)))
    assert in_closed_form(linear, Task("another name", cross_entropy))
    assert not in_closed_form(linear, other)
    assert not in_closed_form(problems.convolutional(), classification())


BIG = 2**24 + 1
"""The first whole number that float32 does not have."""


def test_token_ids_keep_their_value_on_the_way_to_the_model():
    seen, given = [], []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            seen.append(x.clone())
            return (x % 7).to(self.weight.dtype) * self.weight

    def loss(outputs, wanted):
        given.append(wanted)
        return outputs.sum(1) * (wanted % 5)

    ids, targets = np.array([[BIG, 5], [BIG + 2, 6]] * 4), np.array([BIG, BIG + 2] * 4)
    dataset = data.from_arrays(ids, targets=targets, test=(ids[:2], None, targets[:2]))
    assert dataset.inputs.dtype == dataset.learned().dtype == torch.int64
    options = {"clients": data.iid(dataset, 2, seed=0), "topology": None, "executor": "looped"}
    options |= {"model": Spy(), "task": Task("spy", loss), "rounds": 1}
    degenerate.run(algorithms.local_only(lr=1e-9, batch_size=2), **options)
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
    clients = data.with_validation(clients_of(CASES["regression"][2]), 0.4, seed=0)
    options = {"clients": clients, "task": regression(), "topology": None, "init": "given"}
    options |= {"model": mlp(2).double(), "rounds": 2, "every": 1, "dtype": torch.float64}
    algorithm = algorithms.dpfl(lr=0.05, budget=2, batch_size=4)
    batched, looped = (
        degenerate.run(algorithm, **options, executor=executor)
        for executor in ("batched", "looped")
    )
    np.testing.assert_allclose(batched["mse"], looped["mse"], rtol=1e-9)
    for t in range(2):
        assert (batched.mixing(t).weights != looped.mixing(t).weights).nnz == 0


def test_tasks_of_the_library_can_be_sent_to_other_processes():
    many = classification(("f1", "auc")), regression(("r2", "rmse")), multi_label(("f1",))
    for task in (*many, next_token()):
        assert repr(pickle.loads(pickle.dumps(task))) == repr(task)


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
    assert not warned or ("remove that layer" in texts[0] and found[0].filename == cases.__file__)


# Scores


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("case", PLAIN)
def test_scores_equal_plain_ones(case, own):
    """On one set for all, and on sets of the nodes' own, of which one is empty."""
    dataset = CASES[case][2]
    clients = clients_of(dataset)
    tests = [dataset.test] * 4
    if own:
        first, *rest = np.array_split(dataset.test, 3)
        tests = [first, np.zeros(0, np.int64), *rest]
        clients = replace(clients, test=tests)
    history = run(case, clients=clients, on="own_test" if own else "test")
    assert list(history.scores) == list(history.meta["task"]["scores"])
    inputs, targets = dataset.examples(dtype=torch.float64), dataset.learned(torch.float64)
    for i, (module, indices) in enumerate(zip(by_hand(case, 4), tests, strict=True)):
        if not len(indices):
            assert all(np.isnan(history.last(name)[i]) for name in history.scores)
            continue
        with torch.no_grad():
            outputs = module(inputs[indices.tolist()])
        for name, value in PLAIN[case](outputs, targets[indices.tolist()]).items():
            about = f"{name} of node {i}"
            np.testing.assert_allclose(history[name][-1, i], value, rtol=1e-9, err_msg=about)


FOUR = ("accuracy", "f1", "auc", "calibration")


@pytest.mark.parametrize("threads", [1, 3])
def test_scores_of_linear_models_are_of_each_node_alone(threads, monkeypatch):
    """Linear models are evaluated together, but one by one for scores of whole sets."""
    monkeypatch.setattr(evaluation, "EXAMPLES", 4)
    monkeypatch.setattr(evaluation, "ROWS", 7)
    blobs, linear = problems.dataset(), problems.linear().double()
    where, targets = blobs.test.tolist(), blobs.labels[blobs.test.tolist()]
    flat = nn.utils.parameters_to_vector(linear.parameters()).detach() + torch.arange(4)[:, None]
    flat += 0.1 * torch.from_numpy(np.random.default_rng(1).standard_normal(flat.shape))
    nodes, task = Population.alone(flat, Layout.of(linear)), classification(FOUR)
    test = blobs.inputs.double(), blobs.labels, torch.tensor(blobs.test)
    found = problems.evaluated(linear, nodes, *test, task=task, workers=threads)
    for i in range(4):
        nn.utils.vector_to_parameters(flat[i], linear.parameters())
        with torch.no_grad():
            outputs = linear(blobs.inputs[where].double())
        shares = torch.softmax(outputs, 1).numpy()
        auc = sklearn_metrics.roc_auc_score(targets, shares, multi_class="ovr", average="macro")
        more = {"auc": auc, "calibration": calibration_by_hand(shares, targets.numpy())}
        for name, value in (plain_classes(outputs, targets) | more).items():
            np.testing.assert_allclose(float(found[name][i]), value, rtol=1e-9)


def calibration_by_hand(shares, targets, bins=15):
    total, right = 0.0, shares.argmax(1) == targets
    for k in range(bins):
        inside = (shares.max(1) > k / bins) & (shares.max(1) <= (k + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - shares.max(1)[inside].mean())
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


OWN = {
    "regression": (tasks.regression, "mse"),
    "next token": (tasks.next_token, "accuracy"),
    "several labels": (tasks.multi_label, "subset_accuracy"),
    "F1 of classes": (tasks.classification, "accuracy"),
}
"""The task and one of its scores, by the case of a run that has a dataset for it."""


def largest(outputs, targets):
    """Return the largest output of each example."""
    return outputs.flatten(1).amax(1)


def spread(outputs, targets):
    """Return the distance between the extreme outputs on a whole set."""
    return outputs.max() - outputs.min()


@pytest.mark.parametrize("case", OWN)
def test_functions_and_scores_are_evaluated_beside_known_ones(case):
    task, known = OWN[case]
    whole = Score(spread, low_is_good=True, whole=True)
    assert task(scores=largest).directions == {"largest": "high", "loss": "low"}
    found = task(scores={"my": largest, "other": whole})
    assert found.directions == {"my": "high", "other": "low", "loss": "low"}
    assert found.scores["my"].function is largest
    history = run(case, task=task(scores=(known, largest, whole)))
    assert list(history.scores) == [known, "largest", "spread", "loss"]
    assert (history.scores["largest"], history.scores["spread"]) == ("high", "low")
    plain = run(case, task=task(scores=(known,)))
    np.testing.assert_array_equal(history[known], plain[known])
    dataset = CASES[case][2]
    inputs = dataset.examples(dtype=torch.float64)[torch.tensor(dataset.test)]
    for i, module in enumerate(by_hand(case, 4)):
        with torch.no_grad():
            outputs = module(inputs)
        assert history.last("largest")[i] == pytest.approx(float(largest(outputs, None).mean()))
        assert history.last("spread")[i] == pytest.approx(float(spread(outputs, None)))


# Histories and estimates


def estimated(case, task=None, executor="looped", rounds=1000):
    own, build, dataset, _ = CASES[case]
    return topofl.estimate(
        algorithms.dsgd(lr=0.1),
        model=build(),
        clients=clients_of(dataset),
        topology=topologies.ring(4),
        task=task or own,
        compute=topofl.Compute(executor=executor),
        rounds=rounds,
    )


def test_estimates_know_the_task():
    for case in ("next token", "regression"):
        assert estimated(case, executor="batched", rounds=10).activations > 0
    few = estimated("F1 of classes", classification(("accuracy",)))
    many = estimated("F1 of classes", classification(("accuracy", "f1", "auc")))
    assert many.history - few.history == 8 * 2 * 4 * 101
    assert many.evaluation > few.evaluation, "outputs on a whole set are kept"


def test_a_history_follows_its_task(tmp_path):
    history = run("regression")
    mse = history["mse"].mean(1)
    assert history.primary == "mse"
    assert [history.low_is_good(name) for name in ("rmse", "r2")] == [True, False]
    assert f"final mse {history.last().mean():.4f}" in repr(history)
    assert np.array_equal(history.best(), history["mse"][mse.argmin()])
    assert np.array_equal(history.best("r2"), history["r2"][history["r2"].mean(1).argmax()])
    assert history.personal().worst_tenth == history.last().max()
    assert history.rounds_to(mse[-1]) == 4
    assert history.bytes_to(-1.0).reason.endswith(f"or less: the lowest is {mse.min():.4g}")
    json.dumps(history.meta["task"])
    loaded = topofl.History.load(history.save(tmp_path / "saved"))
    assert loaded.scores == history.scores
    assert np.array_equal(loaded["r2"], history["r2"])
    assert "mse_mean" in loaded.to_pandas()
    assert loaded.to_pandas(per="node").shape[0] == history["mse"].size
    assert loaded.plot().axes[0].get_ylabel() == "mse"


def test_best_on_validation_by_the_primary_score():
    clients = data.with_validation(clients_of(CASES["regression"][2]), 0.3, seed=0)
    history = run("regression", clients=clients, on=("test", "own_val"))
    chosen = history["mse_own_val"].argmin(0)
    assert np.array_equal(history.best_on_validation(), history["mse"][chosen, np.arange(4)])


def test_resume_refuses_another_task(tmp_path):
    run("regression", 2, saving=tmp_path, task=regression())
    again, other = topofl.Saving(tmp_path, resume=True), Task("mae", absolute_error)
    match = r"same run: task was .*squared_error.*, is .*absolute_error"
    with pytest.raises(ValueError, match=match):
        run("regression", 4, saving=again, task=other)
    assert run("regression", 4, saving=again, task=regression()).n_rounds == 4


def test_runs_before_and_after_fine_tuning_report_every_score():
    tune = algorithms.sgd(lr=0.05, epochs=1)
    history = run("several labels", before_exchange=True, fine_tune=tune)
    for moment in ("before_exchange", "fine_tuned"):
        assert np.isfinite(history[f"subset_accuracy_{moment}"][-1]).all()
