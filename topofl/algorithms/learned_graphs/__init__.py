"""Methods that learn which nodes collaborate."""
