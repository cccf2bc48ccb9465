"""The live table of a sweep."""

import io
import time

from tests.runs.conftest import BASE
from topofl.callbacks import Event
from topofl.runs.execute import Live
from topofl.runs.plan import prepare
from topofl.runs.work import Outcome, Reporter, claimed_folder


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_live_table(tmp_path):
    first, second = (point.job for point in prepare(BASE, None, seeds=2))
    live = Live(tmp_path, 3, title="mine", labels={first.key: "seed=0\x1b[2J"})
    assert live.text() == ["mine: 0 of 3 runs done"]
    for job in (first, second):
        live.started(job)
    folder = claimed_folder(tmp_path, first.key)
    reporter = Reporter(folder, 40, _last=-1e9)
    reporter._score = 0.25
    reporter(Event("round", 7, {}))
    lines = live.text()
    assert lines[1] == "  seed=0\\x1b[2J: round 7 of 40, score 0.250"
    assert lines[2] == f"  {second.key}"
    live.ended(Outcome(first.key, "done"))
    live.ended(Outcome(second.key, "failed", "ValueError: no"))
    live._began = time.monotonic() - 8  # two runs have ended, so the third takes four seconds
    (head,) = live.text()
    assert head == "mine: 1 of 3 runs done, 1 failed, about 4 s left"


def test_the_live_table_is_drawn_on_terminals_only_and_erased(tmp_path):
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with Live(tmp_path, 3, stream=stream):
            deadline = time.monotonic() + 10
            while drawn and not stream.getvalue() and time.monotonic() < deadline:
                time.sleep(0.05)
        text = stream.getvalue()
        assert ("0 of 3 runs done\n" in text) is drawn
        assert text.endswith("\x1b[1F\x1b[J") is drawn
