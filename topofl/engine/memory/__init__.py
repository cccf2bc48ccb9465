"""Memory that a run needs, and memory that the machine has."""
