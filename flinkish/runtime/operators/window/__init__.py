"""The window operators: the general ones, and faster ones for the most frequent cases."""
