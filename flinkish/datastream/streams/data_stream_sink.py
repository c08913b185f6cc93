"""DataStreamSink: a sink of the program, and the settings that a program may change on it."""

from __future__ import annotations

from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.operator_settings import OperatorSettings
from flinkish.graph.stream_graph import ChainingStrategy, StreamNode


class DataStreamSink:
    """A sink of the program, as ``sink_to``, ``add_sink`` and ``print`` give it. Its methods change the settings of the
    sink's operator and return this object."""

    def __init__(self, node: StreamNode) -> None:
        self._settings = OperatorSettings([node])

    def name(self, name: str) -> DataStreamSink:
        """Name the sink; plans show it with ``Sink: `` before it."""
        self._settings.set_name(name)
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Give the sink an identity that later versions of the program can be matched with. A uid used twice raises
        DuplicateUidError when the job is submitted."""
        self._settings.set_uid(uid)
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Take over the identity of a sink of an earlier job: 32 hexadecimal digits, which win over ``uid``."""
        self._settings.set_uid_hash(uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Set the number of subtasks that write. Raises ArgumentValueError below 1, except for -1, which means the
        parallelism of the environment."""
        self._settings.set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Set a longer text that plans show."""
        self._settings.set_description(description)
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Run the sink in a task of its own."""
        self._settings.set_chaining(ChainingStrategy.NEVER)
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Put the sink into a slot sharing group. Operators of different groups never share a task."""
        self._settings.set_slot_sharing_group(slot_sharing_group)
        return self
