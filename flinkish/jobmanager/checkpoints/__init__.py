"""Checkpoints: when one is taken, what it writes, what is kept of it and for how long."""
