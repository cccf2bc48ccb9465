"""Models after the last round: predictions, copies and files."""

import errno
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.full_disk import full_at
from topofl import algorithms, data, topologies
from topofl._support.arrays import read_tensors, write_tensors
from topofl._support.seeding import seeded_torch
from topofl.trained import Trained


def trained(saving=None, model=None, rounds=3, clients=None, **compute):
    clients = clients or problems.equal_clients()
    return topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=4),
        model=model or problems.linear(),
        clients=clients,
        topology=topologies.ring(6),
        rounds=rounds,
        seed=0,
        saving=saving,
        compute=topofl.Compute(device="cpu", **compute),
    )


def pixels():
    images = np.random.default_rng(0).integers(0, 256, (60, 2, 4, 4)).astype(np.uint8)
    return data.iid(
        data.from_arrays(images, np.arange(60) % 3, mean=[0.4, 0.6], std=[0.2, 0.3], test=0.2),
        6,
        seed=0,
    )


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_models_are_those_after_the_last_round(executor):
    last = []
    settings = {
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 3,
        "seed": 0,
    }
    history = topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=4),
        model=problems.linear(),
        **settings,
        compute=topofl.Compute(device="cpu", executor=executor),
        callbacks=[lambda event: last.append(event.models.flat.clone())],
    )
    assert torch.equal(history.models.flat, last[-1])
    assert not history.models.flat.requires_grad
    module, dataset = history.models.module(2), settings["clients"].dataset
    assert torch.equal(torch.nn.utils.parameters_to_vector(module.parameters()), last[-1][2])
    outputs = module(dataset.examples(dataset.test))
    hits = (outputs.argmax(1) == dataset.labels[dataset.test.tolist()]).double().mean().item()
    assert hits == pytest.approx(history.last()[2])
    assert torch.equal(
        history.predict(dataset.inputs[dataset.test.tolist()], node=2), outputs.detach()
    )


def test_copies_of_models_share_no_memory():
    history = trained()
    before = history.models.flat.clone()
    with torch.no_grad():
        next(history.models.module(0).parameters()).add_(1)
    history.models.state_dict(1)["1.bias"].add_(1)
    assert torch.equal(history.models.flat, before)
    assert repr(history.models) == "Trained(n=6, parameters=111)"


def test_predictions_of_pixels_are_normalized_as_the_dataset_does():
    clients = pixels()
    with seeded_torch(0):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 3))
    history, dataset = trained(model=model, clients=clients), clients.dataset
    raw, seen = dataset.inputs[:5], dataset.examples(range(5))
    every = history.predict(raw)
    assert every.shape == (6, 5, 3)
    assert torch.equal(every, history.predict(seen)), (
        "floating-point numbers are normalized already"
    )
    assert torch.equal(every, history.predict(raw.numpy()))
    for i in range(6):
        torch.testing.assert_close(every[i], history.models.module(i)(seen).detach())


def test_runs_can_discard_models(tmp_path):
    history = trained(topofl.Saving(models=False))
    assert history.models is None
    with pytest.raises(ValueError, match=r"must have models to predict, .*Saving\(models=True\)"):
        history.predict(np.zeros((1, 1, 6, 6), np.float32))
    with pytest.raises(
        ValueError, match="`models` must be False for a history without models, got True"
    ):
        history.save(tmp_path / "run", models=True)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_that_is_resumed_has_its_models(tmp_path):
    whole = trained(topofl.Saving(tmp_path))
    again = trained(topofl.Saving(tmp_path, resume=True))
    assert torch.equal(again.models.flat, whole.models.flat)


PREDICT = {
    "node": ({"node": 6}, ValueError, "`node` must be between 0 and 5, got 6"),
    "negative": ({"node": -1}, ValueError, "`node` must be"),
    "text": ({"node": "0"}, (TypeError, ValueError), "`node` must be"),
    "one example": (
        {"x": np.zeros((1, 6, 6), np.float32)},
        ValueError,
        r"shape \(b, 1, 6, 6\), got shape \(1, 6, 6\); for one example pass x\[None\]",
    ),
    "shape": (
        {"x": np.zeros((4, 36), np.float32)},
        ValueError,
        r"`x` must be examples of shape \(b, 1, 6, 6\), got shape \(4, 36\)",
    ),
    "number": ({"x": 3.0}, ValueError, r"`x` must be examples of shape"),
    "pixels": (
        {"x": np.zeros((4, 1, 6, 6), np.uint8)},
        TypeError,
        r"`x` must be floating-point numbers, .*got torch\.uint8",
    ),
    "words": ({"x": "pixels"}, (TypeError, ValueError), "`x` must be"),
    "network": (
        {"network": torch.nn.Linear(2, 2)},
        ValueError,
        r"`network` must have parameters 1\.weight \(3, 36\), .*, got weight \(2, 2\)",
    ),
    "no network": (
        {"network": "linear"},
        TypeError,
        "`network` must be an nn.Module, got 'linear'",
    ),
}


@pytest.mark.parametrize("case", PREDICT)
def test_invalid_arguments_of_predict_are_refused(case):
    changes, error, message = PREDICT[case]
    arguments = {"x": np.zeros((4, 1, 6, 6), np.float32)} | changes
    with pytest.raises(error, match=message):
        trained(rounds=1).predict(**arguments)


def test_models_are_saved_on_request_and_loaded(tmp_path):
    history = trained()
    x = np.random.default_rng(0).standard_normal((4, 1, 6, 6)).astype(np.float32)
    place = history.save(tmp_path / "run", models=True)
    loaded = topofl.History.load(place)
    assert torch.equal(loaded.models.flat, history.models.flat)
    with pytest.raises(ValueError, match="`network` must be given for loaded models"):
        loaded.predict(x)
    assert torch.equal(loaded.predict(x, network=problems.linear()), history.predict(x))
    assert torch.equal(
        loaded.models.state_dict(1)["1.bias"], history.models.state_dict(1)["1.bias"]
    )
    loaded.save(place, models=True)  # over the file that it reads from
    assert torch.equal(topofl.History.load(place).models.flat, history.models.flat)
    history.save(place)
    assert topofl.History.load(place).models is None
    assert sorted(path.name for path in place.iterdir()) == [
        "arrays.npz",
        "meta.json",
        "rounds.jsonl",
    ]


@pytest.mark.parametrize("damage", ["half", "empty", "another's", "other keys"])
def test_damaged_models_are_refused(tmp_path, damage):
    place = trained(rounds=1).save(tmp_path / "run", models=True)
    file = place / "models.safetensors"
    content = file.read_bytes()
    if damage in ("half", "empty"):
        file.write_bytes(content[: len(content) // 2] if damage == "half" else b"")
    else:
        tensors, texts = read_tensors(file)
        other = {"flat": torch.zeros(4, tensors["flat"].shape[1])}
        file.unlink()  # it is mapped
        write_tensors(file, other, texts if damage == "another's" else {})
    with pytest.raises(ValueError, match=r"models\.safetensors is .*(remove it|run it again)"):
        topofl.History.load(place)


def test_models_of_earlier_versions_are_refused_in_one_sentence(tmp_path):
    place = trained(rounds=1).save(tmp_path / "run")
    (place / "models.pt").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"models\.pt has models in the .*; remove it to load"):
        topofl.History.load(place)
    (place / "models.pt").unlink()
    assert topofl.History.load(place).models is None


def test_flipped_bits_of_models_are_noticed_when_they_are_read(tmp_path):
    history = trained(rounds=1)
    file = history.save(tmp_path / "run", models=True) / "models.safetensors"
    content, rng = file.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(content), 40):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"models\.safetensors is "):
            _ = topofl.History.load(tmp_path / "run").models.flat
    file.write_bytes(content)
    assert torch.equal(topofl.History.load(tmp_path / "run").models.flat, history.models.flat)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_loaded_models_keep_no_file_open(tmp_path):
    history = trained(rounds=1)
    history.save(tmp_path / "run", models=True)
    before = descriptors()
    loaded = [topofl.History.load(tmp_path / "run") for _ in range(5)]
    assert descriptors() == before
    shutil.rmtree(tmp_path / "run")  # they stay mapped
    assert all(torch.equal(one.models.flat, history.models.flat) for one in loaded)


@pytest.mark.parametrize("free", [0, 1, 2])
def test_too_many_open_files_are_no_damage(tmp_path, free):
    resource = pytest.importorskip("resource")
    place = trained(rounds=1).save(tmp_path / "run", models=True)
    topofl.History.load(place)  # imports are done
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 40, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(held.pop())
        if free < 2:
            with pytest.raises(OSError, match="Too many open files") as caught:
                Trained.load(place / "models.safetensors", 6)
            assert caught.value.errno == errno.EMFILE
        else:
            assert Trained.load(place / "models.safetensors", 6).n == 6
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Unpicklable(torch.nn.Sequential):
    def __reduce__(self):
        raise TypeError("no")

    def __deepcopy__(self, memo):
        made = Unpicklable(torch.nn.Flatten(), torch.nn.Linear(36, 3))
        made.load_state_dict(self.state_dict())
        return made


@pytest.mark.parametrize("kind", ["plain", "unpicklable"])
def test_histories_with_models_are_pickled(kind):
    model = problems.linear() if kind == "plain" else Unpicklable(*problems.linear())
    history = trained(model=model)
    x = np.ones((2, 1, 6, 6), np.float32)
    again = pickle.loads(pickle.dumps(history))
    assert torch.equal(again.models.flat, history.models.flat)
    network = None if kind == "plain" else problems.linear()
    assert torch.equal(again.predict(x, network=network), history.predict(x))


@pytest.mark.parametrize("size", [10, 600, 1500])
def test_saving_on_a_full_disk_names_the_path(tmp_path, size):
    result = trained()
    path = result.save(tmp_path / "run")
    whole = sorted(one.stat().st_size for one in result.save(path, models=True).iterdir())
    assert whole[-1] > 1500, "or nothing is cut off"
    with full_at(size), pytest.raises(OSError, match=r"File too large: '.*/run'$") as caught:
        result.save(path, models=True)
    assert caught.value.errno == errno.EFBIG
    assert [one.name for one in tmp_path.iterdir()] == ["run"]
    assert topofl.History.load(path).models is not None, "the older one is whole"


def test_models_on_a_full_disk_are_an_error_of_the_system(tmp_path):
    models = trained().models
    assert models is not None
    with full_at(1000), pytest.raises(OSError, match="File too large"):
        models.save(tmp_path / "models.safetensors")
