"""Exactly-once under change: every source, every sink, and what may change between two runs of a program."""
