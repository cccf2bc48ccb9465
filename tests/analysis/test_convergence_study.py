"""The demo computes, judges and draws; at full scale it is run by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import topofl
from analysis import convergence_study as study
from topofl import data


@pytest.fixture(scope="module")
def small():
    setting = study.StudyTask(
        data.digits(), n=40, lr=0.5, batch_size=8, rounds=12, every=1, target=0.6
    )
    return setting, study.compute(setting, [0, 1], progress=False)


@pytest.mark.slow
def test_every_contender_has_a_row_and_the_point_shows(small):
    setting, results = small
    table = study.table(setting, results)
    assert table.column("graph") == tuple(c.label for c in study.CONTENDERS)
    edges = dict(zip(table.column("graph"), table.column("edges"), strict=True))
    assert edges["fully-connected"] == 40 * 39 // 2
    assert edges["ring"] == 40
    by_label = {result.contender.label: result for result in results}
    cliques, exponential = by_label["D-Cliques (ring)"], by_label["exponential"]
    assert cliques.gap < exponential.gap
    assert cliques.heterogeneity < exponential.heterogeneity
    assert np.mean(cliques.rounds_to(0.6)) < np.mean(exponential.rounds_to(0.6))


def test_messages_follow_from_edges(small):
    for result in small[1]:
        edges = np.mean([graph.n_edges for graph in result.graphs])
        averaging = result.contender.clique_averaging
        counted = result.mean_of("messages_paper" if averaging else "messages")
        assert counted == (4 if averaging else 2) * edges


def test_rank_correlation_knows_perfect_and_reversed_order(small):
    setting, results = small
    plain = [result for result in results if not result.contender.clique_averaging]
    ranked = sorted(plain, key=lambda result: np.mean(result.rounds_to(setting.target)))
    places = np.arange(len(ranked)) / 10
    for best_first, gaps, spreads in ((True, 1 - places, places), (False, places, 1 - places)):
        changed = [
            dataclasses.replace(result, gap=gap, heterogeneity=spread)
            for result, gap, spread in zip(ranked, gaps, spreads, strict=True)
        ]
        found = study.rank_correlations(setting, changed)
        sign = 1 if best_first else -1
        assert sign * found["spectral gap"] < -0.9
        assert sign * found["neighborhood heterogeneity"] > 0.9


@pytest.mark.slow
def test_command_line_writes_table_histories_and_figure(tmp_path, capsys, monkeypatch):
    tiny = study.StudyTask(
        data.digits(), n=40, lr=0.5, batch_size=8, rounds=2, every=1, target=0.99
    )
    monkeypatch.setattr(study, "digits", lambda: tiny)
    assert study.main(["--seeds", "1", "--out", str(tmp_path / "demo")]) == 0
    assert "rank correlation of spectral gap" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "demo" / "table.csv")) == len(study.CONTENDERS)
    assert (tmp_path / "demo" / "figure.png").stat().st_size > 10_000
    folders = sorted((tmp_path / "demo" / "histories").iterdir())
    assert len(folders) == len(study.CONTENDERS)
    assert topofl.History.load(folders[0]).n_rounds == 2


def test_mnist_setting_is_the_papers(mnist_root):
    setting = study.mnist(mnist_root)
    assert (setting.n, setting.lr, setting.batch_size) == (100, 0.1, 128)
    parts = (setting.dataset.train, setting.dataset.val, setting.dataset.test)
    assert [len(part) for part in parts] == [50_000, 10_000, 10_000]


def test_the_text_has_the_case_of_many_nodes(tmp_path):
    path = tmp_path / "runs.csv.gz"
    assert study.many_nodes(path) == []
    rows = {"scenario": ["MNIST 1000"] * 3 + ["digits 60"], "learning phase": [0.3, 0.2, 0.1, 0.9]}
    rows |= {"spectral gap": [3, 2, 1, 0], "H_1": [1, 3, 2, 0], "H_10": [1, 2, 3, 9]}
    pd.DataFrame(rows).to_csv(path, index=False)
    (text,) = study.many_nodes(path)
    assert "(3 graphs" in text
    assert text.endswith("spectral gap +1.00, H_1 -0.50, H_10 -1.00")
    pd.DataFrame(rows).iloc[3:].to_csv(path, index=False)
    assert study.many_nodes(path) == []
