"""Runs over several processes: ranks, placement of nodes, exchanges between ranks, and failures."""
