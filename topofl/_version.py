"""The version of topofl."""

__version__ = "0.1.0"
