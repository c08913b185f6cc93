"""The stateful structure of a program, as a job directory remembers it: what must stay the same for Spark's state to be
read, and what sinks know of the job, to be found again."""

from __future__ import annotations

from typing import Any

from flinkish.common.options.flinkish import SPARK_PARTITIONS
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.graph.job_graph import chained_operators
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor

#: What follows the uid in the text of a source.
_OF_SOURCE = " (parallelism "


def describe_structure(job: JobDescriptor, partitions: int) -> dict[str, Any]:
    """The properties of a program that must stay the same for Spark's state, and what sinks know of the job, to be
    found again. ``partitions``: of Spark; 0 in the minicluster."""
    return {
        "sinks": sorted(sink.uid for sink in job.sinks if sink.uid_given),
        "partitions": partitions,
        "sources": [_source_of(vertex) for vertex in job.vertices if vertex.level == 0],
        "vertices": [
            {
                "id": vertex.id,
                "uid": vertex.head.uid,
                "level": vertex.level,
                "parallelism": vertex.parallelism,
                "max_parallelism": vertex.max_parallelism,
                "keyed": vertex.keyed,
                "operators": chained_operators(vertex),
            }
            for vertex in job.vertices
            if vertex.level > 0
        ],
    }


def levels_of(structure: dict[str, Any]) -> int:
    """The number of levels behind the sources of the program with this structure."""
    return max((vertex["level"] for vertex in structure["vertices"]), default=0)


def source_uids(structure: dict[str, Any]) -> list[str]:
    """The uids of the sources of the program with this structure, in the order of their vertices."""
    return [source.rpartition(_OF_SOURCE)[0] for source in structure["sources"]]


def _source_of(vertex: VertexDescriptor) -> str:
    """A source as text, with what the assignment of its splits to subtasks depends on: its parallelism and, for a
    generated source, the number of splits."""
    splits = f", {vertex.source.splits} splits" if isinstance(vertex.source, NumberedSplitSource) else ""
    return f"{vertex.head.uid}{_OF_SOURCE}{vertex.parallelism}{splits})"


def differences_between(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs in two structures, in words."""
    found: list[str] = []
    old = {vertex["uid"]: vertex for vertex in before["vertices"]}
    new = {vertex["uid"]: vertex for vertex in now["vertices"]}
    found.extend(f"operator '{uid}' is gone" for uid in old if uid not in new)
    found.extend(f"operator '{uid}' is new" for uid in new if uid not in old)
    for uid in old:
        if uid in new:
            found.extend(
                f"{key} of '{uid}' was {old[uid][key]} and is {new[uid][key]}"
                for key in old[uid]
                if key != "operators" and old[uid][key] != new[uid][key]
            )
    # directories of earlier versions do not say which sinks there were
    gone = [uid for uid in before.get("sinks", ()) if uid not in now["sinks"]]
    found.extend(f"sink '{uid}' is gone" for uid in gone)
    found.extend(f"sink '{uid}' is new" for uid in now["sinks"] if gone and uid not in before["sinks"])
    if before["sources"] != now["sources"]:
        found.append(f"the sources were {before['sources']} and are {now['sources']}")
    if not found and before["partitions"] != now["partitions"]:
        # there are as many subtasks as before, so it is the setting that differs
        found.append(
            f"the number of Spark partitions ({SPARK_PARTITIONS.key}) was {before['partitions']} and is "
            f"{now['partitions']}"
        )
    return found
