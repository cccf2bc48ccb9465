"""Pages for users of other libraries: their code runs in the environment of its library.

``TOPOFL_PEERS`` names the folder of environments that ``python -m analysis.benchmark peers
--cache`` makes, with sources of gossipy in ``sources/gossipy``; a page whose library is not there
is skipped. The code for topofl runs with that of all pages.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from analysis.peers import environments

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "coming-from"
DRIVERS = Path(environments.__file__).parent / "drivers"
BLOCK = re.compile(r"^```py\n# (\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODES = {
    found[1]: found[2]
    for page in sorted(FOLDER.glob("*.md"))
    for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
}


def test_libraries_that_are_raced_have_a_page_with_code():
    assert set(CODES) == set(environments.DISTRIBUTION) - {"pfl"}


@pytest.mark.slow
@pytest.mark.parametrize("peer", CODES)
def test_code_of_a_peer_runs_where_it_is_installed(peer, tmp_path):
    cache = Path(os.environ.get("TOPOFL_PEERS") or tmp_path)
    python = environments.installed(peer, cache)
    if python is None:
        pytest.skip(f"{peer} is not installed in $TOPOFL_PEERS")
    needed = [cache / "sources" / peer] * (peer in environments.SOURCES)
    if not all(folder.is_dir() for folder in needed):
        pytest.skip(f"the release of {peer} lacks what the page needs; its sources are not there")
    script = tmp_path / "page.py"
    # The drivers' protocol stands in for a torchvision that peers import and do not use.
    script.write_text(f"import protocol\n{CODES[peer]}")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [DRIVERS, *needed]))}
    ran = subprocess.run(
        [python, str(script)],
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"(accuracy|distance to the optimum) \d", ran.stdout)
