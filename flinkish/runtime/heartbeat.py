"""Calls to the subtasks that must run in each epoch even without data, because of processing-time timers or idle
sources."""

from __future__ import annotations

from collections.abc import Iterator

from flinkish.runtime.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.task import Row


def heartbeats(job: JobDescriptor) -> Iterator[Row]:
    """One HEARTBEAT buffer for each clocked subtask of the first level; these call the subtasks downstream of them."""
    for vertex in job.vertices:
        if vertex.level == 1 and vertex.clocked:
            for subtask in range(vertex.parallelism):
                header = BufferHeader(BufferKind.HEARTBEAT, vertex.id, subtask, 0, "", 0, 0, 0)
                yield vertex.id, subtask, encode(header, b"")
