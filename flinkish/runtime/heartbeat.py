"""Calls to the subtasks that must be called in each epoch, also without data: processing-time timers, idle sources."""

from __future__ import annotations

from collections.abc import Iterator

from flinkish.runtime.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.task import Row


def heartbeats(job: JobDescriptor) -> Iterator[Row]:
    """A call for each such subtask of the first level; those call the ones behind them."""
    for vertex in job.vertices:
        if vertex.level == 1 and vertex.clocked:
            for subtask in range(vertex.parallelism):
                header = BufferHeader(BufferKind.HEARTBEAT, vertex.id, subtask, 0, "", 0, 0, 0)
                yield vertex.id, subtask, encode(header, b"")
