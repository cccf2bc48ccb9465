"""Values per node that phases note and that functions of evaluations return."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.evaluated_runs import N, need, run
from topofl import algorithms
from topofl.algorithms import Phase, chain, gossip, sgd


def drift(models, round):
    """Return each model's distance from the average."""
    return (models.flat - models.flat.mean(0)).norm(dim=1)


def degrees(models, round):
    return np.diff(round.topology.adjacency.indptr)


def noting(note):
    """Return D-SGD with a phase between its step and its exchange that notes."""

    def apply(models, state, round):
        note(models, round)
        return state

    recorded = Phase(lambda models: {}, apply)
    return chain("noting", local=sgd(0.1, batch_size=4), record=recorded, gossip=gossip())


def note_drift(models, round):
    round.note("drift", drift(models, round))
    round.note("largest", drift(models, round).max())
    if round.t % 2 or models.flat.is_meta:
        round.note("odd", np.arange(N) + round.t)


BOTH = {"rounds": 5, "every": 2, "per_node": {"end": drift, "degree": degrees}}


def test_values_per_node_are_columns_of_evaluations():
    seen = []
    follow = problems.each_round(lambda t, models: seen.append(drift(models, None).numpy().copy()))
    history = run(noting(note_drift), callbacks=[follow], **BOTH)
    assert history["round"].tolist() == [0, 2, 4, 5]
    for name in ("drift", "odd", "end", "degree"):
        assert history[name].shape == (4, N)
        assert name in history.columns
        assert name not in history.score_columns
    np.testing.assert_array_equal(history["end"][1:], np.array(seen)[[1, 3, 4]])
    assert (history["end"][0] < 1e-6).all()  # all start from one model
    assert (history["degree"] == 2).all()
    assert np.isnan(history["drift"][0]).all()
    assert (history["drift"][1:] > history["end"][1:]).all()  # averaging brings models together
    np.testing.assert_array_equal(history["drift"].max(1)[1:], history["largest"][[1, 3, 4]])
    odd = [np.full(N, np.nan), np.arange(N) + 1, np.arange(N) + 3, np.full(N, np.nan)]
    np.testing.assert_array_equal(history["odd"], odd)
    np.testing.assert_array_equal(history.last("end"), history["end"][-1])
    assert history.meta["evaluation"]["per_node"]["end"] == "tests.engine.test_node_values:drift"


def test_they_do_not_change_the_run():
    def training(models, round):
        copies = models.like(models.flat.clone())
        round.mix(round.weights, copies.flat)
        return copies.flat.norm(dim=1)

    plain, observed = run(), run(per_node={"mixed": training})
    for name in plain.columns:
        np.testing.assert_array_equal(observed[name], plain[name])


def test_they_are_resumed_and_stored(tmp_path):
    whole = run(noting(note_drift), **BOTH)
    run(noting(note_drift), **BOTH | {"rounds": 3}, saving=tmp_path / "run")
    saving = topofl.Saving(tmp_path / "run", resume=True)
    resumed = run(noting(note_drift), **BOTH, saving=saving)
    resumed.save(tmp_path / "history")
    for found in (resumed, topofl.History.load(tmp_path / "history")):
        for name in ("drift", "odd", "end", "degree"):
            np.testing.assert_array_equal(found[name], whole[name])
    with pytest.raises(ValueError, match=r"evaluation\.per_node was .*drift.*, is "):
        run(noting(note_drift), **BOTH | {"per_node": {"end": degrees}}, saving=saving)


def test_they_are_in_tables_and_events():
    told = []
    history = run(
        noting(note_drift), **BOTH,
        callbacks=[lambda event: told.append(event) if event.kind == "evaluation" else None],
    )  # fmt: skip
    table = history.to_pandas(per="node")
    np.testing.assert_array_equal(table["drift"], history["drift"].reshape(-1))
    last = table[(table["round"] == 5) & (table["node"] == 3)]
    assert last["end"].tolist() == [history["end"][-1, 3]]
    assert history.to_pandas().loc[4, "end_max"] == history["end"][2].max()
    assert told[-1].values["drift_mean"] == pytest.approx(history["drift"][-1].mean())


def test_estimates_count_them():
    def history(algorithm, **changes):
        return need(algorithm, rounds=100, **changes).history

    plain = history(noting(lambda models, round: None))
    assert history(noting(lambda m, round: round.note("a", m.flat[:, 0]))) - plain == 8 * 11 * N
    assert history(algorithms.dsgd(0.1), per_node={"a": drift}) - history(
        algorithms.dsgd(0.1)
    ) == pytest.approx(8 * 11 * N)


def test_with_one_node_a_value_is_a_number_of_the_round():
    alone = topofl.data.iid(problems.dataset(), 1, seed=0, test_fraction=0.3)
    history = run(
        noting(lambda models, round: round.note("drift", drift(models, round))),
        clients=alone, topology=topofl.topologies.ring(1), per_node={"end": drift},
    )  # fmt: skip
    assert history["drift"].shape == (4,)
    assert history["end"].shape == (3, 1)


@pytest.mark.parametrize(
    "note",
    [
        lambda models, round: round.note("a", models.flat[:, 0] if models.flat.is_meta else 1.0),
        lambda models, round: round.note("a", 1.0 if models.flat.is_meta else models.flat[:, 0]),
        lambda models, round: [round.note("a", value) for value in (1.0, models.flat[:, 0])],
    ],
    ids=["fewer", "more", "both"],
)
def test_a_name_has_one_kind_of_value(note):
    with pytest.raises(ValueError, match="of one shape in all rounds, got 'a' both as one number"):
        run(noting(note))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": lambda models, round: models.flat}, r"\(n,\)=\(6,\), got shape \(6, 111\); reduce"),
        ({"a": lambda models, round: 3.0}, r"'a'\]` must return one number per node, .*, got 3\.0"),
        (
            {"a": lambda models, round: np.array(list("abcdef"))},
            "must return real numbers, got <U1",
        ),
        ({"a": lambda models, round: models.flat.mul_(2)[:, 0]}, "must not change the models"),
        ({"accuracy": drift}, "`evaluation.per_node` must differ from .*, got 'accuracy'; rename"),
        ({"loss": drift}, "names in `per_node` must differ from all columns .*, got 'loss'"),
        ({"node": drift}, "must differ from all columns .*, got 'node'; rename"),
        ({"label": drift}, "must differ from all columns .*, got 'label'; rename"),
        ({"simulated_seconds": drift}, "must differ from all columns .*, got 'simulated_seconds'"),
        ({"drift": drift}, "must differ from all columns .*, got 'drift'; rename"),
        ({"bytes": drift}, "must differ from all columns .*, got 'bytes'; rename"),
        ({"two words": drift}, "names in `per_node` must be identifiers"),
    ],
    ids=[
        *("models", "number", "text", "changed", "score", "loss", "node", "label", "seconds"),
        *("noted", "costs", "words"),
    ],
)
def test_wrong_values_and_names_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        run(noting(note_drift), per_node=given)


def test_other_kinds_are_refused():
    with pytest.raises(TypeError, match="`per_node` must be a dictionary"):
        topofl.Evaluation(per_node=[drift])
    with pytest.raises(TypeError, match=r"`per_node\['a'\]` must be a function of \(models, round"):
        topofl.Evaluation(per_node={"a": torch.zeros(3)})
