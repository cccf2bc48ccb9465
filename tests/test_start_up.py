"""What ``import topofl`` and short commands load, counted in new processes; nothing is timed."""

import copy
import os
import pickle
from collections.abc import Sequence

import pytest

import topofl
from tests.new_process import forks
from topofl.cli.listing import index

HEAVY = {
    *("torch_geometric", "sklearn", "pandas", "matplotlib", "networkx", "sympy", "PIL"),
    *("torchvision", "scipy.stats", "scipy.signal", "marimo", "uvicorn"),
}
"""Packages that are loaded by the functions that need them."""

NUMERICAL = {"torch", "numpy", "scipy"}

COMMANDS = {
    "help": ["--help"],
    "help of a command": ["run", "--help"],
    "help of the explorer": ["explore", "--help"],
    "version": ["--version"],
    "list": ["list"],
    "list of a kind": ["list", "topology"],
    "list of columns": ["list", "metric"],
    "list as JSON": ["list", "--json"],
    "completion": ["completion", "bash"],
    "new": ["new", os.devnull],
    "wrong command": ["lsit"],
    "wrong option": ["run", "--sket"],
    "wrong kind": ["list", "topolgy"],
}


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture(scope="module")
def loaded_by():
    """Return the names of the modules that are loaded after running code in a new process.

    The index of names, which imports all of them when a source file has changed, is made before.
    """
    index()
    with forks() as run:
        yield lambda code: run(code)[1]


@pytest.fixture(scope="module")
def loaded_with_torch():
    """Return the same for a process that has loaded torch, which takes longer than all else."""
    with forks("import torch") as run:
        yield lambda code: run(code)[1]


def command(words: Sequence[str]) -> str:
    """Return code that runs a command, and goes on if it exits."""
    main = f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass"
    return f"from topofl.cli import main\n{main}"


def test_import_loads_no_package_but_itself_and_lists_its_names(loaded_by):
    found = loaded_by("import topofl\nassert set(topofl.__all__) <= set(dir(topofl))")
    assert "topofl" in found
    assert not found & (HEAVY | NUMERICAL)


@pytest.mark.slow
def test_all_names_are_loaded_without_packages_of_single_functions(loaded_by):
    found = loaded_by("from topofl import *\nassert run and topologies.ring(5) and Topology")
    assert found >= NUMERICAL
    assert not found & HEAVY


@pytest.mark.slow
def test_metrics_are_loaded_without_special_functions(loaded_with_torch):
    assert "scipy.special" not in loaded_with_torch("import topofl.metrics")


def test_the_counts_see_what_is_loaded(loaded_with_torch):
    assert "networkx" in loaded_with_torch("import topofl\ntopofl.topologies.karate_club()")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_short_commands_do_not_load_torch(loaded_by, words):
    assert not loaded_by(command(words)) & (HEAVY | NUMERICAL)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]], ids=" ".join)
def test_help_does_not_load_what_it_does_not_use(loaded_by, words):
    assert not loaded_by(command(words)) & {"psutil", "uuid", "importlib.metadata", "email.message"}


@pytest.mark.slow
def test_requirements_load_torch(loaded_by):
    assert "torch" in loaded_by(command(["list", "algorithm", "--needs"]))


MODULES = [
    *("advice", "algorithms", "attacks", "callbacks", "clocks", "config", "data", "engine"),
    *("estimate", "explore", "history", "metrics", "mixing", "models", "privacy", "report", "runs"),
    *("summary", "tasks", "toolkit", "topologies", "topology", "trained"),
]


@pytest.mark.slow
def test_every_module_can_be_imported_first(loaded_with_torch):
    """Lazy names do not fix an order of imports, so a cycle would show in some order only."""
    alone = "\n".join(
        [
            "import sys, importlib",
            f"for name in {MODULES}:",
            "    importlib.import_module(f'topofl.{name}')",
            "    for key in [key for key in sys.modules if key.split('.')[0] == 'topofl']:",
            "        del sys.modules[key]",
        ]
    )
    loaded_with_torch(alone)


def test_star_import_binds_all_names():
    names: dict[str, object] = {}
    exec("from topofl import *", names)
    assert set(names) - {"__builtins__"} == set(topofl.__all__) <= set(dir(topofl))
    assert all(names[name] is getattr(topofl, name) for name in topofl.__all__)


def test_modules_that_were_attributes_still_are(loaded_with_torch):
    code = "import topofl\nprint(topofl.engine, topofl.topology, topofl.trained.__name__)"
    assert {"topofl.engine", "topofl.trained"} <= loaded_with_torch(code)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'topofl' has no attribute 'rnu'"):
        topofl.rnu  # noqa: B018
    assert not hasattr(topofl, "estimates")


@pytest.mark.parametrize(
    "first",
    ["", "import topofl.estimate", "from topofl.estimate import Estimate", "import topofl.config"],
)
@pytest.mark.slow
def test_estimate_is_the_function_in_any_order(loaded_with_torch, first):
    """The package ``topofl.estimate`` has the name of its function."""
    check = """
import topofl
assert topofl.estimate.__name__ == "estimate"
import topofl.estimate as again
from topofl.estimate import Estimate, estimate
assert estimate is again is topofl.estimate
"""
    loaded_with_torch(first + check)


def test_results_can_be_pickled_before_their_module_is_loaded(loaded_with_torch, tmp_path):
    graph = topofl.topologies.ring(5)
    path = tmp_path / "graph.pkl"
    path.write_bytes(pickle.dumps([graph, topofl.Compute()]))
    code = f"import pickle\ngraph, _ = pickle.load(open({str(path)!r}, 'rb'))\nassert graph.n == 5"
    assert "topofl.engine" in loaded_with_torch(code)
    assert copy.deepcopy(topofl.Compute()) == topofl.Compute()


OTHERS = """
import locale, logging, os, pkgutil, random, signal, sys, tempfile, warnings
import matplotlib, numpy, torch
import networkx, pandas, PIL, psutil, scipy, sklearn, torch_geometric, tqdm.auto
import contextlib
with contextlib.suppress(ModuleNotFoundError):  # of an extra
    import marimo
import matplotlib.figure, sklearn.datasets, sklearn.linear_model, torch_geometric.data  # as topofl
"""
"""Imports of other packages, whose side effects do not count."""

SIDE_EFFECTS = """
def state():
    return {
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "torch seed": torch.initial_seed(),
        "torch random state": torch.get_rng_state().sum().item(),
        "numpy random state": str(numpy.random.get_state()),
        "random state": str(random.getstate()),
        "torch settings": [
            str(torch.get_default_dtype()), torch.is_grad_enabled(),
            torch.get_deterministic_debug_mode(),
            torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark,
            torch.backends.mkldnn.enabled,
        ],
        "numpy settings": [str(numpy.geterr()), str(numpy.get_printoptions())],
        "matplotlib": str(dict.items(matplotlib.rcParams)),
        "pyplot": "matplotlib.pyplot" in sys.modules,
        "warnings": [str(warnings.filters), str(warnings.showwarning)],
        "logging": [str(logging.root.handlers), logging.root.level],
        "signals": [str(signal.getsignal(signal.SIGINT)), str(signal.getsignal(signal.SIGTERM))],
        "hooks": [str(sys.excepthook), str(sys.stdout), str(sys.path)],
        "environment": dict(os.environ),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),
    }

def import_all():
    import topofl
    for module in pkgutil.walk_packages(topofl.__path__, "topofl."):
        needs_marimo = module.name in ("topofl.explore.app", "topofl.explore.widgets")
        is_missing = needs_marimo and "marimo" not in sys.modules
        is_of_a_peer = ".peers.drivers." in module.name  # scripts for environments of others
        if not module.name.endswith("__main__") and not is_missing and not is_of_a_peer:
            __import__(module.name)
    return sum(name.startswith("topofl.") for name in sys.modules)

terminal = os.dup(2)
with tempfile.TemporaryFile() as said:
    os.dup2(said.fileno(), 2)
    try:
        before = state()
        count = {imported}
        after = state()
    finally:
        os.dup2(terminal, 2)
    said.seek(0)
    result = [
        count, [key for key in before if before[key] != after[key]], said.read().decode()
    ]
"""
"""A program that finds which settings of the process an import changes, and what it says."""


@pytest.fixture(scope="module")
def changed_by():
    """Return the number of modules that are imported, and the settings that this changes."""
    with forks(OTHERS) as run:

        def changed_by(imported):
            code = OTHERS + SIDE_EFFECTS.replace("{imported}", imported)
            count, changed, said = run(code)[0]
            assert said == ""
            return count, changed

        yield changed_by


@pytest.mark.slow
def test_importing_every_module_changes_nothing_else(changed_by):
    count, changed = changed_by("import_all()")
    assert count > 200
    assert changed == []


@pytest.mark.slow
def test_changes_would_be_seen(changed_by):
    changes = {
        "torch threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
        "torch random state": "torch.manual_seed(5)",
        "numpy random state": "numpy.random.seed(5)",
        "matplotlib": "matplotlib.use('svg')",
        "pyplot": "__import__('matplotlib.pyplot')",
        "warnings": "warnings.simplefilter('ignore')",
        "logging": "logging.basicConfig()",
    }
    made = f"[str({'), str('.join(changes.values())})]"
    assert set(changes) <= set(changed_by(made)[1])
