"""Files of functions of one's own that an entry names, and their hashes."""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from topofl._support.plugins import GROUPS, entry_points
from topofl.config.toml import modules_in

__all__ = ["own_code"]


def own_code(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each file of own code that the tables of an entry name.

    These are the files of modules in ``module:function`` and of entry points of packages, and
    those of the same folder that they import. The modules must have been imported.

    Parameters
    ----------
    tables
        Tables of an entry, of which ``modules.folder`` is the folder of modules.

    Examples
    --------
    >>> import textwrap
    >>> list(own_code({"topology": "textwrap:fill"})), own_code({"topology": "ring"})
    (['textwrap.py'], {})
    """
    named = {name: table for name, table in tables.items() if name != "modules"}
    modules = sorted({*modules_in(named), *_modules_of_packages(named)})
    found: dict[str, str] = {}
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or name.partition(".")[0] == "topofl":
            continue
        root = Path(file).parents[name.count(".") + (Path(file).name == "__init__.py")]
        own = _imported(name, file, root, tables.get("modules", {}).get("folder"))
        for path in sorted({file, *own}):
            known = os.path.relpath(path, root).replace(os.sep, "/")
            found[known] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found


def _modules_of_packages(tables: Any) -> Iterator[str]:
    """Yield the modules of entry points that texts in tables name, also with arguments."""
    if isinstance(tables, str):
        name = tables.partition(",")[0].strip()
        for offer in (offer for kind in GROUPS for offer in entry_points(kind)):
            if offer.name == name:
                yield offer.target.partition(":")[0]
    elif isinstance(tables, Mapping | list | tuple):
        for value in tables.values() if isinstance(tables, Mapping) else tables:
            yield from _modules_of_packages(value)


def _imported(name: str, file: str, root: Path, folder: str | None) -> set[str]:
    """Return the files that a module imports, directly or through one another.

    These are files of a folder, or of its own package in `root` if the module is not in the folder;
    not those of packages without ``__init__.py``.
    """
    if folder is not None and Path(folder).resolve() in Path(file).resolve().parents:
        finder = _Finder(path=[folder])
    else:
        finder = _Finder(path=[str(root)], excludes=_Others(name.partition(".")[0]))
    with suppress(ImportError):  # of packages without __init__.py
        finder.import_hook(name)
    if file.endswith(".py") and name not in finder.modules:  # and is not compiled
        with suppress(ImportError):  # of relative imports in such packages
            finder.run_script(file)
    found = (getattr(one, "__file__", None) for one in finder.modules.values())
    return {path for path in found if path is not None and Path(path).is_file()}


class _Finder(ModuleFinder):
    """A finder for which packages without ``__init__.py`` are missing; it would fail otherwise."""

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Return what is known of a module; raise ``ImportError`` if it is not found."""
        try:
            return super().find_module(name, path, parent)
        except AttributeError as error:
            raise ImportError(f"there is no module {name}") from error


@dataclass(frozen=True)
class _Others:
    """The names of all modules outside of a package."""

    package: str

    def __contains__(self, name: object) -> bool:
        return str(name).partition(".")[0] not in (self.package, "__init__")
