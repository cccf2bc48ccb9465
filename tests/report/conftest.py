"""A report that many tests use."""

import pytest

from tests import markup
from tests.rows import pages


@pytest.fixture(scope="session")
def table():
    return pages.table()


@pytest.fixture(scope="session")
def page():
    return markup.read(pages.PAGES["spectral"].text)
