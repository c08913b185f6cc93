"""Runs one operator alone, as its task would (Flink's test harnesses of operators with one input or two, keyed or not).

`snapshot` gives the stored keyed state, `snapshot_operator_state` what belongs to no key; a harness made with
``restored=`` and ``restored_operator_state=`` begins with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flinkish.runtime.metric_group import TaskMetricGroup
from flinkish.runtime.operator import EpochInfo, OperatorContext, OperatorFactory, StreamOperator
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.operator_state import OperatorState, StoredOperatorState


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

    @property
    def has_sides(self) -> bool:
        return bool(self.sides)

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
        *key_selectors: Callable[[Any], Any] | None,
        side_tags: tuple[str, ...] = (),
        restored: bytes | None = None,
        restored_operator_state: StoredOperatorState | None = None,
        job_parameters: dict[str, str] | None = None,
        directory: StateDirectory | None = None,
        recording: bool = True,
    ) -> None:
        self.output = CollectingOutput(side_tags)
        self.epoch = EpochInfo()
        self.metrics = TaskMetricGroup()
        self._body = restored
        selectors = tuple(selector for selector in key_selectors if selector is not None)
        self.backend = (
            KeyedStateBackend("operator 'tested'", self.epoch, directory=directory, inline_bytes=0, recording=recording)
            if selectors
            else None
        )
        if self.backend is not None:
            self.backend.restore(restored)
        self.operator_state = OperatorState()
        self.operator_state.restore(restored_operator_state or {})
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
            operator_state=self.operator_state,
            key_selectors=selectors,
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

    def process_element(self, value: Any, timestamp_ms: int | None = None, input_index: int = 0) -> None:
        """One record, of the first input unless another one is named."""
        self.process_batch([value], None if timestamp_ms is None else [timestamp_ms], input_index)

    def process_batch(self, values: list[Any], timestamps: list[int] | None = None, input_index: int = 0) -> None:
        """Records of one input between two watermarks."""
        self.operator.process_batch(list(values), None if timestamps is None else list(timestamps), input_index)

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

    def snapshot_operator_state(self) -> StoredOperatorState:
        """The barrier: what is stored of the state that belongs to no key."""
        self.operator.snapshot_state()
        return copy.deepcopy(self.operator_state.snapshot())

    def take(self) -> list[tuple[Any, ...]]:
        """All events since the last call."""
        events, self.output.events = self.output.events, []
        return events

    def take_values(self) -> list[Any]:
        """The values of all records since the last call."""
        return [event[1] for event in self.take() if event[0] == "record"]


def changed_keys(backend: KeyedStateBackend) -> dict[str, set[tuple[Any, Any]]]:
    """State name -> {(namespace, key)} changed since the last snapshot, for a backend that records changes; timers
    under the name of their service."""
    found = {name: table.changed_keys() for name, table in backend._tables.items()}
    for service, queue in backend._timers.items():
        found[service] = {(namespace, key) for _, _, namespace, key, _ in queue.changed_timers()}
    return {name: keys for name, keys in found.items() if keys}
