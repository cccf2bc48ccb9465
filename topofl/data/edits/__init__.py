"""Edits of a partition: augmentation, wrong labels, validation and test sets per node."""
