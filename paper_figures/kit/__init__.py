"""Tools that all papers share: figures, training runs, curves, claims and reports."""
