"""Who hears what each operator of a job receives and emits: tests of programs, and replays of epochs."""

from __future__ import annotations

from typing import Any, Protocol


class OperatorListener(Protocol):
    """Is told of each batch in the order in which it passes. The lists are the listener's own; so are the records of
    them that can change, as far as a copy can be made of them."""

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """An operator is given records of one of its inputs; what it does with them follows."""

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """An operator has emitted records, to its main output (``tag_id`` None) or to a side output that somebody
        listens to."""

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """An operator has emitted a watermark."""
