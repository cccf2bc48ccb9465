"""Summaries as text, Markdown, LaTeX, CSV and pandas, and their columns."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import topofl
from tests.summary.samples import runs_of, stored


def test_equal_runs_are_rounded_as_numbers_without_spread():
    runs = [stored({"run.seed": seed}, 0.1) for seed in range(3)]
    text = str(topofl.summarize(runs))
    assert "0.1 ± 0" in text
    assert "000000" not in text


def test_csv_has_full_precision(tmp_path):
    runs = runs_of(topology=["ring", "star"])
    summary = topofl.summarize(runs, by="topology", baseline="ring", target=0.99)
    summary.to_csv(tmp_path / "t.csv")
    read = pd.read_csv(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(
        read.drop(columns="better than ring"),
        summary.to_pandas().drop(columns="better than ring"),
        rtol=0,
        check_exact=True,
    )
    assert read["rounds to 0.99"].tolist() == [np.inf, np.inf]
    assert summary.to_csv() == (tmp_path / "t.csv").read_text()
    assert pd.read_csv(io.StringIO(summary.to_csv()))["topology"].tolist() == ["ring", "star"]


def test_rounding_follows_the_standard_error():
    runs = [stored({"run.seed": k}, x) for k, x in enumerate([0.8111, 0.8234, 0.8167, 0.8312])]
    error = stats.sem([0.8111, 0.8234, 0.8167, 0.8312])
    assert 0.004 < error < 0.005  # so three decimals
    half = stats.t.ppf(0.975, 3) * error
    assert topofl.summarize(runs).table.rows[0][1].text == f"0.821 ± {half:.3f}"


def test_formats():
    runs = runs_of(topology=["ring", "star"], effect={"ring": 0.0, "star": -0.1})
    summary = topofl.summarize(runs, by="topology", baseline="ring")
    latex = summary.to_latex()
    assert latex.startswith("\\begin{tabular}{lrrrrrrrr}\n\\toprule\ntopology & runs & accuracy")
    assert "\\midrule" in latex
    assert "\\bottomrule\n\\end{tabular}" in latex
    assert re.search(r"\$-0\.\d+ \\pm 0\.", latex)  # a minus, not a hyphen
    assert "% ±: 95 % interval" in latex
    markdown = summary.to_markdown()
    assert markdown.startswith("| topology | runs | accuracy | std | worst node |")
    assert "averaged over run.seed" in markdown
    assert "<table>" in summary._repr_html_()


def test_wide_tables_are_printed_in_parts():
    runs = runs_of(topology=["a" * 60, "b" * 60], seconds=True)
    summary = topofl.summarize(runs, by="topology", baseline="a" * 60, target=0.6)
    text = str(summary)
    assert text.count("topology  ") == 3
    assert len(summary.table.columns) == len(set(summary.table.columns)) == 13


def test_notes_on_columns_that_are_left_out_are_left_out():
    runs = runs_of(topology=["ring", "star", "torus"], seeds=3)
    runs[0].curves["scores"]["accuracy"]["mean"][-1] = None
    whole = topofl.summarize(runs, "topology", baseline="ring", target=0.5)
    interval, ended, to_target, comparisons = whole.notes
    assert interval == "±: 95 % interval (Student's t), averaged over run.seed"
    assert "2 comparisons" in comparisons
    for columns, expected in {
        ("topology", "runs", "reached 0.5"): (ended,),
        ("topology", "accuracy"): (interval, ended),
        ("topology", "std"): ("averaged over run.seed", ended),
        ("MB to 0.5",): (ended, to_target),
        ("better than ring", "rounds to 0.5"): whole.notes,
    }.items():
        assert whole.select(columns).notes == expected
    assert whole.select(["runs", "accuracy"]).select("accuracy").notes == (interval, ended)


def test_columns_are_selected_for_all_formats(tmp_path):
    runs = runs_of(topology=["ring", "star"], seeds=3)
    whole = topofl.summarize(runs, "topology", baseline="ring", target=0.5)
    frame = whole.to_pandas()
    chosen = whole.select(["minus ring", "topology", "worst tenth", "rounds to 0.5", "std"])
    heads = ["minus ring", "topology", "worst tenth", "rounds to 0.5", "std"]
    assert list(chosen.table.columns) == heads
    assert chosen.table == whole.table.select(heads)
    precise = [f"{head}{end}" for head in heads[:1] for end in ("", " low", " high")]
    precise += ["topology", *(f"worst tenth{end}" for end in ("", " std", " low", " high"))]
    precise += [*(f"rounds to 0.5{end}" for end in ("", " low", " high")), "accuracy std"]
    pd.testing.assert_frame_equal(chosen.to_pandas(), frame[precise])
    chosen.to_csv(tmp_path / "t.csv")
    assert pd.read_csv(tmp_path / "t.csv").columns.tolist() == precise
    assert " & ".join(heads) + r" \\" in chosen.to_latex()
    assert chosen.to_markdown().startswith(f"| {' | '.join(heads)} |")
    assert str(chosen).split()[:2] == ["minus", "ring"]
    assert chosen.notes == whole.notes
    assert chosen.select("std").to_pandas().columns.tolist() == ["accuracy std"]
    with pytest.raises(ValueError, match=r"`columns` must be one of .* got 'worst'"):
        whole.select(["worst"])


def test_columns_that_are_not_shown_cannot_be_selected():
    runs = topofl.summarize(runs_of()).select(["runs", "std"])
    assert runs.select(["std"]).table.columns == ("std",)
    for table in (runs, runs.table):
        with pytest.raises(ValueError, match="`columns` must be one of 'runs', 'std', got 'acc"):
            table.select(["accuracy"])


@pytest.mark.parametrize(
    ("name", "printed"),
    [("accuracy low", "accuracy"), ("accuracy std", "std"), ("worst node std", "worst node")],
)
def test_names_in_full_precision_are_refused_with_those_of_the_printed_table(name, printed):
    summary = topofl.summarize(runs_of())
    message = f"`columns` must be named as in the printed table, .* take '{printed}'$"
    with pytest.raises(ValueError, match=message):
        summary.select(["runs", name])
    with pytest.raises(ValueError, match=message):
        summary.select(name)
    assert name in summary.select(printed).to_pandas().columns
