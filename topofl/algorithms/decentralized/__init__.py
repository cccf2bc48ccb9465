"""Gossip-based methods: nodes train locally and average with their neighbors."""
