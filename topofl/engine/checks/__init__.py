"""Checks of a run's arguments before any work is done."""
