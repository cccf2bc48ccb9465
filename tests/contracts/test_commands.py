"""Every command prints what its row says, has help that fits and examples that can be parsed."""

import re
import shlex

import pytest

from tests.rows.commands import COMMANDS, furnish, rows_of, shell
from topofl.cli import main
from topofl.cli.commands import make_parser

VERBS = make_parser()._subparsers._group_actions[0].choices
WITHOUT_RESULTS = {"new", "completion", "explore"}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("commands"))
        patch.delenv("TOPOFL_DATA", raising=False)
        furnish(folder)
        yield folder


LONG = "study study.toml --json"

ROWS = [
    pytest.param(command, marks=pytest.mark.slow) if command.line == LONG else command
    for command in COMMANDS
]


@pytest.mark.parametrize("command", ROWS, ids=lambda command: command.line)
def test_commands_print_what_they_are_asked_for(furnished, capsys, monkeypatch, command):
    monkeypatch.chdir(furnished)
    captured = shell(capsys, command.line)
    for part in command.said:
        assert part in captured.out + captured.err
    if command.keys:
        found = rows_of(captured.out)
        assert found
        assert set(command.keys) <= set(found[0])


def test_every_command_with_results_has_rows_of_both_forms():
    having = {name for name, verb in VERBS.items() if "--json" in verb._option_string_actions}
    assert having == set(VERBS) - WITHOUT_RESULTS
    assert having == {command.verb for command in COMMANDS if command.keys}
    assert {command.verb for command in COMMANDS} >= having | {"new"}


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
def test_help_fits_a_terminal_and_its_examples_can_be_parsed(capsys, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(capsys, verb)
    assert "exit codes: 0 success" in text
    assert max(map(len, text.splitlines())) <= 100
    examples = text.split("examples:")[1].strip().splitlines()
    assert examples
    for example in examples:
        program, *argv = shlex.split(example)
        assert (program, argv[0]) == ("topofl", verb)
        assert make_parser().parse_args(argv)
