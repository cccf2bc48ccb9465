"""Byzantine-robust methods, which tolerate attackers."""
