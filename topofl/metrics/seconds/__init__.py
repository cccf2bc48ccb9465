"""How long a round takes on given hardware: computation, latency and bandwidth."""
