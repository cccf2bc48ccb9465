"""topofl."""
