"""``topofl study``, up to the first run; the study itself has tests of its own."""

import pytest

from topofl.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "CONFIG.toml must be given, or scenarios of our study, or 'all'"),
        (["a.toml", "--html", "a.pdf"], "`--html` must be a file that ends in .html, got a.pdf"),
        (["a.toml"], "`path` must be a TOML file, got a.toml, which does not exist"),
        (["digits 31"], "SCENARIO must be one of 'digits 60'"),
    ],
)
def test_faulty_arguments_are_refused(words, message, capsys):
    assert main(["study", *words]) == 2
    assert message in capsys.readouterr().err


def test_all_is_every_scenario_whose_data_are_there(capsys):
    assert main(["study", "all", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert all(line.startswith("digits") and line.endswith(" runs") for line in lines)
