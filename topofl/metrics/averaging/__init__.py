"""Metrics of averaging speed: spectra, mixing times, consensus distance."""
