"""Runs one operator alone, as its task would (Flink's KeyedOneInputStreamOperatorTestHarness).

Records of a keyed operator are spread over key groups by the real stable hash; watermarks and processing time reach
every key group. `snapshot` gives the bodies; a harness made with ``restored=`` begins with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.runtime.key_groups import key_group_of
from flinkish.runtime.metric_group import TaskMetricGroup
from flinkish.runtime.operator import EpochInfo, OperatorContext, OperatorFactory, StreamOperator
from flinkish.runtime.state.heap_keyed_state_backend import HeapKeyedStateBackend
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
    """One operator, opened. Use as a context manager: it is closed at the end, disposed of after an error."""

    def __init__(
        self,
        factory: OperatorFactory,
        key_selector: Callable[[Any], Any] | None = None,
        *,
        side_tags: tuple[str, ...] = (),
        max_parallelism: int = 3,
        restored: dict[int, bytes | None] | None = None,
        job_parameters: dict[str, str] | None = None,
    ) -> None:
        self.output = CollectingOutput(side_tags)
        self.epoch = EpochInfo()
        self.metrics = TaskMetricGroup()
        self.max_parallelism = max_parallelism
        self._key_selector = key_selector
        self.bodies: dict[int, bytes | None] = dict(restored or {})
        self.backend = None if key_selector is None else HeapKeyedStateBackend("operator 'tested'", self.epoch)
        self.operator: StreamOperator = factory.create()
        self._watermarks = dict.fromkeys(range(max_parallelism), MIN_TIMESTAMP_MS)
        context = OperatorContext(
            uid="tested",
            name="tested",
            task_name="Tested",
            subtask=1,
            parallelism=3,
            max_parallelism=max_parallelism,
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
        if self._key_selector is None:
            self.operator.process_batch(list(values), None if timestamps is None else list(timestamps))
            return
        groups: dict[int, list[int]] = {}
        for index, value in enumerate(values):
            groups.setdefault(key_group_of(self._key_selector(value), self.max_parallelism), []).append(index)
        for key_group, indices in groups.items():
            self._activate(key_group)
            times = None if timestamps is None else [timestamps[index] for index in indices]
            self.operator.process_batch([values[index] for index in indices], times)

    def process_watermark(self, watermark_ms: int) -> None:
        """To all key groups; the operator hands it on once per key group, which the output keeps once."""
        for key_group in self._key_groups():
            self._activate(key_group)
            self._watermarks[key_group] = self.epoch.watermark_ms = watermark_ms
            self.operator.process_watermark(watermark_ms)
        events = [event for event in self.output.events if event != ("watermark", watermark_ms)]
        self.output.events = [*events, ("watermark", watermark_ms)]

    def set_processing_time(self, time_ms: int) -> None:
        """The next epoch's processing time, and what falls due by it, in all key groups."""
        self.epoch.processing_time_ms = time_ms
        for key_group in self._key_groups():
            self._activate(key_group)
            self.operator.advance_processing_time(time_ms)

    def snapshot(self) -> dict[int, bytes | None]:
        """The barrier in all key groups: their bodies."""
        for key_group in self._key_groups():
            self._activate(key_group)
            self.operator.snapshot_state()
            if self.backend is not None and self.backend.changed():
                self.bodies[key_group] = self.backend.snapshot()
        return dict(self.bodies)

    def take(self) -> list[tuple[Any, ...]]:
        """All events since the last call."""
        events, self.output.events = self.output.events, []
        return events

    def take_values(self) -> list[Any]:
        """The values of all records since the last call."""
        return [event[1] for event in self.take() if event[0] == "record"]

    def _key_groups(self) -> range:
        return range(1 if self.backend is None else self.max_parallelism)

    def _activate(self, key_group: int) -> None:
        if self.backend is not None and self.backend.key_group != key_group:
            self.backend.activate(key_group, lambda: self.bodies.get(key_group))
            self.backend.set_timer_hint(MIN_TIMESTAMP_MS, MIN_TIMESTAMP_MS)
        self.epoch.channel = key_group
        self.epoch.watermark_ms = self._watermarks[key_group]
