"""Runs one operator alone, as a task would: Flink's test harnesses for operators with one input or two, keyed or not.

A harness is an operator that has been opened, with the state of one subtask. Tests of user functions get one from
`ProcessFunctionTestHarnesses`, or from `harness_of` for the operator of any stream; the class of the harness follows
from the operator's inputs. What the operator emits is kept, in order. ``snapshot`` is the barrier of a checkpoint;
``restore`` gives a new harness with a new instance of the function that goes on from snapshots, also as another subtask
or with another parallelism.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flinkish.core.functions import OutputTag
from flinkish.core.time import MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import ProgramError, UnserializableFunctionError
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.exchange.valve import WatermarkValve
from flinkish.runtime.job.context import TaskMetricGroup
from flinkish.runtime.job.operator import OperatorContext, OperatorFactory, StreamOperator
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.operator_state import OperatorState, StoredOperatorState
from flinkish.runtime.state.saved.columns import stored_columns, stored_rows
from flinkish.runtime.state.saved.restore import SavepointRows, columns_by_subtask, operator_state_rows
from flinkish.runtime.state.state_rows import TIMERS_PREFIX, StateColumns, StateRow
from flinkish.runtime.state.ttl import TTL_PREFIX
from flinkish.runtime.stored.pickling import own_copy
from flinkish.testing.doubles import CollectingOutput, StreamElement, StreamRecord, tag_id

_UID = "tested"

#: One key selector per input of a keyed operator; empty for an operator that is not keyed.
KeySelectors = Sequence[Callable[[Any], Any]]

H = TypeVar("H", bound="StreamOperatorTestHarness")


@dataclass(frozen=True)
class OperatorSubtaskState:
    """The state of one subtask at a barrier (Flink's OperatorSubtaskState).

    Args:
        keyed_state: the encoded keyed state; None: there is none.
        operator_state: the operator state, by kind and name.
        saved: a small value that the operator itself keeps from epoch to epoch.
        subtask, parallelism: the subtask whose state it is, and the operator's parallelism.
        watermark_ms: the subtask's watermark at the barrier.
        processing_time_ms: the subtask's processing time at the barrier.
        directory: the directory of the state files that ``keyed_state`` refers to; None: there are none.
    """

    keyed_state: bytes | None = None
    operator_state: StoredOperatorState = field(default_factory=dict)
    saved: Any = None
    subtask: int = 0
    parallelism: int = 1
    watermark_ms: int = MIN_TIMESTAMP_MS
    processing_time_ms: int = 0
    directory: StateDirectory | None = None


class StreamOperatorTestHarness:
    """Base of all harnesses: one opened operator, with its state, its time and its output.

    Use a harness as a context manager: at the end the operator is closed, or only disposed of after an error.

    Args:
        factory: makes the operator.
        key_selectors: one for each input of a keyed operator.
        side_outputs: the side outputs that somebody listens to; None: all.
        restored: the state that the operator begins with: one snapshot, or those of all subtasks of any parallelism.
        subtask, parallelism, max_parallelism: the subtask that the harness runs, and the operator's parallelism.
        job_parameters: the global job parameters.
        directory: where keyed state is kept in files between two snapshots; None: it is in the snapshots.
        recording: whether the backend records which keys have changed.

    Raises:
        ProgramError: the operator is keyed and there is no key selector.
    """

    def __init__(
        self,
        factory: OperatorFactory,
        key_selectors: KeySelectors = (),
        *,
        side_outputs: Iterable[OutputTag | str] | None = None,
        restored: OperatorSubtaskState | Sequence[OperatorSubtaskState] | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        job_parameters: dict[str, str] | None = None,
        directory: StateDirectory | None = None,
        recording: bool = False,
    ) -> None:
        self._pristine = _copy_of(factory)
        self._key_selectors = tuple(key_selectors)
        self._options: dict[str, Any] = {
            "side_outputs": side_outputs,
            "subtask": subtask,
            "parallelism": parallelism,
            "max_parallelism": max_parallelism,
            "job_parameters": job_parameters,
            "directory": directory,
            "recording": recording,
        }
        self.output = CollectingOutput(side_outputs)
        self.epoch = EpochInfo()
        self.metrics = TaskMetricGroup()
        self.operator_state = OperatorState()
        self.backend: KeyedStateBackend | None = None
        if factory.keyed and not key_selectors:
            raise ProgramError("a keyed operator is tested without a key selector", expected="a Keyed...TestHarness")
        if key_selectors:
            self.backend = KeyedStateBackend(
                f"operator '{_UID}'", self.epoch, directory=directory, inline_bytes=0, recording=recording
            )
            self.backend.restore(None)
        self._directory = directory
        self._body: bytes | None = None
        self.operator: StreamOperator = factory.create()
        saved = self._take_in(restored)
        context = OperatorContext(
            uid=_UID,
            name=_UID,
            task_name="Tested",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            attempt=0,
            epoch=self.epoch,
            metrics=self.metrics,
            keyed_state=self.backend,
            operator_state=self.operator_state,
            key_selectors=self._key_selectors,
            job_parameters=job_parameters or {},
        )
        self.operator.setup(context, self.output)
        self.operator.initialize_state()
        self.operator.open()
        self._begin_epoch(saved)

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.operator.close()
        self.operator.dispose()

    def close(self) -> None:
        """Close the operator and its function."""
        self.operator.close()
        self.operator.dispose()

    # ------------------------------------------------------------------------------------------------ time

    def set_processing_time(self, time_ms: int) -> None:
        """Set processing time, in ms; the processing-time timers that are due by then fire."""
        self.epoch.processing_time_ms = time_ms
        self.operator.advance_processing_time(time_ms)

    def get_processing_time(self) -> int:
        """The processing time, in ms, that `set_processing_time` has set last."""
        return self.epoch.processing_time_ms

    def end_input(self) -> None:
        """End the input: the operator emits what it still holds back."""
        self.epoch.end_of_input = True
        self.operator.finish()

    # ------------------------------------------------------------------------------------------------ output

    def get_output(self) -> list[StreamElement]:
        """The records, watermarks and statuses of the main output that were not taken yet, in order."""
        return list(self.output.elements)

    def take_output(self) -> list[StreamElement]:
        """Return what `get_output` returns, and remove it from the output."""
        elements, self.output.elements = self.output.elements, []
        return elements

    def extract_output_values(self) -> list[Any]:
        """The values of the records of the main output that were not taken yet."""
        return [element.value for element in self.output.elements if isinstance(element, StreamRecord)]

    def take_values(self) -> list[Any]:
        """Take the main output like `take_output`, and return the values of its records."""
        return [element.value for element in self.take_output() if isinstance(element, StreamRecord)]

    def get_side_output(self, tag: OutputTag | str) -> list[StreamRecord]:
        """The records of a side output that were not taken yet. ``tag``: the tag or its id."""
        return list(self.output.sides.get(tag_id(tag), ()))

    def take_side_output(self, tag: OutputTag | str) -> list[StreamRecord]:
        """Return what `get_side_output` returns, and remove it from the side output."""
        return self.output.sides.pop(tag_id(tag), [])

    # ------------------------------------------------------------------------------------------------ state

    def num_event_time_timers(self) -> int:
        """The number of event-time timers that have not fired."""
        return self._timers(TimeDomain.EVENT_TIME)

    def num_processing_time_timers(self) -> int:
        """The number of processing-time timers that have not fired."""
        return self._timers(TimeDomain.PROCESSING_TIME)

    def num_keyed_state_entries(self, state_name: str | None = None) -> int:
        """The number of (key, namespace) pairs that have a value, in one keyed state or summed over all of them. Window
        operators keep their contents in a state of their own, with the window as the namespace."""
        return len(
            {
                (row.state, row.namespace, row.key)
                for row in self._rows()
                if not row.state.startswith((TIMERS_PREFIX, TTL_PREFIX)) and state_name in (None, row.state)
            }
        )

    def _timers(self, domain: TimeDomain) -> int:
        return sum(row.state.startswith(TIMERS_PREFIX) and row.kind == domain.name for row in self._rows())

    def _rows(self) -> Iterator[StateRow]:
        return stored_rows(self._keyed_body(), self._directory)

    def _keyed_body(self) -> bytes | None:
        if self.backend is not None and self.backend.changed():
            self._body = self.backend.snapshot()
        return self._body

    # ------------------------------------------------------------------------------------------------ barriers

    def snapshot(self) -> OperatorSubtaskState:
        """Take a snapshot of the subtask's state, as at the barrier of a checkpoint. The next epoch begins."""
        self.operator.snapshot_state()
        saved = self.operator.save()
        state = OperatorSubtaskState(
            keyed_state=self._keyed_body(),
            operator_state=copy.deepcopy(self.operator_state.snapshot()),
            saved=saved,
            subtask=self._options["subtask"],
            parallelism=self._options["parallelism"],
            watermark_ms=self.epoch.watermark_ms,
            processing_time_ms=self.epoch.processing_time_ms,
            directory=self._directory,
        )
        self.epoch.epoch += 1
        self._begin_epoch(saved)
        return state

    def restore(self: H, *snapshots: OperatorSubtaskState, **options: Any) -> H:
        """A new harness, with a new instance of the function, that begins with these snapshots.

        Args:
            snapshots: the snapshot of this subtask, or those of all subtasks.
            options: arguments of the class that differ from those of this harness, such as ``parallelism``.

        Raises:
            ProgramError: the function could not be copied before it was opened.
        """
        if self._pristine is None:
            raise ProgramError(
                "the function of the operator cannot be copied, and has run",
                expected="a function that can be pickled before it is opened",
                hint="create connections, locks and files in open(), or make the second harness with restored=...",
            )
        return type(self)._of(
            self._pristine, self._key_selectors, **{**self._options, "restored": snapshots, **options}
        )

    @classmethod
    def _of(cls: type[H], factory: OperatorFactory, key_selectors: KeySelectors, **options: Any) -> H:
        """A harness of this class, given the key selectors as a sequence whatever the arguments of the class are."""
        harness = cls.__new__(cls)
        StreamOperatorTestHarness.__init__(harness, factory, key_selectors, **options)
        return harness

    def _begin_epoch(self, saved: Any) -> None:
        self.operator.restore(saved)
        self.operator.begin_epoch()

    def _take_in(self, restored: OperatorSubtaskState | Sequence[OperatorSubtaskState] | None) -> Any:
        """Restore the snapshots, before `open`; returns the value that the operator itself had saved."""
        states = [restored] if isinstance(restored, OperatorSubtaskState) else list(restored or ())
        if not states:
            return None
        self.epoch.restored = True
        self.epoch.watermark_ms = min(state.watermark_ms for state in states)
        self.epoch.processing_time_ms = max(state.processing_time_ms for state in states)
        subtask, parallelism = self._options["subtask"], self._options["parallelism"]
        mine = (subtask, parallelism, _path_of(self._directory))
        if [(state.subtask, state.parallelism, _path_of(state.directory)) for state in states] == [mine]:
            self._body = states[0].keyed_state
            if self.backend is not None:
                self.backend.restore(self._body)
            self.operator_state.restore(copy.deepcopy(states[0].operator_state))
            return states[0].saved
        rows = SavepointRows({_UID: self.operator_state}, _UID, self.backend, subtask)
        for state in states:
            for columns in _columns_of(state):
                for place, some in columns_by_subtask(columns, parallelism, self._options["max_parallelism"]):
                    if place == subtask:
                        rows.take_in(_UID, some)
        rows.end()
        if self.backend is not None:
            self._body = self.backend.snapshot()
        return None

    def _process_watermark(self, watermark_ms: int) -> None:
        """Let the combined watermark of all inputs rise."""
        self.epoch.watermark_ms = watermark_ms
        self.operator.process_watermark(watermark_ms)

    def _process(self, values: Iterable[Any], timestamps: Iterable[int] | None, input_index: int) -> None:
        batch, times = list(values), None if timestamps is None else list(timestamps)
        self.operator.process_batch(batch, times, input_index)


def _columns_of(state: OperatorSubtaskState) -> Iterator[StateColumns]:
    """All rows of state of a snapshot, as a savepoint would have them."""
    yield from stored_columns(state.keyed_state, state.directory)
    for row in operator_state_rows(state.subtask, state.parallelism, copy.deepcopy(state.operator_state)):
        yield StateColumns(row.state, row.kind, [row.namespace], [row.key], [row.value])


def _path_of(directory: StateDirectory | None) -> str | None:
    return None if directory is None else directory.path


def _copy_of(factory: OperatorFactory) -> OperatorFactory | None:
    # functions stay those of the test, unless what they hold cannot be copied so; a function may hold anything, and
    # that it cannot be copied at all matters only to a later `restore`
    with suppress(Exception):
        return copy.deepcopy(factory)
    with suppress(UnserializableFunctionError):
        return own_copy(factory, _UID)
    return None


def _times(timestamp: int | None) -> list[int] | None:
    return None if timestamp is None else [timestamp]


# ------------------------------------------------------------------------------------------------ by their inputs


class OneInputStreamOperatorTestHarness(StreamOperatorTestHarness):
    """Runs an operator with one input."""

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record. ``timestamp``: in ms; None: the record has none."""
        self._process([value], _times(timestamp), 0)

    def process_elements(self, values: Iterable[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process records between two watermarks, as one batch."""
        self._process(values, timestamps, 0)

    def process_watermark(self, watermark_ms: int) -> None:
        """Let the watermark rise: event-time timers fire."""
        self._process_watermark(watermark_ms)

    def process_watermark_status(self, idle: bool) -> None:
        """Let the input become idle, or active again."""
        self.operator.process_status(idle)


class KeyedOneInputStreamOperatorTestHarness(OneInputStreamOperatorTestHarness):
    """Runs a keyed operator with one input. ``options``: as for `StreamOperatorTestHarness`."""

    def __init__(self, factory: OperatorFactory, key_selector: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(factory, (key_selector,), **options)


class _TwoInputs(StreamOperatorTestHarness):
    """Base of the harnesses with two inputs, each of which has its own watermark."""

    _valve: WatermarkValve | None = None

    def _inputs(self) -> WatermarkValve:
        if self._valve is None:
            self._valve = WatermarkValve(self.epoch.watermark_ms, ended_count=True)
            for input_index in range(2):
                self._valve.add(input_index, always_aligned=True)
        return self._valve

    def process_both_watermarks(self, watermark_ms: int) -> None:
        """Let the watermarks of both inputs rise, first that of the first input."""
        for input_index in range(2):
            self._advance(input_index, watermark_ms)

    def _advance(self, input_index: int, watermark_ms: int) -> None:
        self._change(lambda valve: valve.advance(input_index, watermark_ms))

    def _set_idle(self, input_index: int, idle: bool) -> None:
        self._change(lambda valve: valve.set_idle(input_index, idle))

    def _change(self, change: Callable[[WatermarkValve], bool]) -> None:
        """Change an input; the operator becomes active before its watermark rises, and idle after it."""
        valve = self._inputs()
        was_idle, rose = valve.idle, change(valve)
        if was_idle and not valve.idle:
            self.operator.process_status(False)
        if rose:
            self._process_watermark(valve.combined_ms)
        if valve.idle and not was_idle:
            self.operator.process_status(True)


class TwoInputStreamOperatorTestHarness(_TwoInputs):
    """Runs an operator with two inputs."""

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the first input."""
        self._process([value], _times(timestamp), 0)

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the second input."""
        self._process([value], _times(timestamp), 1)

    def process_elements1(self, values: Iterable[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process records of the first input between two watermarks, as one batch."""
        self._process(values, timestamps, 0)

    def process_elements2(self, values: Iterable[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process records of the second input between two watermarks, as one batch."""
        self._process(values, timestamps, 1)

    def process_watermark1(self, watermark_ms: int) -> None:
        """Let the watermark of the first input rise; the operator's watermark is the lower one of both inputs."""
        self._advance(0, watermark_ms)

    def process_watermark2(self, watermark_ms: int) -> None:
        """Let the watermark of the second input rise."""
        self._advance(1, watermark_ms)

    def process_watermark_status1(self, idle: bool) -> None:
        """Let the first input become idle, or active again: an idle input does not hold the watermark back."""
        self._set_idle(0, idle)

    def process_watermark_status2(self, idle: bool) -> None:
        """Let the second input become idle, or active again."""
        self._set_idle(1, idle)


class KeyedTwoInputStreamOperatorTestHarness(TwoInputStreamOperatorTestHarness):
    """Runs a keyed operator with two inputs. ``options``: as for `StreamOperatorTestHarness`."""

    def __init__(
        self,
        factory: OperatorFactory,
        key_selector1: Callable[[Any], Any],
        key_selector2: Callable[[Any], Any],
        **options: Any,
    ) -> None:
        super().__init__(factory, (key_selector1, key_selector2), **options)


class BroadcastOperatorTestHarness(_TwoInputs):
    """Runs an operator whose second input is a broadcast stream."""

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the stream that is not broadcast."""
        self._process([value], _times(timestamp), 0)

    def process_elements(self, values: Iterable[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process records of the stream that is not broadcast, between two watermarks, as one batch."""
        self._process(values, timestamps, 0)

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """Process one element of the broadcast stream."""
        self._process([value], _times(timestamp), 1)

    def process_broadcast_elements(self, values: Iterable[Any], timestamps: Iterable[int] | None = None) -> None:
        """Process elements of the broadcast stream between two watermarks, as one batch."""
        self._process(values, timestamps, 1)

    def process_watermark(self, watermark_ms: int) -> None:
        """Let the watermark of the stream that is not broadcast rise; the operator's is the lower one of both."""
        self._advance(0, watermark_ms)

    def process_broadcast_watermark(self, watermark_ms: int) -> None:
        """Let the watermark of the broadcast stream rise."""
        self._advance(1, watermark_ms)

    def get_broadcast_state(self, name: str) -> dict[Any, Any]:
        """The entries of the broadcast state of that name in this subtask, as a new dict."""
        return dict(self.operator_state.broadcast(name))


class KeyedBroadcastOperatorTestHarness(BroadcastOperatorTestHarness):
    """Runs a keyed operator whose second input is a broadcast stream. ``options``: see `StreamOperatorTestHarness`."""

    def __init__(self, factory: OperatorFactory, key_selector: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(factory, (key_selector,), **options)
