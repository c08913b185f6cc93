"""Keeps what each operator of a job has received and emitted, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple


class Passage(Enum):
    """Which way something has passed an operator."""

    RECEIVED = "received"
    EMITTED = "emitted"
    WATERMARK = "watermark"


class Passed(NamedTuple):
    """A batch of records that an operator has received or emitted, or a watermark that it has emitted.

    Args:
        input_index: the input of what it has received, from 0.
        tag_id: the side output; None: the main output.
        timestamps: parallel to ``values``; None: no record has one.
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
    """The listener (`OperatorListener`) that keeps all. An epoch that runs again takes the place of its earlier run."""

    def __init__(self) -> None:
        self._epochs: dict[int, list[Passed]] = {}
        self._current: list[Passed] = []

    def begin_epoch(self, epoch: int) -> None:
        """What comes next belongs to this epoch."""
        self._current = self._epochs[epoch] = []

    def passed(self, epoch: int | None = None) -> Iterator[Passed]:
        """All that was kept, or that of one epoch, in order."""
        for number in sorted(self._epochs) if epoch is None else [epoch]:
            yield from self._epochs.get(number, ())

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """See `OperatorListener`."""
        self._current.append(Passed(Passage.RECEIVED, uid, subtask, values, timestamps, input_index=input_index))

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """See `OperatorListener`."""
        self._current.append(Passed(Passage.EMITTED, uid, subtask, values, timestamps, tag_id=tag_id))

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """See `OperatorListener`."""
        self._current.append(Passed(Passage.WATERMARK, uid, subtask, [], watermark_ms=watermark_ms))
