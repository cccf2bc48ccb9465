"""A count of the images that are decoded."""

import pytest

from topofl.data.readers import _images


@pytest.fixture
def decodings(monkeypatch):
    """Count how often images are decoded."""
    calls, decoded = [], _images._decode
    monkeypatch.setattr(_images, "_decode", lambda *args: calls.append(1) or decoded(*args))
    return calls
