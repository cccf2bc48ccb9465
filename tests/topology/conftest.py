"""Fixtures of the tests of topologies."""

import warnings

import pytest


@pytest.fixture
def data_class() -> type:
    """PyG's Data, imported without the deprecation warnings of its own imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data
    return Data
