"""Methods that converge to the optimum with a constant step size although nodes' data differ."""
