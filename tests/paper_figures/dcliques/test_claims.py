"""D-Cliques' claims can hold and fail. Long, since each figure has its claims and its opposites."""

import copy
import dataclasses
import zlib

import numpy as np
import pytest

from paper_figures.dcliques import arms as dcliques_arms
from paper_figures.dcliques import claims as dcliques_claims
from paper_figures.dcliques.claims import REFERENCE
from paper_figures.kit.claims import FAILS, HOLDS, UNDECIDED
from paper_figures.kit.curves import Curve
from paper_figures.kit.paper import Setting

GRIDS = {
    "paper": np.linspace(0, 100, 101),
    "every fourth epoch": np.linspace(0, 100, 26),
    "quick": np.linspace(0, 46, 11),
}
SMOKE = np.array([0.0, 0.9, 1.8])


def arm(final=92.0, tau=5.0, spread=1.0, degree=9.9, exact=18.9, paper=19.8):
    """Return a curve's specification: final value, time constant `tau`, spread over nodes."""
    numbers = {"degree": degree, "messages": exact, "messages_paper": paper}
    return {"final": final, "tau": tau, "spread": spread} | numbers


def full(**more):
    return arm(spread=0.0, **{"degree": 99, "exact": 99, "paper": 99} | more)


def cifar(**more):
    return arm(**{"final": 65, "tau": 20} | more)


def cifar_full(**more):
    return full(**{"final": 65, "tau": 20} | more)


def thinned(make, *taus_and_spreads):
    return {
        f"{k} removed": make(tau=t, spread=s)
        for k, (t, s) in zip((0, 1, 5), taus_and_spreads, strict=True)
    }


def joined(make, make_full):
    tau = make()["tau"]
    return {
        "all nodes connected": make_full(degree=999, exact=999, paper=999),
        "fully-connected": make(tau=1.02 * tau, degree=18.9, exact=27.9, paper=37.8),
        "small-world": make(tau=1.03 * tau, degree=14.57),
        "fractal": make(tau=1.1 * tau, degree=9.99),
        "ring": make(tau=2.2 * tau, degree=9.2),
    }


def swapped(make, make_full):
    tau = make()["tau"]
    random = make(tau=1.8 * tau, spread=9.0)
    return {
        "fully-connected": make_full(),
        "D-Cliques + CA": make(spread=3.0),
        "random cliques + CA": random,
    }


AS_THE_PAPER_SAYS = {
    "fig01": {
        "IID": {"fully-connected": full(), "grid": arm(tau=5.1), "ring": arm(tau=5.2)},
        "two shards a node": {
            "fully-connected": full(tau=5.1),
            "grid": arm(tau=9),
            "ring": arm(final=85, tau=20),
        },
    },
    "fig08": {
        "MNIST": {
            "fully-connected": full(),
            "D-Cliques + CA": arm(tau=5.2),
            "grid": arm(tau=9, spread=8),
            "ring": arm(final=85, tau=20, spread=20),
        },
        "CIFAR-10": {"fully-connected": cifar_full(), "D-Cliques + CA": cifar(tau=20.4)},
    },
    "fig09": {
        "MNIST": {
            "fully-connected": full(),
            "D-Cliques + CA": arm(tau=5.1),
            "D-Cliques": arm(tau=5.3, spread=2, exact=9.9, paper=9.9),
        }
    },
    "fig10": {
        "without momentum": {
            "fully-connected": cifar_full(tau=40),
            "D-Cliques + CA": cifar(tau=40, spread=6),
            "D-Cliques": cifar(final=60, tau=60, spread=10),
        },
        "with momentum": {
            "fully-connected": cifar_full(),
            "D-Cliques + CA": cifar(spread=4),
            "D-Cliques": cifar(final=30, tau=60, spread=12),
        },
    },
    "fig11": {
        "MNIST": {"D-Cliques": arm(tau=6), "random graph": arm(tau=7, spread=4)},
        "CIFAR-10": {
            "D-Cliques": cifar(final=60, spread=10),
            "random graph": cifar(final=50, spread=15),
            "random graph, momentum": cifar(final=30, spread=15),
        },
    },
    "fig12": {
        "MNIST": {"D-Cliques": arm(tau=6), "exponential graph": arm(tau=7, spread=4, degree=14)},
        "CIFAR-10": {
            "D-Cliques": cifar(final=60, spread=10),
            "exponential graph": cifar(final=50, spread=15, degree=14),
        },
    },
    "fig13": {"MNIST": joined(arm, full)},
    "fig14": {"CIFAR-10": joined(cifar, cifar_full)},
    "fig15": {
        "without Clique Averaging": {"fully-connected": full()}
        | thinned(arm, (5.2, 2), (5.3, 2.2), (5.5, 3)),
        "with Clique Averaging": {"fully-connected": full()}
        | thinned(arm, (5.1, 1), (5.1, 1.02), (5.12, 1.08)),
    },
    "fig16": {
        "without Clique Averaging": {"fully-connected": cifar_full()}
        | thinned(cifar, (60, 14), (61, 14.5), (65, 15.5)),
        "with Clique Averaging": {"fully-connected": cifar_full()}
        | thinned(cifar, (20.5, 4), (23, 5), (40, 15)),
    },
    "fig19": {"MNIST": swapped(arm, full), "CIFAR-10": swapped(cifar, cifar_full)},
    "reference": {
        "MNIST": {"fully-connected": full(), "D-Cliques + CA": arm(), "ring": arm(final=85, tau=20)}
    },
}
FIGURES = tuple(AS_THE_PAPER_SAYS)

IID, SKEWED, PLAIN, CA = (
    "IID",
    "two shards a node",
    "without Clique Averaging",
    "with Clique Averaging",
)
NO_MOMENTUM, MOMENTUM = "without momentum", "with momentum"


def four(averaged, plain, plain_momentum):
    """Return figure 10 with other ends of three arms; the fourth ends at 65."""
    without = {
        "D-Cliques + CA": {"final": averaged, "tau": 20},
        "D-Cliques": {"final": plain, "tau": 20},
    }
    return {NO_MOMENTUM: without, MOMENTUM: {"D-Cliques": {"final": plain_momentum, "tau": 20}}}


SABOTAGES = [
    # figure, words of one claim, what is changed of which arms by panel
    ("fig01", "negligible", {IID: {"ring": {"tau": 6}}}),
    ("fig01", "very significant", {SKEWED: {"ring": {"final": 92, "tau": 7}, "grid": {"tau": 7}}}),
    ("fig01", "every sparse topology", {SKEWED: {"grid": {"tau": 5.5}}}),
    ("fig01", "IID and skewed data", {SKEWED: {"fully-connected": {"tau": 3}}}),
    ("fig08", "MNIST: the convergence speed", {"MNIST": {"D-Cliques + CA": {"tau": 6}}}),
    ("fig08", "CIFAR-10: the convergence speed", {"CIFAR-10": {"D-Cliques + CA": {"final": 60}}}),
    ("fig08", "significantly better", {"MNIST": {"grid": {"tau": 5.5}}}),
    ("fig08", "less variance", {"MNIST": {"D-Cliques + CA": {"spread": 9}}}),
    ("fig09", "reduces the variance", {"MNIST": {"D-Cliques": {"spread": 0.9}}}),
    ("fig09", "accelerates", {"MNIST": {"D-Cliques": {"tau": 5.0}}}),
    ("fig09", "is slight", {"MNIST": {"D-Cliques": {"tau": 8}}}),
    ("fig10", "more pronounced", four(62.5, 63.8, 57.5)),
    ("fig10", "in combination", four(63.0, 55.5, 53.5)),
    ("fig10", "is detrimental", {MOMENTUM: {"D-Cliques": {"final": 60}}}),
    ("fig10", "is beneficial", {NO_MOMENTUM: {"D-Cliques + CA": {"final": 64.5, "tau": 20}}}),
    ("fig10", "fastest", {NO_MOMENTUM: {"D-Cliques": {"final": 67, "tau": 20}}}),
    ("fig10", "lowest variance", {MOMENTUM: {"D-Cliques + CA": {"spread": 7}}}),
    ("fig11", "MNIST: even without Clique Averaging", {"MNIST": {"random graph": {"tau": 6}}}),
    ("fig11", "MNIST: D-Cliques have less", {"MNIST": {"random graph": {"spread": 1}}}),
    (
        "fig11",
        "CIFAR-10: even without Clique Averaging",
        {"CIFAR-10": {"random graph": {"final": 60}}},
    ),
    ("fig11", "CIFAR-10: D-Cliques have less", {"CIFAR-10": {"D-Cliques": {"spread": 15}}}),
    ("fig11", "momentum is detrimental", {"CIFAR-10": {"random graph, momentum": {"final": 50}}}),
    ("fig12", "MNIST: even without Clique Averaging", {"MNIST": {"exponential graph": {"tau": 6}}}),
    ("fig12", "MNIST: D-Cliques have less", {"MNIST": {"exponential graph": {"spread": 1}}}),
    (
        "fig12",
        "CIFAR-10: even without Clique Averaging",
        {"CIFAR-10": {"exponential graph": {"final": 60}}},
    ),
    ("fig12", "CIFAR-10: D-Cliques have less", {"CIFAR-10": {"D-Cliques": {"spread": 15}}}),
    ("fig13", "joined in a ring converge", {"MNIST": {"ring": {"final": 60}}}),
    ("fig13", "much slower", {"MNIST": {"ring": {"tau": 6}}}),
    ("fig13", "small world", {"MNIST": {"small-world": {"tau": 6}}}),
    ("fig13", "connecting all nodes", {"MNIST": {"all nodes connected": {"tau": 3}}}),
    ("fig14", "joined in a ring converge", {"CIFAR-10": {"ring": {"final": 45}}}),
    ("fig14", "much slower", {"CIFAR-10": {"ring": {"tau": 22}}}),
    ("fig14", "small world", {"CIFAR-10": {"small-world": {"tau": 18}}}),
    ("fig14", "connecting all nodes", {"CIFAR-10": {"all nodes connected": {"final": 70}}}),
    ("fig15", "slows the convergence.", {PLAIN: {"5 removed": {"tau": 5.1}}}),
    ("fig15", "slows the convergence only", {PLAIN: {"5 removed": {"tau": 9}}}),
    ("fig15", "increases the variance", {PLAIN: {"5 removed": {"spread": 2}}}),
    ("fig15", "affect the speed", {CA: {"1 removed": {"tau": 5.5}}}),
    ("fig15", "affect the variance", {CA: {"5 removed": {"spread": 1.5}}}),
    ("fig16", "small effect on the speed", {PLAIN: {"5 removed": {"final": 50}}}),
    ("fig16", "small effect on the variance", {PLAIN: {"1 removed": {"spread": 25}}}),
    ("fig16", "too slow", {PLAIN: {"fully-connected": {"tau": 60}}}),
    ("fig16", "noticeable effect", {CA: {"1 removed": {"tau": 20.5}}}),
    ("fig16", "single edge is small", {CA: {"1 removed": {"tau": 35}}}),
    ("fig16", "significantly damages", {CA: {"5 removed": {"tau": 24}}}),
    ("fig16", "sharply increases", {CA: {"5 removed": {"spread": 5.5}}}),
    ("fig19", "MNIST: cliques made by", {"MNIST": {"random cliques + CA": {"tau": 5}}}),
    ("fig19", "MNIST: with Greedy-Swap", {"MNIST": {"random cliques + CA": {"spread": 5}}}),
    ("fig19", "CIFAR-10: cliques made by", {"CIFAR-10": {"D-Cliques + CA": {"tau": 36}}}),
    ("fig19", "CIFAR-10: with Greedy-Swap", {"CIFAR-10": {"D-Cliques + CA": {"spread": 8}}}),
] + [
    ("reference", f"{label}, epoch {epoch}:", {"MNIST": {label: {"points": {epoch: 2.0}}}})
    for label in ("fully-connected", "D-Cliques + CA", "ring")
    for epoch in (5, 7, 10)
]


OF_SEEDS = [
    s
    for s in SABOTAGES
    if s[0] != "reference" and "fewer" not in s[1] and "the exponential" not in s[1]
]


def curve(name, spec, epochs, seeds=3):
    """Return the specified curve; seeds differ by 0.3 points, arms of a seed by 0.01."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    tau = spec["tau"] * epochs[-1] / 100
    mean = 10 + (spec["final"] - 10) * (1 - np.exp(-epochs / tau))
    mean = mean + np.linspace(-0.3, 0.3, seeds)[:, None] + 0.01 * rng.standard_normal((seeds, 1))
    apart = spec["spread"] * (1 + 0.01 * rng.standard_normal((seeds, 1)))
    numbers = {
        key: np.full(seeds, float(spec[key])) for key in ("degree", "messages", "messages_paper")
    }
    return Curve(np.arange(seeds), epochs, mean, mean - apart / 2, mean + apart / 2, numbers)


def panels_of(figure, spec, grid="paper", **how):
    """Return the specified panels; those of the reference lie on the simulator's points."""
    epochs = GRIDS[grid] if isinstance(grid, str) else grid
    panels = {
        t: {k: curve(t + k, arm, epochs, **how) for k, arm in arms.items()}
        for t, arms in spec.items()
    }
    return (
        panels
        if figure != "reference"
        else {t: simulated(arms, spec[t]) for t, arms in panels.items()}
    )


def simulated(arms, spec):
    epochs = np.arange(11.0)
    made = {}
    for label, points in REFERENCE.items():
        mean = np.interp(epochs, [0, *points], [10, *points.values()])
        for epoch, off in spec[label].get("points", {}).items():
            mean[epoch] += off
        seeds = len(arms[label].seeds)
        mean = mean + np.linspace(-0.2, 0.2, seeds)[:, None]
        made[label] = dataclasses.replace(
            arms[label], epochs=epochs, mean=mean, low=mean - 1, high=mean + 1
        )
    return made


def judged(figure, panels):
    claims = getattr(dcliques_claims, figure)(panels)
    assert len({(claim.statement, claim.statistic) for claim in claims}) == len(claims)
    return claims


def changed(spec, edits):
    spec = copy.deepcopy(spec)
    for panel, arms in edits.items():
        for label, how in arms.items():
            assert set(how) <= {*spec[panel][label], "points"}
            spec[panel][label] |= how
    return spec


@pytest.mark.parametrize("figure", FIGURES)
def test_panels_and_arms_are_those_of_the_figures(figure):
    arms = getattr(dcliques_arms, figure)(Setting("smoke", (0,)))
    named = {title: set(panel) for title, panel in arms.items()}
    assert named == {title: set(panel) for title, panel in AS_THE_PAPER_SAYS[figure].items()}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("figure", FIGURES)
def test_curves_as_the_paper_describes_them_make_every_claim_hold(figure, grid):
    claims = judged(figure, panels_of(figure, AS_THE_PAPER_SAYS[figure], grid))
    assert claims
    assert [(c.statement, c.ours, c.threshold) for c in claims if c.verdict != HOLDS] == []


@pytest.mark.parametrize(("figure", "words", "edits"), SABOTAGES)
def test_one_claim_fails_and_no_other_if_its_curves_say_the_opposite(figure, words, edits):
    claims = judged(figure, panels_of(figure, changed(AS_THE_PAPER_SAYS[figure], edits)))
    failed = [claim for claim in claims if claim.verdict != HOLDS]
    assert [(c.verdict, words in c.statement) for c in failed] == [(FAILS, True)], failed


def test_every_claim_is_seen_to_fail():
    for figure in FIGURES:
        missing = {
            (c.statement, c.statistic)
            for c in judged(figure, panels_of(figure, AS_THE_PAPER_SAYS[figure]))
        }
        for name, words, edits in SABOTAGES:
            if name == figure:
                claims = judged(
                    figure, panels_of(figure, changed(AS_THE_PAPER_SAYS[figure], edits))
                )
                missing -= {
                    (c.statement, c.statistic)
                    for c in claims
                    if c.verdict == FAILS and words in c.statement
                }
        assert not missing, figure


def is_counted(claim):
    """Whether no seed decides a claim."""
    return isinstance(claim.ours, float)


@pytest.mark.parametrize("figure", FIGURES)
def test_one_seed_decides_nothing(figure):
    claims = judged(figure, panels_of(figure, AS_THE_PAPER_SAYS[figure], seeds=1))
    assert {c.verdict for c in claims if not is_counted(c)} == {UNDECIDED}
    assert {c.verdict for c in claims if is_counted(c)} <= {HOLDS}


def on_kept_models(one, other, each):
    """Return panels with the first seeds of `one` and as many of `other`."""
    return {
        t: {k: both(curve, other[t][k], each) for k, curve in arms.items()}
        for t, arms in one.items()
    }


def both(one, other, each):
    parts = ("mean", "low", "high")
    mean, low, high = (
        np.concatenate([getattr(c, part)[:each] for c in (one, other)]) for part in parts
    )
    numbers = {
        key: np.concatenate([c.numbers[key][:each] for c in (one, other)]) for key in one.numbers
    }
    return Curve(np.arange(2 * each), one.epochs, mean, low, high, numbers)


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize(("figure", "words", "edits"), OF_SEEDS)
def test_a_claim_is_undecided_if_half_of_the_seeds_say_yes_and_half_no(figure, words, edits, each):
    spec = AS_THE_PAPER_SAYS[figure]
    panels = on_kept_models(panels_of(figure, spec), panels_of(figure, changed(spec, edits)), each)
    claims = [c for c in judged(figure, panels) if words in c.statement and not is_counted(c)]
    assert {c.verdict for c in claims} == {UNDECIDED}


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("seeds", [1, 3])
def test_three_evaluations_are_enough_to_judge(figure, seeds):
    if figure != "reference":
        assert judged(figure, panels_of(figure, AS_THE_PAPER_SAYS[figure], SMOKE, seeds=seeds))


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_panels_of_figure_1_may_be_evaluated_at_different_epochs(factor):
    skewed = panels_of("fig01", AS_THE_PAPER_SAYS["fig01"], SMOKE)[SKEWED]
    iid = panels_of("fig01", AS_THE_PAPER_SAYS["fig01"], factor * SMOKE)[IID]
    assert len(judged("fig01", {IID: iid, SKEWED: skewed})) == 4


@pytest.mark.parametrize("figure", FIGURES)
def test_curves_that_never_learn_and_nodes_that_never_differ_are_judged(figure):
    flat = {
        t: {k: a | {"final": 10, "spread": 0} for k, a in arms.items()}
        for t, arms in AS_THE_PAPER_SAYS[figure].items()
    }
    for claim in judged(figure, panels_of(figure, flat)):
        assert claim.verdict in (HOLDS, FAILS, UNDECIDED)


@pytest.mark.parametrize("figure", ["fig08", "fig11", "fig12", "fig19"])
@pytest.mark.parametrize("title", ["MNIST", "CIFAR-10"])
def test_a_panel_that_is_missing_is_not_judged(figure, title):
    panels = panels_of(figure, AS_THE_PAPER_SAYS[figure])
    alone = judged(figure, {title: panels[title]})
    assert alone == [claim for claim in judged(figure, panels) if claim.statement.startswith(title)]
    assert alone


def with_mean(panels, panel, label, change):
    """Return panels with one arm's accuracies moved by `change` of the epochs."""
    arm = panels[panel][label]
    moved = {part: getattr(arm, part) + change(arm.epochs) for part in ("mean", "low", "high")}
    return panels | {panel: panels[panel] | {label: dataclasses.replace(arm, **moved)}}


def verdicts(figure, panels):
    return [claim.verdict for claim in judged(figure, panels)]


@pytest.mark.parametrize("figure", FIGURES)
def test_the_evaluation_before_training_does_not_count(figure):
    panels = panels_of(figure, AS_THE_PAPER_SAYS[figure])
    for title, arms in panels.items():
        for label, arm in arms.items():
            before = arm.epochs == 0
            odd = {
                "low": arm.low - 2000 * before,
                "mean": arm.mean - 1500 * before,
                "high": arm.high + 500 * before,
            }
            changed_arms = arms | {label: dataclasses.replace(arm, **odd)}
            assert verdicts(figure, panels | {title: changed_arms}) == verdicts(figure, panels)


def test_where_the_papers_axis_starts_at_89_what_is_below_does_not_count():
    for figure, panel, label in (("fig09", "MNIST", "D-Cliques"), ("fig15", CA, "5 removed")):
        panels = panels_of(figure, AS_THE_PAPER_SAYS[figure])
        slow = with_mean(panels, panel, label, lambda epochs: np.where(epochs < 10, -30.0, 0.0))
        assert verdicts(figure, slow) == verdicts(figure, panels)
        slow = with_mean(panels, panel, label, lambda epochs: np.where(epochs < 25, -30.0, 0.0))
        assert FAILS in verdicts(figure, slow)


def test_who_never_arrives_is_later_than_who_does():
    spec = changed(AS_THE_PAPER_SAYS["fig13"], {"MNIST": {"ring": {"final": 75, "tau": 20}}})
    assert set(verdicts("fig13", panels_of("fig13", spec))) == {HOLDS}
    nobody = {"MNIST": {label: {"final": 75} for label in ("ring", "fractal")}}
    claims = judged("fig13", panels_of("fig13", changed(AS_THE_PAPER_SAYS["fig13"], nobody)))
    assert [c.verdict for c in claims if "much slower" in c.statement] == [
        HOLDS
    ]  # at what fractal has half-way


@pytest.mark.parametrize(
    ("figure", "words"), [("fig14", "much slower"), ("fig19", "CIFAR-10: cliques made by")]
)
def test_lateness_is_seen_in_runs_that_end_too_early(figure, words):
    spec = AS_THE_PAPER_SAYS[figure]
    spec = {t: {k: a | {"tau": 5 * a["tau"]} for k, a in arms.items()} for t, arms in spec.items()}
    assert [c.verdict for c in judged(figure, panels_of(figure, spec)) if words in c.statement] == [
        HOLDS
    ]


def test_a_small_world_with_more_edges_is_not_judged():
    spec = {
        t: {k: a | ({"degree": 25.0} if k == "small-world" else {}) for k, a in arms.items()}
        for t, arms in AS_THE_PAPER_SAYS["fig14"].items()
    }
    assert len(judged("fig14", panels_of("fig14", AS_THE_PAPER_SAYS["fig14"]))) == 4
    told = [claim.statement for claim in judged("fig14", panels_of("fig14", spec))]
    assert len(told) == 3
    assert not any("small world" in text for text in told)


def test_where_nothing_is_learned_no_two_arms_are_called_alike():
    spec = {
        t: {k: a | {"final": 12.0} for k, a in arms.items()}
        for t, arms in AS_THE_PAPER_SAYS["fig08"].items()
    }
    alike = [c for c in judged("fig08", panels_of("fig08", spec)) if "very close" in c.statement]
    assert [c.verdict for c in alike] == [UNDECIDED] * 2


@pytest.mark.parametrize("figure", FIGURES)
def test_arms_in_reversed_order_do_not_pass(figure):
    panels = panels_of(figure, AS_THE_PAPER_SAYS[figure])
    turned = {
        t: dict(zip(arms, reversed(arms.values()), strict=True)) for t, arms in panels.items()
    }
    assert FAILS in {claim.verdict for claim in judged(figure, turned)}


def test_reference_is_the_prediction_interval():
    ours = np.array([1.0, 2.0, 3.0])
    half = 4.302652729911275 * np.sqrt(
        1 + 1 / 3
    )  # t with 2 degrees of freedom, 97.5 %, for a deviation of 1
    panels = panels_of("reference", AS_THE_PAPER_SAYS["reference"])
    for inside in (True, False):
        theirs = REFERENCE["ring"][5]
        mean = panels["MNIST"]["ring"].mean.copy()
        mean[:, 5] = theirs + ours - 2 + half + (-1e-9 if inside else 1e-9)
        arms = panels["MNIST"] | {"ring": dataclasses.replace(panels["MNIST"]["ring"], mean=mean)}
        claim = next(
            c for c in judged("reference", {"MNIST": arms}) if "ring, epoch 5" in c.statement
        )
        assert claim.verdict == (HOLDS if inside else FAILS)


def test_reference_is_compared_where_there_are_evaluations_from_the_fifth_epoch_on():
    assert judged("reference", panels_of("fig09", AS_THE_PAPER_SAYS["reference"], SMOKE)) == []
    epochs = [
        c.statement.split("epoch ")[1].split(":")[0]
        for c in judged("reference", panels_of("reference", AS_THE_PAPER_SAYS["reference"]))
    ]
    assert epochs == ["5", "7", "10"] * 3


def flat(*values, spreads=(1.0, 1.0, 1.0)):
    """Return accuracies, one per seed, that stay as they are from the first epoch on."""
    mean, half = (
        np.repeat([[value] for value in values], 5, axis=1),
        np.array([[spread / 2] for spread in spreads]),
    )
    return Curve(
        np.arange(3), np.arange(5.0), mean, mean - half, mean + half, {"degree": np.full(3, 9.9)}
    )


def test_claims_on_several_arms_are_judged_by_each_not_by_the_extreme_of_each_seed():
    """Another arm leads in every seed, none on average: the extreme would fail the claim."""
    both = flat(60, 60, 60)
    one, two, three = flat(66, 57, 54), flat(54, 66, 57), flat(57, 54, 66)
    plain = {"fully-connected": both, "D-Cliques": one, "D-Cliques + CA": two}
    heavy = {"fully-connected": both, "D-Cliques": three, "D-Cliques + CA": both}
    (fastest,) = (
        claim
        for claim in dcliques_claims.fig10({"without momentum": plain, "with momentum": heavy})
        if "fastest" in claim.statement
    )
    assert [part.name for part in fastest.parts] == ["neither", "Clique Averaging", "momentum"]
    assert (fastest.verdict, fastest.ours.mean) == (UNDECIDED, pytest.approx(1.0))


def test_a_significant_effect_needs_one_graph_and_not_one_per_seed():
    """Ring and grid are 10 points or more behind in turns, but neither is so on the whole."""
    arms = {"fully-connected": flat(90, 90, 90), "grid": flat(78, 90, 79), "ring": flat(90, 78, 90)}
    claims = dcliques_claims.fig01({"IID": arms, "two shards a node": arms})
    significant = next(claim for claim in claims if "very significant" in claim.statement)
    assert [part.name for part in significant.parts] == ["ring", "grid"]
    assert significant.verdict == UNDECIDED
    assert significant.ours.mean == pytest.approx(
        23 / 3
    )  # by the extreme of each seed it would be 11.7, and hold
    negligible = claims[0]
    assert {part.name for part in negligible.parts} == {
        "fully-connected and grid",
        "fully-connected and ring",
        "grid and ring",
    }
