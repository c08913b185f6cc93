"""Records what each operator of a job has received and emitted, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple


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
