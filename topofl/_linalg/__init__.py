"""Linear algebra on dense and sparse matrices: spectra, connected classes, projections."""
