"""The explorer in a browser: it reacts, trains, asks no other server, and ends with Ctrl-C."""

import os
import re
import select
import signal
import subprocess
import sys
import urllib.request

import matplotlib as mpl
import pytest

from tests import browser
from tests.explore.images import FOLDER, write_images

pytestmark = [browser.needs_browser, pytest.mark.slow]
pytest.importorskip("marimo", reason="needs marimo")

ELEMENTS = """
(() => {
  const found = [];
  const walk = (root) => {
    for (const node of root.querySelectorAll("*")) {
      found.push(node);
      if (node.shadowRoot) walk(node.shadowRoot);
    }
  };
  walk(document);
  return found;
})()
"""
"""All elements of the page, also those inside of widgets."""

TEXT = "document.body.innerText"
IMAGES = "Array.from(document.images).filter((one) => one.naturalWidth).map((one) => one.alt)"
CLICK = f"{ELEMENTS}.find((one) => one.tagName === 'BUTTON' && /Train/.test(one.innerText)).click()"


def choosing(old, new):
    """Return a script that chooses `new` in the list in which `old` is chosen."""
    return f"""
(() => {{
  const list = {ELEMENTS}.find((one) => one.tagName === "SELECT" && one.value === "{old}");
  const other = Array.from(list.options).find((one) => one.text === "{new}");
  Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, "value").set.call(list, other.value);
  list.dispatchEvent(new Event("change", {{ bubbles: true }}));
}})()
"""


@pytest.fixture
def process(tmp_path):
    """Start the server in a process that is ended with the test."""
    words = [sys.executable, "-m", "topofl", "explore", "--no-browser"]
    words += ["--data", str(tmp_path / "own")]
    write_images(tmp_path / "own" / FOLDER, per_class=20)
    (tmp_path / "work").mkdir()
    own = {f"XDG_{kind}_HOME": str(tmp_path / "home") for kind in ("CACHE", "CONFIG", "STATE")}
    environment = os.environ | own | {"MPLCONFIGDIR": mpl.get_cachedir()}  # its fonts are known
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=tmp_path / "work", env=environment
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def address_of(process):
    """Return the address that the server prints."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], browser.PATIENCE)
    assert ready, "the server has not started"
    line = process.stdout.readline()
    found = re.fullmatch(
        r"topofl explore: (http://127\.0\.0\.1:\d+/)(\?access_token=\S{20,}) \(Ctrl-C ends it\)\n",
        line,
    )
    assert found, line
    return found[1], found[2]


def test_the_page(process, tmp_path):
    server, key = address_of(process)
    with urllib.request.urlopen(server, timeout=browser.PATIENCE) as answer:  # without the key
        assert "/auth/login" in answer.url
    with browser.opened(tmp_path / "profile") as tab:
        tab.visit(server + key)
        tab.wait_for(f"{IMAGES}.length === 4 && {TEXT}.includes('The same in Python')")
        assert "predicted rounds, relative to the complete graph" in tab.run(TEXT)
        assert "A: exponential" in tab.run(TEXT)
        tab.run(choosing("exponential", "ring"))
        tab.wait_for(f"{IMAGES}.filter((one) => one.includes('A: ring')).length === 2")
        tab.wait_for(f"{TEXT}.includes('topologies.ring(30)')")
        assert "A: exponential" not in tab.run(TEXT)
        tab.run(choosing("handwritten digits", "CIFAR-10, 16 x 16 pixels"))
        tab.wait_for(f"{TEXT}.includes('200 training examples and 10 test examples.')")
        tab.run(choosing("D-Cliques", "random receivers, changing"))
        tab.wait_for(f"{TEXT}.includes('topologies.random_out(30, ')")
        tab.wait_for(f"{IMAGES}.filter((one) => one.includes('B: random receivers')).length === 2")
        assert "rounds are predicted for doubly stochastic weights" in tab.run(TEXT)
        tab.run(CLICK)
        curves = tab.wait_for(f"{IMAGES}.find((one) => one.startsWith('Accuracy'))")
        assert re.search(r"A: ring 0\.\d{3}; B: random receivers, changing 0\.\d{3}\.$", curves)
        asked = [event["request"]["url"] for event in tab.named("Network.requestWillBeSent")]
        assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []
        assert tab.named("Runtime.exceptionThrown") == []
        process.send_signal(signal.SIGINT)  # while the page is open
        assert process.wait(browser.PATIENCE) == 0
    assert os.listdir(tmp_path / "work") == []
