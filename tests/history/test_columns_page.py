"""The page that explains the columns of a history."""

import re
from pathlib import Path

import topofl
from tests import problems
from topofl import Evaluation, algorithms, topologies
from topofl._columns import OWN_COLUMNS, STAGES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "columns-of-a-history.md").read_text()
ROWS = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
EXPLAINED = {name for row in ROWS for name in re.findall(r"`(\w+)`", row)}
NOTED = re.compile(r"round\.note\(\s*(?:\"(\w+)\"|(\w+))")
"""A column that a method notes, by its name or by a constant."""

OTHERS = {"seconds", "node_loss", "node", "label"}
"""What is in events only, in an attribute of its own, or names the node of a row in tables."""


def noted_columns():
    """Return the columns that methods note, from the source."""
    found = set()
    for path in (ROOT / "topofl" / "algorithms").rglob("*.py"):
        text = path.read_text()
        for name, constant in NOTED.findall(text.replace('round.note("moved', "")):
            value = re.search(rf'^{constant} = "(\w+)"', text, re.MULTILINE) if constant else None
            found.add(name or (value[1] if value else ""))
    return found - {""}


def test_the_page_explains_exactly_the_columns_that_exist():
    assert {"simulated_seconds", "staleness"} <= noted_columns()
    assert (OWN_COLUMNS - OTHERS) | noted_columns() == EXPLAINED - {"accuracy"}


def test_every_column_of_a_run_is_on_the_page():
    stages = Evaluation(
        on=("own_val", "test"), before_exchange=True, fine_tune=algorithms.sgd(lr=0.1, steps=1)
    )
    fine_tuned = topofl.run(
        algorithms.osgp(lr=0.1),
        model=problems.linear(),
        clients=problems.validated_clients(),
        topology=topologies.circulant(6, (1,), directed=True),
        rounds=2,
        seed=0,
        evaluation=stages,
    )
    assert {"push_weight", "smallest_push_weight"} < set(fine_tuned.columns)
    assert "loss_fine_tuned_test" in fine_tuned.columns
    for name in fine_tuned.columns:
        column = fine_tuned.score_columns.get(name)
        assert (name if column is None else column.score) in EXPLAINED
        assert column is None or f"`{column.stage}`" in PAGE or not column.stage
    assert all(f"`{stage}`" in PAGE for stage in STAGES if stage)
