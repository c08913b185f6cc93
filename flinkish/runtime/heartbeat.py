"""Calls to the channels that must be called in each epoch, also without data: processing-time timers, idle sources."""

from __future__ import annotations

from collections.abc import Iterator

from flinkish.runtime.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.task import Row


def heartbeats(job: JobDescriptor) -> Iterator[Row]:
    """A call for each such channel of the first level; those call the ones behind them."""
    for vertex in job.vertices:
        if vertex.level == 1 and vertex.clocked:
            for channel in vertex.channels():
                header = BufferHeader(BufferKind.HEARTBEAT, vertex.id, channel.number, 0, "", 0, 0, 0)
                yield vertex.id, channel.number, encode(header, b"")
