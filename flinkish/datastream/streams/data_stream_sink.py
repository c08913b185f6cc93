"""DataStreamSink: the end of a stream, and what a program may set on it."""

from __future__ import annotations

from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.operator_settings import OperatorSettings
from flinkish.graph.stream_graph import ChainingStrategy, StreamNode


class DataStreamSink:
    """A sink of the program. Its methods are those of an operator's stream."""

    def __init__(self, node: StreamNode) -> None:
        self._settings = OperatorSettings([node])

    def name(self, name: str) -> DataStreamSink:
        """Name the sink; plans show it with ``Sink: `` before it."""
        self._settings.set_name(name)
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Give the sink an identity. Each operator needs another one (DuplicateUidError on submission)."""
        self._settings.set_uid(uid)
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Take over the identity of a sink of an earlier job: 32 hexadecimal digits."""
        self._settings.set_uid_hash(uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Number of subtasks that write."""
        self._settings.set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """A longer text for plans."""
        self._settings.set_description(description)
        return self

    def disable_chaining(self) -> DataStreamSink:
        """The sink has a task of its own."""
        self._settings.set_chaining(ChainingStrategy.NEVER)
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Never in one task with operators of other groups."""
        self._settings.set_slot_sharing_group(slot_sharing_group)
        return self
