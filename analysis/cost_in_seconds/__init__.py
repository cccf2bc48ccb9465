"""What a topology costs in seconds: computation, latency and bandwidth for many nodes."""
