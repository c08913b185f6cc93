"""Checkpoints and savepoints: when one is taken, how it is written and read, and what a restore takes over."""
