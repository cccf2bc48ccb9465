"""``topofl list`` with its index, and ``topofl completion`` with what bash makes of its script."""

import inspect
import json
import shutil
import subprocess
import sys

import pytest

from tests.cli.commands import fails
from topofl import algorithms, models, topologies
from topofl._spec import catalogue
from topofl.algorithms import Part
from topofl.cli import listing, main
from topofl.cli.commands import KINDS_OF_NAMES, make_parser
from topofl.cli.listing import index
from topofl.metrics.compare import all_columns


def test_list(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    networks = [name for name in models.__all__ if name != "with_group_norm"]
    for name in [
        *topologies.__all__,
        *algorithms.__all__,
        *networks,
        "shards",
        "digits",
        "metropolis_hastings",
    ]:
        assert f"  {name}(" in text
    assert "with_group_norm" not in text
    assert "  ring(n)\n      Return the cycle" in text
    assert "  lazy(" not in text


def test_list_of_one_kind(capsys):
    assert main(["list", "algorithm"]) == 0
    text = capsys.readouterr().out
    assert "dsgd(lr, *, batch_size=128, momentum=0.0, local_steps=1)" in text
    assert "ring" not in text.split()
    assert ", head='head', fine_tune_epochs=None)" in text  # as a configuration says it
    assert "Part(" not in text


def test_all_kinds_of_names_are_listed():
    assert [*catalogue(), "metric"] == list(KINDS_OF_NAMES)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("compressor", "top_k(share)"),
        ("clock", "exponential(mean)"),
        ("attack", "sign_flip(nodes, scale=1.0)"),
        ("schedule", "cosine(lr, *, rounds, warmup=0, end=0.0)"),
        ("algorithm", "timed(algorithm, clock=None)"),
    ],
)
def test_what_arguments_may_be_is_listed(capsys, kind, line):
    assert main(["list", kind]) == 0
    assert f"  {line}\n" in capsys.readouterr().out


def test_list_shows_which_arguments_need_their_names(capsys):
    assert main(["list", "topology"]) == 0
    shown = capsys.readouterr().out
    assert "random_regular(n, k, *, seed)" in shown
    assert "circulant(n, offsets=[1, 2], *, directed=False)" in shown


@pytest.mark.parametrize("kind", KINDS_OF_NAMES[:-1])
def test_list_with_needs_only_adds_lines(kind, capsys):
    assert main(["list", kind]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert main(["list", kind, "--needs"]) == 0
    more = capsys.readouterr().out.splitlines()
    assert [line for line in more if not line.startswith("      needs")] == plain
    assert (more != plain) == (kind == "algorithm")


def as_configured(default):
    """Return a default as a configuration has it: a part as its pattern, and a tuple as a list."""
    if isinstance(default, Part):
        assert len(default.patterns) == 1
        assert not default.complement
        return default.patterns[0]
    return list(default) if isinstance(default, tuple) else default


@pytest.mark.parametrize("kind", KINDS_OF_NAMES[:-1])
def test_the_index_has_the_functions_of_the_catalogue(kind):
    found = {row["name"]: row for row in index()[kind]}
    functions = catalogue()[kind]
    assert list(found) == list(functions)
    assert found
    for name, function in functions.items():
        real = inspect.signature(function).parameters.values()
        assert found[name]["parameters"] == [
            {"name": p.name}
            | ({} if p.default is p.empty else {"default": as_configured(p.default)})
            for p in real
        ], name
        bare = [p.kind is p.KEYWORD_ONLY for p in real]
        assert ("*" in found[name]["call"]) == any(bare), name
        summary = inspect.getdoc(function).partition("\n")[0]
        words = [word for word in summary.split() if ":`" not in word]
        assert set(words) <= set(found[name]["description"].split()), name


def test_the_index_has_the_columns_of_compare():
    assert [(row["name"], row["group"], row["description"]) for row in index()["metric"]] == [
        (c.name, c.group, c.meaning) for c in all_columns()
    ]


def test_there_are_many_names():
    assert len(index()["algorithm"]) > 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return a folder for the file of the index, and count how often the index is made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made, names = [], listing._names

    def counted():
        made.append(1)
        return names()

    monkeypatch.setattr(listing, "_names", counted)
    return tmp_path / "topofl", made


def test_the_index_is_made_once(cache):
    folder, made = cache
    first = index()
    assert (index(), len(made)) == (first, 1)
    (file,) = folder.iterdir()
    state = json.loads(file.read_text())
    file.write_text(json.dumps(state | {"state": "of another version"}))
    assert (index(), len(made)) == (first, 2)


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"state": 3}'])
def test_a_damaged_index_is_made_again(cache, text):
    folder, made = cache
    first = index()
    (file,) = folder.iterdir()
    file.write_text(text)
    assert (index(), index(), len(made)) == (first, first, 2)


def test_an_index_that_cannot_be_written_is_not_kept(cache):
    folder, made = cache
    folder.write_text("a file, where the folder would be")
    assert index()["topology"] == index()["topology"]
    assert len(made) == 2


@pytest.fixture
def complete(tmp_path, capsys):
    """Return a function that gives bash's completions of the last word of a line."""
    pytest.importorskip("shtab")
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
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["re"], {"recommend", "resume", "reproduce"}),
        (["compare", "a", "--m"], {"--markdown"}),
        (["run", "--j"], {"--json"}),
        (["list", "comp"], {"compressor"}),
        (["compare", "--kind", "b"], {"band"}),
        (["spectral", "ring", "expo"], {"exponential", "exposed.graphml"}),
        (["run", "ru"], {"rule.toml", "runs"}),
        (["resume", "ru"], {"runs"}),
    ],
)
def test_commands_options_choices_names_and_paths_are_completed(complete, tmp_path, words, found):
    (tmp_path / "exposed.graphml").touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "rule.toml").touch()
    assert complete("topofl", *words) == found


@bash
def test_all_commands_are_completed(complete):
    assert complete("topofl", "") >= {"run", "list", "doctor", "new", "completion"}


def test_the_script_for_zsh_has_all_commands(capsys, tmp_path):
    pytest.importorskip("shtab")
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
