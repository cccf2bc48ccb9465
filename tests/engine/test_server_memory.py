"""A server method stores one model for all clients, and those of its cohort while they train."""

import pytest

from tests.new_process import results_of

DENSE = 1000 * 99_985 * 4
"""Bytes of the models of all clients."""


@pytest.mark.slow
def test_a_thousand_clients_take_the_memory_of_a_few():
    found = results_of("tests.engine.server_memory", "1000", timeout=120)
    assert [models for _, models in found] == [1] * 5, "at the start and after each round"
    assert max(grown for grown, _ in found) < DENSE / 4
