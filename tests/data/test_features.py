"""Feature skew: rotations, colors and noise of nodes, and who keeps which images."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from tests.rows.partitioners import lists, partitions
from topofl import config, data

DIGITS = data.digits()


def images(clients, part, node):
    """Return the inputs of a node's part."""
    return clients.dataset.inputs[torch.tensor(getattr(clients, part)[node])]


def shared():
    """Return nodes that share training and test images."""
    clients = data.pathological_shared(DIGITS, 20, classes_per_node=2, seed=0, val_fraction=0.2)
    return data.match_test(clients, rule="per_client", seed=0)


EDITS = {
    "rotated": lambda clients: data.rotated(clients, [0, 90]),
    "tinted": lambda clients: data.tinted(clients, [[1, 0, 0.5]]),
    "noisy": lambda clients: data.noisy(clients, 0.1, seed=0),
}


@pytest.mark.parametrize("edit", EDITS)
def test_every_node_has_its_own_images_and_labels_stay(edit):
    clients = shared()
    edited = EDITS[edit](clients)
    assert edited.name.startswith(f"{edit}({clients.name}, ")
    held = np.concatenate([*edited.train, *edited.val, *edited.test])
    assert len(np.unique(held)) == len(held)
    assert set(np.concatenate([*edited.train, *edited.val])) <= set(edited.dataset.train)
    for part in ("train", "val", "test"):
        for node in range(clients.n):
            before, after = getattr(clients, part)[node], getattr(edited, part)[node]
            assert clients.dataset.labels[before.copy()].equal(edited.dataset.labels[after.copy()])
    for of_all in ("val", "test"):
        kept = torch.tensor(getattr(clients.dataset, of_all))
        gray = edited.dataset.inputs[kept]
        assert (gray == clients.dataset.inputs[kept]).all()


def test_rotations_are_those_of_numpy_per_node():
    clients = shared()
    angles = [0, 90, 180, 270, 360]
    turned = data.rotated(clients, angles)
    for part in ("train", "val", "test"):
        for node in range(clients.n):
            before, after = (images(each, part, node).numpy() for each in (clients, turned))
            np.testing.assert_array_equal(after, np.rot90(before, node % 5, (-2, -1)))


@given(angle=st.floats(-400, 400))
def test_other_angles_interpolate_as_scipy_does(angle):
    clients = data.iid(DIGITS, 2, seed=0)
    before = images(clients, "train", 0).numpy()[:3]
    after = images(data.rotated(clients, [angle]), "train", 0).numpy()[:3]
    wanted = ndimage.rotate(before, angle, (-1, -2), reshape=False, order=1, mode="grid-constant")
    np.testing.assert_allclose(after, wanted, atol=2e-5)


def test_images_that_are_not_square_rotate_about_their_center():
    inputs = torch.zeros(2, 1, 5, 9)
    inputs[:, :, 2, 8] = 1.0  # right of the center
    dataset = data.from_arrays(inputs, [0, 1])
    turned = data.rotated(data.iid(dataset, 1, seed=0), [30]).dataset.inputs
    row, column = ndimage.center_of_mass(turned[0, 0].numpy())
    np.testing.assert_allclose([row - 2, column - 4], [-2.0, 2 * 3**0.5], atol=0.2)
    half = data.rotated(data.iid(dataset, 1, seed=0), [180]).dataset.inputs
    assert half.equal(inputs.flip(-1, -2))


def test_pixels_are_turned_and_tinted_as_floats_are():
    pixels = torch.randint(0, 256, (6, 1, 6, 6), dtype=torch.uint8)
    whole = data.from_arrays(pixels, [0, 1] * 3)
    real = data.from_arrays(pixels.float(), [0, 1] * 3)
    for edit in (
        lambda clients: data.rotated(clients, [33]),
        lambda clients: data.tinted(clients, [[0.2, 1, 0.7]]),
    ):
        one, other = (edit(data.iid(each, 2, seed=0)).dataset.inputs for each in (whole, real))
        assert one.dtype == torch.uint8
        assert (one.float() - other).abs().max() <= 0.5 + 1e-4


def test_colors_multiply_channels():
    clients = data.iid(DIGITS, 3, seed=0)
    colored = data.tinted(clients, [[1, 0, 0.25], [0, 1, 1]])
    for node, color in ((0, [1, 0, 0.25]), (1, [0, 1, 1]), (2, [1, 0, 0.25])):
        gray, seen = (images(each, "train", node) for each in (clients, colored))
        assert seen.equal(gray * torch.tensor(color)[:, None, None])


def test_noise_grows_with_the_node_and_has_a_seed():
    clients = data.iid(DIGITS, 4, seed=0)
    apart = [
        images(data.noisy(clients, 0.4, seed=3), "train", node) - images(clients, "train", node)
        for node in range(4)
    ]
    for node, noise in enumerate(apart):
        assert abs(noise.mean()) < 0.02
        assert float(noise.var()) == pytest.approx(0.1 * (node + 1), rel=0.05)
    one, same, other = (data.noisy(clients, 0.4, seed=seed).dataset.inputs for seed in (3, 3, 4))
    assert one.equal(same)
    assert not one.equal(other)


def test_noise_of_pixels_is_clipped():
    dataset = data.from_arrays(torch.full((4000, 1, 1, 1), 250, dtype=torch.uint8), [0] * 4000)
    seen = data.noisy(data.iid(dataset, 1, seed=0), 0.0001, seed=0).dataset.inputs
    assert int(seen.max()) == 255
    assert float(seen[seen < 255].float().min()) > 230
    assert 245 < float(seen.float().mean()) < 250.5


@given(data_=st.data())
def test_no_noise_changes_nothing_but_copies(data_):
    clients = data_.draw(partitions())
    same = data.noisy(clients, 0)
    for part in ("train", "val", "test"):
        for node in range(clients.n):
            assert images(same, part, node).equal(images(clients, part, node))
    if not clients.overlapping:
        assert lists(same.train) == lists(clients.train)


def test_they_are_configured_in_their_order():
    table = {"name": "digits", "n": 4, "seed": 2}
    edits = {"noisy": 0.1, "tinted": [[1, 0, 0]], "rotated": [0, 90]}
    tables = {"algorithm": "local_only,lr=0.1", "run": {"rounds": 1}}
    experiment = config.build(tables | {"data": table | edits})
    wanted = data.rotated(data.shards(DIGITS, 4, seed=2), [0, 90])
    wanted = data.noisy(data.tinted(wanted, [[1, 0, 0]]), 0.1, seed=2)
    for clients in (experiment.clients, config.build(experiment.tables).clients):
        assert clients.name == wanted.name
        assert clients.dataset.inputs.equal(wanted.dataset.inputs)
