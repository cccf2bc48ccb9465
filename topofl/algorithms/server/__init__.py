"""Federated averaging with a server, and its variants."""
