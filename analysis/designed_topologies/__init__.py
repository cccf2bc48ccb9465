"""The comparison of designed topologies with other graphs of equal messages; see `command`."""
