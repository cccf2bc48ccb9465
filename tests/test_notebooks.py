"""Notebooks are stored with their outputs, and run without errors to outputs of the same words."""

import importlib.util
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
if importlib.util.find_spec("ipykernel") is None:
    pytest.skip("needs ipykernel", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LIMIT = 300_000
TIMEOUT = 240
"""Seconds for one cell; a whole notebook takes about ten on an idle machine."""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


FIRST_RUN = """
import topofl
from topofl import algorithms, data, models, topologies

history = topofl.run(
    algorithms.dsgd(lr=0.1),
    model=models.logistic_regression(64),
    clients=data.iid(data.digits(), n=4, seed=0),
    topology=topologies.ring(4),
    rounds=2,
    seed=0,
)
"""


def execute(notebook, folder):
    """Run all cells in a folder."""
    nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute()


def kinds(notebook):
    """Return the kinds of the outputs of each cell with code."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[sorted(one.get("data", {one.output_type: 0})) for one in c.outputs] for c in cells]


def words(notebook):
    """Return the words of texts and tables in the outputs of each cell with code, not numbers."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [
        [one.get("data", {}) | {"text": one.get("text", "")} for one in c.outputs] for c in cells
    ]
    texts = [" ".join(one.get("text/plain", "") + one["text"] for one in cell) for cell in outputs]
    return [re.findall(r"[^\W\d_]+", re.sub(r"<Figure.*?>", "", text)) for text in texts]


def test_there_are_notebooks():
    wanted = ["explore-your-graph", "regenerate-a-figure", "train-and-compare"]
    assert [path.stem for path in NOTEBOOKS] == wanted


@each_notebook
def test_outputs_are_stored_small_and_without_paths_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < LIMIT
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    found = [kind for cell in kinds(notebook) for output in cell for kind in output]
    assert found.count("image/png") >= 3
    assert {"error", "stderr"}.isdisjoint(found)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not re.search(r"(/home/|/work/|/tmp/|/Users/|site-packages|[A-Z]:\\\\)", text)


@each_notebook
@pytest.mark.slow
def test_notebooks_run_to_outputs_of_the_same_kinds_and_words(path, tmp_path, monkeypatch):
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the notebook's own, which stores pictures
    stored = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    execute(notebook, tmp_path)
    assert kinds(notebook) == kinds(stored)
    assert words(notebook) == words(stored)


@pytest.mark.slow
def test_the_first_run_in_a_notebook_shows_a_bar_and_no_warning(tmp_path, monkeypatch):
    """Without ipywidgets, of the extra `notebook`, the bar is one of text."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    cell = nbformat.v4.new_code_cell(FIRST_RUN)
    execute(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    printed = "".join(output.get("text", "") for output in cell.outputs)
    has_widgets = importlib.util.find_spec("ipywidgets") is not None
    assert ("round" in printed) != has_widgets
    assert "Warning" not in printed
