"""The version of topofl."""

__version__ = "1.0.0"
