"""The study of what predicts convergence: graphs, runs, correlations, and verdicts."""
