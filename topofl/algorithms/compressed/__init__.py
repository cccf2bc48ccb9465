"""Methods with compressed messages."""
