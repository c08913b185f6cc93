"""What an operator emits, as tests read it: records, watermarks and watermark statuses in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flinkish.core.output_tag import OutputTag


class StreamRecord(NamedTuple):
    """A record, and its timestamp in ms; None: it has none."""

    value: Any
    timestamp: int | None = None


@dataclass(frozen=True)
class Watermark:
    """A watermark in ms."""

    timestamp: int


@dataclass(frozen=True)
class WatermarkStatus:
    """All inputs have become idle, or one is active again."""

    idle: bool


StreamElement = StreamRecord | Watermark | WatermarkStatus


def tag_id(tag: OutputTag | str) -> str:
    """The id of a side output, which may be named by its tag or its id."""
    return tag.tag_id if isinstance(tag, OutputTag) else tag


def stream_records(values: list[Any], timestamps: list[int] | None) -> list[StreamRecord]:
    """A batch as records."""
    if timestamps is None:
        return [StreamRecord(value) for value in values]
    return [StreamRecord(value, timestamp) for value, timestamp in zip(values, timestamps, strict=True)]


class CollectingOutput:
    """Keeps all that an operator emits.

    Args:
        listened: the side outputs that somebody listens to; None: all. What is emitted to another one goes to the main
            output with its tag, as in a program.
    """

    def __init__(self, listened: Iterable[OutputTag | str] | None = None) -> None:
        self._listened = None if listened is None else frozenset(map(tag_id, listened))
        self.elements: list[StreamElement] = []
        self.sides: dict[str, list[StreamRecord]] = {}

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a batch."""
        self.elements.extend(stream_records(values, timestamps))

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Keep a batch of a side output."""
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

    def emit_status(self, idle: bool) -> None:
        """Keep a status."""
        self.elements.append(WatermarkStatus(idle))
