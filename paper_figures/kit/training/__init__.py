"""Training runs: their definition, storage and execution."""
