"""Serializers of windows, for programs that ask an assigner for its serializer.

The engine does not use them: it writes windows as namespaces of the state (``runtime.windowing.window_namespace``).
They are here because PyFlink programs with their own assigners name them.
"""

from __future__ import annotations

import pickle
import struct
from io import BytesIO

from flinkish.common.serializer import TypeSerializer
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow, Window


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Writes a TimeWindow as its start and end: two big-endian 64-bit numbers.

    >>> TimeWindowSerializer().from_bytes(TimeWindowSerializer().to_bytes(TimeWindow(0, 10)))
    TimeWindow(start=0, end=10)
    """

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Writes a CountWindow as its id: a big-endian 64-bit number."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Writes the GlobalWindow as one zero byte."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()


class PickledWindowSerializer(TypeSerializer[Window]):
    """Writes any window with pickle."""

    def serialize(self, element: Window, stream: BytesIO) -> None:
        pickle.dump(element, stream, protocol=5)

    def deserialize(self, stream: BytesIO) -> Window:
        window = pickle.load(stream)
        assert isinstance(window, Window)
        return window
