"""Experiments on claims that fail: what their rows change, and what their numbers are."""

from dataclasses import replace

import numpy as np
import pytest

from paper_figures import questions
from paper_figures.kit.paper import make_setting
from paper_figures.kit.store import Store, compute_missing

CHANGED = {
    "Dirichlet alpha, rounds": {"data.alpha", "run.rounds"},
    "rounds": {"run.rounds", "evaluation.every"},
    "minibatch": {"algorithm.batch_size"},
    "edges removed per clique": {"topology.removed"},
    "test images": {"evaluation.examples"},
    "peers": {"algorithm.budget", "topology.degree", "topology.clique_size"},
}


@pytest.fixture(scope="module")
def setting():
    pytest.importorskip("mnist1d")
    return make_setting("mnist1d", seeds=2)


def differing(one, other):
    """Return the names of settings in which two runs differ, with the names of their tables."""
    flat = [
        {
            f"{table}.{key}": value
            for table, keys in run.tables.items()
            for key, value in keys.items()
        }
        for run in (one, other)
    ]
    return {key for key in flat[0] | flat[1] if flat[0].get(key) != flat[1].get(key)}


COMPARED = [question for question in questions.QUESTIONS if question.changed in CHANGED]


def test_all_questions_but_those_of_methods_change_settings():
    assert {question.changed for question in questions.QUESTIONS} == {*CHANGED, "method"}


@pytest.mark.parametrize("question", COMPARED, ids=lambda question: question.title)
def test_rows_change_what_they_name_and_nothing_else(setting, question):
    first, *others = (question.arms(setting, row) for row in question.rows)
    found = set()
    for arms in others:
        assert arms.keys() == first.keys()
        for label, runs in arms.items():
            assert [run.seed for run in runs] == [0, 1]
            found |= set().union(*map(differing, first[label], runs))
    assert found
    assert found <= CHANGED[question.changed]


@pytest.mark.slow
def test_malicious_peers_are_those_of_the_matrices(setting, tmp_path):
    (question, *_) = questions.QUESTIONS
    (runs,) = question.arms(setting, "0.1, 2 rounds").values()
    store, arms = Store(tmp_path), {"DPFL": runs}
    compute_missing(runs, store, progress=False)
    wanted = []
    for run in runs:
        history, _ = store.load(run)
        bad = run.tables["data"]["flip_labels"]
        chosen = history.mixing(1).weights.toarray() != 0
        np.fill_diagonal(chosen, False)
        benign = np.delete(chosen, bad, axis=0)
        wanted.append(100 * benign[:, bad].sum() / benign.sum())
    found = question.measure(arms, store)
    np.testing.assert_allclose(found["malicious peers, %"], wanted)
    table = replace(question, rows=["0.1, 2 rounds"]).table(setting, store)
    assert table.column("malicious peers, %") == (questions.said(wanted),)
