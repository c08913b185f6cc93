"""Benchmarks of flinkish beside what else runs such jobs: `python -m benchmarks` is the one command."""
