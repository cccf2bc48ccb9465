"""Experiments on claims that fail: what their rows change, and what their numbers are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import topofl
from paper_figures import questions
from paper_figures.kit.paper import make_setting
from paper_figures.kit.store import Store, compute_missing

CHANGED = {
    "Dirichlet alpha, rounds": {"data.alpha", "run.rounds"},
    "rounds": {"run.rounds", "evaluation.every"},
    "images per client": {"data.train"},
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


@pytest.mark.slow
def test_costs_are_spent_in_the_rounds_that_they_pay_for(setting, tmp_path):
    few = {"run": {"rounds": 4}, "evaluation": {"every": 2}}
    store = Store(tmp_path)
    arms = {
        label: questions.changed(runs, **few)
        for label, runs in questions.with_the_cheapest(setting, "DFedAvgM").items()
    }
    compute_missing([run for runs in arms.values() for run in runs], store, progress=False)
    found = questions.at_equal_cost(arms, store)
    for k, run in enumerate(arms["DFedAvgM"]):
        own, cheap = store.load(run)[0], store.load(arms["FedPer"][k])[0]
        accuracy = 100 * own["accuracy_before_exchange"].mean(axis=1)  # in rounds 0, 2 and 4
        rounds = 4 * cheap["bytes"].sum() / own["bytes"].sum()
        assert 0 < rounds < 2
        wanted = accuracy[0] + rounds / 2 * (accuracy[1] - accuracy[0])
        assert found["equal rounds, %"][k] == pytest.approx(accuracy[2])
        assert found["equal bytes, %"][k] == pytest.approx(wanted)
    same = questions.at_equal_cost({"FedPer": arms["FedPer"]}, store)
    np.testing.assert_array_equal(same["equal rounds, %"], same["equal bytes, %"])
    np.testing.assert_array_equal(same["equal rounds, %"], same["equal seconds, %"])


def test_a_missing_number_keeps_its_reason():
    reason = topofl.NotApplicable("no links")
    assert questions.said(reason) is reason


def test_the_committed_page_answers_all_questions():
    folder = Path(questions.__file__).parent
    page = (folder / "results" / "questions.md").read_text()
    titles = [question.title for question in questions.QUESTIONS]
    assert [line for line in page.splitlines() if line.startswith("**")] == [
        f"**{title}**" for title in titles
    ]
    for question, part in zip(questions.QUESTIONS, page.split("\n**")[1:], strict=True):
        rows = [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("|")]
        shown = [f"{row:,}" if isinstance(row, int) else str(row) for row in question.rows]
        assert rows[2:] == shown
