"""Drivers: one script per peer, which runs in the environment of the peer."""
