"""Finds stateful operators to which the program gives no uid, and those that a changed program no longer has.

Rule: a generated uid depends on the operator's place in the program, so after a change of the program it may be the uid
of another operator. State is never restored to an operator by such a uid: there is a warning when the job is submitted,
and an error when it is restored from a savepoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor

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


def chained_operators(vertex: VertexDescriptor) -> list[dict[str, Any]]:
    """The operators of a task but its head, as the job directory remembers them. ``stateful``: whether an operator is
    known to have state of its own, or an error budget; what else has, tasks report."""
    return [
        {
            "uid": operator.uid,
            "name": operator.name,
            "uid_given": operator.uid_given,
            "sink": operator.sink is not None,
            "stateful": operator.factory.has_operator_state or operator.factory.guarded,
        }
        for operator in vertex.operators[1:]
    ]


def lost_operators(
    before: Iterable[dict[str, Any]], now: Iterable[dict[str, Any]], reported: set[str]
) -> tuple[dict[str, str], list[str]]:
    """Compare the operators that are not the heads of their tasks, of two programs.

    Args:
        before: the tasks of the program that has run so far, as the job directory remembers them.
        now: those of the program that is to run.
        reported: the uids of the operators of which tasks have reported state.

    Returns:
        uid -> what has become of the operator, for those whose state would be lost; and what is to be done about those
        whose state another operator may get, as their uids are generated.
    """
    lost: dict[str, str] = {}
    taken: list[str] = []
    new: dict[str, list[dict[str, Any]]] = {vertex["uid"]: vertex["operators"] for vertex in now}
    places = {operator["uid"]: (head, operator["uid_given"]) for head, chain in new.items() for operator in chain}
    for vertex in before:
        # earlier versions remembered the heads only: their tasks say at run time what they hold
        head, chain = vertex["uid"], vertex.get("operators", [])
        for operator in chain:
            uid = operator["uid"]
            if head not in new or not operator["stateful"] and uid not in reported:
                continue
            place, given = places.get(uid, (None, False))
            if place == head:
                if not given and not operator["uid_given"] and _uids(chain) != _uids(new[head]):
                    taken.append(
                        f"the operators in the task of '{head}' were {_uids(chain)} and are {_uids(new[head])}, and "
                        f"the uid '{uid}' of one that has state was generated: give that operator uid('{uid}') and "
                        "the others uids of their own"
                    )
                continue
            what = f"operator '{uid}' ({operator['name']}), which has state,"
            if place is None and uid not in new:
                lost[uid] = f"{what} is gone from the task of '{head}'"
            else:
                lost[uid] = f"{what} was in the task of '{head}' and is in that of '{place or uid}'"
    return lost, taken


def _uids(chain: Iterable[dict[str, Any]]) -> list[str]:
    return [operator["uid"] for operator in chain if not operator["sink"]]
