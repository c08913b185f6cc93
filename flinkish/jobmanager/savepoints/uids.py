"""Finds stateful operators to which the program gives no uid.

Rule: a generated uid depends on the operator's place in the program, so after a change of the program it may be the uid
of another operator. State is never restored to an operator by such a uid: there is a warning when the job is submitted,
and an error when it is restored from a savepoint.
"""

from __future__ import annotations

import logging

from flinkish.runtime.deployment import JobDescriptor

_LOG = logging.getLogger("flinkish.JobManager")


def stateful_without_uid(job: JobDescriptor) -> tuple[str, ...]:
    """The operators that have state, or a position in their input, and no uid from the program: ``'name' (uid)``."""
    found = []
    for vertex in job.vertices:
        for place, descriptor in enumerate(vertex.operators):
            stateful = place == 0 and (vertex.keyed or vertex.level == 0) or descriptor.factory.has_operator_state
            if stateful and not descriptor.uid_given:
                found.append(f"'{descriptor.name}' ({descriptor.uid})")
    return tuple(found)


def warn_of_missing_uids(job: JobDescriptor) -> None:
    """Log a warning that names the stateful operators without a uid; to be called when a job is submitted."""
    names = stateful_without_uid(job)
    if names:
        _LOG.warning(
            "job '%s': stateful operators without a uid: %s; the job cannot be restored from its savepoints "
            "until each of them has one: call uid(...) on them",
            job.name,
            ", ".join(names),
        )
