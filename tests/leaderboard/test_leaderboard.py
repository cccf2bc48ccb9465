"""The leaderboard: entries state what tasks leave open; results are compared as the page says."""

import hashlib
import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from topofl import config, leaderboard
from topofl.cli import main
from topofl.leaderboard import Entry, Result, build, read_entries, read_results, run_entry, tasks
from topofl.leaderboard.own_code import own_code

(SHARDS,) = tasks(["digits-shards"])
SHORT = replace(
    SHARDS,
    tables={**SHARDS.tables, "run": {"rounds": 4}},
    rates=(0.01, 1.0, 3e38),
    seeds=(0, 1),
)


def written(folder, text):
    path = folder / "entry.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('topology = "ring"', "a `name` with a letter from a to z or a digit, got None"),
        ('name = "-"', "a `name` with a letter from a to z or a digit, got '-'"),
        ('name = "a"\nauthors = ["b"]', "a: `authors` must be text, got ['b']"),
        ('name = "a"\nauthor = "b"', "got `author`; did you mean 'authors'?; tasks fix the rest"),
        ('name = "a"\n[data]\nn = 5', "a: an entry must have only name, authors, link, topology"),
        ('name = "a"\n[run]\nrounds = 5', "got `run`; tasks fix the rest"),
        ('[entry]\nname = "a"', "`entry` must be tables, each of which begins with [[entry]]"),
        ("entry = 3", "`entry` must be tables, each of which begins with [[entry]]"),
        ('name = "a"\n[[entry]]\nname = "b"', "nothing outside of its entries, got `name`"),
        ('name = "a"\nalgorithm = "dsgd,lr=1"', "a: `algorithm.lr` is given by the tasks"),
        (
            'name = "a"\ntopology = "random_regular,k=4,seed=7"',
            "a: `topology.seed` is given by the t",
        ),
        (
            'name = "a"\nalgorithm = "centralized"',
            "a: `algorithm` must leave data on the nodes, got",
        ),
        ('name = "a"\n[algorithm]\nbatch_size = 1', "a: `algorithm.batch_size` is given by the"),
        (
            '[[entry]]\nname = "a b"\n[[entry]]\nname = "A-B"',
            "got 'A-B' and 'a b', whose results would both be in a-b.json",
        ),
    ],
)
def test_entries_that_fix_what_tasks_fix_are_refused(tmp_path, text, said):
    with pytest.raises(ValueError, match=r"must|given") as error:
        read_entries(written(tmp_path, text))
    assert said in str(error.value)


def test_entries_of_several_files_must_have_different_names(tmp_path):
    paths = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for path, name in zip(paths, ("a", "b"), strict=True):
        path.write_text(f'name = "{name}"')
    assert [entry.name for entry in read_entries(*paths)] == ["a", "b"]
    with pytest.raises(ValueError, match="`name` must differ from those of other entries, got 'a'"):
        read_entries(paths[0], paths[0])


def test_a_task_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"got 'digits-shard'; did you mean 'digits-shards'"):
        tasks(["digits-shard"])
    with pytest.raises(TypeError, match="`names` must be a sequence of keys of tasks, got 'digits"):
        tasks("digits-shards")


def test_digests_change_with_anything_that_changes_results():
    changes = {"rates": (1.0,), "seeds": (7,), "batch_size": 9, "version": 2, "tables": {}}
    digests = {replace(SHARDS, **{name: value}).digest for name, value in changes.items()}
    assert len(digests | {SHARDS.digest}) == len(changes) + 1
    assert replace(SHARDS, about="in other words").digest == SHARDS.digest


def test_the_rate_is_chosen_on_seeds_of_its_own_and_scores_are_those_of_the_runs(tmp_path):
    (entry,) = read_entries(written(tmp_path, 'name = "On a ring"\ntopology = "ring"'))
    found = run_entry(entry, SHORT, store=tmp_path / "store")
    assert found.tried["3e+38"] is None, "it diverged"
    assert found.lr == max((0.01, 1.0), key=lambda lr: found.tried[f"{lr:g}"] or 0.0)
    experiment = entry.configuration(SHORT)
    experiment["algorithm"] |= {"lr": found.lr}
    for place, seed in enumerate(SHORT.seeds):
        own = {**experiment, "data": {**experiment["data"], "seed": seed}}
        own["run"] = {**own["run"], "seed": seed}
        history = config.build(own).run()
        accuracy = history["accuracy"].mean(axis=1)
        assert found.learning[place] == pytest.approx(accuracy[1:].mean(), rel=1e-12)
        assert found.final[place] == pytest.approx(accuracy[-1], rel=1e-12)
        assert found.worst[place] == history["accuracy"][-1].min()
    assert found.rounds == (0, 4)
    assert found.curve[-1] == pytest.approx(np.mean(found.final), rel=1e-12)
    assert (found.messages, found.models, found.steps) == (2, 2, 1)
    path = found.save(tmp_path / "board")
    assert path.name == "on-a-ring.json"
    assert read_results(tmp_path / "board", SHORT) == [found]


def test_a_rate_that_was_chosen_before_gives_the_same_scores_without_trying_any(tmp_path):
    entry = Entry("ring", {"topology": "ring"})
    tuned = run_entry(entry, SHORT, store=tmp_path / "a", progress=False)
    again = run_entry(entry, SHORT, store=tmp_path / "b", lr=tuned.lr, progress=False)
    assert again == replace(tuned, tried={})
    with pytest.raises(ValueError, match="`lr` must be a finite number above 0, got 0"):
        run_entry(entry, SHORT, store=tmp_path / "c", lr=0)


@pytest.mark.parametrize(
    ("rates", "beyond", "tried"),
    [
        ((0.01, 0.03), 0, [0.01, 0.03]),
        ((0.01, 0.03), 2, [0.01, 0.03, 0.1, 0.3]),  # four rounds are too few for small rates
        ((1e-3, 1.0, 3e38), 3, [1e-3, 1.0, 3e38]),  # the best is at no end
        ((0.01, 0.1), 1, [0.01, 0.1, 1.0]),  # ten times the second highest is the highest
    ],
)
def test_rates_beyond_an_end_are_tried_while_the_best_is_there(tmp_path, rates, beyond, tried):
    short = replace(SHORT, rates=rates, seeds=(0,))
    how = {"store": tmp_path, "beyond": beyond, "progress": False}
    found = run_entry(Entry("ring", {"topology": "ring"}), short, **how)
    assert [float(lr) for lr in found.tried] == tried


def test_lower_rates_are_tried_if_all_diverge(tmp_path):
    short = replace(SHORT, rates=(1e38, 3e38), seeds=(0,))
    entry = Entry("ring", {"topology": "ring"})
    with pytest.raises(ValueError, match="ring diverges on digits-shards with each of its"):
        run_entry(entry, short, store=tmp_path, progress=False)
    found = run_entry(entry, short, store=tmp_path, beyond=2, progress=False)
    assert list(found.tried) == ["1e+37", "3e+37", "1e+38", "3e+38"]
    assert found.tried["1e+38"] is found.tried["3e+38"] is None
    assert found.lr == 1e37


def test_another_column_counts_and_must_be_there_at_all_evaluations(tmp_path):
    tables = {**SHORT.tables, "evaluation": {"every": 2, "fine_tune_every": 2}}
    short = replace(SHORT, tables=tables, rates=(0.1,), seeds=(0,))
    entry = Entry("tuned", {"algorithm": {"name": "fedavg", "epochs": 1, "fine_tune_epochs": 1}})
    how = {"store": tmp_path, "progress": False}
    plain = run_entry(entry, short, **how)
    found = run_entry(entry, short, score="accuracy_fine_tuned", **how)
    assert found.final != plain.final
    assert found.curve[0] == plain.curve[0], "the untrained model is not fine-tuned"
    with pytest.raises(
        ValueError, match=r"`score` must be a column of the runs .*got 'accuracy_kn"
    ):
        run_entry(entry, short, score="accuracy_knn", **how)
    tables = {**tables, "evaluation": {"every": 2}}
    with pytest.raises(ValueError, match="`score` must be a column of the runs that each of their"):
        run_entry(entry, replace(short, tables=tables), score="accuracy_fine_tuned", **how)


def test_an_entry_that_diverges_at_all_rates_is_refused(tmp_path):
    with pytest.raises(ValueError, match="ring diverges on digits-shards with each of its"):
        run_entry(
            Entry("ring", {"topology": "ring"}),
            replace(SHORT, rates=(3e38,)),
            store=tmp_path,
            progress=False,
        )


def test_a_run_that_fails_otherwise_than_by_diverging_gets_no_score(tmp_path):
    """The graph of round 2 is refused for one of the seeds that count, so 0 would be wrong."""
    (tmp_path / "breaking.py").write_text(
        "from topofl import topologies\nfrom topofl.topology import TopologySequence\n\n\n"
        "def graphs(n, *, seed):\n"
        "    def at(t):\n"
        "        if t == 2 and seed == 1:\n"
        "            raise OSError('no graph of round 2')\n"
        "        return topologies.ring(n)\n\n"
        "    return TopologySequence(n, at, 'breaking')\n"
    )
    text = 'name = "breaking"\ntopology = "breaking:graphs"'
    (entry,) = read_entries(written(tmp_path, text))
    with pytest.raises(ValueError, match=r"breaking cannot be trained on digits-shards: .*round 2"):
        run_entry(entry, replace(SHORT, rates=(0.5,)), store=tmp_path / "store", progress=False)


def test_local_steps_are_measured(tmp_path):
    """Three steps per round, of which an entry alone decides, are not hidden."""
    short = replace(SHORT, rates=(0.1,), seeds=(0,))
    entry = Entry("three", {"topology": "ring", "algorithm": "dsgd,local_steps=3"})
    assert run_entry(entry, short, store=tmp_path, progress=False).steps == 3


@pytest.mark.parametrize(
    ("algorithm", "has_server"), [("dsgd", False), ("fedavg,steps=1", True), ("local_only", False)]
)
def test_results_say_whether_nodes_send_to_a_server(tmp_path, algorithm, has_server):
    short = replace(SHORT, rates=(0.1,), seeds=(0,))
    entry = Entry("one", {"topology": "ring", "algorithm": algorithm})
    found = run_entry(entry, short, store=tmp_path / "store", progress=False)
    assert found.has_server is has_server
    found.save(tmp_path)
    assert read_results(tmp_path, short) == [found]


def test_a_task_that_needs_files_reads_them_from_the_folder_given(tmp_path, mnist_root):
    (task,) = tasks(["mnist-shards"])
    short = {**task.tables, "run": {"rounds": 8}}
    short = replace(task, tables=short, rates=(0.1,), seeds=(0,))
    entry = Entry("ring", {"topology": "ring"})
    found = run_entry(entry, short, store=tmp_path, data=mnist_root.parent, progress=False)
    assert found.learning[0] > 0.15, "better than chance"
    assert (found.messages, found.models, found.steps) == (2, 2, 1)


def result(name, learning, models, steps=1, *, has_server=False):
    values = np.array(learning)
    about = {"name": name, "authors": "", "link": "", "tables": {}}
    return Result(
        *(about, SHARDS.key, SHARDS.version, SHARDS.digest, 0.3, {"0.3": 0.5}, SHARDS.seeds),
        *(tuple(learning), tuple(values + 0.01), tuple(values - 0.1), (0, 80), (0.1, 0.8)),
        messages=models,
        models=models,
        steps=steps,
        software={},
        has_server=has_server,
    )


def titled(budget, kilobytes):
    """Return the title of a table of digits-shards, whose model has 2.6 kB."""
    plural = "" if budget == 1 else "s"
    messages, models = f"{budget} message{plural}", f"{budget} model{plural}"
    return f"At most {messages} and {kilobytes} kB ({models}) per node and round"


def test_tables_have_entries_within_their_budget_and_say_who_is_tied(tmp_path):
    results = [
        result("first", [0.80, 0.82, 0.81, 0.80, 0.82], 4),
        result("tied", [0.81, 0.80, 0.81, 0.81, 0.80], 4),
        result("behind", [0.70, 0.72, 0.71, 0.70, 0.72], 2),
        result("expensive", [0.90, 0.90, 0.90, 0.90, 0.90], 29),
        result("busy", [0.95, 0.95, 0.95, 0.95, 0.95], 4, steps=2),
        result("served", [0.97, 0.97, 0.97, 0.97, 0.97], 2, has_server=True),
        result("served and busy", [0.99, 0.99, 0.99, 0.99, 0.99], 2, steps=5, has_server=True),
    ]
    for one in results:
        one.save(tmp_path)
    text = build(tmp_path).read_text()
    tables = dict(part.split("**\n\n", 1) for part in text.split("\n\n**")[1:])
    assert set(tables) == {
        titled(2, 5.2),
        titled(4, 10.4),
        titled(9, 23.4),
        "More than that",
        f"{titled(4, 10.4)}, several local steps",
        f"{titled(9, 23.4)}, several local steps",
        "With a server",
        "With a server, several local steps",
    }
    assert not any("served" in table for title, table in tables.items() if title[0] != "W")
    assert "| served |" in tables["With a server"]
    assert "| 2.00 | 2.00 | 5.2 kB | 1 |" in tables["With a server"]
    rows = [line for line in tables[titled(4, 10.4)].splitlines()[2:] if line]
    cells = [[cell.strip() for cell in row.split("|")[1:4]] for row in rows[:3]]
    assert cells == [
        ["1", "first", "81.0 ± 1.2"],
        ["1", "tied", "80.6 ± 0.7"],
        ["3", "behind", "71.0 ± 1.2"],
    ]
    assert "10.0 (10.0 to 10.0)" in rows[2]
    assert "| behind |" not in tables["More than that"]
    assert (tmp_path / "digits-shards.png").stat().st_size > 1000


def test_larger_tables_show_entries_of_smaller_ones_only_if_they_lead(tmp_path):
    """Of twelve entries of one message and three of two, each at a rank of its own."""
    levels = {f"cheap {k}": (0.8 - k / 100, 1) for k in range(12)}
    levels |= {"good": (0.9, 2), "middle": (0.755, 2), "bad": (0.1, 2)}
    for name, (level, models) in levels.items():
        result(name, [level] * 5, models).save(tmp_path)
    text = build(tmp_path).read_text()
    small, large = (text.split(f"**{titled(*one)}**")[1] for one in ((1, 2.6), (2, 5.2)))
    assert [cells[1] for cells in rows_of(small.split("**")[0], "cheap")] == list(levels)[:12]
    rows = [cells[:2] for cells in rows_of(large.split("**")[0], "")[1:] if cells[0].isdigit()]
    leading = ["good", *(f"cheap {k}" for k in range(5)), "middle", "cheap 5", "cheap 6", "cheap 7"]
    assert rows == [[str(k), name] for k, name in enumerate(leading, 1)] + [["15", "bad"]]


def rows_of(text, name):
    """Return the cells of the rows of an entry on a page."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [cells for cells in rows if len(cells) > 2 and cells[1].startswith(name)]


def test_rates_at_an_end_of_the_grid_are_marked(tmp_path):
    rates = {"low": 0.3, "middle": 1.0, "high": 10.0}
    for name, lr in rates.items():
        tried = {"0.3": 0.5, "1": 0.5, "10": 0.5}
        replace(result(name, [0.5] * 5, 1), lr=lr, tried=tried).save(tmp_path)
    replace(result("alone", [0.5] * 5, 1), lr=1.0, tried={"1": 0.5}).save(tmp_path)
    text = build(tmp_path).read_text()
    written = {name: {cells[-1] for cells in rows_of(text, name)} for name in (*rates, "alone")}
    assert written == {
        "low": {"0.3 (smallest)"},
        "middle": {"1"},
        "high": {"10 (largest)"},
        "alone": {"1"},
    }


@pytest.mark.slow
def test_own_code_is_recorded_with_what_it_imports_and_marked_on_the_page(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "ownhelpers.py").write_text("from topofl import topologies\n\nmake = topologies.ring\n")
    (code / "ownunused.py").write_text("")
    (code / "owngraph.py").write_text(
        "def graph(n):\n    import ownhelpers\n\n    return ownhelpers.make(n)\n"
    )
    text = '[[entry]]\nname = "own"\ntopology = "owngraph:graph"\n'
    own, ours = read_entries(written(code, text + '[[entry]]\nname = "ours"\ntopology = "ring"'))
    short = replace(SHARDS, rates=(0.5,))
    found = run_entry(own, short, store=tmp_path / "store", progress=False)
    assert found.own_code == {
        name: hashlib.sha256((code / name).read_bytes()).hexdigest()
        for name in ("owngraph.py", "ownhelpers.py")
    }
    found.save(tmp_path / "board")
    other = run_entry(ours, short, store=tmp_path / "store", progress=False)
    assert other.own_code == {}
    other.save(tmp_path / "board")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topofl.leaderboard.page.tasks", lambda: (short,))
        page = build(tmp_path / "board").read_text()
    assert {cells[1] for cells in rows_of(page, "ou")} == {"ours"}
    assert {cells[1] for cells in rows_of(page, "ow")} == {"own (*own code*)"}


def test_own_code_of_packages_is_found_with_relative_imports(tmp_path, monkeypatch):
    """In the folder of an entry, as installed packages, and without an __init__.py."""
    files = {
        "ownpackage/__init__.py": "",
        "ownpackage/graphs.py": "import ownsibling\nfrom . import parts\n",
        "ownpackage/parts.py": "",
        "ownbare/graphs.py": "import ownsibling\nfrom ownbare import parts\n",
        "ownbare/relative.py": "from . import parts\n",
        "ownbare/parts.py": "",
        "ownsibling.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = {name for name in files if name.startswith("ownpackage")}
    for module, folder, wanted in (
        ("ownpackage.graphs", tmp_path, {*package, "ownsibling.py"}),
        ("ownpackage.graphs", None, package),
        ("ownbare.graphs", tmp_path, {"ownbare/graphs.py", "ownsibling.py"}),
        ("ownbare.relative", tmp_path, {"ownbare/relative.py"}),
    ):
        import_module(module)
        tables = {"topology": {"name": f"{module}:graph"}}
        tables |= {} if folder is None else {"modules": {"folder": str(folder)}}
        found = own_code(tables)
        assert found == {
            name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in wanted
        }


def test_ranks_of_an_entry_are_printed_by_budget(tmp_path, capsys):
    for name, level, models in [("first", 0.8, 4), ("second", 0.7, 2), ("third", 0.6, 2)]:
        result(name, [level] * 5, models).save(tmp_path)
    assert main(["leaderboard", "build", "--out", str(tmp_path), "--entry", "third"]) == 0
    said = capsys.readouterr().out
    assert "written: " in said
    table = leaderboard.ranks(tmp_path, "third")
    assert str(table) in said
    titles = [titled(2, 5.2), titled(4, 10.4), titled(9, 23.4)]
    assert [row[:4] for row in table.rows] == [
        ("digits-shards", titles[0], 2, 2),
        ("digits-shards", titles[1], 3, 3),
        ("digits-shards", titles[2], 3, 3),
    ]
    assert table.rows[0][4] == "10.0 (10.0 to 10.0)"
    assert main(["leaderboard", "build", "--out", str(tmp_path), "--entry", "thirst"]) == 2
    said = capsys.readouterr().err
    assert "`--entry` must name an entry with results, got 'thirst'; did you mean 'third'?" in said
    assert main(["leaderboard", "run", "a.toml", "--entry", "third"]) == 2
    assert "`--entry` must be given to build, not to run" in capsys.readouterr().err


def test_results_of_another_version_of_a_task_are_refused(tmp_path):
    path = result("a", [0.5] * 5, 1).save(tmp_path)
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "digest": "0" * 12, "version": 0}))
    with pytest.raises(ValueError, match=r"got version 0 \(000000000000\); run the entry again"):
        build(tmp_path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="must be a result that topofl leaderboard run wrote"):
        build(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [0, 1]}, "must have one score for each of the seeds 0, 1, 2, 3, 4"),
        ({"final": [0.5]}, "must have one score for each of the seeds 0, 1, 2, 3, 4"),
        ({"worst": ["a"] * 5}, "must be a result that topofl leaderboard run wrote"),
        ({"entry": {"name": 3}}, "must be a result that topofl leaderboard run wrote"),
        ({"entry": {"name": "b"}}, "must have the name of its entry, b.json; rename it"),
        ({"own_code": 3}, "must be a result that topofl leaderboard run wrote"),
        ({"tried": {"a": 1}}, "must be a result that topofl leaderboard run wrote"),
        ({"models": None}, "must be a result that topofl leaderboard run wrote"),
    ],
)
def test_results_that_cannot_be_compared_are_refused(tmp_path, changes, said):
    path = result("a", [0.5] * 5, 1).save(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ValueError, match=r"a\.json must") as error:
        build(tmp_path)
    assert said in str(error.value)


def test_a_result_does_not_replace_that_of_another_entry(tmp_path):
    first = result("Torus", [0.5] * 5, 1)
    assert first.save(tmp_path) == first.save(tmp_path)
    with pytest.raises(ValueError, match=r"`name` must differ from those of other entries, got 't"):
        result("torus", [0.6] * 5, 1).save(tmp_path)
    first.save(tmp_path).write_text("{")
    with pytest.raises(ValueError, match=r"something else than a result of this entry; rename it"):
        first.save(tmp_path)


def test_scores_that_are_no_numbers_are_refused_by_file(tmp_path):
    path = result("a", [0.5] * 5, 1).save(tmp_path)
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "final": [float("nan")] * 5}))
    with pytest.raises(ValueError, match=r"a\.json must have finite scores; run the entry again"):
        build(tmp_path)


def test_an_entry_that_diverges_does_not_stop_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(leaderboard, "tasks", lambda names: (replace(SHORT, rates=(3e38,)),))
    path = written(
        tmp_path,
        '[[entry]]\nname = "bad"\ntopology = "ring"\n[[entry]]\nname = "good"\n'
        'algorithm = "dsgd"\ntopology = "ring"',
    )
    how = ["--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]
    run = leaderboard.run_entry

    def first_diverges(entry, task, **options):
        rates = (3e38,) if entry.name == "bad" else (0.5,)
        return run(entry, replace(task, rates=rates), **options)

    monkeypatch.setattr(leaderboard, "run_entry", first_diverges)
    assert main(["leaderboard", "run", str(path), *how]) == 1
    said = capsys.readouterr()
    assert "good, digits-shards: " in said.out
    assert "bad diverges on digits-shards with each of its learning rates" in said.err


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`folder` must have results"):
        build(tmp_path)
