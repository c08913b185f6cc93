"""Delta tables as files: the log of a table, commits that fence off other drivers, and what a commit says."""
