"""User-defined functions, found by name in modules or in entry points of installed packages.

A name with a colon, ``module:function``, refers to a function of a module. A name without one may
be an entry point of an installed package, in one of the groups :data:`GROUPS`. A module is imported
only when its function is requested. Packages are searched again when something was installed.

A stored run may have been written by somebody else, and names in it may refer to any function. In
the context :func:`installed_only`, nothing is imported but topofl and installed packages.
"""

import functools
import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from topofl._support.public import warn_caller
from topofl._support.text import did_you_mean, shown

if TYPE_CHECKING:
    from importlib import metadata

Function = Callable[..., Any]
Known = TypeVar("Known")

GROUPS = {
    "algorithm": "topofl.algorithms",
    "topology": "topofl.topologies",
    "metric": "topofl.metrics",
    "dataset": "topofl.data",
    "partition": "topofl.data",
    "augmentation": "topofl.data",
}
"""Entry point group of each kind of name; other kinds have no entry points."""


class EntryPoint(NamedTuple):
    """An entry point of an installed package.

    Attributes
    ----------
    name
        Name of the entry point.
    package
        Name and version of the distribution.
    target
        Function that it refers to, ``module:function``.
    """

    name: str
    package: str
    target: str

    def __str__(self) -> str:
        return f"entry point {self.name} ({self.target}) of package {self.package}"


def entry_points(kind: str) -> list[EntryPoint]:
    """Return the entry points of a kind in alphabetical order, without importing them.

    Warns about packages whose entry points cannot be read.
    """
    group, found = GROUPS.get(kind, ""), set[EntryPoint]()
    for package in _packages_with_entry_points() if group else ():
        found.update(_entry_points_of(package, group))
    return sorted(found)


def has_entry_points() -> bool:
    """Return whether any installed package has entry points for topofl, of any kind."""
    return bool(_packages_with_entry_points())


def _packages_with_entry_points() -> "tuple[metadata.Distribution, ...]":
    """Return installed packages with entry points for topofl, without shadowed duplicates."""
    return _packages_in(tuple((folder, _last_change(folder)) for folder in sys.path))


@functools.lru_cache(maxsize=8)
def _packages_in(places: tuple[tuple[str, int], ...]) -> "tuple[metadata.Distribution, ...]":
    """Return the packages as found now; reading the files of all packages takes milliseconds.

    Parameters
    ----------
    places
        Folders of ``sys.path`` with the times of their last changes, such as an installation.
    """
    from importlib import metadata  # help, which loads this file, does without it

    del places  # only tells whether something has changed
    found = []
    for package in metadata.distributions():
        text = _entry_points_text(package)
        if "[topofl." not in text:
            continue
        try:
            is_first = _entry_points_text(metadata.distribution(package.metadata["Name"])) == text
        except Exception:  # a package without metadata has no name, and cannot be shadowed
            is_first = True
        if is_first:
            found.append(package)
    return tuple(found)


def _last_change(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:  # a folder that does not exist yet
        return 0


def _entry_points_text(package: "metadata.Distribution") -> str:
    try:
        return package.read_text("entry_points.txt") or ""
    except Exception:  # an unreadable file must not hide the entry points of other packages
        return ""


def _entry_points_of(package: "metadata.Distribution", group: str) -> list[EntryPoint]:
    words = [str(package.metadata[key]) for key in ("Name", "Version") if package.metadata[key]]
    label = " ".join(words) or "no name"
    try:
        found = package.entry_points.select(group=group)  # and their functions, without extras
        return [EntryPoint(p.name, label, p.value.partition("[")[0].strip()) for p in found]
    except Exception as error:  # for example, a line without =
        warn_caller(
            f"entry points of package {label} cannot be read: {type(error).__name__}: {error}; "
            "reinstall it"
        )
        return []


MEANT = {
    "topology": {
        **dict.fromkeys(("complete", "completegraph", "full", "alltoall"), "fully_connected"),
        **dict.fromkeys(("wattsstrogatz", "ws"), "small_world"),
        **dict.fromkeys(("er", "gnp", "erdosrenyigraph"), "erdos_renyi"),
        **{"cycle": "ring", "cyclegraph": "ring", "line": "path", "pathgraph": "path"},
        **{"regular": "random_regular", "sbm": "stochastic_block_model", "ba": "barabasi_albert"},
        **{"ellocal": "random_out", "eloracle": "random_regular_sequence"},
    },
    "algorithm": {
        **dict.fromkeys(("dpsgd", "decentralizedsgd", "gossip", "gossipsgd", "atc"), "dsgd"),
        **dict.fromkeys(("ellocal", "epidemiclearning"), "dsgd with the topology random_out"),
        "eloracle": "dsgd with the topology random_regular_sequence",
        **dict.fromkeys(("exactdiffusion", "ed"), "d2"),
        "nids": "d2, but for its first round",
        **dict.fromkeys(("gradienttracking", "gt", "atctracking", "next", "sonata"), "dsgt"),
        **dict.fromkeys(("kgt", "localgradienttracking"), "local_gt"),
        **{"localexactdiffusion": "led", "choco": "choco_sgd", "quasiglobalmomentum": "qg_dsgdm"},
        **dict.fromkeys(("sgp", "stochasticgradientpush"), "osgp with delay=0"),
        **{"multikrum": "krum with select above 1", "rfa": "geometric_median"},
        **{"median": "coordinate_median", "fedopt": "fedadam or fedyogi"},
        **{"local": "local_only", "peravg": "per_fedavg", "hierarchicalfedavg": "hierfavg"},
    },
    "partition": {
        **dict.fromkeys(("dirichlet", "dir"), "dirichlet_per_class or dirichlet_per_client"),
        **{"kshard": "shards", "pat": "pathological"},
    },
    "mixing": dict.fromkeys(("metropolis", "mh", "metropolishasting"), "metropolis_hastings"),
    "attack": {"signflipping": "sign_flip", "gaussiannoise": "noise", "ipm": "inner_product"},
    "compressor": {"randk": "random_k", "quantization": "quantized", "qsgd": "quantized"},
    "kind": {"method": "algorithm", "methods": "algorithm", "graph": "topology"},
}
"""What others call functions, by kind, in small letters and digits: what these are here.

It is said in errors and by ``topofl list``; these are no names here.
"""


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def suggestion(kind: str, name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a name that others use, or else for the nearest one.

    Examples
    --------
    >>> suggestion("topology", "complete", ["complete_bipartite", "fully_connected"])
    "; did you mean 'fully_connected'?"
    >>> suggestion("algorithm", "Multi-Krum", ["krum"])
    '; here it is krum with select above 1'
    """
    known = list(known)
    own = {_letters(one): one for one in known}
    meant = own.get(_letters(name)) or MEANT.get(kind, {}).get(_letters(name), "")
    if meant in known:
        return f"; did you mean {meant!r}?"
    if re.split(r"\W", meant)[0] in known:
        return f"; here it is {meant}"
    return did_you_mean(name, known)


def also_called(kind: str, name: str) -> list[str]:
    """Return what others call a function, in small letters and digits.

    Examples
    --------
    >>> also_called("topology", "small_world")
    ['wattsstrogatz', 'ws']
    """
    found = MEANT.get(kind, {})
    return [other for other, meant in found.items() if name in re.findall(r"\w+", meant)]


def resolve_name(kind: str, name: str, ours: Mapping[str, Known]) -> Known | Function:
    """Return the object with a name: a value of `ours`, an entry point, or ``module:function``.

    Warns if an entry point has the name of one of `ours`, which takes precedence.

    Raises
    ------
    ValueError, TypeError
        If no object has this name (the message suggests the nearest), or several packages have
        different entry points of this name; as :func:`load_function`.
    """
    offers = entry_points(kind)
    found = [offer for offer in offers if offer.name == name]
    if name in ours:
        for one in found:
            warn_caller(f"{name} is the {kind} of topofl, not {one}; write {one.target} for that")
        return ours[name]
    if len({offer.target for offer in found}) > 1:
        raise ValueError(
            f"{name} must be an entry point of one package only, got "
            f"{' and '.join(map(str, found))}; name the function, as in {found[0].target}"
        )
    if found:
        what = f"the {kind} {name} cannot be loaded, {found[0]}:"
        with error_context(what, f"; reinstall {found[0].package}"):
            return _load(found[0].target)
    known = list(dict.fromkeys([*ours, *(offer.name for offer in offers)]))
    if ":" not in name:
        module, _, own = name.removesuffix(".py").partition(".")
        if _is_importable(f"{module}.py"):
            hint = f"; of the module {module}, write {module}:{own or 'function'}"
        else:
            hint = suggestion(kind, name, known) or f"; there are {', '.join(known)}"
        raise ValueError(f"there is no {kind} {name!r}{hint}")
    own = name.partition(":")[0]
    remedy = f"; to use topofl's own, put the number of nodes after the colon, as in {own}:100"
    with error_context(f"there is no {kind} {name!r}:", remedy if own in known else ""):
        return load_function(name)


@contextmanager
def error_context(what: str, remedy: str = "") -> Iterator[None]:
    """Add `what` before, and `remedy` after, the message of a ``ValueError`` or ``TypeError``.

    Subclasses of these, such as ``TopologyError``, are raised unchanged.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError):
            raise
        raise type(error)(f"{what} {error}{remedy}") from error


def load_function(target: str) -> Function:
    """Import a module and return its function, given as ``module:function``.

    Raises
    ------
    ValueError
        If `target` has another form, there is no such module, importing it raises an error, or it
        has no such function. A subclass, if a stored run names it that is read without ``--trust``.
    TypeError
        If the object with this name is not callable.

    Examples
    --------
    >>> load_function("math:hypot")(3, 4)
    5.0
    """
    if (remedy := _REMEDY.get()) is not None:
        raise UntrustedError(
            f"the run names the function {target}, and importing it would execute code that the "
            f"author of the folder chose; {remedy}"
        )
    return _load(target)


def _load(target: str) -> Function:
    """Import the module of a function that may be imported, and return the function."""
    name, colon, path = (word.strip() for word in target.partition(":"))
    if not (colon and all(map(str.isidentifier, f"{name}.{path}".split(".")))):
        raise ValueError(
            "a name with a colon must be module:function, as in mymodule:wheel, or "
            "package.module:wheel"
        )
    if name.endswith(".py") and _is_importable(name):
        must = "a name with a colon must be that of a module, not of its file"
        raise ValueError(f"{must}, got {name}; write {name.removesuffix('.py')}:{path}")
    found: Any = _imported(name)
    for word in path.split("."):
        if not hasattr(found, word):
            raise ValueError(_missing_message(found, word))
        found = getattr(found, word)
    if not callable(found):
        must = f"`{path}` of module {name} must be a function"
        raise TypeError(f"{must}, got {shown(found)} ({type(found).__name__})")
    return found


def _is_importable(file: str) -> bool:
    return any(Path(folder, file).is_file() for folder in sys.path)


def _missing_message(holder: Any, word: str) -> str:
    """Return the error message for a module, or a class in it, that lacks a function."""
    name = holder.__name__ if isinstance(holder, ModuleType) else shown(holder)
    names = [key for key, x in vars(holder).items() if callable(x) and not key.startswith("_")]
    own = [key for key in names if getattr(vars(holder)[key], "__module__", None) == name]
    has = f"; it has {', '.join(own[:20])}" if own else ""
    file = f" ({holder.__file__})" if getattr(holder, "__file__", None) else ""
    return f"module {name}{file} has no function `{word}`{did_you_mean(word, names) or has}"


def _imported(name: str) -> ModuleType:
    importlib.invalidate_caches()  # the file may be new
    check_origin(name)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        if absent:
            remedy = (
                "put it next to the experiment's file, start topofl in the folder that holds it, "
                "or put that folder on PYTHONPATH"
            )
            raise ValueError(f"Python finds no module {name} in {searched()}; {remedy}") from error
        raise ValueError(f"importing module {name} raised {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    """Return type, message and line of an error in user code, as one line of text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' * bool(text)}{text}{user_line(error)}"


def user_line(error: BaseException) -> str:
    """Return the line of the user's file that raised an error or made the call that did."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_OF_USERS
    ]
    frames = [(file, line) for file, line in frames if not file.startswith("<")]
    lines = [line for file, line in frames if file == frames[0][0]]
    return f" (line {lines[-1]} of {Path(frames[0][0]).name})" if frames else ""


_NOT_OF_USERS = {"topofl", "torch", "numpy", "scipy", "importlib", "contextlib"}
"""Packages that call functions of users, or are called by topofl."""


def with_checked_result(
    name: str,
    function: Function,
    wanted: str,
    types: tuple[type, ...],
    remedy: str = "",
    convert: Callable[[Any], Any] | None = None,
) -> Function:
    """Wrap a user-defined function to check the type of its result and to explain its errors.

    Parameters
    ----------
    name
        Name of the function as the user wrote it.
    function
        User-defined function.
    wanted, types, remedy
        Required result, in words and as types, and a remedy for results of another type.
    convert
        Turns results of other types into one of `types`, or raises ``TypeError`` or ``ValueError``.

    Raises
    ------
    TypeError
        If `function` itself is an instance of `types`. The wrapped function raises ``TypeError`` if
        its result is of another type; errors of `function` are raised with the line of its file.
    """
    if isinstance(function, types):
        must = f"`{name}` must be a function that returns {wanted}"
        raise TypeError(f"{must}, got {shown(function)}; wrap it in a function")

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            value = function(*args, **kwargs)
        except (ValueError, TypeError) as error:
            if type(error) not in (ValueError, TypeError):  # callers handle TopologyError and such
                raise
            raise type(error)(f"{error}{user_line(error)}") from error
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise ValueError(f"`{name}` raised {_describe_error(error)}") from error
        if convert is not None and value is not None and not isinstance(value, types):
            with error_context(f"`{name}` must return {wanted}, got {_with_type(value)}:"):
                value = convert(value)
        if not isinstance(value, types):
            lacks = "; does it lack a return?" if value is None else remedy
            raise TypeError(f"`{name}` must return {wanted}, got {_with_type(value)}{lacks}")
        return value

    call.__name__ = name
    return call


def _with_type(value: Any) -> str:
    return f"{shown(value)} ({type(value).__name__})"


def signature(name: str, function: Function) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, or raise ``TypeError`` if it has no signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must be a function whose parameters can be read, got {shown(function)}"
        ) from error


_REMEDY: ContextVar[str | None] = ContextVar("remedy", default=None)
"""In the context :func:`installed_only`, how to allow other imports; None outside of it."""


class UntrustedError(ValueError):
    """A stored run names a function of a module, which only ``--trust`` imports."""


@contextmanager
def installed_only(remedy: str) -> Iterator[None]:
    """Import only topofl and installed packages in this context, no modules named ``m:f``.

    The current folder and those of experiments are not searched, since files in them that look
    like an installed package could offer names, too.

    Parameters
    ----------
    remedy
        End of the error message: what to do to import others.
    """
    path, token = list(sys.path), _REMEDY.set(remedy)
    here = os.path.realpath(os.curdir)
    first, *others = sys.path
    by_python = [] if first == "" or os.path.realpath(first) == here else [first]  # of python -m
    is_appended = others[-1:] == [_current()]
    sys.path[:] = [*by_python, *others[: len(others) - is_appended]]
    try:
        yield
    finally:
        _REMEDY.reset(token)
        sys.path[:] = path


@contextmanager
def appended_folder(folder: str | None) -> Iterator[None]:
    """Append a folder to ``sys.path`` in this context, after all others; None: nothing is done.

    Neither is anything done in the context :func:`installed_only`.

    A module in it hence never takes the place of an installed one. Only the folder that
    :func:`current_folder` appended stays behind it, since a module next to the file of an
    experiment takes precedence over one in the folder where a command happens to be started.
    """
    if folder is None or folder in sys.path or _REMEDY.get() is not None:
        yield
        return
    is_current_last = sys.path[-1:] == [_current()]
    sys.path.insert(len(sys.path) - is_current_last, folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)


@contextmanager
def current_folder() -> Iterator[None]:
    """Append the current folder to ``sys.path`` in this context, to find the user's modules."""
    with appended_folder(None if "" in sys.path else _current()):
        yield


def _current() -> str:
    """Return the current folder, or an empty string if it was removed meanwhile."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def searched() -> str:
    """Return the folders of ``sys.path`` as text, without those of Python and of packages."""
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    own = []
    for folder in sys.path:
        path = Path(folder or os.curdir).absolute()
        real = Path(os.path.realpath(path))
        is_library = {str(real), *map(str, real.parents)} & installed
        if not (is_library or path.suffix == ".zip" or real.name == "site-packages"):
            own.append(str(path) if path.is_dir() else f"{path} (which does not exist)")
    return ", ".join([*dict.fromkeys(own), "installed packages"])


def check_folder(folder: str) -> None:
    """Raise ``ValueError`` if a module in a folder of ``sys.path`` is hidden by an imported one.

    That happens if two experiments in one process have files of the same name in their folders,
    even where only their modules import these.
    """
    place = Path(folder)
    names = {path.stem for path in place.glob("*.py")}
    names |= {path.parent.name for path in place.glob("*/__init__.py")}
    for name in sorted(names & sys.modules.keys()):
        check_origin(name)


def check_origin(name: str) -> None:
    """Raise ``ValueError`` if Python would now find an imported module in another file.

    The packages that hold the module are checked in the same way.
    """
    path = None
    words = name.split(".")
    for full in (".".join(words[:length]) for length in range(1, len(words) + 1)):
        module = sys.modules.get(full)
        if module is None:
            return
        spec = PathFinder.find_spec(full, path)
        files = [getattr(module, "__file__", None), spec and spec.origin]
        loaded, *others = [one for one in files if one and os.path.exists(one)] or [""]
        if others and os.path.realpath(loaded) != os.path.realpath(others[0]):
            raise ValueError(
                f"module {full} must be one file in a process, got {loaded}, which is imported, "
                f"and {others[0]}; rename one of them"
            )
        path = getattr(module, "__path__", None)


def imported(module: str, extra: str, who: str, *, name: str = "", instead: str = "") -> Any:
    """Return a module, or raise with the extra of topofl that installs it.

    Parameters
    ----------
    module
        Name of the module.
    extra
        The extra that installs its package.
    who
        What needs it, for the message.
    name
        What the message calls the package; empty: the name of the module.
    instead
        What else can be done, as the end of the message.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed.

    Examples
    --------
    >>> imported("nowhere", "slurm", "`executor`")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: `executor` needs nowhere, which is not installed; install it with pip \
install 'topofl[slurm]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{who} needs {name or module}, which is not installed; install it with pip install "
            f"'topofl[{extra}]'{instead}"
        ) from error
