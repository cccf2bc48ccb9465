"""``topofl completion``: the scripts, and what bash completes with them."""

import shutil
import subprocess
import sys

import pytest

from tests.cli.commands import fails
from topofl.cli import main
from topofl.cli.app import make_parser

pytest.importorskip("shtab")


@pytest.fixture
def complete(tmp_path, capsys):
    """Return a function that gives bash's completions of the last word of a line."""
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def completions(*words):
        line = [f"source '{tmp_path / 'script'}'", f"COMP_WORDS=({' '.join(map(repr, words))})"]
        line += [
            f"COMP_CWORD={len(words) - 1}",
            "_shtab_topofl",
            'printf "%s\\n" "${COMPREPLY[@]}"',
        ]
        done = subprocess.run(
            ["bash", "-c", "\n".join(line)],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        return set(done.stdout.split())

    return completions


bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@bash
def test_commands_are_completed(complete):
    assert complete("topofl", "re") == {"recommend", "resume", "reproduce"}
    assert complete("topofl", "") >= {"run", "list", "doctor", "new", "completion"}


@bash
def test_options_of_a_command_are_completed(complete):
    assert complete("topofl", "compare", "a", "--m") == {"--markdown"}
    assert complete("topofl", "run", "--j") == {"--json"}


@bash
def test_choices_are_completed(complete):
    assert complete("topofl", "list", "comp") == {"compressor"}
    assert complete("topofl", "compare", "--kind", "b") == {"band"}


@bash
def test_names_of_topologies_and_files_are_completed(complete, tmp_path):
    (tmp_path / "exposed.graphml").touch()
    assert complete("topofl", "spectral", "ring", "expo") == {"exponential", "exposed.graphml"}


@bash
def test_paths_are_completed(complete, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "rule.toml").touch()
    assert complete("topofl", "run", "ru") == {"rule.toml", "runs"}
    assert complete("topofl", "resume", "ru") == {"runs"}


def test_the_script_for_zsh_has_all_commands(capsys, tmp_path):
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#compdef topofl\n")
    for verb in make_parser()._subparsers._group_actions[0].choices:
        assert f"\n    {verb}:" in script
    if shutil.which("zsh"):
        path = tmp_path / "_topofl"
        path.write_text(script)
        subprocess.run(["zsh", "-n", path], check=True)


def test_unknown_shells_and_a_missing_package_are_errors(capsys, monkeypatch):
    assert "got 'zhs'; did you mean 'zsh'?" in fails(capsys, 2, "completion", "zhs")
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install 'topofl[completion]'" in fails(capsys, 2, "completion", "bash")
