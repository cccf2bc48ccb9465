"""A headless Chromium for tests, driven by the DevTools protocol over two pipes."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""Where Chromium is, None if it is not installed."""

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome"
)

PATIENCE = 60
"""Seconds after which an answer is no longer waited for; the machine may be busy."""

CONTRAST = """
(() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  };
  const light = (color) => Array.from(rgb(color)).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (color !== "rgba(0, 0, 0, 0)") return color;
  } };
  const own = (node) => Array.from(node.childNodes)
    .some((child) => child.nodeType === 3 && child.data.trim());
  const bad = [];
  for (const node of document.querySelectorAll("body *:not(script)")) {
    if (!own(node) || !node.checkVisibility() || ["title", "desc"].includes(node.tagName)) continue;
    const style = getComputedStyle(node);
    const color = node.tagName === "text" ? style.fill : style.color;
    const pair = [light(color), light(behind(node))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) bad.push([node.tagName, node.textContent.slice(0, 40), ratio]);
  }
  return [light(behind(document.body)), bad];
})()
"""
"""Returns the luminance of the page background, and texts with a contrast below 4.5."""

# Chromium reads commands from descriptor 3 and writes answers to 4.
_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


@dataclass
class Browser:
    """One tab: `events` are what it has told unasked since the last :meth:`visit`."""

    commands: int
    answers: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    buffer: bytes = b""
    last: int = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of one command of the protocol."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.last:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self.answers, 1 << 20)
            assert part, "Chromium has ended"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def visit(self, page: Path | str, fragment: str = "") -> None:
        """Load a file or an address anew and wait until its scripts have run."""
        address = page if isinstance(page, str) else page.as_uri()
        for url in (
            "about:blank",
            address + fragment,
        ):  # by way of nothing, since a new fragment loads nothing
            self.events.clear()
            self.call("Page.navigate", url=url)
            while not any(event["method"] == "Page.loadEventFired" for event in self.events):
                self._receive()

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, such as Tab, Enter or ArrowRight."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39}[key]
        text = {"Enter": "\r", " ": " "}.get(key)
        name = {" ": "Space"}.get(key, key)
        common = {"key": key, "code": name, "windowsVirtualKeyCode": code}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size in pixels; narrow ones are those of phones."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 1000}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def unfold(self) -> None:
        """Open all parts of the page that are folded."""
        self.run("document.querySelectorAll('details').forEach((part) => { part.open = true; })")

    def wait_for(self, script: str) -> Any:
        """Return the value of a JavaScript expression once it is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(script)):
            text = "document.body.innerText"
            assert time.monotonic() < end, f"{script} is not true; the page is {self.run(text)}"
            time.sleep(0.05)
        return value

    def names(self) -> dict[str, list[str]]:
        """Return what screen readers are told: the names of all elements by their role."""
        found: dict[str, list[str]] = {}
        for node in self.call("Accessibility.getFullAXTree")["nodes"]:
            if not node["ignored"]:
                name = node.get("name", {}).get("value", "")
                found.setdefault(node["role"]["value"], []).append(name)
        return found

    def named(self, *methods: str) -> list[dict[str, Any]]:
        """Return what was told under these names."""
        return [event["params"] for event in self.events if event["method"] in methods]


def check_contrast(tab: Browser, scheme: str) -> None:
    """Assert that texts have enough contrast in a light or dark scheme, which the page follows."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    tab.call("Emulation.setEmulatedMedia", features=features)
    brightness, bad = tab.run(CONTRAST)
    assert bad == []
    assert (brightness > 0.5) == (scheme == "light")


@contextmanager
def opened(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile; it is ended with the block."""
    assert CHROMIUM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = _pipe(), _pipe()
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--remote-debugging-pipe",
    ]
    words = [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), CHROMIUM]
    process = subprocess.Popen(
        [*words, *options, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        browser = Browser(ours_out, ours_in)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            browser.call(f"{domain}.enable")
        yield browser
    finally:
        process.kill()
        process.wait()
        os.close(ours_out)
        os.close(ours_in)


def _pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors do not stand in the way of 3 and 4."""
    reading, writing = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (reading, writing))
    os.close(reading)
    os.close(writing)
    return high[0], high[1]
