"""Helpers independent of graphs and models: argument checks, files, seeds, tables, text."""
