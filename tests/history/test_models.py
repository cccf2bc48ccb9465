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
from tests.history.helpers import trained
from topofl import History, data
from topofl._support.seeding import seeded_torch
from topofl.trained import Trained

X = np.random.default_rng(0).standard_normal((4, 1, 6, 6)).astype(np.float32)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_models_are_those_after_the_last_round(executor):
    clients, last = problems.equal_clients(), []
    note = [lambda event: last.append(event.models.flat.clone())]
    history = trained(clients=clients, executor=executor, callbacks=note)
    assert torch.equal(history.models.flat, last[-1])
    assert not history.models.flat.requires_grad
    module, dataset = history.models.module(2), clients.dataset
    assert torch.equal(torch.nn.utils.parameters_to_vector(module.parameters()), last[-1][2])
    outputs = module(dataset.examples(dataset.test))
    hits = (outputs.argmax(1) == dataset.labels[dataset.test.tolist()]).double().mean().item()
    assert hits == pytest.approx(history.last()[2])
    inputs = dataset.inputs[dataset.test.tolist()]
    assert torch.equal(history.predict(inputs, node=2), outputs.detach())


def test_copies_of_models_share_no_memory():
    history = trained()
    before = history.models.flat.clone()
    with torch.no_grad():
        next(history.models.module(0).parameters()).add_(1)
    history.models.state_dict(1)["1.bias"].add_(1)
    assert torch.equal(history.models.flat, before)
    assert repr(history.models) == "Trained(n=6, parameters=111)"


def test_predictions_of_pixels_are_normalized_as_the_dataset_does():
    images = np.random.default_rng(0).integers(0, 256, (60, 2, 4, 4)).astype(np.uint8)
    look = {"mean": [0.4, 0.6], "std": [0.2, 0.3], "test": 0.2}
    clients = data.iid(data.from_arrays(images, np.arange(60) % 3, **look), 6, seed=0)
    with seeded_torch(0):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 3))
    history, dataset = trained(model=model, clients=clients), clients.dataset
    raw, seen = dataset.inputs[:5], dataset.examples(range(5))
    every = history.predict(raw)
    assert every.shape == (6, 5, 3)
    assert torch.equal(every, history.predict(seen)), "floating-point numbers are normalized"
    assert torch.equal(every, history.predict(raw.numpy()))
    for i in range(6):
        torch.testing.assert_close(every[i], history.models.module(i)(seen).detach())


def test_a_finished_run_that_is_resumed_has_its_models(tmp_path):
    whole = trained(topofl.Saving(tmp_path))
    again = trained(topofl.Saving(tmp_path, resume=True))
    assert torch.equal(again.models.flat, whole.models.flat)
    assert trained(topofl.Saving(models=False)).models is None


def test_models_are_saved_on_request_and_loaded(tmp_path):
    history = trained()
    place = history.save(tmp_path / "run", models=True)
    loaded = History.load(place)
    assert torch.equal(loaded.models.flat, history.models.flat)
    assert torch.equal(loaded.predict(X, network=problems.linear()), history.predict(X))
    own = history.models.state_dict(1)["1.bias"]
    assert torch.equal(loaded.models.state_dict(1)["1.bias"], own)
    loaded.save(place, models=True)  # over the file that it reads from
    assert torch.equal(History.load(place).models.flat, history.models.flat)
    history.save(place)
    assert History.load(place).models is None
    names = ["arrays.npz", "meta.json", "rounds.jsonl"]
    assert sorted(path.name for path in place.iterdir()) == names


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_loaded_models_keep_no_file_open(tmp_path):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    history = trained(rounds=1)
    history.save(tmp_path / "run", models=True)
    before = descriptors()
    loaded = [History.load(tmp_path / "run") for _ in range(5)]
    assert descriptors() == before
    shutil.rmtree(tmp_path / "run")  # they stay mapped
    assert all(torch.equal(one.models.flat, history.models.flat) for one in loaded)


@pytest.mark.parametrize("free", [0, 1, 2])
def test_too_many_open_files_are_no_damage(tmp_path, free):
    resource = pytest.importorskip("resource")
    file = trained(rounds=1).save(tmp_path / "run", models=True) / "models.safetensors"
    Trained.load(file, 6)  # imports are done
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
                Trained.load(file, 6)
            assert caught.value.errno == errno.EMFILE
        else:
            assert Trained.load(file, 6).n == 6
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
    again = pickle.loads(pickle.dumps(history))
    assert torch.equal(again.models.flat, history.models.flat)
    network = None if kind == "plain" else problems.linear()
    assert torch.equal(again.predict(X, network=network), history.predict(X))
