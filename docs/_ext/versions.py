"""The switcher between versions of the site, which lie beside each other in one folder.

``python docs/_ext/versions.py FOLDER [BASE]`` writes ``versions.json``, which the pages of all
versions read, and ``index.html``, which leads to the newest release. Versions are the names of the
folders in FOLDER, as ``make site`` makes them; BASE is the address at which FOLDER is served.
"""

import json
import sys
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

__all__ = ["listed", "switcher", "write"]

INDEX = """<!doctype html>
<meta charset="utf-8">
<title>topofl</title>
<meta http-equiv="refresh" content="0; url={url}">
<a href="{url}">topofl {version}</a>
"""


def switcher(version: str, base: str) -> dict[str, Any]:
    """Return the options of the theme with which a version of the site has a switcher."""
    return {
        "switcher": {"json_url": f"{base.rstrip('/')}/versions.json", "version_match": version},
        "check_switcher": False,  # the file is written when all versions are there
        "navbar_start": ["navbar-logo", "version-switcher"],
        "show_version_warning_banner": True,
    }


def listed(names: list[str], base: str = "") -> list[dict[str, Any]]:
    """Return the entries of ``versions.json``, newest first; the newest release is preferred.

    Names that are no versions are left out. If no version is a release, the newest is preferred.
    """
    versions = sorted(filter(None, map(_version, names)), reverse=True)
    releases = [one for one in versions if not one.is_prerelease]
    preferred = next(iter(releases or versions), None)
    return [
        {
            "version": str(one),
            "name": f"{one} (newest)" if one == preferred else str(one),
            "url": f"{base.rstrip('/')}/{one}/",
            "preferred": one == preferred,
        }
        for one in versions
    ]


def _version(name: str) -> Version | None:
    try:
        return Version(name)
    except InvalidVersion:
        return None


def write(folder: Path, base: str = "") -> list[dict[str, Any]]:
    """Write both files into a folder of versions; return what they list."""
    entries = listed([path.name for path in folder.iterdir() if path.is_dir()], base)
    (folder / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    newest = next(entry for entry in entries if entry["preferred"])
    (folder / "index.html").write_text(INDEX.format(**newest), encoding="utf-8")
    return entries


if __name__ == "__main__":
    for found in write(Path(sys.argv[1]), *sys.argv[2:]):
        print(found["name"])
