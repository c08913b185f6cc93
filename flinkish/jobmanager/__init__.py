"""The driver's side of a job: submission, its life, what outlives it."""

from flinkish.jobmanager.submission import submit

__all__ = ["submit"]
