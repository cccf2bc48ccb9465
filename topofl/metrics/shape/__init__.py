"""Metrics of graph structure: degrees, clustering, connectivity, communities, resistance."""
