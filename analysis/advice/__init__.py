"""The validation of ``topologies.recommend``; see `command`."""
