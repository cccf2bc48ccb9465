"""``topofl new``: a configuration that runs as it is."""

import pytest

from tests.cli.commands import fails
from topofl import config
from topofl.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_runs_as_it_is(folder, capsys):
    assert main(["new"]) == 0
    assert "train with: topofl run experiment.toml" in capsys.readouterr().out
    assert main(["run", "experiment.toml"]) == 0
    assert (folder / "runs/experiment/history").is_dir()


def test_commands_in_the_comments_name_the_file(folder):
    assert main(["new", "my ring.toml"]) == 0
    text = (folder / "my ring.toml").read_text()
    assert "#   topofl run 'my ring.toml' --dry-run" in text
    assert "'runs/my ring'" in text
    assert "experiment.toml" not in text


def test_lines_that_are_comments_can_be_turned_on(folder):
    assert main(["new"]) == 0
    path = folder / "experiment.toml"
    text = path.read_text()
    for line in ("[saving]", "every = 25", "[compute]", "device = "):
        assert f"# {line}" in text
        text = text.replace(f"# {line}", line)
    path.write_text(text.replace('"cuda"', '"cpu"'))
    tables = config.load(path).tables
    assert (tables["saving"]["every"], tables["compute"]["device"]) == (25, "cpu")


def test_a_file_is_overwritten_only_with_force(folder, capsys):
    path = folder / "mine.toml"
    path.write_text("mine")
    assert "got mine.toml, which exists" in fails(capsys, 2, "new", "mine.toml")
    assert path.read_text() == "mine"
    assert main(["new", "mine.toml", "--force"]) == 0
    assert config.load(path).tables["topology"]["name"] == "ring"


def test_names_that_no_file_can_have_are_errors(folder, capsys):
    assert "`FILE` must end in .toml, got mine.json" in fails(capsys, 2, "new", "mine.json")
    assert "No such file or directory" in fails(capsys, 2, "new", "nowhere/mine.toml")
    assert not list(folder.iterdir())
