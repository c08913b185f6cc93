"""Runs one operator alone, as its task would (Flink's KeyedOneInputStreamOperatorTestHarness).

`snapshot` gives the stored keyed state; a harness made with ``restored=`` begins with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.runtime.metric_group import TaskMetricGroup
from flinkish.runtime.operator import EpochInfo, OperatorContext, OperatorFactory, StreamOperator
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.operator_state import OperatorState


class CollectingOutput:
    """Keeps what an operator emits, in order: ("record", value, timestamp), ("watermark", ms), ("idle", flag)."""

    def __init__(self, side_tags: tuple[str, ...] = ()) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.sides: dict[str, list[tuple[Any, int | None]]] = {tag: [] for tag in side_tags}

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        assert timestamps is None or len(timestamps) == len(values)
        for index, value in enumerate(values):
            self.events.append(("record", value, None if timestamps is None else timestamps[index]))

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        assert timestamps is None or len(timestamps) == len(values)
        for index, value in enumerate(values):
            self.sides[tag_id].append((value, None if timestamps is None else timestamps[index]))

    def has_side(self, tag_id: str) -> bool:
        return tag_id in self.sides

    def emit_watermark(self, watermark_ms: int) -> None:
        self.events.append(("watermark", watermark_ms))

    def emit_status(self, idle: bool) -> None:
        self.events.append(("idle", idle))


class OperatorHarness:
    """One operator, opened. Use as a context manager: it is closed at the end, disposed of after an error.

    ``directory``: where all keyed state lies in files between two snapshots; None: it is in the snapshots.
    """

    def __init__(
        self,
        factory: OperatorFactory,
        key_selector: Callable[[Any], Any] | None = None,
        *,
        side_tags: tuple[str, ...] = (),
        restored: bytes | None = None,
        job_parameters: dict[str, str] | None = None,
        directory: StateDirectory | None = None,
    ) -> None:
        self.output = CollectingOutput(side_tags)
        self.epoch = EpochInfo()
        self.metrics = TaskMetricGroup()
        self._body = restored
        self.backend = (
            None
            if key_selector is None
            else KeyedStateBackend("operator 'tested'", self.epoch, directory=directory, inline_bytes=0)
        )
        if self.backend is not None:
            self.backend.restore(restored)
        self.operator: StreamOperator = factory.create()
        context = OperatorContext(
            uid="tested",
            name="tested",
            task_name="Tested",
            subtask=1,
            parallelism=3,
            max_parallelism=128,
            attempt=0,
            epoch=self.epoch,
            metrics=self.metrics,
            keyed_state=self.backend,
            operator_state=OperatorState(),
            key_selectors=() if key_selector is None else (key_selector,),
            job_parameters=job_parameters or {},
        )
        self.operator.setup(context, self.output)
        self.operator.initialize_state()
        self.operator.open()

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.operator.close()
        self.operator.dispose()

    def process_element(self, value: Any, timestamp_ms: int | None = None) -> None:
        """One record."""
        self.process_batch([value], None if timestamp_ms is None else [timestamp_ms])

    def process_batch(self, values: list[Any], timestamps: list[int] | None = None) -> None:
        """Records between two watermarks."""
        self.operator.process_batch(list(values), None if timestamps is None else list(timestamps))

    def process_watermark(self, watermark_ms: int) -> None:
        """The watermark rises."""
        self.epoch.watermark_ms = watermark_ms
        self.operator.process_watermark(watermark_ms)

    def set_processing_time(self, time_ms: int) -> None:
        """The next epoch's processing time, and what falls due by it."""
        self.epoch.processing_time_ms = time_ms
        self.operator.advance_processing_time(time_ms)

    def snapshot(self) -> bytes | None:
        """The barrier: the stored keyed state."""
        self.operator.snapshot_state()
        if self.backend is not None and self.backend.changed():
            self._body = self.backend.snapshot()
        return self._body

    def take(self) -> list[tuple[Any, ...]]:
        """All events since the last call."""
        events, self.output.events = self.output.events, []
        return events

    def take_values(self) -> list[Any]:
        """The values of all records since the last call."""
        return [event[1] for event in self.take() if event[0] == "record"]
