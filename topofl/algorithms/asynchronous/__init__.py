"""Asynchronous methods on a simulated clock, and simulated times of synchronous methods."""
