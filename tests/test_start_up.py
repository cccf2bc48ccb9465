"""What ``import topofl`` and short commands load, counted in new processes; nothing is timed."""

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

import pytest

import topofl

HEAVY = {
    *("torch_geometric", "sklearn", "pandas", "matplotlib", "networkx", "sympy", "PIL"),
    *("torchvision", "scipy.stats", "scipy.signal"),
}
"""Packages that are loaded by the functions that need them."""

NUMERICAL = {"torch", "numpy", "scipy"}

COMMANDS = {
    "help": ["--help"],
    "help of a command": ["run", "--help"],
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


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that are loaded after running code in a new process."""
    show = "\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code + show], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def command(words: Sequence[str]) -> str:
    """Return code that runs a command, and goes on if it exits."""
    main = f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass"
    return f"from topofl.cli import main\n{main}"


def test_import_loads_no_package_but_itself():
    found = loaded_by("import topofl\nassert callable(topofl.__dir__)\ndir(topofl)")
    assert "topofl" in found
    assert not found & (HEAVY | NUMERICAL)


def test_all_names_are_loaded_without_packages_of_single_functions():
    found = loaded_by("from topofl import *\nassert run and topologies.ring(5) and Topology")
    assert found >= NUMERICAL
    assert not found & HEAVY


def test_metrics_are_loaded_without_special_functions():
    assert "scipy.special" not in loaded_by("import topofl.metrics")


def test_the_counts_see_what_is_loaded():
    assert "networkx" in loaded_by("import topofl\ntopofl.topologies.karate_club()")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_short_commands_do_not_load_torch(words):
    assert not loaded_by(command(words)) & (HEAVY | NUMERICAL)


def test_requirements_load_torch():
    assert "torch" in loaded_by(command(["list", "algorithm", "--needs"]))


MODULES = [
    *("advice", "algorithms", "attacks", "callbacks", "clocks", "config", "data", "engine"),
    *("estimate", "history", "metrics", "mixing", "models", "privacy", "report", "runs"),
    *("summary", "tasks", "toolkit", "topologies", "topology", "trained"),
]


def test_every_module_can_be_imported_first():
    """Lazy names do not fix an order of imports, so a cycle would show in some order only."""
    alone = "\n".join(
        [
            "import sys, importlib, torch",
            f"for name in {MODULES}:",
            "    importlib.import_module(f'topofl.{name}')",
            "    for key in [key for key in sys.modules if key.split('.')[0] == 'topofl']:",
            "        del sys.modules[key]",
        ]
    )
    loaded_by(alone)


def test_star_import_binds_all_names():
    names: dict[str, object] = {}
    exec("from topofl import *", names)
    assert set(names) - {"__builtins__"} == set(topofl.__all__)
    assert all(names[name] is getattr(topofl, name) for name in topofl.__all__)


def test_names_are_listed_before_they_are_loaded():
    code = "import topofl\nassert set(topofl.__all__) <= set(dir(topofl))\n"
    assert not loaded_by(code) & NUMERICAL
    assert set(topofl.__all__) <= set(dir(topofl))


def test_modules_that_were_attributes_still_are():
    code = "import topofl\nprint(topofl.engine, topofl.topology, topofl.trained.__name__)"
    assert {"topofl.engine", "topofl.trained"} <= loaded_by(code)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'topofl' has no attribute 'rnu'"):
        topofl.rnu  # noqa: B018
    assert not hasattr(topofl, "estimates")


@pytest.mark.parametrize(
    "first",
    ["", "import topofl.estimate", "from topofl.estimate import Estimate", "import topofl.config"],
)
def test_estimate_is_the_function_in_any_order(first):
    """The package ``topofl.estimate`` has the name of its function."""
    check = """
import topofl
assert topofl.estimate.__name__ == "estimate"
import topofl.estimate as again
from topofl.estimate import Estimate, estimate
assert estimate is again is topofl.estimate
"""
    loaded_by(first + check)


def test_results_can_be_pickled_before_their_module_is_loaded(tmp_path):
    graph = topofl.topologies.ring(5)
    path = tmp_path / "graph.pkl"
    path.write_bytes(pickle.dumps([graph, topofl.Compute()]))
    code = f"import pickle\ngraph, _ = pickle.load(open({str(path)!r}, 'rb'))\nassert graph.n == 5"
    assert "topofl.engine" in loaded_by(code)
    assert copy.deepcopy(topofl.Compute()) == topofl.Compute()


SIDE_EFFECTS = """
import json, locale, logging, os, pkgutil, random, signal, sys, warnings
import matplotlib, numpy, torch
import networkx, pandas, PIL, scipy, sklearn, torch_geometric, tqdm.auto
import matplotlib.figure, sklearn.datasets, sklearn.linear_model, torch_geometric.data  # as topofl

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
        if not module.name.endswith("__main__"):
            __import__(module.name)
    return sum(name.startswith("topofl.") for name in sys.modules)

before = state()
count = {imported}
after = state()
print(json.dumps([count, [key for key in before if before[key] != after[key]]]))
"""
"""A program that prints which settings of the process an import changes."""


def changed_by(imported):
    """Return the number of modules that are imported, and the settings that this changes."""
    code = SIDE_EFFECTS.replace("{imported}", imported)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_importing_every_module_changes_nothing_else():
    count, changed = changed_by("import_all()")
    assert count > 200
    assert changed == []


def test_changes_would_be_seen():
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
