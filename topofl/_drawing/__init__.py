"""Drawing of graphs: node layouts, picture geometry, and output to matplotlib and SVG."""
