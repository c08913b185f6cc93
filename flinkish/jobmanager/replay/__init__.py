"""Runs one epoch of a job again, in one process, from what its directory retains (``flinkish replay``)."""
