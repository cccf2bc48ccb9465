"""Exchanges between nodes: averaging, peers, masks, compression, robust rules, events."""
