"""The gallery shows every generator."""

import numpy as np
import pytest

from analysis import gallery
from topofl import Topology, topologies
from topofl._drawing import layout
from topofl._support.calls import parse_spec


def test_every_generator_has_an_example():
    assert sorted(gallery.EXAMPLES) == sorted(topologies.__all__)
    for name, example in gallery.EXAMPLES.items():
        made = (
            parse_spec(example).name
            if isinstance(example, str)
            else example().name.partition("(")[0]
        )
        assert made == name


def test_what_a_string_cannot_say_is_a_function():
    assert gallery.example(lambda: topologies.ring(5)).n == 5
    assert gallery.caption(lambda: topologies.ring(5)) == "ring(n=5)"


@pytest.mark.parametrize(
    "spec",
    [*gallery.EXAMPLES.values(), *gallery.MORE, *gallery.STRIP.values()],
    ids=gallery.caption,
)
def test_every_example_is_small_and_can_be_drawn(spec):
    graph = gallery.example(spec)
    assert graph.n <= 100
    for t in range(min(graph.period or 2, 2)):
        member = graph.at(t)
        assert np.isfinite(layout(member)).all()
        assert member.plot().axes[0].collections
    assert graph._repr_svg_() is not None
    assert isinstance(graph, Topology) or graph.n <= 16, "four small panels"


@pytest.mark.slow
def test_command_line_writes_page_strip_and_index(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gallery, "MORE", ())
    assert gallery.main(["--out", str(tmp_path / "gallery")]) == 0
    assert "gallery.png" in capsys.readouterr().out
    assert (tmp_path / "gallery" / "gallery.png").stat().st_size > 50_000
    assert (tmp_path / "gallery" / "strip.png").stat().st_size > 10_000
    text = (tmp_path / "gallery" / "index.md").read_text()
    assert all(f"- `{name}` (" in text for name in topologies.__all__)
    assert "Return the cycle 0 - 1" in text
