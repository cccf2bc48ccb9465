"""What holds for every run of the table.

`make test` takes one contract for each method and for each second one of the other runs, such that
each contract is met by some runs; `make test-all` takes every third pair, such that each run meets
a third of the contracts. With ``TOPOFL_ALL_PAIRS=1`` it takes all of them.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache

import numpy as np
import pytest
import torch

import topofl
from tests.engine import killed
from tests.new_process import results_of
from tests.rows import runs as row_runs
from tests.rows.ambient import AMBIENT, TOGETHER, entered
from tests.rows.methods import ALGORITHMS
from tests.rows.runs import ATTACKED, OPTIONS, ROUNDS, RUNS, arguments, differences, in_float64
from tests.simulated_device import DEVICES
from topofl import Compute, Evaluation, algorithms, config
from topofl.engine import memory

pytestmark = pytest.mark.filterwarnings("ignore")

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

EMULATED = {name for name, options in OPTIONS.items() if "precision" in options}

CHOSEN = [name for name, row in ALGORITHMS.items() if row.random_messages]
CHOSEN += ["ad_psgd", "pfeddst", "user's policy", "own validation"]
"""Parts of the names of runs whose messages are drawn, or depend on the models."""

UNFIT = {
    "resumed": set(),
    "ranks": {"one node", *EMULATED},
    # which draws other numbers
    "device": {"a forward that makes a tensor", "other random numbers", *EMULATED},
    "mapped": {*ATTACKED, *EMULATED},  # attackers have all models in memory
    "in threads": set(),
    "ambient": set(),
    "observed": set(),
    "estimated": {name for name in RUNS if any(part in name for part in CHOSEN)},
    "saved": {"a node freezes"},  # files keep no infinite loss of a round: it is read as NaN
    "configured": RUNS.keys() - ALGORITHMS.keys() - OPTIONS.keys(),
}
"""Runs for which a contract has no meaning."""

TURNS = dict.fromkeys(("resumed", "ranks", "device", "ambient"), 1)
"""How many runs of a cycle meet a contract that takes long; each of the others is met by five."""


def quick():
    """Return the contract that `make test` takes for a run: each in turn, where it fits."""
    chosen, turns = {}, [contract for contract in UNFIT for _ in range(TURNS.get(contract, 5))]
    for k, name in enumerate(RUNS):
        if name not in ALGORITHMS and k % 2:
            continue
        fitting = [contract for contract in turns if name not in UNFIT[contract]]
        chosen[name] = fitting[k % len(fitting)]
    return chosen


QUICK = quick()


def takes(contract, name):
    """Return whether a run is to meet a contract: the two are of one turn, or `make test` does."""
    places = list(RUNS).index(name) + list(UNFIT).index(contract)
    return (
        QUICK.get(name) == contract or places % 3 == 0 or bool(os.environ.get("TOPOFL_ALL_PAIRS"))
    )


def of_runs(contract):
    """Return a mark with the runs that meet a contract; those left out by `make test` are slow."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=() if QUICK.get(name) == contract else pytest.mark.slow)
            for name in RUNS
            if name not in UNFIT[contract] and takes(contract, name)
        ],
    )


def chosen(request, test):
    """Return the runs for which a test has been selected, which one process computes."""
    items = [item for item in request.session.items if getattr(item, "originalname", "") == test]
    return [item.callspec.params["name"] for item in items if item.path == request.path]


@cache
def reference(name):
    return topofl.run(**arguments(name))


@cache
def reference_in_float64(name):
    return topofl.run(**in_float64(name))


def test_every_method_and_every_contract_is_met_without_slow_tests():
    assert RUNS.keys() >= QUICK.keys() >= {*algorithms.__all__}
    assert set(QUICK.values()) == UNFIT.keys()


def test_differences_are_found():
    history, other = (topofl.run(**in_float64("dsgd", seed=seed)) for seed in (0, 1))
    again = topofl.run(**in_float64("dsgd"))
    assert differences(again, history) == differences(again, history, 1e-10) == []
    assert differences(other, history, 1e-10)
    history.rounds["train_loss"][0] += 1e-6
    for tolerance in (0.0, 1e-10):
        assert differences(history, again, tolerance) == ["rounds.train_loss: 1e-06"]
    history.meta["seed"] = 7
    assert differences(history, again) == ["rounds.train_loss: 1e-06", "meta seed"]


@pytest.fixture(scope="module")
def after_kills(request):
    return results_of(
        "tests.engine.killed", *chosen(request, "test_killed_runs_resume"), timeout=None
    )


@FORKS
@of_runs("resumed")
def test_killed_runs_resume(after_kills, name):
    """Bit for bit as if they had never stopped."""
    assert after_kills[name] == {moment: [] for moment in killed.moments(name)}


@pytest.fixture(scope="module")
def on_ranks(request):
    names = chosen(request, "test_results_do_not_depend_on_ranks")
    return results_of("tests.contracts.ranks", *names, timeout=1000)


@FORKS
@of_runs("ranks")
def test_results_do_not_depend_on_ranks(on_ranks, name):
    assert on_ranks[name] == {"2 ranks": [], "3 ranks": [], "alone after 3 ranks": []}


BOTH_EXECUTORS = ("clique_averaging", "dpfl", "per_fedavg", *OPTIONS)
"""Runs that need more of an executor than local steps, each in another way."""


@pytest.mark.parametrize("kind", DEVICES)
@of_runs("device")
def test_devices_agree(name, kind):
    ways = [{"executor": "batched", "chunk": 3}, {"executor": "looped", "chunk": "auto"}]
    for way in ways if name in BOTH_EXECUTORS else ways[:1]:
        with DEVICES[kind]():
            found = topofl.run(**in_float64(name, device="cuda", **way))
            wrong = differences(found, reference_in_float64(name), row_runs.tolerance_of(name))
        assert found.meta["device"] == "cuda:0"
        assert wrong == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
@of_runs("mapped")
def test_models_in_a_file_agree(name, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "COPIED", 2**12)
    monkeypatch.setattr(memory, "KEPT", 0)
    found = topofl.run(**in_float64(name, scratch=tmp_path))
    exact, tolerance = reference_in_float64(name), row_runs.tolerance_of(name)
    assert differences(found, exact, 1e-12 if tolerance == 1e-10 else tolerance) == []
    assert not list(tmp_path.iterdir())


@of_runs("in threads")
def test_runs_in_threads_agree(name):
    """While the caller draws, and reads the same numbers as without a run."""
    wanted = reference(name)
    torch.manual_seed(5)
    numbers = torch.rand(2000)
    torch.manual_seed(5)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(topofl.run, **arguments(name)) for _ in range(2)]
        mine = torch.cat([torch.rand(1) for _ in range(2000)])
        for one in running:
            assert differences(one.result(), wanted) == []
    assert torch.equal(mine, numbers)


def settings_now():
    """Return the torch settings that a run may leave changed."""
    return (
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.overrides._get_current_function_mode_stack(),
        torch.get_num_threads(),
    )


@of_runs("ambient")
def test_ambient_torch_settings_are_ignored_and_restored(name):
    """Also by estimates; two methods with each setting alone."""
    alone = [(setting,) for setting in AMBIENT if name in ("dsgd", "dpfl")]
    for settings in (*TOGETHER, *alone):
        how = arguments(name)
        with entered(*settings):
            before = settings_now()
            found = topofl.run(**how)
            need = estimated(how, probe=True)
            assert settings_now() == before
        assert differences(found, reference(name)) == []
        assert need == estimated(how)


EXACT = ("messages", "bytes", "messages_paper", "bytes_paper")
BUSIEST = ("busiest_messages", "busiest_bytes")


def estimated(run, **options):
    """Return what an estimate says about a run, other than about the machine."""
    how = {key: value for key, value in run.items() if key not in ("seed", "init")}
    need = topofl.estimate(**how, **options)
    parts = "parameters", "state", "gradients", "activations", "evaluation", "history"
    return {part: getattr(need, part) for part in (*parts, *EXACT, *BUSIEST)}


OBSERVED = {
    "every": 1,
    "before_exchange": True,
    "fine_tune": algorithms.sgd(0.1, batch_size=4, epochs=2, momentum=0.9),
    "fine_tune_every": 1,
    "also": {"mean": lambda models, round: models.flat.mean(0).expand(round.n, -1)},
    "per_node": {"norm": row_runs.length},
}
UNOBSERVED = dict.fromkeys(("also", "fine_tune", "fine_tune_every", "nodes", "examples"))
UNOBSERVED |= {"on": (), "before_exchange": False}


@of_runs("observed")
def test_evaluations_do_not_change_training(name):
    """Those of more rounds and stages, with fine-tuning and columns of users, or of no scores."""
    wanted = reference(name)
    for options in (OBSERVED, UNOBSERVED) if wanted.score_columns else (UNOBSERVED,):
        found = topofl.run(**arguments(name, **options))
        np.testing.assert_array_equal(found.models.flat, wanted.models.flat)
        np.testing.assert_array_equal(found.node_loss, wanted.node_loss)
        for column, values in wanted.rounds.items():
            np.testing.assert_array_equal(found[column], values, err_msg=column)
        same = np.isin(found["round"], wanted["round"])
        for column in found.evaluations.keys() & wanted.evaluations.keys():
            if "fine_tuned" not in column:  # in other rounds, by another phase
                np.testing.assert_array_equal(found[column][same], wanted[column], err_msg=column)


@of_runs("estimated")
def test_estimated_messages_are_recorded(name):
    need, history = estimated(arguments(name)), reference(name)
    for column in EXACT:
        assert need[column] == pytest.approx(history[column].mean(), rel=1e-12), column
    for column in BUSIEST:
        assert need[column] == history[column].max(), column


@of_runs("saved")
def test_saved_histories_are_loaded(name, tmp_path):
    history = reference(name)
    loaded = topofl.History.load(history.save(tmp_path / "history", models=True))
    assert differences(loaded, history) == []
    assert repr(loaded) == repr(history)
    assert list(loaded.evaluations) == list(history.evaluations)


def tables(name):
    """Return the tables of a configuration with the run of a method, or of D-SGD with options."""
    method = "dsgd" if name in OPTIONS else name
    row, how = ALGORITHMS[method], row_runs.of_method(method) | OPTIONS.get(name, {})
    given = {**row.required, **row.killed}
    model = "perceptron" if {"head", "local"} & given.keys() else "linear"
    model = "convolutional" if name in OPTIONS else model
    partition = {"partition": "iid"}
    if row.validated:
        partition = {"partition": "dirichlet_per_class", "alpha": 1.0, "min_size": 4}
        partition["val_fraction"] = 0.3
    options = {
        table: {one.name: how[one.name] for one in fields(kind) if one.name in how}
        for table, kind in (("evaluation", Evaluation), ("compute", Compute))
    }
    return options | {
        "data": {"name": "tests.problems:dataset", "n": 6, "seed": 0, **partition},
        "topology": {"name": "dcliques", "clique_size": 3, "inter": "ring", "steps": 10, "seed": 0},
        "algorithm": {"name": method, "lr": 0.1, "batch_size": 4, **given},
        "model": {"name": f"tests.problems:{model}"},
        "run": {"rounds": ROUNDS, "seed": 0, "init": how["init"]},
    }


@of_runs("configured")
def test_configurations_give_the_same_run(name, tmp_path):
    """Also those that the run states to be its own."""
    path = tmp_path / "run.toml"
    path.write_text(config.dumps(tables(name)))
    experiment = config.load(path)
    history = experiment.run()
    assert differences(history, reference(name)) == []
    path.write_text(config.dumps(experiment.tables_of(history)))
    again = config.load(path).run()
    assert differences(again, history, 1e-12) == []
