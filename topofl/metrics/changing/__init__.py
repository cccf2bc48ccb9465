"""Metrics of graphs that change over rounds: connectivity over windows, products of rounds."""
