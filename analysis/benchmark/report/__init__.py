"""Reports: measurements, targets, tables, the figure, the roofline and their files."""
