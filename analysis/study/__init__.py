"""The study of what predicts convergence: every metric against every outcome, over many graphs."""
