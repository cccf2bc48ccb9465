"""``topofl list`` with its index, and ``topofl completion`` with what bash makes of its script."""

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from topofl import config, data
from topofl._spec import catalogue
from topofl._support.plugins import MEANT, also_called
from topofl.cli import listing
from topofl.cli.commands import KINDS_OF_NAMES, make_parser
from topofl.cli.listing import index
from topofl.cli.one_name import lines_of
from topofl.config.toml import as_table
from topofl.metrics.compare import all_columns
from topofl.topologies import GENERATORS


@pytest.mark.parametrize("kind", KINDS_OF_NAMES[:-1])
def test_list_with_needs_only_adds_lines(kind, shell):
    plain = shell(f"list {kind}").out.splitlines()
    more = shell(f"list {kind} --needs").out.splitlines()
    assert [line for line in more if not line.startswith("      needs")] == plain
    assert (more != plain) == (kind == "algorithm")


def test_the_index_has_the_functions_of_the_catalogue_and_the_columns_of_compare():
    names = {kind: [row["name"] for row in found] for kind, found in index().items()}
    columns = [column.name for column in all_columns()]
    wanted = {kind: list(functions) for kind, functions in catalogue().items()}
    assert names == wanted | {"metric": columns}
    assert list(names) == list(KINDS_OF_NAMES)
    assert [(row["name"], row["group"], row["description"]) for row in index()["metric"]] == [
        (c.name, c.group, c.meaning) for c in all_columns()
    ]


ALGORITHMS_WITHOUT_EXAMPLE = {"hierfavg"}  # its groups are those of a graph

OWNED = replace(data.digits(), owners=np.arange(1797) // 50)


@pytest.mark.parametrize("kind", ["algorithm", "partition", "attack", "compressor", "schedule"])
def test_examples_are_calls_of_their_functions(kind):
    functions = catalogue()[kind]
    for row in index()[kind]:
        if row["example"] is None:
            assert row["name"] in ALGORITHMS_WITHOUT_EXAMPLE
            continue
        table = as_table(kind, row["example"])
        function = functions[table.pop("name")]
        if kind == "partition":
            function = partial(function, OWNED)
        if any(isinstance(value, dict) or "(" in str(value) for value in table.values()):
            inspect.signature(function).bind(**table)  # of functions in text
        else:
            function(**table)


ELSEWHERE = {
    *("fedbn", "mnist1d_cnn"),  # of networks with normalization, and of signals
    *("multi_label", "next_token", "regression", "own_weights"),  # of other data and graphs
}


@pytest.mark.parametrize("kind", ["topology", "algorithm", "model", "mixing", "task", "partition"])
@pytest.mark.filterwarnings("ignore")  # of what a command prints as notes
def test_commands_of_examples_fit_the_experiment_of_topofl_new(kind, shell, tmp_path):
    file = tmp_path / "experiment.toml"
    shell(f"new {file}")
    commands = [
        one
        for row in index()[kind]
        if row["example"] and row["name"] not in (*ELSEWHERE, "natural")
        for one in lines_of(kind, row, "")
        if one.startswith("    topofl run")
    ]
    assert commands
    for command in commands:
        _, verb, name, *settings = shlex.split(command)
        assert (verb, name, {*settings[::2]}) == ("run", "experiment.toml", {"--set"})
        config.load(file, settings[1::2])


def test_meanings_are_in_the_words_of_the_function_that_a_docstring_refers_to(rows):
    (row,) = rows("list algorithm fedrep")
    meant = {one["name"]: one["meaning"] for one in row["parameters"]}
    assert meant["lr"] == "Step size in round 0; momentum starts from zero in every round."
    assert meant["fine_tune_epochs"].endswith("None: only the server's model is evaluated.")
    assert "None: gradients are not clipped" in meant["clip"]
    for kind, found in index().items():
        for one in [one for row in found for one in row.get("parameters", [])]:
            assert not one.get("meaning", "").startswith("As in"), (kind, one)


def test_examples_of_graphs_are_those_of_their_declarations():
    found = {row["name"]: row["example"] for row in index()["topology"]}
    assert found.keys() == GENERATORS.keys()
    for name, generator in GENERATORS.items():
        assert found[name] in (*generator.examples, None)
    assert [name for name, text in found.items() if text is None] == ["greedy_collaboration"]


def test_one_name_is_printed_with_meanings_and_an_example(shell, rows):
    lines = shell("list topology matcha").out.splitlines()
    assert lines[0] == "matcha(base, *, budget, seed)"
    assert "    budget  In (0, 1]: expected share of the matchings that occur in a round." in lines
    assert lines[-2] == "    topofl spectral 'matcha,base=(grid:16),budget=0.5,seed=0'"
    assert "matcha(" in shell(" ".join(shlex.split(lines[-2])[1:])).out
    lines = shell("list algorithm dsgd --needs").out.splitlines()
    (line,) = [line for line in lines if line.startswith("    batch_size ")]
    assert line.endswith("(default: 128)")
    assert "    topofl run experiment.toml --set algorithm=dsgd,lr=0.5" in lines
    (row,) = rows("list topology matcha")
    assert [one["name"] for one in row["parameters"]] == ["base", "budget", "seed"]
    assert row["example"] == "matcha,base=(grid:16),budget=0.5,seed=0"
    assert shell("list compressor top_k").out.endswith("example:\n    top_k(share=0.5)\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("list topology matchaa", "there is no topology 'matchaa'; did you mean 'matcha'?"),
        ("list topology complete", "did you mean 'fully_connected'?"),
        ("list algorithm D-PSGD", "did you mean 'dsgd'?"),
        ("list algorithm SCAFFOLD", "did you mean 'scaffold'?"),
        ("list algorithm multi_krum", "'multi_krum'; here it is krum with select above 1"),
        ("list algorithm el_local", "here it is dsgd with the topology random_out"),
        ("list partition dirichlet", "here it is dirichlet_per_class or dirichlet_per_client"),
        ("spectral el_oracle:8", "did you mean 'random_regular_sequence'?"),
        ("list algorithm zzzzzz", "no algorithm 'zzzzzz'; topofl list algorithm has all"),
        ("spectral complete:8", "there is no topology 'complete'; did you mean 'fully_connected'?"),
    ],
)
def test_names_that_are_not_there_suggest_what_was_meant(line, said, fails):
    assert said in fails(line)


def test_what_others_call_a_name_is_said_and_is_no_name(shell):
    lines = shell("list algorithm dsgd").out.splitlines()
    assert lines[2] == f"    elsewhere: {', '.join(also_called('algorithm', 'dsgd'))}"
    assert {"dpsgd", "gossip", "ellocal"} <= {*also_called("algorithm", "dsgd")}
    for kind, others in MEANT.items():
        known = {*index()} if kind == "kind" else {row["name"] for row in index()[kind]}
        for other, meant in others.items():
            assert other == re.sub(r"[\W_]", "", other.lower())
            assert other not in known
            assert other in [one for name in known for one in also_called(kind, name)]
            assert re.split(r"\W", meant)[0] in known


def test_every_parameter_of_a_graph_has_a_meaning():
    for row in index()["topology"]:
        assert [one["name"] for one in row["parameters"] if not one.get("meaning")] == []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return a folder for the file of the index, and count how often the index is made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made, names = [], listing._names
    monkeypatch.setattr(listing, "_names", lambda: made.append(1) or names())
    return tmp_path / "topofl", made


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"state": 3}', "another version"])
def test_the_index_is_made_once_and_again_if_it_is_damaged(cache, text):
    folder, made = cache
    first = index()
    assert (index(), len(made)) == (first, 1)
    (file,) = folder.iterdir()
    if text == "another version":
        text = json.dumps(json.loads(file.read_text()) | {"state": text})
    file.write_text(text)
    assert (index(), index(), len(made)) == (first, first, 2)


def test_an_index_that_cannot_be_written_is_not_kept(cache):
    folder, made = cache
    folder.write_text("a file, where the folder would be")
    assert index()["topology"] == index()["topology"]
    assert len(made) == 2


@pytest.fixture
def complete(tmp_path, shell):
    """Return a function that gives bash's completions of the last word of a line."""
    pytest.importorskip("shtab")
    (tmp_path / "script").write_text(shell("completion bash").out)

    def completions(*words):
        line = [f"source '{tmp_path / 'script'}'", f"COMP_WORDS=({' '.join(map(repr, words))})"]
        line += [f"COMP_CWORD={len(words) - 1}", "_shtab_topofl"]
        command = ["bash", "-c", "\n".join([*line, 'printf "%s\\n" "${COMPREPLY[@]}"'])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        return set(done.stdout.split())

    return completions


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
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
    assert complete("topofl", "") >= {"run", "list", "doctor", "new", "completion"}


def test_the_script_for_zsh_has_all_commands(shell, tmp_path):
    pytest.importorskip("shtab")
    script = shell("completion zsh").out
    assert script.startswith("#compdef topofl\n")
    for verb in make_parser()._subparsers._group_actions[0].choices:
        assert f"\n    {verb}:" in script
    if shutil.which("zsh"):
        (tmp_path / "_topofl").write_text(script)
        subprocess.run(["zsh", "-n", tmp_path / "_topofl"], check=True)


def test_a_missing_package_is_named(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install 'topofl[completion]'" in fails("completion bash")


def test_the_example_of_a_method_in_a_method_can_be_typed():
    (row,) = (row for row in index()["algorithm"] if row["name"] == "timed")
    given = {"data": {"name": "digits", "partition": "iid", "n": 4}, "topology": "ring"}
    given |= {"model": "logistic_regression", "run": {"rounds": 1}}
    method = config.build(given | {"algorithm": row["example"]}).algorithm
    assert str(method).startswith("dsgd: local(lr=0.1, batch_size=128, steps=2)")
