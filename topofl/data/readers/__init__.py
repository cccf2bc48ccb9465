"""Readers: datasets from local files, checked; readers never download."""
