"""Orderings of methods are judged on other data sets, which reports then set side by side."""

import json
from functools import partial

import numpy as np
import pytest
from matplotlib.figure import Figure as Picture

from paper_figures import choose_rates, command, reproduce
from paper_figures.dcliques.arms import DECLARED as DCLIQUES
from paper_figures.dpfl.arms import DECLARED as DPFL
from paper_figures.kit import comparison
from paper_figures.kit.claims import (
    FAILS,
    HOLDS,
    OUR_QUESTION,
    PAPER,
    UNDECIDED,
    at_least,
    at_most,
    judge,
    judged,
    ordering_of,
)
from paper_figures.kit.paper import LOOKS, Figure, Paper, make_setting
from paper_figures.kit.second_look import looked_at, orderings_table, save_verdicts
from paper_figures.kit.sequential import critical
from topofl.runs.identity import Run

RNG = np.random.default_rng(0)
LEADS = {f"{shift}": shift + RNG.standard_normal(6) for shift in (-3, -0.8, 0, 0.8, 3)}
SEVERAL = [LEADS[key] for key in ("0.8", "3", "-0.8")]
CASES = [
    *LEADS.values(),
    *({"a": SEVERAL[i], "b": SEVERAL[k]} for i in range(3) for k in range(3)),
]


@pytest.mark.parametrize("values", CASES)
@pytest.mark.parametrize("any_of", [False, True])
@pytest.mark.parametrize("bound", [at_least, at_most])
@pytest.mark.parametrize("sequential", [False, True])
def test_an_ordering_is_judged_as_if_any_margin_were_claimed(values, any_of, bound, sequential):
    size = 1.0 if bound is at_least else -1.0
    made = partial(judge, "A is far better.", "points", values, any_of=any_of)
    claim, wanted = made(bound(size, "far", tie=0)), made(bound(0, "any"))
    if sequential:
        claim, wanted = (judged(one, critical) for one in (claim, wanted))
    ordering = ordering_of(claim)
    assert (ordering.verdict, ordering.ours) == (wanted.verdict, wanted.ours)
    assert [p.verdict for p in ordering.parts] == [p.verdict for p in wanted.parts]
    assert ordering.statement == "A is far better (the ordering alone)."
    assert ordering.threshold == wanted.threshold.replace("any", "the ordering alone")
    assert judged(ordering).evidence.bound.value == 0


def test_cases_have_all_verdicts():
    found = {judge("A.", "points", values, at_least(0, "any")).verdict for values in CASES}
    assert found == {HOLDS, FAILS, UNDECIDED}


def test_claims_by_any_margin_stay_and_those_about_numbers_are_no_orderings():
    values = [1.0, 1.1, 0.9]
    any_lead = judge("A is better.", "points", values, at_least(0, "any", tie=0))
    assert ordering_of(any_lead) is any_lead
    assert ordering_of(judge("A is near.", "points", values, at_most(2, "near"))) is None
    (one,) = [judge("A is far better.", "points", [3.0], at_least(1, "far", tie=0))]
    assert ordering_of(one).verdict == UNDECIDED


SEEDS = 3
SHIFTS = {"quick": (2.0, 0.5), "mnist14": (-1.0, 2.0), "mnist1d": (1.0, 0.0)}
"""Leads of the first and the second method, by scale."""


def arms(setting):
    tables = {
        "data": {"name": "digits", "n": 4, "partition": "iid"},
        "topology": {"name": "ring", "n": 4},
        "algorithm": {"name": "dsgd", "lr": 0.1, "batch_size": 4},
        "evaluation": {"every": 1},
    }
    runs = [
        Run(
            {
                **tables,
                "data": {**tables["data"], "seed": seed, "split_seed": seed},
                "run": {"rounds": 1, "seed": seed},
            }
        )
        for seed in setting.seeds
    ]
    return {"CIFAR-10": {"only": runs}}


def compute(setting, store):
    noise = np.linspace(-0.1, 0.1, len(setting.seeds))
    leads = [(shift + noise).tolist() for shift in SHIFTS[setting.scale]]
    return {"CIFAR-10": dict(zip("ab", leads, strict=True))}


def claims(data):
    ((title, leads),) = data.items()
    return [
        judge(f"{title}: a leads.", "points", leads["a"], at_least(0, "any", tie=0), paper="+7"),
        judge(f"{title}: b leads by far.", "points", leads["b"], at_least(1, "far", tie=0)),
        judge(f"{title}: b is near.", "points", leads["b"], at_most(5, "near")),
        judge(
            f"{title}: ours.", "points", leads["a"], at_least(0, "any", tie=0), kind=OUR_QUESTION
        ),
    ]


def draw(data, drawn):
    drawn.append(list(data))
    return Picture(figsize=(1, 1))


@pytest.fixture
def drawn(monkeypatch):
    """Return a list of the titles that are drawn; replace the papers by a small one."""
    titles = []
    figure = Figure(
        "some-fig01", "leads on CIFAR-10", compute, partial(draw, drawn=titles), claims, arms=arms
    )
    paper = Paper("some", "A paper", "Someone, 2026", (figure,), ordering=("some-fig01",))
    monkeypatch.setattr(command, "figures_named", lambda name: (paper, (figure,)))
    return titles


def made(path, scale, **options):
    how = {"seeds": SEEDS, "out": path, "report": True, "progress": False, "data": path}
    (result,) = reproduce("some", scale=scale, **how | options)
    return result


def test_a_look_judges_orderings_on_another_data_set_and_says_so(drawn, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").touch()
    result = made(tmp_path, "mnist14")
    name = LOOKS["mnist14"]
    found = [(claim.statement, claim.verdict, claim.kind, claim.paper) for claim in result.claims]
    assert found == [
        (f"{name}: a leads.", FAILS, OUR_QUESTION, ""),
        (f"{name}: b leads by far (the ordering alone).", HOLDS, OUR_QUESTION, ""),
        (f"{name}: ours.", FAILS, OUR_QUESTION, ""),
    ]
    assert drawn == [[name]]
    assert result.figure.title == f"leads on {name}; second look on {name}"
    text = (tmp_path / "mnist14" / "some-report.md").read_text()
    assert f"This is a second look at orderings of methods on {name}, which is not" in text
    assert "topofl reproduce some --scale mnist14 --seeds 3 --data DIR --report" in text
    assert "Orderings on other data sets" not in text


def test_the_report_shows_on_how_many_data_sets_an_ordering_holds(drawn, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").touch()
    before = made(tmp_path, "quick")
    assert "Orderings on" not in (tmp_path / "quick" / "some-report.md").read_text()
    assert orderings_table([before], tmp_path) is None
    made(tmp_path, "mnist14")
    made(tmp_path, "mnist1d", seeds=None, until_decided=True, max_seeds=3)
    result = made(tmp_path, "quick")
    table = orderings_table([result], tmp_path)
    assert table.column("claim") == (
        "CIFAR-10: a leads.",
        "CIFAR-10: b leads by far (the ordering alone).",
        "Ours: CIFAR-10: ours.",
    )
    assert table.rows[0][2:] == (
        "HOLDS, 3 seeds",
        "FAILS, 3 seeds",
        "HOLDS, 3 seeds",
        "the ordering holds on 2 of 3 data sets (fails on 1)",
    )
    assert table.rows[1][2:] == (
        "HOLDS, 3 seeds",
        "HOLDS, 3 seeds",
        "UNDECIDED, 3 seeds",
        "the ordering holds on 2 of 3 data sets (undecided on 1)",
    )
    assert table.title.startswith(
        "Orderings: 3, of which 3 hold on 2 data sets. Claims of the paper"
    )
    assert "on its own data only: 1, about numbers" in table.title
    for ending in ("md", "html"):
        text = (tmp_path / "quick" / f"some-report.{ending}").read_text()
        assert "Orderings on other data sets" in text
        assert "the ordering holds on 2 of 3 data sets" in text
        assert "UNDECIDED, 3 seeds" in text
    assert result.claims[1].verdict == FAILS
    assert result.claims[1].kind == PAPER


def test_an_ordering_that_one_look_lacks_is_counted_on_the_others(drawn, tmp_path):
    made(tmp_path, "mnist1d")
    table = orderings_table([made(tmp_path, "quick")], tmp_path)
    assert str(table.rows[0][3]) == "n/a"
    assert table.rows[0][-1] == "the ordering holds on 2 of 2 data sets"


def test_damaged_verdicts_are_named(drawn, tmp_path):
    result = made(tmp_path, "mnist1d")
    save_verdicts([result], tmp_path)
    path = tmp_path / "mnist1d" / "some-fig01-orderings.json"
    assert len(json.loads(path.read_text())) == 3
    path.write_text("{")
    with pytest.raises(ValueError, match=r"orderings.json is damaged: .*judge scale mnist1d again"):
        made(tmp_path, "quick")


def test_panels_without_the_replaced_data_set_are_not_said_to_be_missing():
    figure = Figure("a", "b", compute, draw, claims, arms=arms, datasets=("mnist", "cifar10"))
    assert looked_at(figure, "mnist1d").datasets == ("cifar10",)


TINY = {"rounds": 2, "tuned_every": 2, "eval_every": 1}


@pytest.fixture
def tiny(monkeypatch):
    """Make the runs of DFedPGP and PFedDST on MNIST-1D short and small."""
    pytest.importorskip("mnist1d", reason="the data are made by the package mnist1d")
    scale = comparison.DECLARED["scales"]["mnist1d"]
    source = {"name": "mnist1d", "train": 200, "test": 100}
    for key, value in (TINY | {"data": {"cifar10": source}, "clients": 10, "neighbors": 2}).items():
        monkeypatch.setitem(scale, key, value)


@pytest.mark.slow
def test_a_papers_orderings_are_judged_from_its_runs_on_signals(tiny, tmp_path):
    told = []
    results = reproduce(
        *("pfeddst",), scale="mnist1d", seeds=2, out=tmp_path, progress=False, show=told.append
    )
    assert [result.figure.id for result in results] == ["pfeddst-fig03", "pfeddst-tab01"]
    assert [len(result.claims) for result in results] == [2, 2]
    for result in results:
        assert {run.tables["data"]["name"] for run in result.figure.runs(result.setting)} == {
            "mnist1d"
        }
        for claim in result.claims:
            assert claim.statement.startswith("MNIST-1D, c=2: ")
    assert "CIFAR" not in "\n".join(map(str, told))
    assert len(list((tmp_path / "mnist1d").glob("*-orderings.json"))) == 2


def test_learning_rates_are_among_those_of_the_rule():
    rates = comparison.DECLARED["second_look_rates"]["rates"]
    for scale in LOOKS:
        own = [declared.scale(scale).lr for declared in (comparison.DECLARED, DPFL)]
        own += [DCLIQUES["problems"]["cifar10"][scale]["lr"]]
        assert set(own) <= set(rates)
        assert comparison.DECLARED.scale(scale).head_lr == own[0]


@pytest.mark.slow
def test_rates_are_chosen_by_accuracy_and_the_lower_one_of_equals(tiny, tmp_path, monkeypatch):
    rule = {"rates": [0.1, 1e30], "seeds": [1000]}
    monkeypatch.setitem(comparison.DECLARED.tables, "second_look_rates", rule)
    kept = {name: choose_rates.ARMS[name] for name in ("DFedPGP, PFedDST",)}
    monkeypatch.setattr(choose_rates, "ARMS", kept)
    setting = make_setting("mnist1d")
    table = choose_rates.rates_table(setting, choose_rates.Store(tmp_path))
    (row,) = table.rows
    assert row[0] == "DFedPGP, PFedDST"
    assert 0 < row[1] <= 100
    assert (str(row[2]), row[3]) == ("n/a", 0.1)
    assert "on MNIST-1D" in table.title
