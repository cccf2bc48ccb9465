"""Plots over many runs."""
