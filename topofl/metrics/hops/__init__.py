"""What repeated exchanges leave of differences between nodes: heterogeneity and noise by hops."""
