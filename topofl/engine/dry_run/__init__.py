"""The dry run: the first rounds, played on meta tensors to find out what a run needs."""
