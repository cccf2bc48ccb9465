"""A paper: what its TOML file declares, its figures, and the setting of a reproduction."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from matplotlib.figure import Figure as Picture

from topofl import Table
from topofl.engine.options import check_device
from topofl.runs.identity import Run
from topofl.toolkit import (
    MARKERS,
    check_choice,
    check_int,
    dataset_folder,
    dataset_folders,
    default_root,
)

from .claims import Claim
from .curves import Curve, Panels, arms_table, read_panels, write_panels
from .store import Store

LOOKS: Mapping[str, str] = {"mnist14": "MNIST at 14 x 14 pixels", "mnist1d": "MNIST-1D"}
"""Names of other data sets, by the scale at which they stand in for CIFAR-10."""

SCALES = ("smoke", "quick", "paper", *LOOKS)
"""``smoke``: a test of every part; ``quick``: for a 2-core CPU; ``paper``: the paper's setting; the
others: a second look at orderings of methods, on other data (:mod:`.second_look`)."""


@dataclass(frozen=True)
class Setting:
    """Scale, seeds, data and device of a reproduction.

    Parameters
    ----------
    scale
        One of :data:`SCALES`.
    seeds
        Seeds of every arm's runs.
    root
        Folder that contains the datasets' files, possibly in subfolders; None without files.
    device
        As for :func:`topofl.run`.
    datasets
        Datasets to use; figures and panels of others are left out.
    """

    scale: str
    seeds: tuple[int, ...]
    root: Path | None = None
    device: str | None = None
    datasets: tuple[str, ...] = ("mnist", "cifar10")

    def source(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table of a dataset with the folder of its files, if it is read from files."""
        name = table["name"]
        return {**table, "root": self.root_of(name)} if name in MARKERS else dict(table)

    def root_of(self, dataset: str) -> str:
        """Return the folder with a dataset's files, at most three levels below `root`.

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        """
        if self.root is not None and (found := dataset_folder(self.root, dataset)):
            return str(found)
        where = (
            "no folder was given, and TOPOFL_DATA is not set"
            if self.root is None
            else f"nothing named {MARKERS[dataset]} is in or below {self.root}"
        )
        raise FileNotFoundError(
            f"the files of {dataset} are needed: {where}; give the folder that contains them with "
            "--data"
        )


SEEDS = {"smoke": 2, "quick": 3, "paper": 5, **dict.fromkeys(LOOKS, 20)}
"""Default number of seeds by scale."""


REPLACED = {"smoke": ("mnist", "cifar10", "cifar100"), **dict.fromkeys(LOOKS, ("cifar10",))}
"""Datasets that others replace, by scale; at ``"smoke"`` these are the embedded digits."""


def available(root: Path | None) -> tuple[str, ...]:
    """Return the datasets whose files are in a folder or its subfolders."""
    return () if root is None else tuple(dataset_folders(root))


def make_setting(
    scale: str = "quick",
    *,
    seeds: int | None = None,
    root: str | Path | None = None,
    device: str | None = None,
    datasets: Sequence[str] | None = None,
) -> Setting:
    """Return the setting of a command after checking its arguments.

    Parameters
    ----------
    scale
        One of :data:`SCALES`.
    seeds
        Number of seeds, counted from 0; by default those of :data:`SEEDS`.
    root
        Folder that contains the datasets' files, possibly in subfolders; None: the environment
        variable TOPOFL_DATA, if it is set. Not needed at scale ``"smoke"``.
    device
        As for :func:`topofl.run`.
    datasets
        Datasets to use; by default all that are available. Not at the scales of :data:`LOOKS`.

    Raises
    ------
    ValueError
        If an argument has an invalid value.
    FileNotFoundError
        If the folder or a requested dataset does not exist.
    """
    check_device(device)
    place = default_root() if root is None else Path(root)
    setting = Setting(check_choice("scale", scale, SEEDS), (0,), place, device)
    if setting.root is not None and not setting.root.is_dir():
        raise FileNotFoundError(
            f"there is no folder {setting.root}; give the folder that contains the datasets' files "
            "with --data"
        )
    count = SEEDS[scale] if seeds is None else check_int("seeds", seeds, minimum=1)
    if scale in LOOKS and datasets is not None:
        raise ValueError(
            f"`datasets` must be left out at scale {scale}, whose data are {LOOKS[scale]}, got "
            f"{', '.join(datasets)}"
        )
    found = REPLACED[scale] if scale in REPLACED else available(setting.root)
    for name in datasets or ():
        check_choice("datasets", name, MARKERS)
        if name not in found:
            setting.root_of(name)
    chosen = tuple(name for name in found if datasets is None or name in datasets)
    return replace(setting, seeds=tuple(range(count)), datasets=chosen)


Data = dict[str, Any]
"""The numbers that a figure shows, as JSON values."""


Arms = Mapping[str, Mapping[str, Sequence[Run]]]
"""Runs, one per seed, by panel title and arm label."""


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper.

    Parameters
    ----------
    id
        For example ``"dcliques-fig09"``.
    title
        Description in one line.
    compute
        ``compute(setting, store)`` -> data; called after all runs of the arms are finished.
    draw
        ``draw(data)`` -> a matplotlib figure in the paper's layout.
    claims
        ``claims(data)`` -> the paper's claims about it, judged.
    arms
        ``arms(setting)`` -> the required training runs by panel and arm; None without training.
    from_curves
        Whether the figure shows only the curves of its arms, which can be read from an earlier
        report. Other figures need the runs themselves.
    differences
        ``differences(setting)`` -> differences from the paper's setting, one sentence each.
    tables
        ``tables(data)`` -> tables of its arms' numbers.
    datasets
        Required datasets. A panel without its dataset is left out, and so is the figure if none of
        them is available.
    optional
        Datasets that are also shown if their files are available.
    page
        ``page(setting, store)`` -> an additional HTML page with a slider over rounds, which needs
        the runs themselves; None without one.
    judged
        Largest number of seeds of an arm that the verdicts use, if seeds were added until claims
        were decided; None if it is that of the setting.
    """

    id: str
    title: str
    compute: Callable[[Setting, Store], Data]
    draw: Callable[[Data], Picture]
    claims: Callable[[Data], Sequence[Claim]]
    arms: Callable[[Setting], Arms] | None = None
    from_curves: bool = False
    differences: Callable[[Setting], Sequence[str]] = lambda setting: ()
    tables: Callable[[Data], Sequence[Table]] = lambda data: ()
    datasets: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    page: Callable[[Setting, Store], str] | None = None
    judged: int | None = None

    def runs(self, setting: Setting) -> list[Run]:
        """Return the required training runs, in the order of the arms, seed by seed."""
        panels = self.arms(setting).values() if self.arms is not None else ()
        return [run for panel in panels for runs in panel.values() for run in runs]

    @property
    def page_name(self) -> str:
        """File name of the page with a slider over rounds."""
        return f"{self.id}-rounds.html"


def trained(
    arms: Callable[[Setting], Arms],
    *,
    draw: Callable[[Panels], Picture],
    claims: Callable[[Panels], Sequence[Claim]],
    shown_titles: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what makes a figure of accuracy curves of its arms, by panel and label.

    Pictures and tables have `shown_titles` in place of the panel titles under which data are
    stored.
    """

    def displayed(data: Data) -> Panels:
        names: Mapping[str, str] = shown_titles or {}
        panels: Panels = read_panels(data)
        return {names.get(panel, panel): arms for panel, arms in panels.items()}

    def curve(runs: Sequence[Run], store: Store) -> Curve:
        if (earlier := store.earlier_curves(runs)) is not None:
            return read_panels(earlier)
        histories, numbers, rounds_per_epoch = store.load_arm(runs)
        return Curve.of([run.seed for run in runs], histories, rounds_per_epoch, numbers)

    return {
        "compute": lambda setting, store: write_panels(
            each_arm(arms(setting), lambda label, runs: curve(runs, store))
        ),
        "draw": lambda data: draw(displayed(data)),
        "claims": lambda data: claims(read_panels(data)),
        "tables": lambda data: [arms_table(panel, arms) for panel, arms in displayed(data).items()],
        "arms": arms,
        "from_curves": True,
    }


def each_arm(panels: Mapping[str, Mapping[str, Any]], make: Callable[[str, Any], Any]) -> Any:
    """Return ``make(label, arm)`` in place of each arm, by panel title and label."""
    return {
        title: {label: make(label, one) for label, one in panel.items()}
        for title, panel in panels.items()
    }


def by_title(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return numbers by title and label from those by label and title."""
    titles = next(iter(rows.values()))
    return {title: {label: row[title] for label, row in rows.items()} for title in titles}


@dataclass(frozen=True)
class Paper:
    """A paper whose figures are reproduced.

    Parameters
    ----------
    id, title, citation
        Short name (the prefix of its figures' ids), title and citation.
    figures
        Reproduced figures and tables, and additional ones of ours.
    terms
        Definitions of the terms in the claims, one sentence each.
    seeds
        Default number of seeds by scale.
    absent
        The paper's other figures and tables, each with the reason why it is not reproduced.
    ordering
        Ids of the figures with claims about orderings of methods, which are judged on other data,
        too.
    """

    id: str
    title: str
    citation: str
    figures: tuple[Figure, ...]
    terms: tuple[str, ...] = ()
    seeds: Mapping[str, int] = field(default_factory=lambda: SEEDS)
    absent: Mapping[str, str] = field(default_factory=dict)
    ordering: tuple[str, ...] = ()


class Scale(SimpleNamespace):
    """Settings that all arms of a paper share at one scale, as its TOML file declares them."""

    def but(self, **changes: Any) -> "Scale":
        """Return the settings with some changed."""
        return Scale(**{**vars(self), **changes})

    def of(self, dataset: str) -> "Scale":
        """Return the settings for the splits of a dataset."""
        return self.but(**self.others.get(dataset, {}))


@dataclass(frozen=True)
class Declared:
    """The tables of a TOML file: a paper's settings, printed numbers and texts.

    Parameters
    ----------
    tables
        ``id``, ``title``, ``citation``, ``seeds`` and ``terms`` of the paper; ``figures`` by the
        rest of their ids, with ``title``, ``datasets``, ``optional`` and ``differences``, each of
        which is a sentence or the name of one in ``notes``; ``absent`` ones with the reasons; those
        of the ``second_look``, with orderings of methods; ``scales`` with the settings of each
        scale in addition to the shared ones; ``splits`` by title, with the dataset and the
        arguments of its partition; and ``printed`` tables.
    """

    tables: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.tables[name]

    def scale(self, name: str) -> Scale:
        """Return the settings of a scale."""
        scales = self["scales"]
        shared = {key: value for key, value in scales.items() if key not in SCALES}
        return Scale(**{"options": {}, "others": {}, **shared, **scales[name]})

    def scale_of(self, setting: Setting) -> Scale:
        """Return the settings that all arms share at the scale of a setting."""
        return self.scale(setting.scale)

    def scale_on(self, setting: Setting, title: str) -> Scale:
        """Return the settings that all arms share on a split."""
        return self.scale_of(setting).of(self.split(title)[0])

    def differences(self, setting: Setting) -> tuple[str, ...]:
        """Return the differences of all arms from the paper's setting."""
        return (*self.scale_of(setting).differences, *self["differences"])

    def split(self, title: str) -> tuple[str, dict[str, Any]]:
        """Return the dataset of a split, and the arguments of its partition among the clients."""
        partition = dict(self["splits"][title])
        return partition.pop("dataset"), partition

    def splits_of(self, setting: Setting, *wanted: str) -> list[str]:
        """Return the splits whose data are available, restricted to `wanted` if given."""
        titles = self.scale_of(setting).splits
        shown = [title for title in titles if title in (wanted or titles)]
        return [title for title in shown if self.split(title)[0] in setting.datasets]

    def printed(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the numbers of a printed table by row and column.

        A cell is a number, a mean and a standard deviation, or None for "-".
        """
        rows = dict(self["printed"][name])
        columns = rows.pop("columns")
        return {
            label: dict(zip(columns, map(_cell, text.split()), strict=True))
            for label, text in rows.items()
        }

    def figure(
        self,
        name: str,
        *,
        differences: Callable[[Setting], Sequence[str]] = lambda setting: (),
        **code: Any,
    ) -> Figure:
        """Return a declared figure.

        Parameters
        ----------
        name
            Its id without that of the paper.
        differences
            ``differences(setting)`` -> further differences from the paper's setting, before those
            that are declared.
        **code
            Other fields of :class:`Figure`.
        """
        declared = self["figures"][name]
        notes = self.tables.get("notes", {})
        own = [notes.get(text, text) for text in declared.get("differences", ())]
        return Figure(
            f"{self['id']}-{name}",
            declared["title"],
            differences=lambda setting: (*differences(setting), *own),
            datasets=tuple(declared.get("datasets", ())),
            optional=tuple(declared.get("optional", ())),
            **code,
        )

    def paper(self, figures: Sequence[Figure], terms: Sequence[str]) -> Paper:
        """Return the paper with its figures, and the definitions of the terms in its claims."""
        return Paper(
            self["id"],
            self["title"],
            self["citation"],
            tuple(figures),
            tuple(terms),
            SEEDS | self["seeds"],
            {f"{self['id']}-{name}": why for name, why in self.tables.get("absent", {}).items()},
            tuple(f"{self['id']}-{name}" for name in self.tables.get("second_look", ())),
        )


def _cell(text: str) -> Any:
    if text == "-":
        return None
    if "±" in text:
        mean, deviation = map(float, text.split("±"))
        return mean, deviation
    return float(text) if "." in text else int(text)


@cache
def declared(name: str) -> Declared:
    """Return what a TOML file declares; `name` is its path in this package's parent."""
    path = Path(__file__).parents[1] / name
    return Declared(tomllib.loads(path.read_text(encoding="utf-8")))
