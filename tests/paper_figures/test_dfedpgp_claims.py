"""Claims of DFedPGP hold for curves as the paper describes them, and each fails when its curves say the opposite."""

import numpy as np
import pytest

from paper_figures import dfedpgp_claims
from paper_figures.claims import FAILS, HOLDS, UNDECIDED
from paper_figures.curves import Curve
from paper_figures.dfedpgp_claims import EQUAL, first_round
from paper_figures.dfedpgp_paper import TABLE_1, TABLE_4

ROUNDS = np.arange(101.0)
DIR, PAT, MILD = "CIFAR-10, Dir(0.3)", "CIFAR-10, c=2", "CIFAR-10, Dir(0.1)"
METHODS = tuple(TABLE_1)
SERVED = ("FedAvg", "FedPer", "FedRep", "FedBABU", "Ditto")


def curve(end, tau=20.0, seeds=(0.0, 0.1, -0.1), rounds=ROUNDS, drop=0.0):
    """Return accuracies that end at `end` plus what a seed adds; 63 % of it come in the first `tau` rounds."""
    mean = np.array([(end + more) * (1 - np.exp(-rounds / tau)) - drop * (rounds > 80) for more in seeds])
    return Curve(np.arange(len(mean)), rounds, mean, mean - 5, mean + 5, {})


def panel(title):
    """Return all methods as in table 1."""
    return {label: curve(TABLE_1[label][title][0], tau=8.0) for label in METHODS}


def verdicts(claims):
    return [claim.verdict for claim in claims]


def raised(arms, label, points):
    return arms | {label: Curve(**{**vars(arms[label]), "mean": arms[label].mean + points})}


def test_table_1_holds_as_printed_and_its_slip_is_found():
    claims = dfedpgp_claims.tab01({title: panel(title) for title in (MILD, DIR, PAT)})
    told = {claim.statement: claim for claim in claims}
    assert len(told) == 5
    for statement, claim in told.items():
        assert claim.verdict == (FAILS if PAT in statement and "average" not in statement else HOLDS), statement
    assert told[f"{DIR}: DFedPGP is the most accurate of all methods."].paper == "+1.11 points"
    assert told[f"{PAT}: DFedPGP is the most accurate of all methods."].paper == "-0.02 points"
    assert claims[-1].paper == "+1.04 points"


def test_splits_that_the_paper_does_not_have_are_judged_without_its_numbers():
    arms = panel(DIR)
    claims = dfedpgp_claims.tab01({DIR: arms, "MNIST, Dir(0.3)": arms})
    assert [claim.paper for claim in claims] == ["+1.11 points", "+1.11 points", ""]
    assert verdicts(claims) == [HOLDS] * 3
    first, *_ = dfedpgp_claims.tab02({"MNIST, Dir(0.3)": arms}, {"MNIST, Dir(0.3)": 60.0})
    assert first.paper == ""


def test_table_1_fails_where_another_method_is_ahead():
    panels = {DIR: raised(panel(DIR), "Ditto", 20), PAT: raised(panel(PAT), "Local", 10)}
    assert verdicts(dfedpgp_claims.tab01(panels)) == [FAILS] * 3
    steeper = {MILD: raised(panel(MILD), "DFedPGP", 20), DIR: panel(DIR)}
    assert dfedpgp_claims.tab01(steeper)[-1].verdict == FAILS


def test_leads_are_over_the_best_other_arm_of_the_same_seed():
    even = {"DFedPGP": curve(80, seeds=(1, 0, 1)), "A": curve(80, seeds=(2, -3, 0)), "B": curve(80, seeds=(-3, 1, 0))}
    (claim,) = dfedpgp_claims.tab01({DIR: even})[1:]
    assert claim.ours.mean == pytest.approx(np.mean([-1, -1, 1]), abs=0.05)
    assert claim.verdict == UNDECIDED


def test_one_seed_decides_nothing():
    arms = {label: curve(70 + 5 * (label == "DFedPGP"), seeds=(0.0,)) for label in METHODS}
    assert set(verdicts(dfedpgp_claims.tab01({DIR: arms}))) == {UNDECIDED}


def test_figure_2_is_about_speed_not_about_the_end():
    arms = {label: curve(80, tau=20) for label in METHODS} | {"DFedPGP": curve(80, tau=8)}
    assert verdicts(dfedpgp_claims.fig02({DIR: arms})) == [HOLDS]
    assert verdicts(dfedpgp_claims.fig02({DIR: arms | {"OSGP": curve(80, tau=4)}})) == [FAILS]


def test_first_rounds_are_those_that_were_evaluated():
    steps = curve(80, rounds=np.arange(0.0, 101.0, 10.0))
    rounds = first_round(steps, 60)
    for k, t in enumerate(rounds):
        place = int(t / 10)
        assert steps.mean[k, place] >= 60 > steps.mean[k, place - 1]
    assert np.isinf(first_round(steps, 90)).all()
    assert (first_round(steps, 0) == 0).all()


def test_table_2_counts_rounds():
    arms = {label: curve(85, tau=25) for label in METHODS} | {"DFedPGP": curve(85, tau=8)}
    claims = dfedpgp_claims.tab02({DIR: arms, PAT: arms}, {DIR: 60.0, PAT: 60.0})
    assert verdicts(claims) == [HOLDS] * 3
    assert claims[0].paper == "1.44"  # 189 rounds of FedRep over 131
    slower = arms | {"DFedPGP": curve(85, tau=40)}
    assert verdicts(dfedpgp_claims.tab02({DIR: slower}, {DIR: 60.0})) == [FAILS] * 2
    little = arms | {"DFedPGP": curve(85, tau=18)}
    assert verdicts(dfedpgp_claims.tab02({DIR: little}, {DIR: 60.0})) == [HOLDS, FAILS]


def test_who_never_arrives_is_counted_with_the_whole_run():
    arms = {"DFedPGP": curve(85, tau=8), "Ditto": curve(50)}
    first, second = dfedpgp_claims.tab02({DIR: arms}, {DIR: 60.0})
    needed = first_round(arms["DFedPGP"], 60.0)
    assert first.ours.mean == pytest.approx(np.mean(100 / needed))
    both = {"DFedPGP": curve(40), "Ditto": curve(50)}
    assert verdicts(dfedpgp_claims.tab02({DIR: both}, {DIR: 60.0})) == [UNDECIDED, FAILS]
    assert second.verdict == HOLDS


def test_table_3_compares_with_equal_devices():
    devices = [label for label in METHODS if label != "Local"]
    equal = {label: panel(DIR)[label] for label in devices}
    less = {label: curve(TABLE_1[label][DIR][0] - 3) for label in devices}
    claims = dfedpgp_claims.tab03({DIR: less, DIR + EQUAL: equal})
    assert verdicts(claims) == [HOLDS] * 3
    turned = {label: curve(150 - TABLE_1[label][DIR][0]) for label in devices}
    assert verdicts(dfedpgp_claims.tab03({DIR: turned, DIR + EQUAL: equal})) == [FAILS] * 3
    assert claims[0].paper == "+0.82 points"
    assert "1.00 (of the" not in claims[2].paper


def test_table_4_has_four_steps():
    arms = {label: curve(TABLE_4[DIR][label]) for label in TABLE_4[DIR]}
    claims = dfedpgp_claims.tab04({DIR: arms})
    assert verdicts(claims) == [HOLDS] * 4
    assert [claim.paper for claim in claims] == ["+2.20 points", "+2.47 points", "+0.65 points", "+0.92 points"]
    worse = {label: curve(170 - TABLE_4[DIR][label]) for label in TABLE_4[DIR]}
    assert verdicts(dfedpgp_claims.tab04({DIR: worse})) == [FAILS] * 4


def test_figure_3a_is_about_neighbors():
    arms = {f"{k} neighbors": curve(80 + k / 5, tau=30 - k / 2) for k in (2, 5, 10, 20, 40)}
    assert verdicts(dfedpgp_claims.fig03a({DIR: arms})) == [HOLDS] * 3
    worse = {f"{k} neighbors": curve(80 - k / 5, tau=20 + k, drop=10 * (k == 2)) for k in (2, 5, 10, 20, 40)}
    assert verdicts(dfedpgp_claims.fig03a({DIR: worse})) == [FAILS] * 3


def test_figure_3b_is_about_clients():
    arms = {f"{n} clients": curve(90 - n / 10, tau=10 + n / 10) for n in (5, 10, 20, 50, 100, 200)}
    claims = dfedpgp_claims.fig03b({DIR: arms})
    assert verdicts(claims) == [HOLDS] * 2
    assert "5 clients and 10 clients minus 50 clients, 100 clients, 200 clients" in claims[0].statistic
    worse = {f"{n} clients": curve(60 + n / 10, tau=40 - n / 10) for n in (5, 10, 20, 50, 100, 200)}
    assert verdicts(dfedpgp_claims.fig03b({DIR: worse})) == [FAILS] * 2


def test_equal_numbers_have_no_order():
    assert dfedpgp_claims.rank_correlation([1, 1, 1], [1, 2, 3]) == 0
    assert dfedpgp_claims.rank_correlation([1, 2, 3], [5, 7, 9]) == pytest.approx(1)
