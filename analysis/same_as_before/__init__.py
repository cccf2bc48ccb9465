"""Comparison of this version with a checkout of another, to prove that nothing is lost."""
