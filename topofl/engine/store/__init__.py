"""Checkpoints on disk: their format, schedule and lock, and the fingerprint of a run."""
