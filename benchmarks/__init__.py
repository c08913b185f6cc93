"""Benchmarks that compare flinkish with other ways to run such jobs; the one command is `python -m benchmarks`."""
