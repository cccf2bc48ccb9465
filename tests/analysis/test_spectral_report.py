"""The command that writes the page."""

import pytest

from analysis import spectral_report as script
from tests import markup
from topofl import metrics
from topofl.cli import main


@pytest.mark.slow
def test_script_and_command_write_the_same_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert script.main(["ring:8", "random_regular:8,k=3", "--rounds", "20", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("2 graphs")
    assert captured.out.endswith("wrote report.html\n")
    first = (tmp_path / "report.html").read_text()
    page = markup.read(first)
    assert "no `seed` given; 0 is used" in page.text
    (command,) = [code.text for code in page.all("pre")]
    assert (
        command
        == "topofl spectral ring:8 random_regular:8,k=3 --seed 3 --rounds 20 --html report.html"
    )
    assert main(command.split()[1:]) == 0
    assert (tmp_path / "report.html").read_text() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_data_adds_columns(tmp_path, capsys):
    path = tmp_path / "report.html"
    assert (
        main(["spectral", "ring:10", "--data", "digits", "--rounds", "5", "--html", str(path)]) == 0
    )
    page = markup.read(path.read_text())
    assert "label heterogeneity" in [heading.text for heading in page.all("th")]
    assert "--data digits --seed 0" in page.all("pre")[0].text
    capsys.readouterr()


def test_places_that_cannot_be_written_to_are_refused_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(metrics, "compare", lambda *args, **options: pytest.fail("computed"))
    assert main(["spectral", "ring:8", "--html", str(tmp_path / "none" / "x.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert script.main(["ring:8", "--out", str(tmp_path)]) == 2
    assert "it is a folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_failures_leave_nothing(tmp_path, capsys):
    assert script.main(["rng:8", "--out", str(tmp_path / "x.html")]) == 2
    assert "did you mean 'ring'?" in capsys.readouterr().err
    assert main(["spectral", "ring:8", "--rounds", "0", "--html", str(tmp_path / "x.html")]) == 2
    assert list(tmp_path.iterdir()) == []
