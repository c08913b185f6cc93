"""Checkpoints: when they are taken, what they hold, how long they are kept."""
