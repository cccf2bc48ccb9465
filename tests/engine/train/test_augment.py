"""Examples gathered as the dataset shows them, and crops and flips of images in any executor."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats
import torch

import topofl
from tests import naive, problems
from topofl import algorithms, data, mixing, models
from topofl._support.seeding import stream
from topofl._support.threads import Buffers
from topofl.engine.minibatches import Batches, Examples

CPU = torch.device("cpu")


ROUNDS, SEED, BATCH, N = 3, 3, 4, 6


CROPS, MIRRORS = data.crop_and_flip(padding=2), data.crop_and_flip(padding=0)


EXECUTORS = [*({"executor": "batched", "chunk": k} for k in (6, 4)), {"executor": "looped"}]


def in_pixels(clients):
    """Return the same clients with uint8 images whose normalized black is far from 0."""
    dataset = clients.dataset
    pixels = (40 * dataset.inputs + 128).clamp(0, 255).to(torch.uint8)
    dataset = dataclasses.replace(dataset, inputs=pixels, mean=0.7, std=0.2)
    return data.Partition(dataset, clients.train, clients.val, clients.test, name=clients.name)


def run(algorithm=None, clients=None, augment=None, **options):
    """Return the history and the models of a small run."""
    algorithm = algorithm or algorithms.dsgd(0.1, batch_size=BATCH, momentum=0.9)
    clients = clients or in_pixels(problems.equal_clients())
    clients = clients if augment is None else data.augmented(clients, augment)
    how = {"model": problems.linear(), "topology": problems.cliques(clients), "rounds": ROUNDS}
    how |= {"seed": SEED} | options
    history = topofl.run(algorithm, clients=clients, **problems.options(**how))
    return history, history.models.flat


@pytest.mark.parametrize(
    "augment", [CROPS, MIRRORS, data.crop_and_flip(padding=3, flip=False)], ids=str
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_choice_pads_cuts_and_mirrors(augment, kind, dtype):
    images = np.random.default_rng(0).integers(0, 256, (7, 3, 4, 6)).astype(kind)
    look = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)} if kind == np.uint8 else {}
    dataset, side = data.from_arrays(images, np.arange(7) % 3, **look), 2 * augment.padding + 1
    all_choices = list(itertools.product(range(side), range(side), range(1 + augment.flip)))
    indices = np.arange(len(all_choices)) % 7
    cut = [
        naive.cut(images[i], *choice, augment.padding)
        for i, choice in zip(indices, all_choices, strict=True)
    ]
    wanted = data.from_arrays(np.stack(cut), indices, **look).examples(dtype=dtype)
    examples, choices = Examples.of(dataset, CPU, dtype, augment), torch.arange(augment.n_choices)
    made = examples.gather(torch.from_numpy(indices), Buffers(CPU), choices)
    assert made.dtype == dtype
    assert torch.equal(made, wanted)
    assert torch.equal(torch.from_numpy(images), dataset.inputs), "the dataset was changed"


def drawn(seed=0, phase="local"):
    """Return the choices (steps, nodes, examples) for crops of 9 by 9 places and both flips."""
    batches = Batches([np.arange(64)] * 40, seed, data.crop_and_flip())
    return np.stack([batches.at(step, 64, phase).choices for step in range(8)])


def test_all_offsets_and_both_flips_are_equally_likely():
    choices = drawn()
    observed = np.bincount(choices.ravel(), minlength=162)
    assert len(observed) == 162
    neighbors = choices[..., 1:].ravel() % 9 * 9 + choices[..., :-1].ravel() % 9
    flips, columns = observed.reshape(81, 2).sum(0), observed.reshape(9, 9, 2).sum((1, 2))
    for counts in (observed, flips, columns, np.bincount(neighbors)):
        assert scipy.stats.chisquare(counts).pvalue > 0.001


def test_draws_differ_between_steps_nodes_phases_and_seeds():
    choices = drawn()
    rows = choices.reshape(-1, choices.shape[-1])
    assert len(np.unique(rows, axis=0)) == len(rows)
    for other in (drawn(phase="body"), drawn(seed=1)):
        assert 0 < np.mean(other == choices) < 0.02


PASSES = {"lr": 0.1, "epochs": 2, "momentum": 0.9}


TRAINED = {
    "dsgd": algorithms.dsgd(0.1, batch_size=BATCH, momentum=0.9, local_steps=3),
    "local passes": algorithms.dfedavgm(batch_size=BATCH, **PASSES),
    "with a server": algorithms.fedavg(batch_size=BATCH, participation=0.5, **PASSES),
    "two phases": algorithms.dfedavgm_p(batch_size=BATCH, head="5", head_lr=0.05, **PASSES),
}


def naive_models(name, clients, augment):
    """Return the models that loops over nodes and images train."""
    dataset = clients.dataset
    affine = dataset.affine(torch.float64)

    def see(images, node, step, phase):
        how = {"padding": augment.padding, "flip": augment.flip}
        made = naive.augmented(images.numpy(), node, step, phase, SEED, **how)
        made = torch.from_numpy(made).double()
        return made if affine is None else made * affine[0] + affine[1]

    modules = problems.modules_at_start(problems.convolutional(), N)
    nodes = naive.Nodes(modules, dataset.inputs, dataset.labels, clients.train, BATCH, SEED, see)
    matrices = [mixing.metropolis_hastings(problems.cliques(clients)).weights.toarray()] * ROUNDS
    match name:
        case "dsgd":
            naive.dsgd(nodes, matrices[0], ROUNDS, lr=0.1, momentum=0.9, local_steps=3)
        case "local passes":
            naive.dfedavgm(nodes, matrices, ROUNDS, **PASSES)
        case "with a server":
            naive.fedavg(nodes, members, ROUNDS, **PASSES)
        case "two phases":
            heads = {"head_lr": 0.05, "is_head": lambda name: name.startswith("5.")}
            naive.dfedpgp(nodes, matrices, ROUNDS, mode="pull", **PASSES, **heads)
    return nodes.flat()


def members(t):
    return sorted(stream(SEED, "participation", t).permutation(N)[: N // 2].tolist())


@pytest.mark.parametrize("settings", EXECUTORS, ids=str)
@pytest.mark.parametrize(
    "clients", [in_pixels(problems.ragged_clients()), problems.equal_clients()], ids=str
)
@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.slow
def test_training_equals_the_naive_loop(name, clients, settings):
    how = {"model": problems.convolutional(), "init": "independent", "on_disconnected": "allow"}
    how |= {"dtype": torch.float64} | settings
    _, got = run(TRAINED[name], clients, augment=CROPS, **how)
    torch.testing.assert_close(got, naive_models(name, clients, CROPS), rtol=0, atol=1e-9)
    _, other = run(TRAINED[name], clients, augment=MIRRORS, **how)
    assert not torch.allclose(got, other, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_executors_and_chunks_see_the_same_images(threads, monkeypatch):
    monkeypatch.setattr("topofl.engine.plan.SHARED_WORK", 0)
    seen, gather = [], Examples.gather

    def noted(self, indices, buffers, choices=None):
        made = gather(self, indices, buffers, choices)
        if choices is not None:  # evaluations have none
            images = (image.numpy().tobytes() for image in made)
            seen.extend(zip(indices.tolist(), images, strict=True))
        return made

    monkeypatch.setattr(Examples, "gather", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        images = []
        for settings in EXECUTORS:
            run(model=problems.convolutional(), augment=CROPS, **settings)
            images.append(sorted(seen))
            seen.clear()
    finally:
        torch.set_num_threads(before)
    batches = Batches(problems.equal_clients().train, SEED)
    drawn = [batches.at(t, BATCH, "local").indices.numel() for t in range(ROUNDS)]
    assert len(images[0]) == sum(drawn)
    assert all(others == images[0] for others in images)


def test_evaluations_see_images_as_they_are():
    clients = in_pixels(problems.equal_clients())
    history, flat = run(augment=CROPS, every=ROUNDS)
    plain, other = run(clients=clients, every=ROUNDS)
    assert history.meta["augment"] == "crop_and_flip(padding=2, flip=True)"
    assert plain.meta["augment"] is None
    assert not torch.equal(flat, other)
    np.testing.assert_array_equal(history["loss"][0], plain["loss"][0])
    dataset = clients.dataset
    inputs, labels = dataset.examples(dataset.test), dataset.labels[torch.tensor(dataset.test)]
    for node in range(N):
        weight, bias = flat[node, :108].view(3, 36), flat[node, 108:]
        wanted = torch.nn.functional.cross_entropy(inputs.flatten(1) @ weight.T + bias, labels)
        assert history["loss"][-1, node] == pytest.approx(float(wanted), rel=1e-5)


def need(clients, **options):
    return topofl.estimate(
        algorithms.dsgd(0.1, batch_size=10),
        model=models.logistic_regression(36, 3),
        clients=clients,
        topology=topofl.topologies.ring(N),
        **problems.options(executor="batched", **options),
    )


@pytest.mark.parametrize(("kind", "size"), [(in_pixels, 1), (lambda clients: clients, 4)])
def test_memory_is_estimated(kind, size):
    clients = kind(problems.equal_clients())
    plain, augmented = need(clients), need(data.augmented(clients, CROPS))
    width = 10
    # padded, and places
    assert augmented.minibatches - plain.minibatches == N * width * (100 * size + 36 * 8)
    assert augmented.total - plain.total == augmented.minibatches - plain.minibatches
    examples, buffers = Examples.of(clients.dataset, CPU, torch.float32, CROPS), Buffers(CPU)
    examples.gather(
        torch.zeros(N * width, dtype=torch.long), buffers, torch.zeros(N * width, dtype=torch.long)
    )
    # labels apart
    assert (
        sum(tensor.nbytes for tensor in buffers._tensors.values())
        == augmented.minibatches - N * width * 8
    )


def test_a_probe_trains_on_augmented_images():
    assert need(data.augmented(problems.equal_clients(), CROPS), probe=True).seconds_per_round > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda clients: clients.pooled(),
        lambda clients: data.match_test(clients, rule="disjoint"),
        lambda clients: data.with_validation(clients, 0.2),
        lambda clients: data.flip_labels(clients, 2, seed=0),
        lambda clients: data.augmented(clients, CROPS),
    ],
    ids=["pooled", "match_test", "with_validation", "flip_labels", "augmented"],
)
def test_operations_on_clients_keep_augmentation(make):
    made, plain = make(data.augmented(problems.equal_clients(), MIRRORS)), problems.equal_clients()
    assert made.augment == (CROPS if make(plain).augment else MIRRORS)
    assert made.augment.name in repr(made)
    assert make(plain).augment in (None, CROPS)


PIXELS = np.random.default_rng(0).integers(0, 256, (12, 3, 4, 4), dtype=np.uint8)
LABELS = np.arange(12) % 3
DATASETS = {
    "pixels": lambda: data.from_arrays(PIXELS, LABELS, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)),
    "numbers": lambda: data.from_arrays(PIXELS.astype(np.float32) / 3, LABELS),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DATASETS)
def test_gathered_bit_by_bit_as_the_dataset_shows_them(name, dtype):
    dataset, indices = DATASETS[name](), torch.tensor([7, 0, 7, 3])
    examples, buffers = Examples.of(dataset, CPU, dtype), Buffers(CPU)
    wanted = dataset.examples(indices.numpy(), dtype)
    assert torch.equal(examples(indices), wanted)
    assert torch.equal(examples.gather(indices, buffers), wanted)


def test_pixels_stay_bytes_and_numbers_are_not_copied():
    pixels, numbers = (DATASETS[name]() for name in ("pixels", "numbers"))
    assert Examples.of(pixels, CPU, torch.float32).stored is pixels.inputs
    assert Examples.of(numbers, CPU, torch.float32).stored is numbers.inputs


def test_buffers_grow_and_keep_types_apart():
    buffers = Buffers(CPU)
    small = buffers.take("a", (2, 3), torch.float32)
    assert buffers.take("a", (6,), torch.float32).data_ptr() == small.data_ptr()
    assert buffers.take("a", (7,), torch.float32).shape == (7,)
    assert buffers.take("a", (2,), torch.float64).dtype == torch.float64
    assert (
        buffers.take("b", (7,), torch.float32).data_ptr()
        != buffers.take("a", (7,), torch.float32).data_ptr()
    )
