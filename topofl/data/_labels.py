"""Labels of any kind as class numbers and names, and stratified choices of examples."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from numbers import Integral, Number
from typing import Any

import numpy as np
from torch import Tensor

from topofl._support.check import (
    as_array,
    check_int,
    check_labels,
    check_sequence,
    did_you_mean,
    shown,
)
from topofl._support.seeding import Seed, stream

Numbered = tuple[np.ndarray, tuple[str, ...]]
"""Numbers (N,) int64, and the names of 0, 1, ..."""


def as_classes(
    name: str, labels: Any, names: tuple[str, ...] | None = None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return class numbers (N,) int64 and the names of classes, `names` if numbers were given.

    Integers are class numbers already. Other labels are numbered in sorted order, or in the order
    of their text where they cannot be compared; booleans are False, True.

    Parameters
    ----------
    name
        Name of the argument in error messages.
    labels
        (N,) hashable labels of one type.
    names
        Names of the classes; other labels are refused. None: those of the labels.

    Raises
    ------
    TypeError
        If labels are floats, not hashable, or of several types.
    ValueError
        If a label is missing (None, NaN) or not one of `names`, if two differ in spaces around
        them only, or as :func:`topofl._support.check.check_labels`.

    Examples
    --------
    >>> as_classes("y", ["dog", "cat", "dog"])
    (array([1, 0, 1]), ('cat', 'dog'))
    >>> as_classes("y", [3, 7])[1] is None
    True
    """
    items = _items(name, labels)
    if items is None or _kind(name, items) in (int, float, complex):
        return check_labels(name, labels if items is None else np.array(items)), names
    if names is None:
        return _numbered(name, items)
    place = {text: number for number, text in enumerate(names)}
    unknown = [(k, item) for k, item in enumerate(items) if str(item) not in place]
    if unknown:
        row, item = unknown[0]
        raise ValueError(
            f"`{name}` must be one of the {len(names)} classes {shown(list(names))}, got "
            f"{shown(item)} at index {row} ({len(unknown)} such labels)"
            f"{did_you_mean(str(item), names) or '; leave these examples out, or train on some'}"
        )
    return np.array([place[str(item)] for item in items], np.int64), names


def as_owners(name: str, owners: Any) -> Numbered:
    """Return numbers and names of owners, which may be hashable objects of one type.

    Owners are numbered in sorted order, integers and other numbers by their value.

    Raises
    ------
    TypeError, ValueError
        As :func:`as_classes`, but numbers are allowed.

    Examples
    --------
    >>> as_owners("owners", [12, 3, 12])
    (array([1, 0, 1]), ('3', '12'))
    """
    items = _items(name, owners)
    if items is None:
        items = as_array(name, owners).tolist()
    if not isinstance(items, list) or not items or any(isinstance(item, list) for item in items):
        raise ValueError(f"`{name}` must be a vector of owners, got shape {np.shape(items)}")
    _kind(name, items)
    return _numbered(name, items)


def as_names(name: str, names: Any, size: int | None = None) -> tuple[str, ...]:
    """Return distinct names as a tuple, `size` of them if it is given, or raise."""
    found = tuple(check_sequence(name, names, "texts"))
    odd = [item for item in found if not isinstance(item, str)]
    if odd:
        kind = type(odd[0]).__name__
        raise TypeError(
            f"`{name}` must be texts, got {shown(odd[0])} ({kind}); convert them by str"
        )
    if twice := repeated(found):
        raise ValueError(f"`{name}` must differ, got {twice[0]!r} {twice[1]} times")
    if not found or size not in (None, len(found)):
        wanted = "one name or more" if size is None else f"{size} names"
        raise ValueError(f"`{name}` must have {wanted}, got {len(found)}")
    return tuple(map(str, found))


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or ``pandas.NA``."""
    if value is None or type(value).__name__ == "NAType":
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError, RuntimeError):  # arrays, which are compared entry by entry
        return False


def repeated(items: Iterable[Hashable]) -> tuple[Any, int] | None:
    """Return the first item that occurs more than once, and how often, or None.

    Examples
    --------
    >>> repeated(["dog", "cat", "cat"]), repeated(["dog", "cat"])
    (('cat', 2), None)
    """
    return next((pair for pair in Counter(items).items() if pair[1] > 1), None)


def rows_of(places: Sequence[int] | np.ndarray, what: str = "row") -> str:
    """Return the first places, and how many there are, for an error message.

    Examples
    --------
    >>> rows_of([4]), rows_of([4, 5, 6, 7, 8, 9, 10])
    ('row 4', 'rows 4, 5, 6, 7, 8 and 2 others')
    """
    listed = ", ".join(str(int(place)) for place in places[:5])
    more = f" and {len(places) - 5} others" if len(places) > 5 else ""
    return f"{what}{'s' if len(places) > 1 else ''} {listed}{more}"


def _items(name: str, labels: Any) -> list[Any] | None:
    """Return labels as Python objects, or None if they are an array of numbers or no vector."""
    if isinstance(labels, list | tuple):
        plain = all(isinstance(item, Number | Tensor | np.number) for item in labels)
        if labels and not (plain and not any(isinstance(item, bool) for item in labels)):
            return [_plain(item) for item in labels]
    array = as_array(name, labels)
    if array.ndim != 1 or not array.size or array.dtype.kind in "iufc":
        return None
    if array.dtype.kind in "mM":  # times in nanoseconds would become integers
        return [None if item == "NaT" else item for item in array.astype(str).tolist()]
    return [_plain(item) for item in array.tolist()]


def _plain(item: Any) -> Any:
    """Return a numpy scalar or a tensor with one entry as a Python object."""
    if isinstance(item, np.generic) or (isinstance(item, Tensor) and item.ndim == 0):
        return item.item()
    return item


def _kind(name: str, items: list[Any]) -> type:
    """Return the type of all labels, or raise if there are several, or one is missing."""
    missing = [k for k, item in enumerate(items) if is_missing(item)]
    if missing:
        raise ValueError(
            f"`{name}` must have a value for every example, got {shown(items[missing[0]])} in "
            f"{rows_of(missing)}; leave these examples out"
        )
    kinds: dict[type, int] = {}
    for k, item in enumerate(items):
        is_integer = isinstance(item, Integral) and not isinstance(item, bool)
        kind = int if is_integer else str if isinstance(item, str) else type(item)
        kinds.setdefault(kind, k)
    if len(kinds) > 1:
        (first, k), (second, m), *_ = kinds.items()
        raise TypeError(
            f"`{name}` must be of one type, got {first.__name__} ({shown(items[k])}) in row {k} "
            f"and {second.__name__} ({shown(items[m])}) in row {m}; try list(map(str, values))"
        )
    try:
        hash(items[0])
    except TypeError as error:
        raise TypeError(
            f"`{name}` must be integers or hashable labels such as text, got {shown(items[0])} "
            f"({type(items[0]).__name__}) in row 0; convert them, as in list(map(tuple, values))"
        ) from error
    return next(iter(kinds))


def _numbered(name: str, items: list[Any]) -> Numbered:
    """Return the number of each item among the sorted distinct ones."""
    try:
        distinct = sorted(set(items))
    except TypeError:  # such as members of an Enum
        distinct = sorted(set(items), key=str)
    names = [str(item) for item in distinct]
    stripped: dict[str, str] = {}
    for text in names:
        other = stripped.setdefault(text.strip(), text)
        if other is not text:
            raise ValueError(
                f"`{name}` must differ in more than spaces around them, got {other!r} and "
                f"{text!r}; strip them, as in [label.strip() for label in labels]"
            )
    place = {item: number for number, item in enumerate(distinct)}
    return np.array([place[item] for item in items], np.int64), tuple(names)


def apportion(weights: np.ndarray, total: int) -> np.ndarray:
    """Return integers proportional to `weights` that sum to `total`, by largest remainders.

    Ties go to the lower index. No entry exceeds its weight if `total` is at most the sum of the
    weights.

    Parameters
    ----------
    weights
        (k,) non-negative integers, not all 0 unless `total` is.

    Examples
    --------
    >>> apportion(np.array([5, 3, 2]), 4).tolist()
    [2, 1, 1]
    """
    whole, remainder = np.divmod(weights.astype(np.int64) * total, max(int(weights.sum()), 1))
    winners = np.argsort(-remainder, kind="stable")[: total - int(whole.sum())]
    whole[winners] += 1
    return whole


def by_class(indices: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return `indices` sorted by class, in random order within a class."""
    shuffled = rng.permutation(indices)
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def sample_split(
    indices: np.ndarray, labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``counts[c]`` random `indices` of each class c, and the other ones; both ascending."""
    order = by_class(indices, labels, rng)
    classes = labels[order]
    rank = np.arange(len(order)) - np.searchsorted(classes, classes)
    chosen = rank < counts[classes]
    return np.sort(order[chosen]), np.sort(order[~chosen])


def stratified(
    indices: np.ndarray, labels: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return `size` of the `indices` in their class proportions, and the rest; both ascending."""
    return sample_split(indices, labels, apportion(np.bincount(labels[indices]), size), rng)


def validation(
    labels: np.ndarray, train_size: int, val: int, seed: Seed
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices for training, validation and test, the examples after `train_size`.

    The validation examples are `val` training examples in the class proportions of the test set.
    """
    val = check_int(
        "val", val, minimum=0, maximum=train_size - 1, remedy="one image must remain for training"
    )
    n_classes = int(labels.max()) + 1
    stock = np.bincount(labels[:train_size], minlength=n_classes)
    wanted = apportion(np.bincount(labels[train_size:], minlength=n_classes), val)
    scarce = int((stock - wanted).argmin())
    if wanted[scarce] > stock[scarce]:
        raise ValueError(
            f"`val` must be small enough for the class proportions of the test set, got {val}: it "
            f"needs {wanted[scarce]} training images of class {scarce}, which has {stock[scarce]}"
        )
    held, rest = sample_split(np.arange(train_size), labels, wanted, stream(seed, "split"))
    return rest, held, np.arange(train_size, len(labels))
