"""A listener to what each operator of a job receives and emits, for tests of programs and for replays of epochs."""

from __future__ import annotations

from typing import Any, Protocol


class OperatorListener(Protocol):
    """Is called for each batch, in the order in which the batches pass. The lists are the listener's own copies; so are
    the mutable records in them, as far as these can be copied."""

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Called before an operator processes records of one of its inputs."""

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Called when an operator emits records to its main output (``tag_id`` None) or to a side output that has a
        consumer."""

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """Called when an operator emits a watermark."""
