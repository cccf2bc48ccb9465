"""Parts of all charts: style, labels, lines with bands, violins, and Pareto fronts."""
