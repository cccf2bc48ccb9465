"""Checkpoints of another run are refused, naming the difference."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.rows.stored import run, trained
from topofl import algorithms, mixing, topologies


def looser(clients):
    return problems.data.Partition(clients.dataset, clients.train[::-1], name=clients.name)


def brighter(clients):
    blobs = problems.dataset()
    blobs.inputs[3] += 1
    return problems.data.Partition(blobs, clients.train, name=clients.name)


OTHER = {
    "seed": ({"seed": 1}, "seed was 0, is 1"),
    "algorithm": (
        {"algorithm": algorithms.local_only(lr=0.1)},
        "algorithm was dsgd: local -> exchange, is local_only",
    ),
    "setting": (
        {"algorithm": algorithms.dsgd(lr=0.2, batch_size=4, momentum=0.5)},
        "local.lr was 0.1, is 0.2; start",
    ),
    "topology": ({"topology": topologies.ring(6)}, "topology was one_peer_exponential"),
    "edges of one name": (
        {"topology": topologies.star(6).renamed("ring(n=6)")},
        "topology was ring",
    ),
    "mixing": ({"mixing": topofl.mixing.from_weights(np.eye(6))}, "mixing was uniform"),
    "clients": ({"clients": looser(problems.equal_clients())}, "clients was iid"),
    "data": ({"clients": brighter(problems.equal_clients())}, "dataset was blobs"),
    "model": ({"model": problems.convolutional(), "executor": "batched"}, "model was Sequential"),
    "init": ({"init": "independent"}, "init was common, is independent"),
    "dtype": ({"dtype": torch.float64}, "compute.dtype was torch.float32, is torch.float64"),
    "every": ({"every": 2}, "evaluation.every was 3, is 2"),
    "precision": ({"precision": "bf16"}, "compute.precision was fp32, is bf16"),
    "executor": ({"executor": "looped"}, "executor was batched, is looped"),
    "chunk": ({"chunk": 2}, "chunk was 6, is 2"),
}


@pytest.mark.parametrize("case", OTHER)
def test_another_run_is_refused_naming_the_difference(tmp_path, case):
    changes, message = OTHER[case]
    start = {"topology": topologies.ring(6)} if case == "edges of one name" else {}
    trained(tmp_path, rounds=1, **start)
    with pytest.raises(ValueError, match=f"`resume` must continue the same run: .*{message}"):
        trained(tmp_path, resume=True, **changes)


def steps_by(*terms, lr=0.1):
    """Return the algorithm of local steps by some terms."""
    local = algorithms.train(algorithms.descend(*terms, lr=lr), batch_size=4)
    return algorithms.chain("own", local=local)


def signed(strength):
    return algorithms.Term("signed", lambda g, theta, own, step: g + strength * g.sign())


def shrinking(apply):
    last = algorithms.Phase(lambda models: {}, apply)
    return algorithms.chain("own", local=algorithms.sgd(0.1, batch_size=4), last=last)


def shrink(models, state, round):
    models.flat.mul_(0.5)
    return {}


def shrink_less(models, state, round):
    models.flat.mul_(0.75)
    return {}


shrink_less.__name__ = shrink_less.__qualname__ = "shrink"


def hearing(share):
    def choose(models, state, round):
        return algorithms.Choice(mixing.from_weights((1 - share) * np.eye(6) + share / 6))

    exchange = algorithms.average_over_peers(algorithms.Policy(choose))
    return algorithms.chain("own", exchange=exchange)


clip, decay = algorithms.clip(1.0), algorithms.weight_decay(0.1)


UNLIKE = {
    "eps of Adam": (steps_by(algorithms.adam()), steps_by(algorithms.adam(eps=1e-3))),
    "end of a cosine": [steps_by(lr=algorithms.cosine(0.1, rounds=9, end=x)) for x in (0.0, 0.05)],
    "seventh digit": [steps_by(lr=algorithms.exponential(lr, 0.5)) for lr in (0.1, 0.10000001)],
    "order of terms": (steps_by(clip, decay), steps_by(decay, clip)),
    "a rate of one's own": (steps_by(lr=lambda t, k: 0.1), steps_by(lr=lambda t, k: 0.2)),
    "a number that a term holds": (steps_by(signed(0.1)), steps_by(signed(0.2))),
    "a number that a policy holds": (hearing(0.1), hearing(0.2)),
    "code of a phase": (shrinking(shrink), shrinking(shrink_less)),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_another_method_of_the_same_name_is_refused(tmp_path, case):
    one, other = UNLIKE[case]
    how = {"clients": problems.equal_clients(), "topology": None}
    run(one, rounds=1, saving=tmp_path, **how)
    resumed = topofl.Saving(tmp_path, resume=True)
    with pytest.raises(ValueError, match="`resume` must continue the same run: "):
        run(other, saving=resumed, **how)
    assert run(one, saving=resumed, **how).n_rounds == 2


def test_an_edited_loss_is_a_different_task(tmp_path):
    def task(power):
        return topofl.Task("own", lambda outputs, targets: (outputs[:, 0] - targets).abs() ** power)

    trained(tmp_path, rounds=1, task=task(2))
    with pytest.raises(ValueError, match=r"`resume` must continue the same run: .*task\.code was"):
        trained(tmp_path, resume=True, task=task(3))


def test_values_of_the_model_matter_where_they_are_used(tmp_path):
    other = problems.linear()
    with torch.no_grad():
        other[1].bias += 1
    for init in ("common", "given"):
        trained(tmp_path / init, rounds=1, init=init)
    trained(tmp_path / "common", resume=True, rounds=1, init="common", model=other)
    with pytest.raises(ValueError, match="model was Sequential"):
        trained(tmp_path / "given", resume=True, rounds=1, init="given", model=other)


@pytest.mark.parametrize(
    "asked", [{"executor": "auto"}, {"executor": "auto", "chunk": 4}, {"executor": "looped"}]
)
def test_the_executor_is_not_chosen_again(tmp_path, monkeypatch, asked):
    monkeypatch.setattr("topofl.engine.plan._fastest", lambda *given: ("looped", 1))
    trained(tmp_path, model=problems.convolutional(), rounds=2, **asked)
    monkeypatch.setattr("topofl.engine.plan._fastest", lambda *given: ("batched", 4))
    resumed = trained(tmp_path, resume=True, model=problems.convolutional(), rounds=3, **asked)
    assert resumed.meta["executor"] == "looped"


def test_the_chunk_is_not_chosen_again(tmp_path, monkeypatch):
    how = {"model": problems.convolutional(), "rounds": 3}
    monkeypatch.setattr("topofl.engine.plan._fastest", lambda *given: ("batched", 2))
    whole = trained(**how)
    trained(tmp_path, **how | {"rounds": 2})
    monkeypatch.setattr("topofl.engine.plan._fastest", lambda *given: ("batched", 3))
    assert trained(**how).meta["chunk"] == 3  # as a separate run may choose
    resumed = trained(tmp_path, resume=True, **how)
    assert (resumed.meta["executor"], resumed.meta["chunk"]) == ("batched", 2)
    np.testing.assert_array_equal(resumed.node_loss, whole.node_loss)
