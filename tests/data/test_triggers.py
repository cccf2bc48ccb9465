"""Triggered images, attackers that train on them, and the success rate of a backdoor."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from topofl import algorithms, attacks, data, models
from topofl.data import backdoor, pixel_patch

TARGET, NODES, SHARE = 1, [4, 2], 0.4


def clients_of(n=6):
    return data.iid(problems.dataset(), n, seed=0)


def attacked(**changed):
    return backdoor(clients_of(), TARGET, **{"nodes": NODES, "share": SHARE} | changed)


@pytest.mark.parametrize(
    ("corner", "rows", "columns"),
    [
        ("bottom right", (2, 3), (2, 3)),
        ("bottom left", (2, 3), (0, 1)),
        ("top right", (0, 1), (2, 3)),
        ("top left", (0, 1), (0, 1)),
    ],
)
def test_a_patch_is_a_square_in_its_corner(corner, rows, columns):
    images = torch.zeros(2, 3, 4, 4)
    marked = pixel_patch(2, value=0.5, corner=corner)(images)
    assert not images.any()
    assert (marked[:, :, rows][:, :, :, columns] == 0.5).all()
    assert marked.sum() == 2 * 3 * 4 * 0.5


@pytest.mark.parametrize(("dtype", "bright"), [(torch.uint8, 255), (torch.float32, 1)])
def test_a_patch_is_bright(dtype, bright):
    marked = pixel_patch(1)(torch.zeros(1, 1, 2, 2, dtype=dtype))
    assert marked.flatten().tolist() == [0, 0, 0, bright]
    assert marked.dtype == dtype


@pytest.mark.parametrize("value", [0.5, -1, 256])
def test_a_value_that_pixels_cannot_have_is_refused(value):
    """They would be marked black, or by another value."""
    pixels = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="`value` must be a whole number from 0 to 255 for uint8"):
        pixel_patch(value=value)(pixels)
    assert pixel_patch(value=7)(pixels).max() == 7
    assert (pixel_patch(value=value)(pixels.float()) == value).any()


def test_triggered_images_are_test_images_of_other_labels():
    clients, made = clients_of().dataset, attacked().dataset
    others = [i for i in clients.test.tolist() if clients.labels[i] != TARGET]
    assert 0 < len(others) < len(clients.test)
    assert made.labels[torch.tensor(made.triggered)].tolist() == [TARGET] * len(others)
    wanted = pixel_patch(3)(clients.inputs[others])
    assert torch.equal(made.inputs[torch.tensor(made.triggered)], wanted)
    for name in ("test", "val"):
        np.testing.assert_array_equal(getattr(made, name), getattr(clients, name))
    assert torch.equal(made.inputs[: len(clients.inputs)], clients.inputs)


def test_a_share_of_the_attackers_images_is_replaced():
    before, made = clients_of(), attacked()
    size = len(before.dataset.inputs)
    for i in range(6):
        new = made.train[i][made.train[i] >= size]
        if i not in NODES:
            np.testing.assert_array_equal(made.train[i], before.train[i])
            continue
        assert len(made.train[i]) == len(before.train[i])
        assert len(new) == round(SHARE * len(before.train[i]))
        gone = np.setdiff1d(before.train[i], made.train[i])
        assert not (before.dataset.labels[gone] == TARGET).any()
        plain = before.dataset.inputs[torch.tensor(gone)]
        assert torch.equal(made.dataset.inputs[torch.tensor(new)], pixel_patch(3)(plain))
        assert (made.dataset.labels[new] == TARGET).all()
    assert made.flipped == (2, 4)
    assert made.name.endswith("target=1, nodes=[2, 4], trigger=pixel_patch(size=3), share=0.4)")
    other = attacked(seed=1)
    assert not np.array_equal(made.train[2], other.train[2]) or not torch.equal(
        made.dataset.inputs, other.dataset.inputs
    )


def test_all_images_of_other_labels_are_replaced_if_there_are_no_more():
    made = attacked(share=1.0)
    assert (made.label_counts[NODES].argmax(1) == TARGET).all()
    assert (made.label_counts[NODES] > 0).sum() == len(NODES)


def test_the_success_rate_is_the_share_of_triggered_images_with_the_target():
    """And a set of its own, as counted by hand with the final models."""
    clients = attacked()
    history = topofl.run(
        algorithms.local_only(0.1, batch_size=8),
        model=problems.linear(),
        clients=clients,
        rounds=8,
        seed=0,
        evaluation=topofl.Evaluation(on=("test", "triggered")),
    )
    images = clients.dataset.examples(clients.dataset.triggered)
    rates = []
    for own in history.models.flat:
        module = problems.linear()
        torch.nn.utils.vector_to_parameters(own, module.parameters())
        rates.append(float((module(images).argmax(1) == TARGET).double().mean()))
    np.testing.assert_allclose(history.last("accuracy_triggered"), rates, rtol=1e-12)
    assert np.ptp(rates) > 0.2
    assert not np.allclose(history.last("accuracy"), rates)
    assert history.column("accuracy", on="triggered") == "accuracy_triggered"


@pytest.mark.parametrize("triggered", [None, []])
def test_a_partition_without_triggered_images_is_refused(triggered):
    clients = clients_of()
    clients = replace(clients, dataset=replace(clients.dataset, triggered=triggered))
    with pytest.raises(ValueError, match="blobs has no 'triggered'; make them by"):
        topofl.run(
            algorithms.local_only(0.1),
            model=problems.linear(),
            clients=clients,
            rounds=1,
            seed=0,
            evaluation="triggered",
        )


def test_model_replacement_puts_the_backdoor_into_the_average():
    def success(nodes):
        clients = backdoor(data.iid(data.digits(), 10, seed=0), 0, nodes=nodes)
        history = topofl.run(
            algorithms.fedavg(0.1, epochs=1, batch_size=16),
            model=models.logistic_regression(64),
            clients=clients,
            rounds=20,
            seed=0,
            evaluation=("test", "triggered"),
            attackers=attacks.model_replacement(nodes) if nodes else None,
        )
        accuracy = np.nanmean(history.last("accuracy"))
        return accuracy, np.nanmean(history.last("accuracy_triggered"))

    (plain, by_chance), (hit, rate) = success([]), success([3])
    assert by_chance < 0.3 < 0.9 < rate
    assert min(plain, hit) > 0.8
