"""The pages that are written, made of small data whose texts try to inject a script."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.figure import Figure as Picture

import topofl
from analysis.study.page import write_page
from analysis.study.runs import PREDICTORS
from analysis.study.scenarios import GRAPHS as STUDIED
from analysis.study.statistics import OUTCOMES, CellTable
from paper_figures.kit import report as papers
from paper_figures.kit.claims import at_least, at_most, exactly, judge
from paper_figures.kit.paper import Figure, Setting
from paper_figures.kit.report import Report
from paper_figures.kit.reproduce import Result
from topofl import NotApplicable, Spread, Table, metrics, mixing, report, topologies
from topofl.mixing import MixingSequence
from topofl.runs.identity import Run

EVIL = (
    "</section><script>hacked = 1</script> <img src=x onerror=hacked=1> "
    "& \"q\" 'r' {{ 7 * 7 }} | `c` *b* _i_ [l](u) $x$"
)
LONG = "W" * 300
"""No place to break a line."""

GRAPHS = [
    topologies.ring(12),
    topologies.one_peer_exponential(8),
    topologies.exponential(20),
    topologies.random_out(12, 3, seed=0),
    topologies.fully_connected(12),
    mixing.uniform(topologies.random_out(12, 3, seed=1).at(0), direction="push"),
    topofl.from_edges([(0, 1)], 3),
]
NAMES = ["ring", "one-peer", "exponential", "random", "all", EVIL, "apart"]


@cache
def table() -> Table:
    """Return the numbers of the graphs."""
    return metrics.compare(GRAPHS, names=NAMES, about="all")


def spectral() -> str:
    """Return a report of graphs of all kinds."""
    more = {"command": "topofl 'a < b'", "notes": ["a <note>"]}
    return report.spectral_report(GRAPHS, table(), seed=0, rounds=30, **more)


SENDERS = topologies.random_in(6, 2, seed=0)
MATRICES = [mixing.uniform(SENDERS.at(t), direction="pull") for t in range(5)]
RUN = MixingSequence(6, MATRICES.__getitem__, "a run", length=5)
COUNTS = np.array([[0, 9], [9, 0], [0, 9], [9, 1], [9, 0], [0, 9]])


@cache
def over_rounds() -> Table:
    """Return numbers of a changing graph."""
    return metrics.over_rounds(RUN, label_counts=COUNTS, rounds=[0, 2, 4])


def rounds() -> str:
    """Return a report of a changing graph."""
    marked = {"marked": (4, 0), "marked_name": "malicious"}
    more = {"title": EVIL, "command": "a < b", "notes": ["<i>"]}
    return report.rounds_report(RUN, over_rounds(), label_counts=COUNTS, **marked, **more)


STUDY_NAMES = list(STUDIED)[:14]


def cell(scenario: str, partition: str, method: str, seed: int = 0) -> CellTable:
    """Return a cell of random numbers, in which the spectral gap of two graphs is not defined."""
    rng = np.random.default_rng([len(scenario), len(partition), len(method), seed])
    accuracy = rng.uniform(0.3, 0.9, len(STUDY_NAMES))
    noise = 0.2 * rng.standard_normal((len(PREDICTORS), len(STUDY_NAMES)))
    predictors = {
        name: np.exp(sign * 3 * accuracy + own)
        for (name, (_, sign)), own in zip(PREDICTORS.items(), noise, strict=True)
    }
    predictors["spectral gap"][:2] = np.nan
    outcomes = {name: accuracy if sign > 0 else 1 - accuracy for name, sign in OUTCOMES.items()}
    return CellTable(
        *(scenario, partition, method, seed),
        nodes=int(scenario.split()[1]),
        graphs=list(STUDY_NAMES),
        families=[STUDIED[name].family for name in STUDY_NAMES],
        predictors=predictors,
        outcomes=outcomes,
        lr=0.1,
    )


CELLS = [
    cell("digits 60", "2 shards", "D-SGD", 0),
    cell("digits 60", "2 shards", "D-SGD", 1),
    cell("digits 60", "2 shards", "momentum"),
    cell("digits 60", "iid", "D-SGD"),
    cell("digits 30", "2 shards", "D-SGD"),
    cell("MNIST 1000", "2 shards", "D-SGD"),
]


def study() -> str:
    """Return the page of a study."""
    verdicts = Table(("hypothesis", "verdict"), ((f"1: {EVIL}", "HOLDS"),))
    with TemporaryDirectory() as folder:
        path = write_page(CELLS, Path(folder, "study.html"), verdicts=verdicts, draws=20)
        return path.read_text(encoding="utf-8")


MADE = {
    "versions": {"torch": "9.8.7", "numpy": "6.5.4"},
    "device": "cpu",
    "threads": 1,
    "finished": "yesterday",
}


def result(folder, id, title, claims, tables=(), **more) -> Result:
    """Return a figure that was drawn in a folder."""
    picture = Picture(figsize=(3, 2))
    picture.subplots().plot([1, 2, len(id)])
    path = folder / f"{id} 50%.png"
    picture.savefig(path, dpi=100)
    figure = Figure(id, title, lambda *_: {}, lambda _: picture, lambda _: claims)
    figure = dataclasses.replace(
        figure,
        arms=lambda setting: {"": {"": [Run({"run": {"seed": seed}}) for seed in setting.seeds]}},
    )
    rest = {"differences": (), "seconds": 1.0, "megabytes": 1.0, "runs": 0, "made": ()} | more
    return Result(figure, Setting("quick", (3, 5)), {}, tuple(claims), tuple(tables), path, **rest)


def some_results(folder) -> list[Result]:
    """Return two figures whose claims have all three verdicts."""
    at_noise = at_least(-1, "1 point is noise")
    claims = [
        judge("A ≥ B | C < D", "A minus B, points", [1.25, 1.35], at_noise, paper="~1 %"),
        judge(EVIL, EVIL, [3.5, 3.6], at_most(1, EVIL), paper=EVIL),
        judge(f"1. {LONG}", LONG, [2.0, 9.0], at_least(5, LONG), paper=LONG),
    ]
    absent = NotApplicable(f"no cliques | {EVIL}")
    rows = (
        ("ring", Spread(88.25, 87.5, 89.0), 2, absent),
        (EVIL, 12345.678, 1234, 0.5),
        ("b\nb", float("nan"), 0, absent),
    )
    tables = [
        Table(("arm", "final <%>", "edges", "skew"), rows, title=EVIL),
        Table(("arm", LONG), ((LONG, 1),), "second"),
    ]
    more = {"seconds": 7384.0, "megabytes": 4321.0, "runs": 1234}
    more["differences"] = ("16 x 16 pixels | <b>", EVIL, "- - -")
    more["made"] = (MADE, MADE | {"device": "cuda:0"})
    first = result(folder, "some-fig01", f"One: {EVIL}", claims, tables, **more)
    count = judge("There are 45 edges", "edges", 45, exactly(45, "10 choose 2"), paper="45")
    return [first, result(folder, "summary", "Two", [count], made=(MADE | {"finished": "today"},))]


def some_report(results, **changes) -> Report:
    """Return a report of some figures."""
    told = {
        "title": f"A paper {EVIL}",
        "citation": f"Somebody 2022, https://example.org/a_b {EVIL}",
        "left_out": {"other-fig03": f"needs 41 h | {EVIL}", "some-fig01": "no second panel"},
        "command": "python -m x --title '<a> & ```b```' | tee",
        "scale": "quick",
        "seeds": (3, 5),
        "machine": f"a <machine> {EVIL}",
        "versions": {"topofl": "0.0.1", "torch": "9.8.7"},
        "generated": "2026-01-02 03:04 UTC",
    }
    return Report(results=results, **(told | changes))


def paper() -> str:
    """Return the report of a paper."""
    with TemporaryDirectory() as folder:
        return papers.to_html(some_report(some_results(Path(folder))))


def decided() -> str:
    """Return the report of a paper to which seeds were added."""
    counts = Table(("claims", "HOLDS", "FAILS"), (("the paper's", 1, 2),), title="Claims")
    columns = ("claim", "figure", *(f"{k} seeds" for k in (3, 5, 8, 12, 17, 23, 30, 40)), "needs")
    rows = (
        (EVIL, "some-fig01", *["UNDECIDED"] * 7, "HOLDS", ""),
        (LONG, "summary", *[""] * 8, EVIL),
    )
    with TemporaryDirectory() as folder:
        moves = (counts, Table(columns, rows, title=EVIL))
        looks = ("claim", "figure", "paper's data", "one", "other", "result")
        cells = (EVIL, "some-fig01", "HOLDS, 3 seeds", NotApplicable(EVIL), "FAILS, 3 seeds", LONG)
        orderings = Table(looks, (cells,), title=EVIL)
        changes = {"moves": moves, "orderings": orderings}
        return papers.to_html(some_report(some_results(Path(folder)), **changes))


@dataclass(frozen=True)
class Page:
    """A page, made by a function.

    Parameters
    ----------
    made
        Returns its HTML.
    ready
        The JavaScript condition under which it is drawn.
    folds
        Whether it has folded parts that fit into any width.
    """

    made: Callable[[], str]
    ready: str = "true"
    folds: bool = False

    @cached_property
    def text(self) -> str:
        """Its HTML, made once."""
        return self.made()


PAGES = {
    "spectral": Page(spectral, folds=True),
    "rounds": Page(rounds, folds=True),
    "study": Page(study, "document.body.dataset.ready === 'yes'"),
    "paper": Page(paper),
    "decided": Page(decided),
}
