"""What the programs of analysis refuse: from Python, and as an error of one line."""

import subprocess
import sys

import pandas as pd
import pytest

from analysis import (
    architecture,
    convergence_study,
    designed_topologies,
    methods,
    soak,
    start_up,
)
from analysis.benchmark import command as benchmark
from analysis.benchmark.cases import TRAINING, on_few_nodes
from analysis.benchmark.timing import simulator_steps
from analysis.study import calibration
from analysis.study import command as study
from analysis.study.fits import write_runs
from analysis.study.page import write_page
from analysis.study.scenarios import configured_scenarios
from analysis.sweep_benchmark import _finish
from tests.analysis.studies import CONFIG, small_cells
from tests.refusals import named, refused
from topofl.cli import main as topofl


def configured(path, old, new):
    """Read the configuration of a study with a change."""
    config = path / "small.toml"
    config.write_text(CONFIG.replace(old, new))
    return configured_scenarios(config)


def line(text):
    """Return a function that reads the configuration with another line of its last table."""
    key = text.partition(" ")[0]
    kept = [old for old in CONFIG.splitlines() if not old.startswith(f"{key} =")]
    return lambda path: configured(path, CONFIG, "\n".join([*kept, text]))


def a_call_that_no_round_makes(path):
    with pytest.MonkeyPatch.context() as patch:
        wrong = ("engine/run", "engine/fingerprint", "fingerprint", "")
        patch.setattr(architecture, "PATH", (wrong,))
        architecture.picture()


def samples(count):
    return soak.slope([soak.Sample(t, t * soak.MIB, 1, 1, 1) for t in range(count)])


FEW_NODES = on_few_nodes(TRAINING[0], 20, same_graph=True)
SEEDS = ("small.toml", "`seeds` in [study] must be a list of different integers of at least 0")
ROWS = [
    (ValueError, "engine/run does not call fingerprint", a_call_that_no_round_makes),
    (
        ValueError,
        "at least 2 differences, got 1",
        lambda: designed_topologies.difference([0.1]),
        lambda: designed_topologies.difference([0.1, 0.2]),
    ),
    (
        ValueError,
        "`samples` must be at least 4, got 3",
        lambda: samples(3),
        lambda: samples(4),
    ),
    (
        ValueError,
        "`rounds` must be at least 4000, eight times `every`, got 3999",
        lambda: soak.measure(3999, every=500),
    ),
    (
        RuntimeError,
        "the sweep ended with 3",
        lambda: _finish(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])),
        lambda: _finish(subprocess.Popen([sys.executable, "-c", ""])),
    ),
    (
        FileNotFoundError,
        ("--simulator must be the folder", "tools: simulate.algorithm.d_sgd, se"),
        lambda path: simulator_steps(path, FEW_NODES, rounds=1, budget=1),
    ),
    (
        ValueError,
        "`tables` must contain at least one cell, got none",
        lambda path: write_page([], path),
    ),
    (
        ValueError,
        ("must have keys of graphs, ", "got 'graph'; did you mean 'graphs'?"),
        line("graph = []"),
    ),
    (ValueError, ("small.toml: ", " got 'rate'; did you mean 'rates'?"), line("rate = [0.1]")),
    (ValueError, (*SEEDS, "got []"), line("seeds = []")),
    (ValueError, SEEDS, line("seeds = [0, 0]")),
    (ValueError, (*SEEDS, "got [-1]"), line("seeds = [-1]"), line("seeds = [0]")),
    (ValueError, (*SEEDS, "got ['a']"), line('seeds = ["a"]')),
    (
        ValueError,
        "`rates` in [study] must be a list of different positive numbers",
        line("rates = [0]"),
    ),
    (ValueError, ("`graphs` in [study] must be a list of ", "got 'ring'"), line('graphs = "ring"')),
    (ValueError, "`graphs` in [study] must be a list of different specs", line("graphs = [3]")),
    (ValueError, "rng", line('graphs = ["rng"]')),
    (ValueError, "`k`", line('graphs = ["random_regular,k=9"]')),
    (ValueError, "shrds", line('partitions = ["shrds"]')),
    (ValueError, "dsdg", line('algorithms = ["dsdg"]')),
    (
        ValueError,
        "one batch size, got 4, 8",
        line('algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=4"]'),
        line('algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=8"]'),
    ),
    (
        ValueError,
        "[study] must be a table, got 3",
        lambda path: configured(path, CONFIG, "study = 3\n" + CONFIG.partition("[study]")[0]),
    ),
    (
        ValueError,
        "`n` in [data] must be at least 6, got 4",
        lambda path: configured(
            path, CONFIG, CONFIG.replace("n = 8", "n = 4").replace(', "random_regular,k=4"', "")
        ),
        lambda path: configured(path, "n = 8", "n = 6"),
    ),
    (
        ValueError,
        "no table [studdy]; did you mean [study]?",
        lambda path: configured(path, "[study]", "[studdy]"),
    ),
    (
        ValueError,
        ("small.toml: ", "alfa"),
        lambda path: configured(path, "n = 8", "n = 8\nalfa = 1"),
    ),
    (ValueError, ("small.toml: ", "lr"), lambda path: configured(path, "lr = 0.1", "lr = -1")),
    (
        ValueError,
        "`every` in [evaluation] must be at most half of `rounds`, 2",
        lambda path: configured(path, "every = 2", "every = 3"),
        lambda path: configured(path, "every = 2", "every = 1"),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)


def renamed(path, old, new):
    """Return the words for a report of runs with another name."""
    runs = pd.read_csv(write_runs(small_cells(), path / "runs.csv.gz"))
    runs.rename(columns={old: new}).replace({old: new}).to_csv(path / "runs.csv.gz", index=False)
    return ["--runs", path / "runs.csv.gz", "--out", path]


COMMANDS = [
    (study.main, "SCENARIO must be one of 'digits 60', 'digits 60, other", ["digits 31"]),
    (study.main, "`--processes` must be at least 1, got 0", ["digits 30", "--processes", 0]),
    (study.main, "`--minutes` must be at least 0, got -1", ["digits 30", "--minutes", -1]),
    (study.main, "lacks ['H_10']", lambda path: renamed(path, "H_10", "H_ten")),
    (study.main, "only, got ['digits 31']", lambda path: renamed(path, "digits 30", "digits 31")),
    (calibration.main, "no complete cell", lambda path: [path, "--out", path / "new" / "c.json"]),
    (convergence_study.main, "nothing", lambda path: ["--data", path / "nothing"]),
    (convergence_study.main, "seeds", ["--seeds", 0]),
    (
        designed_topologies.main,
        "`--data` must name a folder with the folder mnist",
        lambda path: ["MNIST", "--out", path / "new"],
    ),
    (methods.main, "jobs", lambda path: ["--quick", "--jobs", 0, "--out", path / "new"]),
    (start_up.main, "--repeats must be at least 1, got 0", ["--repeats", 0]),
    (start_up.main, "must have a folder topofl", lambda path: ["--before", path]),
    (
        benchmark.main,
        "got 'GN-VGG'; labels: D-Cliques + CA, 100 x 128, fully-",
        ["training", "--only", "GN-VGG"],
    ),
    (benchmark.main, "error: --out: ", ["--out", __file__]),
    (benchmark.main, "error: --device: `device` must be such as", ["--device", "tpu"]),
    (benchmark.main, "must be at least 1, got", ["--rounds", 0]),
    (benchmark.main, "must be at least 1, got", ["--naive-nodes", 0]),
    (benchmark.main, "--quick must be left out for graphs", ["graphs", "--quick"]),
    (benchmark.main, "error: --simulator must be the folder", lambda path: ["--simulator", path]),
    (
        topofl,
        "there is no folder",
        lambda path: ["spectral", "ring:8", "--html", path / "none" / "x.html"],
    ),
    (
        topofl,
        "`rounds` must be at least 1",
        lambda path: ["spectral", "ring:8", "--rounds", 0, "--html", path / "x.html"],
    ),
    (topofl, "it is a folder", lambda path: ["spectral", "ring:8", "--html", path]),
    (
        topofl,
        "did you mean 'ring'?",
        lambda path: ["spectral", "rng:8", "--html", path / "x.html"],
    ),
]


@pytest.mark.parametrize(("main", "message", "words"), COMMANDS)
def test_refused_commands(main, message, words, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    words = [str(word) for word in (words(tmp_path) if callable(words) else words)]
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} <= {"runs.csv.gz"}
