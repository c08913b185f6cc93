"""The output of an operator in the form that tests read: records, watermarks and watermark statuses, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flinkish.core.output_tag import OutputTag


class StreamRecord(NamedTuple):
    """A record with its timestamp in ms; None: it has no timestamp."""

    value: Any
    timestamp: int | None = None


@dataclass(frozen=True)
class Watermark:
    """A watermark, in ms of event time."""

    timestamp: int


@dataclass(frozen=True)
class WatermarkStatus:
    """A change of the watermark status: all inputs have become idle, or one is active again."""

    idle: bool


StreamElement = StreamRecord | Watermark | WatermarkStatus


def tag_id(tag: OutputTag | str) -> str:
    """The id of a side output, which may be named by its tag or its id."""
    return tag.tag_id if isinstance(tag, OutputTag) else tag


def stream_records(values: list[Any], timestamps: list[int] | None) -> list[StreamRecord]:
    """The records of a batch. ``timestamps``: parallel to ``values``, in ms; None: no record has a timestamp."""
    if timestamps is None:
        return [StreamRecord(value) for value in values]
    return [StreamRecord(value, timestamp) for value, timestamp in zip(values, timestamps, strict=True)]


class CollectingOutput:
    """The output of an operator under test: keeps all that the operator emits.

    Args:
        listened: the side outputs that somebody listens to; None: all. A record that is emitted to another side output
            is dropped, as in a program.
    """

    def __init__(self, listened: Iterable[OutputTag | str] | None = None) -> None:
        self._listened = None if listened is None else frozenset(map(tag_id, listened))
        self.elements: list[StreamElement] = []
        self.sides: dict[str, list[StreamRecord]] = {}

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a batch of the main output."""
        self.elements.extend(stream_records(values, timestamps))

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a batch of a side output, if somebody listens to it."""
        if self.has_side(tag_id):
            self.sides.setdefault(tag_id, []).extend(stream_records(values, timestamps))

    @property
    def has_sides(self) -> bool:
        """Whether anybody listens to any side output."""
        return self._listened is None or bool(self._listened)

    def has_side(self, tag_id: str) -> bool:
        """Whether anybody listens to that tag."""
        return self._listened is None or tag_id in self._listened

    def emit_watermark(self, watermark_ms: int) -> None:
        """Keep a watermark."""
        self.elements.append(Watermark(watermark_ms))

    def emit_interim_watermark(self, watermark_ms: int) -> None:
        """Keep a watermark that the functions of a chain do not see."""
        self.emit_watermark(watermark_ms)

    def later_watermark(self) -> Callable[[int], None]:
        """What keeps a watermark later."""
        return self.emit_watermark

    def emit_status(self, idle: bool) -> None:
        """Keep a change of the watermark status."""
        self.elements.append(WatermarkStatus(idle))
