"""Savepoints: written, described, compared with a program, restored."""
