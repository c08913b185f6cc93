"""An operator with ``on_error``: a call of its function that raises is undone, and its record or timer is skipped or
becomes a dead letter.

The guarding operator calls the operator that it guards with one record at a time, and holds back what that operator
emits until the batch is done, so that errors of operators downstream are not taken for its own. Operators without
``on_error`` pay nothing for this.

The effects of a failed call are undone exactly: its results (main and side outputs), keyed state, operator state and
timers. Its effects elsewhere (attributes of the function, metrics, accumulators, other systems) are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from flinkish.common.accumulators import LongCounter
from flinkish.common.arguments import abbreviated
from flinkish.common.detach import detached, handed_over
from flinkish.core.checkpointed_function import DeadLetter, OnError
from flinkish.core.time import MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import ErrorBudgetError, FlinkishError, InvalidKeyError, ProgramError, message_of
from flinkish.runtime.exchange.keys import KeyedBatch, thawed
from flinkish.runtime.job.failure import user_traceback
from flinkish.runtime.job.operator import ERROR_BUDGET, OperatorContext, Output, StreamOperator
from flinkish.runtime.job.outputs import emit
from flinkish.runtime.operators.keyed_process import KeyedProcessOperator
from flinkish.runtime.state.undo_log import UndoLog

#: What an operator counts. Records in = consumed + late (``numLateRecordsDropped``) + dead letters + skipped.
RECORDS_IN, CONSUMED = "numRecordsIn", "numRecordsConsumed"
DEAD_LETTERS, SKIPPED = "numDeadLetters", "numRecordsSkipped"
TIMERS_FAILED = "numTimersFailed"

#: One failure, in the unit of the budget. Whole numbers make the budget the same wherever it is computed.
_ONE = 1_000_000

_LOG = logging.getLogger("flinkish.OnError")


class ErrorBudget:
    """How many calls of a subtask may still fail, by the rule of `OnError`. ``left`` outlives epochs.

    >>> b = ErrorBudget(2, 0.5); b.failed(), b.failed(), b.failed()
    (True, True, False)
    """

    def __init__(self, max_failures: int, max_rate: float) -> None:
        self._full = max_failures * _ONE
        self._back = round(max_rate * _ONE)
        self.left = self._full

    def succeeded(self) -> None:
        """Count a call that has succeeded."""
        if self.left < self._full:
            self.left = min(self._full, self.left + self._back)

    def failed(self) -> bool:
        """Count a call that has failed. Returns False if the budget does not allow that."""
        if self.left < _ONE:
            return False
        self.left -= _ONE
        return True

    def save(self) -> int | None:
        """The value that must outlive the epoch; None if the budget is full."""
        return None if self.left == self._full else self.left

    def restore(self, saved: int | None) -> None:
        """Set the budget to a value that `save` has returned."""
        self.left = self._full if saved is None else min(saved, self._full)


#: (values, their timestamps or None)
_Held = tuple[list[Any], list[int] | None]


class HeldOutput:
    """An `Output` that holds back what an operator emits until `flush`. What was emitted since `mark` can be taken
    back."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._main: list[_Held] = []
        self._sides: list[tuple[str, list[Any], list[int] | None]] = []
        self._mark = 0, 0

    def mark(self) -> None:
        """Mark the beginning of a call, for `take_back`."""
        self._mark = len(self._main), len(self._sides)

    def take_back(self) -> None:
        """Forget what was emitted since `mark`."""
        main, sides = self._mark
        del self._main[main:]
        del self._sides[sides:]

    def flush(self) -> None:
        """Emit all results that are held back: first the side outputs, as one batch each, then the main output."""
        sides: dict[str, list[_Held]] = {}
        for tag_id, values, timestamps in self._sides:
            sides.setdefault(tag_id, []).append((values, timestamps))
        main, self._main, self._sides = self._main, [], []
        for tag_id, held in sides.items():
            self._output.collect_side(tag_id, *_joined(held))
        if any(values for values, _ in main):
            self._output.collect(*_joined(main))

    def __len__(self) -> int:
        """The number of results that are held back."""
        return sum(len(values) for values, _ in self._main) + sum(len(values) for _, values, _ in self._sides)

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._main.append((values, timestamps))

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        self._sides.append((tag_id, values, timestamps))

    @property
    def has_sides(self) -> bool:
        return self._output.has_sides

    def has_side(self, tag_id: str) -> bool:
        return self._output.has_side(tag_id)

    def emit_watermark(self, watermark_ms: int) -> None:
        self.flush()
        self._output.emit_watermark(watermark_ms)

    def emit_interim_watermark(self, watermark_ms: int) -> None:
        self.flush()
        self._output.emit_interim_watermark(watermark_ms)

    def later_watermark(self) -> Callable[[int], None]:
        emit = self._output.later_watermark()

        def emit_behind_all(watermark_ms: int) -> None:
            self.flush()
            emit(watermark_ms)

        return emit_behind_all

    def emit_status(self, idle: bool) -> None:
        self.flush()
        self._output.emit_status(idle)


def _joined(held: list[_Held]) -> _Held:
    """All values as one batch. If only some have timestamps, the others get MIN_TIMESTAMP_MS, which stands for none."""
    values = [value for batch, _ in held for value in batch]
    if all(timestamps is None for _, timestamps in held):
        return values, None
    return values, [
        timestamp
        for batch, timestamps in held
        for timestamp in ([MIN_TIMESTAMP_MS] * len(batch) if timestamps is None else timestamps)
    ]


class _NoOutput(HeldOutput):
    """Drops all results: a trial of whether they can be converted needs an output."""

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Drop the results."""

    def collect_side(self, tag_id: str, values: list[Any], timestamps: list[int] | None) -> None:
        """Drop the results."""


class GuardedOperator(StreamOperator):
    """Guards another operator by the rules of `OnError`: a failed call of its function is undone and counted, and its
    record or timer is skipped or becomes a dead letter.

    Args:
        inner: the operator that is guarded.
        on_error: what becomes of failures, and how many are allowed.
    """

    def __init__(self, inner: StreamOperator, on_error: OnError) -> None:
        self._inner = inner
        self._on_error = on_error
        self.inputs = inner.inputs
        self._budget = ErrorBudget(on_error.max_failures, on_error.max_rate)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        backend = context.keyed_state
        log = None if backend is None else backend.undo_log
        self._log = context.operator_state.undo_log = log if log is not None else UndoLog()
        self._log.lenders.append(context.operator_state)
        self._held = HeldOutput(output)
        self._received, self._consumed, self._timers_failed = (
            self._counter(name) for name in (RECORDS_IN, CONSUMED, TIMERS_FAILED)
        )
        self._diverted = self._counter(SKIPPED if self._on_error.tag is None else DEAD_LETTERS)
        self._inner.setup(context, self._held)
        self.guard_calls()

    def guard_calls(self) -> None:
        """Guard the calls of user code that the operator makes outside of ``process_batch``."""
        if isinstance(self._inner, KeyedProcessOperator):
            self._inner.on_timer = self._guarded_timer(self._inner, self._inner.on_timer)

    def _counter(self, name: str) -> LongCounter:
        counter = LongCounter()
        self.context.accumulators.add(name, counter, self.context.uid)
        return counter

    # ------------------------------------------------------------------ records and timers

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self._received.add(len(values))
        failed, late_before = 0, self._late()
        stamps: Iterable[int | None] = repeat(None) if timestamps is None else timestamps
        arriving = iter(values)
        for position, (_, timestamp) in enumerate(zip(arriving, stamps, strict=False)):
            # a slice: records may have come with their keys
            if not self._process(values[position : position + 1], timestamp, input_index):
                failed += 1
        self._consumed.add(len(values) - failed - (self._late() - late_before))
        self._diverted.add(failed)
        self._held.flush()

    def _late(self) -> int:
        """The number of records that the guarded operator has dropped since they were too late; 0 if it counts none."""
        dropped = getattr(self._inner, "late_records_dropped", None)
        return 0 if dropped is None else dropped.get_count()

    def _process(self, batch: list[Any], timestamp: int | None, input_index: int) -> bool:
        """Process a batch of one record. Returns whether the call has succeeded."""
        # the function may change its argument, at any depth, before it raises
        record = batch[0] if self._on_error.tag is None else detached(batch[0])
        self._held.mark()
        self._log.begin()
        try:
            self._inner.process_batch(batch, None if timestamp is None else [timestamp], input_index)
        except Exception as error:
            self._undo(error)
            key = thawed(batch.keys[0]) if isinstance(batch, KeyedBatch) else self._key_of(record, input_index)
            self._failed(error, record, key, timestamp)
            return False
        self._log.commit()
        self._budget.succeeded()
        return True

    def _guarded_timer(
        self, inner: KeyedProcessOperator, on_timer: Callable[[int, Any], Any]
    ) -> Callable[[int, Any], Any]:
        """A form of ``on_timer`` that guards its calls: it returns no results for a call that failed."""

        def call(timestamp: int, ctx: Any) -> list[Any]:
            self._held.mark()
            self._log.begin()
            try:
                results = [handed_over(result) for result in on_timer(timestamp, ctx) or ()]
                if inner.converter is not None:
                    emit(list(results), None, _NoOutput(self._held), inner.converter)
            except Exception as error:
                self._undo(error)
                self._timers_failed.add(1)
                self._failed(error, None, thawed(inner.keyed_state.current_key), timestamp, ctx.time_domain())
                return []
            self._log.commit()
            self._budget.succeeded()
            return results

        return call

    def _undo(self, error: Exception) -> None:
        """Undo the running call. Raises the error again if it does not come from the user's function."""
        self._log.undo()
        self._held.take_back()
        if isinstance(error, (MemoryError, InvalidKeyError)):
            raise error
        if isinstance(error, FlinkishError) and not isinstance(error, ProgramError):
            raise error

    def _key_of(self, record: Any, input_index: int) -> Any:
        selectors = self.context.key_selectors
        return thawed(selectors[input_index](record)) if input_index < len(selectors) else None

    def _failed(
        self,
        error: Exception,
        record: Any,
        key: Any,
        timestamp: int | None,
        timer: TimeDomain | None = None,
        window: str | None = None,
    ) -> None:
        """Log or emit the failure of a call that was undone: of a record, or of a timer of the domain ``timer``.

        Raises:
            ErrorBudgetError: there are too many of them.
        """
        context, is_timer = self.context, timer is not None
        traceback = user_traceback(error)
        what = f"{type(error).__name__}: {message_of(error)}"
        if not self._budget.failed():
            raise self._too_many(what, key, traceback) from error
        if self._on_error.tag is None:
            name = f"operator '{context.name}' (uid {context.uid})"
            skipped = "record" if not is_timer else "timer" if window is None else f"timer of {window}"
            _LOG.warning("%s skips a %s, key %s: %s", name, skipped, abbreviated(key), what)
            return
        epoch = context.epoch.epoch
        letter = DeadLetter(
            record,
            type(error).__name__,
            message_of(error),
            traceback,
            context.uid,
            key,
            timestamp,
            epoch,
            is_timer,
            window,
        )
        # as in Flink, what a timer of processing time gives has no timestamp
        timestamps = None if timestamp is None or timer is TimeDomain.PROCESSING_TIME else [timestamp]
        self._held.collect_side(self._on_error.tag.tag_id, [letter], timestamps)

    def _too_many(self, what: str, key: Any, traceback: str) -> ErrorBudgetError:
        context, allowed = self.context, self._on_error
        operator = f"operator '{context.name}' (uid {context.uid})"
        return ErrorBudgetError(
            f"too many calls of the function fail, the last one with {what}",
            user_traceback=traceback,
            where=f"{operator}, key {abbreviated(key)}, epoch {context.epoch.epoch}",
            expected=f"at most {allowed.max_failures} failures in a row, and in the long run {allowed.max_rate:.2%} "
            "of the calls of a subtask",
            hint="mend the function and start the job again, or allow more in on_error(...)",
        )

    # ------------------------------------------------------------------ everything else goes to the guarded operator

    def initialize_state(self) -> None:
        self._inner.initialize_state()

    def open(self) -> None:
        self._inner.open()

    def begin_epoch(self) -> None:
        self._inner.begin_epoch()

    def save(self) -> Any:
        left = self._budget.save()
        return None if left is None else (ERROR_BUDGET, left)

    def restore(self, saved: Any) -> None:
        # earlier versions have stored the number alone
        self._budget.restore(saved[1] if isinstance(saved, tuple) else saved)

    def end_split(self) -> None:
        self._inner.end_split()

    def begin_split(self, split: str, seen_ms: int) -> None:
        self._inner.begin_split(split, seen_ms)

    def process_watermark(self, watermark_ms: int) -> None:
        self._inner.process_watermark(watermark_ms)

    def process_status(self, idle: bool) -> None:
        self._inner.process_status(idle)

    def advance_processing_time(self, time_ms: int) -> None:
        self._inner.advance_processing_time(time_ms)
        self._held.flush()

    def snapshot_state(self) -> None:
        self._inner.snapshot_state()

    def finish(self) -> None:
        self._inner.finish()
        self._held.flush()

    def close(self) -> None:
        self._inner.close()

    def dispose(self) -> None:
        self._inner.dispose()
