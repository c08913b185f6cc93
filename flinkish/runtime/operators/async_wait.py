"""The operator of ``AsyncDataStream``: it makes many calls of an AsyncFunction at a time, on an event loop in a thread
of its own.

Rules upheld here:

* At most ``capacity`` records are held: those whose calls are running, and those whose results wait for their turn.
* Results are emitted in the order of the records, or, unordered, as they come. In both cases no result overtakes a
  watermark: results of records before it are emitted before it, those of records behind it behind it.
* Nothing is held at the barrier, nor when a source turns to another split: operators downstream may rely on the order.
* Only the task's thread calls other operators; the loop's thread only makes calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import length_hint
from queue import Empty, SimpleQueue
from typing import Any

from flinkish.common.detach import all_detached
from flinkish.core.async_function import NO_RETRY_STRATEGY, AsyncFunction, AsyncRetryStrategy
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.runtime.job.operator import OperatorFactoryBase
from flinkish.runtime.job.outputs import Converter, emit
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator

#: How long, in seconds, to wait for the loop's thread to end.
_STOP_S = 10

#: How often, in seconds, a waiting task checks that the loop still runs.
_LOOK_S = 5


@dataclass(eq=False)
class Call:
    """One record and the outcome of its call: results, or an error."""

    value: Any
    timestamp_ms: int | None
    results: list[Any] = field(default_factory=list)
    error: BaseException | None = None


class Segment:
    """Records whose results may be emitted in any order, and the event that comes behind all of them."""

    def __init__(self) -> None:
        self.waiting = 0
        self.done: list[Call] = []
        #: no further record is added
        self.closed = False
        #: emits the watermark or status behind the records; None: there is none yet
        self.event: Callable[[], None] | None = None


class CallQueue:
    """Decides the order in which results, watermarks and statuses are emitted. Used by the task's thread alone.

    Ordered, each record is a `Segment` of its own; unordered, all records between two watermarks are one segment.
    """

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._segments: deque[Segment] = deque()
        self._segment_of: dict[Call, Segment] = {}
        #: the number of records whose results have not been taken
        self.held = 0

    def add(self, call: Call) -> None:
        """Add a record whose call begins."""
        if not self._segments or self._segments[-1].closed:
            self._segments.append(Segment())
        segment = self._segments[-1]
        segment.closed = self._ordered
        segment.waiting += 1
        self._segment_of[call] = segment
        self.held += 1

    def add_event(self, event: Callable[[], None]) -> None:
        """Add a watermark or status, to be emitted behind all records so far and before all that follow."""
        if not self._segments or self._segments[-1].event is not None:
            self._segments.append(Segment())
        self._segments[-1].closed = True
        self._segments[-1].event = event

    def complete(self, call: Call) -> None:
        """Mark the call of a record as ended."""
        segment = self._segment_of.pop(call)
        segment.waiting -= 1
        segment.done.append(call)

    def take(self) -> tuple[list[Call], Callable[[], None] | None]:
        """Remove the records whose turn it is, up to the next event, and that event if it is its turn."""
        taken: list[Call] = []
        while self._segments:
            segment = self._segments[0]
            taken += segment.done
            segment.done = []
            if segment.waiting or not segment.closed:
                break
            self._segments.popleft()
            if segment.event is not None:
                self.held -= len(taken)
                return taken, segment.event
        self.held -= len(taken)
        return taken, None


class EventLoop:
    """An event loop of asyncio in a thread of its own, for the calls of one subtask."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"async calls of {name}", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def start(self, make: Callable[[Call], Any], calls: list[Call]) -> None:
        """Begin the calls, from any thread. ``make`` makes the coroutine of one call."""
        self._loop.call_soon_threadsafe(self._start, make, calls)

    def _start(self, make: Callable[[Call], Any], calls: list[Call]) -> None:
        for call in calls:
            task = self._loop.create_task(make(call))
            # the loop itself keeps only weak references to tasks
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def is_alive(self) -> bool:
        """Whether the loop's thread still runs, so that calls can end."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Cancel the running calls, and end the thread."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._cancel(), self._loop)
            self._thread.join(_STOP_S)

    async def _cancel(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_STOP_S / 2) if tasks else None
        self._loop.stop()


class AsyncWaitOperator(UserFunctionOperator):
    """Calls an AsyncFunction for each record and emits the results, each with the timestamp of its record.

    Args:
        ordered: emit results in the order of the records, not as they come.
        timeout_ms: time for all attempts of a call; 0 or less: there is no limit.
        capacity: the most records that are held.
        retry_strategy: whether and when a call is made again.
    """

    def __init__(
        self,
        function: AsyncFunction[Any, Any],
        ordered: bool,
        timeout_ms: int,
        capacity: int,
        retry_strategy: AsyncRetryStrategy[Any],
        converter: Converter | None,
    ) -> None:
        super().__init__(function, "async_invoke", converter)
        self.timeout = function.timeout
        self._timeout_s = timeout_ms / 1000 if timeout_ms > 0 else None
        self._capacity = capacity
        self._strategy = retry_strategy
        predicate = retry_strategy.get_retry_predicate()
        self._result_predicate = predicate.result_predicate()
        self._exception_predicate = predicate.exception_predicate()
        self._queue = CallQueue(ordered)
        self._ended: SimpleQueue[Call] = SimpleQueue()
        self._loop: EventLoop | None = None
        #: with ``on_error``: a call that fails takes its turn like the others instead of failing the job
        self.keeps_failed = False

    def open(self) -> None:
        self._loop = EventLoop(self.context.name)
        super().open()

    # --- the task's thread --------------------------------------------------------------------------------------

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        assert self._loop is not None
        begin, awaiting = 0, iter(values)
        while length_hint(awaiting):
            free = self._capacity - self._queue.held
            if free <= 0:
                self._wait()
                continue
            times = [None] * free if timestamps is None else timestamps[begin : begin + free]
            calls = [Call(value, time) for value, time in zip(islice(awaiting, free), times, strict=False)]
            for call in calls:
                self._queue.add(call)
            self._loop.start(self._call, calls)
            begin += free
        self._take_ended()

    def process_watermark(self, watermark_ms: int) -> None:
        self._queue.add_event(partial(self.output.later_watermark(), watermark_ms))
        self._take_ended()

    def process_status(self, idle: bool) -> None:
        self._queue.add_event(lambda: self.output.emit_status(idle))
        self._take_ended()

    def end_split(self) -> None:
        self._flush()

    def snapshot_state(self) -> None:
        self._flush()
        super().snapshot_state()

    def finish(self) -> None:
        self._flush()

    def close(self) -> None:
        try:
            super().close()
        finally:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.stop()

    def _flush(self) -> None:
        """Wait until no record is held, and emit everything."""
        self._take_ended()
        while self._queue.held:
            self._wait()

    def _wait(self) -> None:
        """Wait until a call has ended, and emit what may be emitted then."""
        while True:
            try:
                self._complete(self._ended.get(timeout=_LOOK_S))
                break
            except Empty:
                if self._loop is None or not self._loop.is_alive:
                    raise ProgramError(
                        "the event loop has ended before the calls",
                        where=self.where,
                        expected="an async_invoke() that does not stop its loop",
                    ) from None
        self._take_ended()

    def _take_ended(self) -> None:
        try:
            while True:
                self._complete(self._ended.get_nowait())
        except Empty:
            self._hand_on()

    def _complete(self, call: Call) -> None:
        if call.error is not None and not self.keeps_failed:
            raise call.error
        self._queue.complete(call)

    def _hand_on(self) -> None:
        event: Callable[[], None] | None = _NOTHING
        while event is not None:
            calls, event = self._queue.take()
            self.hand_on(calls)
            if event is not None:
                event()

    def hand_on(self, calls: list[Call]) -> None:
        """Emit the results of calls whose turn it is."""
        results = [result for call in calls for result in call.results]
        times = None
        if any(call.timestamp_ms is not None for call in calls):
            stamps = [MIN_TIMESTAMP_MS if call.timestamp_ms is None else call.timestamp_ms for call in calls]
            times = [stamp for call, stamp in zip(calls, stamps, strict=True) for _ in call.results]
        emit(results, times, self.output, self.converter)

    # --- the loop's thread --------------------------------------------------------------------------------------

    async def _call(self, call: Call) -> None:
        try:
            call.results = self._checked(await self._in_time(call.value))
        except asyncio.CancelledError:
            # the operator is being disposed of, or user code cancels itself: the task must not wait for it for ever
            call.error = RuntimeError("the call was cancelled")
            raise
        except BaseException as error:
            call.error = error
        finally:
            self._ended.put(call)

    async def _in_time(self, value: Any) -> Any:
        """The outcome of all attempts, or, if they take too long, that of `AsyncFunction.timeout`."""
        if self._timeout_s is None:
            return await self._attempts(value)
        attempts = asyncio.ensure_future(self._outcome(value))
        try:
            # unlike wait_for, this does not wait for a call that is slow to react to its cancellation
            done, _ = await asyncio.wait({attempts}, timeout=self._timeout_s)
        except asyncio.CancelledError:
            attempts.cancel()
            raise
        if done:
            result, failure = attempts.result()
            if failure is not None:
                raise failure
            return result
        attempts.cancel()
        return self.timeout(value)

    async def _outcome(self, value: Any) -> tuple[Any, BaseException | None]:
        """The result of all attempts, or their failure: SystemExit that a task of asyncio raises would end the loop."""
        try:
            return await self._attempts(value), None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return None, error

    async def _attempts(self, value: Any) -> Any:
        attempt = 1
        while True:
            try:
                result = await self.call(value)
                again = result is not None and self._result_predicate is not None and self._result_predicate(result)
                failure = None
            except Exception as error:
                again = self._exception_predicate is not None and self._exception_predicate(error)
                failure = error
            if not again or not self._strategy.can_retry(attempt):
                break
            await asyncio.sleep(self._strategy.get_backoff_time_millis(attempt) / 1000)
            attempt += 1
        if failure is not None:
            raise failure
        return result

    def _checked(self, result: Any) -> list[Any]:
        if isinstance(result, Iterable):
            return all_detached(result)
        raise TypeMismatchError(
            f"async_invoke() or timeout() of {type(self.function).__name__} returned {result!r}",
            where=self.where,
            expected="a list of results",
            hint="return [] for a record without results",
        )


def _NOTHING() -> None:
    """Stands for an event before the first one, to begin a loop."""


@dataclass
class AsyncWaitFactory(OperatorFactoryBase):
    """Makes the operator of ``AsyncDataStream``. ``timeout_ms`` 0 or less: calls may take any time."""

    function: AsyncFunction[Any, Any]
    ordered: bool
    timeout_ms: int
    capacity: int = 100
    retry_strategy: AsyncRetryStrategy[Any] = NO_RETRY_STRATEGY
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> AsyncWaitOperator:
        return AsyncWaitOperator(
            self.function, self.ordered, self.timeout_ms, self.capacity, self.retry_strategy, self.converter
        )
