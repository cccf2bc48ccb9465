"""Exchanges between nodes: averaging, peers, compression, robust rules."""
