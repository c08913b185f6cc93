"""The error of a crash that a test has planned."""

from __future__ import annotations

from flinkish.errors import OperationError


class SimulatedCrash(OperationError):
    """Raised where a test lets the job crash. What was not committed is lost, and the job may be restarted."""
