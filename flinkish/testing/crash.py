"""The crash that tests let happen."""

from __future__ import annotations

from flinkish.errors import OperationError


class SimulatedCrash(OperationError):
    """A test has let the job fail here. What was not committed is lost, and the job may be restarted."""
