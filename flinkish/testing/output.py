"""The output of operators in the form that tests read: records, watermarks and watermark statuses, in order; and the
recorder of what passes each operator of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from flinkish.core.functions import OutputTag


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


class Passage(Enum):
    """Whether an operator has received records, emitted records, or emitted a watermark."""

    RECEIVED = "received"
    EMITTED = "emitted"
    WATERMARK = "watermark"


class Passed(NamedTuple):
    """A batch of records that an operator has received or emitted, or a watermark that it has emitted.

    Args:
        passage: which of these it is.
        uid, subtask: the operator and its subtask.
        values: the records; empty for a watermark.
        timestamps: in ms, parallel to ``values``; None: no record has a timestamp.
        input_index: for received records, the number of the input, from 0.
        tag_id: for emitted records, the side output; None: the main output.
        watermark_ms: the watermark; None: it is a batch of records.
    """

    passage: Passage
    uid: str
    subtask: int
    values: list[Any]
    timestamps: list[int] | None = None
    input_index: int = 0
    tag_id: str | None = None
    watermark_ms: int | None = None


class Recorder:
    """A listener (`OperatorListener`) that keeps everything. When an epoch runs again, its new records replace those of
    the earlier run."""

    def __init__(self) -> None:
        self._epochs: dict[int, list[Passed]] = {}
        self._current: list[Passed] = []

    def begin_epoch(self, epoch: int) -> None:
        """Begin the recording of an epoch, and drop what was recorded of an earlier run of that epoch."""
        self._current = self._epochs[epoch] = []

    def passed(self, epoch: int | None = None) -> Iterator[Passed]:
        """What was recorded in all epochs, or in one of them, in order."""
        for number in sorted(self._epochs) if epoch is None else [epoch]:
            yield from self._epochs.get(number, ())

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Record a batch that an operator has received; see `OperatorListener`."""
        self._current.append(Passed(Passage.RECEIVED, uid, subtask, values, timestamps, input_index=input_index))

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Record a batch that an operator has emitted; see `OperatorListener`."""
        self._current.append(Passed(Passage.EMITTED, uid, subtask, values, timestamps, tag_id=tag_id))

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """Record a watermark that an operator has emitted; see `OperatorListener`."""
        self._current.append(Passed(Passage.WATERMARK, uid, subtask, [], watermark_ms=watermark_ms))
