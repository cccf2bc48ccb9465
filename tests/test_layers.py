"""A module imports only from its own layer or from layers above it in docs/architecture.md."""

import ast
import importlib
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GRAPH = re.search(r"```text\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
assert GRAPH is not None
LAYERS = [set(line.partition("  ")[0].split()) for line in GRAPH[1].splitlines()]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
APART = [
    ("topologies", "mixing"),
    ("topologies", "metrics"),
    ("data", "metrics"),
    ("data", "topologies"),
]


def part(path):
    """Name of the part of topofl that a file belongs to."""
    return path.relative_to(ROOT / "topofl").parts[0].removesuffix(".py")


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("topofl."))


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", sources("topofl"), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_from_layers_above(path):
    own = part(path)
    if own == "__init__":
        return
    assert own in LEVEL, f"give {own} a layer in docs/architecture.md"
    for other in imported_parts(path):
        if other == own or other == "__version__":
            continue
        assert LEVEL[other] <= LEVEL[own], (
            f"{own} imports {other}, which is in a lower layer of docs/architecture.md"
        )
        assert LEVEL[other] < LEVEL[own] or (own, other) not in APART, (
            f"{own} must not import {other}"
        )


@pytest.mark.parametrize("folder", ["analysis", "paper_figures"])
def test_studies_import_topofl_but_are_not_imported(folder):
    for path in sources("topofl"):
        text = path.read_text()
        assert f"import {folder}" not in text
        assert f"from {folder}" not in text


def test_every_layer_exists():
    parts = {part(path) for path in sources("topofl")} - {"__init__"}
    assert set(LEVEL) == parts


def test_the_rule_can_fail(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from topofl.engine import run\n")
    assert [LEVEL[other] > LEVEL["topology"] for other in imported_parts(bad)] == [True]


def topofl_imports(path):
    """Yield (module, name) of each name that a file imports from topofl."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "topofl":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "topofl"]
            yield from ((name, None) for name in names)


@pytest.mark.parametrize("path", sources("analysis"), ids=lambda p: str(p.relative_to(ROOT)))
def test_analysis_imports_public_names(path):
    for module, name in topofl_imports(path):
        assert not any(word.startswith("_") for word in module.split(".")), f"{module} is private"
        public = getattr(importlib.import_module(module), "__all__", None)
        place = ROOT / module.replace(".", "/")
        is_module = (place / f"{name}.py").exists() or (place / f"{name}").is_dir()
        assert name is None or public is None or name in public or is_module, f"{module}.{name}"


def modules_imported_by(path):
    """Yield the modules of its own package that a file of a study imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1]
            base = folder / node.module.replace(".", "/") if node.module else folder
            names = [base.with_suffix(".py")] if node.module else []
            yield from names or [base / f"{alias.name}.py" for alias in node.names]


def test_analysis_has_no_import_cycle():
    graph = {path: set(modules_imported_by(path)) for path in sources("analysis")}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError if there is a cycle
    assert set(order) == set(graph)


PAPERS = sorted(path.parent.name for path in (ROOT / "paper_figures").glob("*/__init__.py"))
PAPERS.remove("kit")


def absolute_imports(path):
    """Names that a file imports, each from the root: "paper_figures.kit.claims.Claim"."""
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imported_rooms(path):
    """Parts of paper_figures that a file imports."""
    names = (name.removeprefix("topofl.") for name in absolute_imports(path))
    return {name.split(".")[1] for name in names if name.startswith("paper_figures.")}


def private_uses(path):
    """Private names of topofl that a file imports or reaches by its attributes."""
    names = [name for name in absolute_imports(path) if name.split(".")[0] == "topofl"]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            names += [dotted] if dotted.startswith("topofl.") else []
    parts = {name: name.split(".")[1:] for name in names}
    return {
        name
        for name, own in parts.items()
        if any(part.startswith("_") and not part.startswith("__") for part in own)
    }


def test_there_are_papers():
    assert {"dcliques", "dfedpgp", "dpfl", "pfeddst"} <= set(PAPERS)


@pytest.mark.parametrize("path", sources("paper_figures/kit"), ids=lambda p: p.stem)
def test_the_kit_imports_no_paper(path):
    assert imported_rooms(path) <= {"kit"}


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_imports_only_the_kit_and_itself(paper):
    for path in sources(f"paper_figures/{paper}"):
        assert imported_rooms(path) <= {"kit", paper}, path


@pytest.mark.parametrize("path", sources("paper_figures"), ids=lambda p: str(p.relative_to(ROOT)))
def test_paper_figures_use_public_names_of_topofl(path):
    assert not private_uses(path)


@pytest.mark.parametrize("path", sources("analysis"), ids=lambda p: str(p.relative_to(ROOT)))
def test_analysis_uses_public_names_of_topofl(path):
    assert not private_uses(path)


ROOMS = {
    "_support": [
        *("text processes machine datasets", "check public notebook locks files arrays"),
        *("plugins seeding table threads", "calls"),
    ],
    "_linalg": ["distributions sparse", "bisection nilpotent", "spectral", "second"],
    "engine": [
        "ranks network",
        "population recorder options",
        *("divergence plan", "minibatches", "gradients", "memory", "executor"),
        *("mixing", "training evaluation"),
        *("requests", "neighbors", "graph_checks model_checks footprint"),
        *("joining shards checkpoint", "fingerprint", "state", "round"),
        *("dry_run stages saving", "setup together", "run", "probe"),
    ],
    "algorithms": [
        "contract",
        "exchanges",
        "personalized",
        "asynchronous bias_free bias_free_momentum byzantine_robust compressed decentralized",
        "byzantine_distances learned_graphs server worst_node",
    ],
    "advice": ["candidates predict", "recommend"],
    "models": ["networks", "changed"],
    "data": [
        "_labels",
        "dataset",
        "partition",
        "arrays edits features triggers",
        "partitioners",
        "graphs readers",
    ],
    "metrics": [
        "_columns _rounds hardware",
        "consensus shape spectral waiting",
        *("averaging contraction labels walks", "hops push_sum", "gradients spectrum"),
        *("cost deviation", "seconds", "compare"),
    ],
    "summary": ["sources verdicts", "groups", "pairs figures", "table"],
    "explore": ["model", "results", "widgets", "app serve"],
    "history": ["matrices statistics", "plots", "record", "files", "history", "compare"],
    "runs": ["record", "identity folder", "store", "work", "execute plan", "sweep", "probe"],
    "topologies": [
        "_edge_swaps _generator",
        "classic cliques collaboration derived exponential frank_wolfe overlays presence random",
        "dcliques designed matcha placement rotating",
    ],
}
"""Rooms of a package, lowest first: none imports one of a later line, or of its own line."""


def rooms_imported_by(path, package):
    """Rooms of its own package that a file imports, but not its own room."""
    own = path.relative_to(ROOT / "topofl" / package).parts[0].removesuffix(".py")
    base = f"topofl.{package}."
    names = [name for name in absolute_imports(path) if name.startswith(base)]
    return {name.removeprefix(base).split(".")[0] for name in names} - {own}


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_only_lower_rooms(package):
    level = {room: k for k, line in enumerate(ROOMS[package]) for room in line.split()}
    for path in sources(f"topofl/{package}"):
        own = path.relative_to(ROOT / "topofl" / package).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in level, f"give {own} of {package} a line"
        for other in rooms_imported_by(path, package) & set(level):
            assert level[other] < level[own], f"{path.name}: {own} imports {other}"


def test_the_rules_for_studies_can_fail(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    bad = tmp_path / "paper_figures" / "kit" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "import topofl\nfrom topofl._support import check\nfrom ..dpfl import figures\n"
        "topofl.data._deal(topofl.__version__)\n"
    )
    assert imported_rooms(bad) == {"dpfl"}
    assert private_uses(bad) == {"topofl._support.check", "topofl.data._deal"}
