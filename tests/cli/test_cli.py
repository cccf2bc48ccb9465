"""The command line: help, exit codes, and arguments of all verbs."""

import re
import shlex
import subprocess
import sys

import pytest

import topofl
from tests.cli.commands import fails
from topofl import cli
from topofl.cli import main


def test_version_and_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "topofl", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"topofl {topofl.__version__}\n", "")


def test_exit_code_of_the_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "topofl", "spectral", "rng:5"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "topofl: error: rng:5: there is no topology 'rng'; did you mean 'ring'?\n"


def test_output_may_be_cut_off(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m topofl spectral ring:5 | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stderr == ""


VERBS = list(cli.app.make_parser()._subparsers._group_actions[0].choices)


def help_of(capsys, *verb):
    with pytest.raises(SystemExit) as exit_:
        main([*verb, "--help"])
    assert exit_.value.code == 0
    return capsys.readouterr().out


def test_help_lists_all_commands_and_exit_codes(capsys):
    text = help_of(capsys)
    assert all(re.search(rf"^    {verb}\s", text, flags=re.MULTILINE) for verb in VERBS)
    assert "exit codes: 0 success; 1 the run failed; 2 wrong usage" in " ".join(text.split())


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_commands_fits_a_terminal(capsys, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(capsys, verb)
    assert "exit codes: 0 success" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "arguments are required: COMMAND"),
        (["spectrl"], "got 'spectrl'; did you mean 'spectral'?"),
        (["spectral"], "arguments are required: SPEC"),
        (["spectral", "ring:5", "--cvs", "x"], "arguments: --cvs x; did you mean '--csv'?"),
        (["run", "x.toml", "--skipdone"], "arguments: --skipdone; did you mean '--skip-done'?"),
        (["run", "x.toml", "--sett=1"], "arguments: --sett=1; did you mean '--set'?"),
        (["list", "--zzz"], "unrecognized arguments: --zzz (see topofl list --help)"),
        (["resume", "x", "y"], "unrecognized arguments: y (see topofl resume --help)"),
        (["spectral", "ring:5", "--json", "--markdown"], "not allowed with argument"),
        (["list", "topologie"], "got 'topologie'; did you mean 'topology'?"),
        (["compare", "x", "--target", "most"], "invalid float value: 'most'"),
    ],
)
def test_wrong_usage(capsys, argv, message):
    line = fails(capsys, 2, *argv)
    assert message in line
    assert "--help)" in line


@pytest.mark.parametrize("verb", VERBS)
def test_examples_of_the_help_can_be_parsed(capsys, verb):
    examples = help_of(capsys, verb).split("examples:")[1].strip().splitlines()
    assert examples
    for example in examples:
        program, *argv = shlex.split(example)
        assert (program, argv[0]) == ("topofl", verb)
        assert cli.app.make_parser().parse_args(argv)


@pytest.mark.parametrize("value", ["no", "maybe", "0"])
def test_what_is_true_or_false_is_said_so(capsys, value):
    assert main(["spectral", f"exponential:8,directed={value}"]) == 2
    assert "`directed` must be true or false, got" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["compare", ""], ["resume", ""], ["run", "small.toml", "--out", ""], ["graphs", ""]]
)
def test_an_empty_text_is_no_path(capsys, toml, words):
    assert "must be a path, got empty text; the current folder is '.'" in fails(capsys, 2, *words)


def test_names_do_not_steer_a_terminal(toml, capsys):
    out = "a\x1b[2Jb"
    assert main(["run", toml, "--out", out]) == 0
    assert main(["resume", out]) == 0
    assert main(["run", toml, "--out", out, "--skip-done", "--set", "run.rounds=3"]) == 2
    assert main(["run", toml, "--out", out]) == 2
    assert main(["compare", out]) == 0
    captured = capsys.readouterr()
    assert r"saved in a\x1b[2Jb" in captured.out
    assert r"a\x1b[2Jb holds a finished run" in captured.err
    assert "\x1b" not in captured.out + captured.err
