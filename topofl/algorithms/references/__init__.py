"""Reference methods: local training without communication, and training on the pooled data."""
