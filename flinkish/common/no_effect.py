"""Calls of PyFlink's API that have no effect in flinkish, or no meaning, since no Java object is behind anything here.

Rule upheld here: each call without effect is reported once, and only once per process. (A setting that is a
configuration key is reported when the job is submitted, with all others: `Configuration.without_effect`.) A call whose
result would be a Java object is an error.
"""

from __future__ import annotations

import logging
from typing import NoReturn

from flinkish.errors import ProgramError, redact

_LOG = logging.getLogger("flinkish.JobManager")
_reported: set[str] = set()


def warn_without_effect(call: str, why: str, level: int = logging.WARNING) -> None:
    """Log, once per process, that this call has no effect. ``level``: DEBUG if the results are those of Flink."""
    if call not in _reported:
        _reported.add(call)
        _LOG.log(level, "%s has no effect: %s", redact(call), redact(why))


def warn_of_hadoop_config(hadoop_config: object | None, owner: str) -> None:
    """Log, once per process, that the Hadoop configuration given to ``owner`` has no effect; None: it was not given."""
    if hadoop_config is not None:
        warn_without_effect(f"the hadoop_config of {owner}", "set spark.hadoop.* instead")


def no_java_object(call: str) -> NoReturn:
    """Raise ProgramError: the Java object that the call is about does not exist."""
    raise ProgramError(
        f"{call} has no meaning here: there is no Java object",
        where="the Python API",
        expected="a program that uses only the Python API",
        hint="take the value from the Python object",
    )
