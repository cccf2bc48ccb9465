"""The picture of how topofl is built is that of the code."""

import pytest

from analysis import architecture


def test_the_picture_is_that_of_the_code():
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture(), (
        "run python -m analysis.architecture"
    )


def test_rooms_and_their_imports():
    found = architecture.rooms()
    assert found.has_edge("engine", "algorithms")
    assert not found.has_edge("algorithms", "engine")
    assert found.nodes["privacy"]["files"] == 1


def test_a_call_that_no_round_makes_is_refused(monkeypatch):
    wrong = architecture.Call("engine/run", "engine/fingerprint", "fingerprint", "")
    monkeypatch.setattr(architecture, "PATH", (wrong,))
    with pytest.raises(ValueError, match="engine/run does not call fingerprint"):
        architecture.picture()
