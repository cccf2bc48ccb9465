"""Timed training steps: of the engine, its floor, the naive loop and the authors' simulator."""
