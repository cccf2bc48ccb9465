"""A report that many tests use."""

import pytest

from tests import markup
from tests.report.graphs import GRAPHS, NAMES
from topofl import metrics, report


@pytest.fixture(scope="session")
def table():
    return metrics.compare(GRAPHS, names=NAMES, about="all")


@pytest.fixture(scope="session")
def text(table):
    return report.spectral_report(
        GRAPHS, table, seed=0, rounds=30, command="topofl 'a < b'", notes=["a <note>"]
    )


@pytest.fixture(scope="session")
def page(text):
    return markup.read(text)
