"""Drives a window operator by the events of the model: values are (key, value), one batch between two
watermarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.runtime.job.operator import OperatorFactoryBase
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.operators.window.window_operator import WindowOperator
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness, OperatorSubtaskState, StreamRecord
from tests.support.window_model import Element, Watermark

LATE = "late"


def key_of(value: Any) -> Any:
    """Values of these tests are (key, value)."""
    return value[0]


@dataclass
class _MadeBy(OperatorFactoryBase):
    """A factory that leaves the choice of the operator to the test."""

    factory: WindowOperatorFactory
    make: Callable[[WindowOperatorFactory], WindowOperator]

    def create(self) -> WindowOperator:
        return self.make(self.factory)


class WindowDriver:
    """One operator with its state. ``make`` makes the operator; the factory's own choice by default."""

    def __init__(
        self,
        factory: WindowOperatorFactory,
        make: Callable[[WindowOperatorFactory], WindowOperator] = WindowOperatorFactory.create,
        *,
        side_tags: tuple[str, ...] = (LATE,),
        key_selector: Callable[[Any], Any] = key_of,
    ) -> None:
        self._made_by = _MadeBy(factory, make)
        self._side_tags = side_tags
        self._key_selector = key_selector
        self._watermark_ms = MIN_TIMESTAMP_MS
        self._earlier: list[tuple[Any, ...]] = []
        self._earlier_late: list[Any] = []
        self.harness = self._harness(None)

    def _harness(self, body: OperatorSubtaskState | None) -> KeyedOneInputStreamOperatorTestHarness:
        return KeyedOneInputStreamOperatorTestHarness(
            self._made_by, self._key_selector, side_outputs=self._side_tags, restored=body, recording=True
        )

    def add(self, *elements: tuple[Any, Any, int]) -> None:
        """One batch of (key, value, timestamp)."""
        self.harness.process_elements([(key, value) for key, value, _ in elements], [ts for _, _, ts in elements])

    def watermark(self, watermark_ms: int) -> None:
        self._watermark_ms = watermark_ms
        self.harness.process_watermark(watermark_ms)

    def run(self, events: list[Element | Watermark]) -> None:
        """Elements between two watermarks are one batch."""
        batch: list[tuple[Any, Any, int]] = []
        for event in events:
            if isinstance(event, Element):
                batch.append((event.key, event.value, event.timestamp))
                continue
            if batch:
                self.add(*batch)
                batch = []
            if event.timestamp > self._watermark_ms:
                self.watermark(event.timestamp)
        if batch:
            self.add(*batch)

    def restart(self) -> None:
        """Go on with a fresh operator and backend from a snapshot."""
        old = self.harness
        body = old.snapshot()
        old.operator.close()
        self._earlier += old.get_output()
        self._earlier_late += old.get_side_output(LATE)
        self.harness = self._harness(body)
        if self._watermark_ms > MIN_TIMESTAMP_MS:
            self.harness.process_watermark(self._watermark_ms)  # all that is due had fired: this fires nothing

    @property
    def events(self) -> list[tuple[Any, ...]]:
        """All that was emitted: records and watermarks."""
        return self._earlier + self.harness.get_output()

    @property
    def results(self) -> list[tuple[Any, int]]:
        """(value, timestamp) of all results."""
        return [(event.value, event.timestamp) for event in self.events if isinstance(event, StreamRecord)]

    @property
    def late(self) -> list[Any]:
        """(value, timestamp) of what went to the side output for late elements."""
        return self._earlier_late + self.harness.get_side_output(LATE)

    @property
    def dropped(self) -> float:
        """The counter of late elements."""
        return self.harness.metrics.snapshot()["numLateRecordsDropped"]

    def is_empty(self) -> bool:
        """Whether nothing is left in the state: no contents, no timers, no state of users."""
        assert self.harness.backend is not None
        self.harness.backend.table("look", "value")  # decodes the state
        return self.harness.backend.snapshot() is None
