"""Calls of PyFlink's API that change nothing here.

Rule upheld here: such a call is never silent, and never repeats itself. (A setting that is a key of the configuration
is reported when the job is submitted, with all others: `Configuration.without_effect`.)
"""

from __future__ import annotations

import logging

_LOG = logging.getLogger("flinkish.JobManager")
_reported: set[str] = set()


def warn_without_effect(call: str, why: str) -> None:
    """Log, once per process, that this call changes nothing."""
    if call not in _reported:
        _reported.add(call)
        _LOG.warning("%s has no effect: %s", call, why)
