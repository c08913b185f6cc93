"""The window operator: the general one, and the fast way for the most frequent case."""
