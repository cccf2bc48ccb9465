"""All commands: help, exit codes, arguments, and ``--json``, with which stdout is one JSON list."""

import json
import re
import shlex
import subprocess
import sys

import pytest

import topofl
from tests.cli.commands import TEXT, fails
from topofl.cli import main
from topofl.cli.commands import make_parser
from topofl.cli.output import print_rows


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["--version"], 0, f"topofl {topofl.__version__}\n", ""),
        (
            ["spectral", "rng:5"],
            2,
            "",
            "topofl: error: rng:5: there is no topology 'rng'; did you mean 'ring'?\n",
        ),
    ],
)
def test_the_module_is_the_command(tmp_path, words, code, out, err):
    command = [sys.executable, "-m", "topofl", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_output_may_be_cut_off(tmp_path):
    command = f"{sys.executable} -m topofl spectral ring:5 | true"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr == ""


VERBS = make_parser()._subparsers._group_actions[0].choices


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
        assert make_parser().parse_args(argv)


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


WITHOUT_RESULTS = {"new", "completion", "explore"}

STUDY = """
data = { name = "digits", n = 8, seed = 0 }
algorithm = { name = "dsgd", lr = 0.5, batch_size = 8 }
run = { rounds = 2, seed = 0 }
study = { graphs = ["ring", "path"], seeds = [0] }
"""


@pytest.fixture
def rows(capsys):
    """Return a function that gives the rows that a command prints, and nothing else."""

    def printed(*words):
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, list)
        assert all(isinstance(row, dict) for row in found)
        return found

    return printed


def test_every_command_with_results_has_json():
    having = {name for name, verb in VERBS.items() if "--json" in verb._option_string_actions}
    assert having == set(VERBS) - WITHOUT_RESULTS


def test_json_of_list(rows):
    found = {(row["kind"], row["name"]): row for row in rows("list")}
    assert found["topology", "ring"]["parameters"] == [{"name": "n"}]
    assert found["metric", "spectral gap"]["group"]
    assert {"name": "batch_size", "default": 128} in found["algorithm", "dsgd"]["parameters"]
    (need,) = [row for row in rows("list", "algorithm", "--needs") if row["name"] == "trimmed_mean"]
    assert need["needs"][0]["needs"] == "more than 2 * trim neighbors at each node"


def test_json_of_run_and_resume(rows, toml, capsys):
    (row,) = rows("run", toml, "--out", "a", "--progress")
    assert (row["run"], row["algorithm"]) == ("a", "dsgd")
    assert set(row["final accuracy"]) == {"mean", "low", "high"}
    assert rows("run", toml, "--out", "a", "--skip-done") == [row]
    assert rows("resume", "a") == [row]
    assert rows("compare", "a") == [row]
    (longer,) = rows("resume", "a", "--set", "run.rounds=6")
    assert longer["run"] == "a"
    assert main(["run", toml, "--out", "b", "--json"]) == 0
    assert "topofl: note: saved in b\n" in capsys.readouterr().err


def test_json_of_run_in_a_store_and_its_list(rows, toml):
    (row,) = rows("run", toml, "--store", "store")
    assert rows("run", toml, "--store", "store") == [row]
    (stored,) = rows("runs", "store")
    assert stored["key"] in row["run"]
    removed = rows("runs", "store", "--where", "algorithm.name=dsgd", "--remove")
    assert removed == [{"removed": stored["key"]}]
    assert rows("runs", "store") == []


def test_json_of_dry_runs(rows, toml):
    (need,) = rows("run", toml, "--dry-run")
    assert need["n"] == 10
    assert need["total"] >= need["parameters"] > 0
    assert need["seconds_per_round"] > 0
    (planned,) = rows("sweep", toml, "--grid", "topology=ring", "--dry-run")[:1]
    assert planned


def test_json_of_sweep_and_failures(rows, toml):
    assert len(rows("sweep", toml, "--grid", "topology=ring,star", "--store", "s")) == 2
    assert main(["sweep", toml, "--grid", "algorithm.lr=1e38", "--store", "s"]) == 1
    (failed,) = rows("runs", "s", "--failed", "--traceback")
    assert "Traceback" in failed["traceback"]


def test_json_of_spectral_and_graphs(rows, runs):
    assert [row["name"] for row in rows("spectral", "ring:8", "star:8")] == [
        "ring(n=8)",
        "star(n=8)",
    ]
    assert len(rows("graphs", "a", "--about", "structure")) == 4


def test_json_of_recommend(rows, capsys):
    found = rows("recommend", "--data", "digits", "--n", "12", "--max-degree", "3")
    assert len(found) > 1


def test_json_of_study(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (planned,) = rows("study", "study.toml", "--dry-run")
    assert planned["runs"] == 2
    written = {row["written"] for row in rows("study", "study.toml")}
    assert "out/study/study/report.md" in written
    assert all((tmp_path / path).exists() for path in written)


def test_json_of_reproduce(rows, tmp_path):
    found = {row["name"]: row for row in rows("reproduce", "--list")}
    assert found["dcliques-fig05"]["reproduced"]
    assert not found["dcliques-fig02"]["reproduced"]
    figure = ["dcliques-fig05", "--scale", "smoke", "--out", str(tmp_path)]
    assert rows("reproduce", *figure, "--dry-run")[0]["figure"] == "dcliques-fig05"
    claims = rows("reproduce", *figure)
    assert {claim["verdict"] for claim in claims} == {"HOLDS"}
    assert {claim["figure"] for claim in claims} == {"dcliques-fig05"}


def test_errors_print_no_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(TEXT.replace("dsgd", "dgsd"))
    assert "did you mean 'dsgd'" in fails(capsys, 2, "run", "a.toml", "--json")


def test_numbers_that_json_lacks(capsys):
    inf, nan = float("inf"), float("nan")
    print_rows([{"a": inf, "b": -inf, "c": nan, "d": [nan, {"e": inf}]}])
    row = {"a": "inf", "b": "-inf", "c": None, "d": [None, {"e": "inf"}]}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [row]
