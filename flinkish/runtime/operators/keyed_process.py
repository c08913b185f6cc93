"""``process`` on a keyed stream, or on two connected ones: calls a KeyedProcessFunction or a KeyedCoProcessFunction (or
a CoProcessFunction, which Java Flink allows there, too), which has access to time, side outputs, state and timers.
Both inputs of connected streams share state and timers.

Event-time timers fire when the watermark rises, before it is emitted; their results have the timer's timestamp.
Processing-time timers fire at the epoch's processing time; their results have no timestamp, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from flinkish.common.arguments import inherits
from flinkish.core.co_functions import CoProcessFunction, KeyedCoProcessFunction
from flinkish.core.functions import Function, KeyedProcessFunction
from flinkish.core.time import MIN_TIMESTAMP_MS, TimeDomain, TimerService
from flinkish.runtime.exchange.buffer import EpochInfo, Records, WatermarkStep
from flinkish.runtime.exchange.keys import FROZEN, keys_of, thawed
from flinkish.runtime.job.context import KeyedTimerService
from flinkish.runtime.job.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.user_function_operator import PARTED, UserFunctionOperator
from flinkish.runtime.state.backend import KeyedStateBackend

#: Name of the timer service, as in Flink's KeyedProcessOperator.
TIMER_SERVICE = "user-timers"


class KeyedProcessContext(KeyedProcessFunction.Context):
    """The context of records: one object for all of them."""

    def __init__(self, timer_service: TimerService, backend: KeyedStateBackend, epoch: EpochInfo) -> None:
        self.current_timestamp = MIN_TIMESTAMP_MS
        self._epoch = epoch
        self._timer_service = timer_service
        self._backend = backend

    def get_current_key(self) -> Any:
        key = self._backend.current_key
        return thawed(key) if key.__class__ in FROZEN else key

    def timer_service(self) -> TimerService:
        return self._timer_service

    def timestamp(self) -> int:
        return self.current_timestamp

    def request_commit(self) -> None:
        self._epoch.commit_requested = True


class KeyedOnTimerContext(KeyedProcessContext, KeyedProcessFunction.OnTimerContext):
    """The context of timers: one object for all of them."""

    current_domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.current_domain


class KeyedProcessOperator(UserFunctionOperator):
    """Calls a keyed process function. Each result has the timestamp of its record or event-time timer.

    ``in_stretches``: whether it is given stretches. Processing-time timers fire between these: where they do among the
    records of an epoch, all of which have the same processing time, nothing says.
    """

    #: a function of any class that has ``on_timer``
    function: Any

    def __init__(
        self,
        function: Any,
        method: str,
        converter: Converter | None,
        method2: str | None = None,
        in_stretches: bool = False,
    ) -> None:
        super().__init__(function, method, converter, method2)
        if in_stretches:
            self.process_stretch = self._process_stretch

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        backend = self.keyed_state
        timer_service = KeyedTimerService(context.epoch, backend, TIMER_SERVICE)
        self._process_context: Any = KeyedProcessContext(timer_service, backend, context.epoch)
        self._timer_context: Any = KeyedOnTimerContext(timer_service, backend, context.epoch)
        #: called for each timer with its timestamp and the context; replaced where timers are guarded
        self.on_timer: Callable[[int, Any], Any] = self.function.on_timer

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        process, ctx, backend = self.calls[input_index], self._process_context, self.keyed_state
        keys = keys_of(self.context.key_selectors[input_index], values)
        backend.prefetch(keys)
        results: list[Any] = []
        times: list[int] = []
        shared, hand_over = self.shared, self.handed_over
        iterable: Any = None
        lent, settle = backend.loans.open, backend.loans.settle
        stamps: Iterable[int] = repeat(MIN_TIMESTAMP_MS) if timestamps is None else timestamps
        arriving = iter(values)
        for value, key, timestamp in zip(arriving, keys, stamps, strict=False):
            if lent:
                settle()
            backend.current_key = key
            ctx.current_timestamp = timestamp
            iterable = process(value, ctx)
            if iterable:
                for result in iterable:
                    if type(result) not in shared:
                        result = hand_over(result)
                    results.append(result)
                    times.append(timestamp)
        if iterable.__class__ in PARTED:
            self.warn_of_parts(iterable, input_index)
        self.collect(results, None if timestamps is None else times)

    def _process_stretch(
        self, steps: Sequence[Records | WatermarkStep], in_turn: Iterator[Records | WatermarkStep]
    ) -> None:
        epoch, ctx, backend = self.context.epoch, self._process_context, self.keyed_state
        keys = self._keys_of(steps)
        backend.prefetch([key for of_input in keys for key in of_input])
        watermarks_ms = [step.watermark_ms for step in steps if isinstance(step, WatermarkStep)]
        if watermarks_ms:
            backend.timers(TIMER_SERVICE).bring(TimeDomain.EVENT_TIME, watermarks_ms[-1])
        following = [iter(of_input) for of_input in keys]
        shared, hand_over = self.shared, self.handed_over
        lent, settle = backend.loans.open, backend.loans.settle
        # all records of the stretch, as of a batch: runtime/task/progress.py
        values = [value for step in steps if isinstance(step, Records) for value in step.values]
        arriving = iter(values)
        for step in in_turn:
            if isinstance(step, WatermarkStep):
                epoch.watermark_ms = step.watermark_ms
                self.process_watermark(step.watermark_ms)
                continue
            input_index, batch, timestamps = step
            process = self.calls[input_index]
            results: list[Any] = []
            times: list[int] = []
            iterable: Any = None
            stamps: Iterable[int] = repeat(MIN_TIMESTAMP_MS) if timestamps is None else timestamps
            # the records are the first argument: once they are exhausted, `zip` takes no key
            of_batch = zip(islice(arriving, len(batch)), following[input_index], stamps, strict=False)
            for value, key, timestamp in of_batch:
                if lent:
                    settle()
                backend.current_key = key
                ctx.current_timestamp = timestamp
                iterable = process(value, ctx)
                if iterable:
                    for result in iterable:
                        if type(result) not in shared:
                            result = hand_over(result)
                        results.append(result)
                        times.append(timestamp)
            if iterable.__class__ in PARTED:
                self.warn_of_parts(iterable, input_index)
            if results:
                self.collect(results, None if timestamps is None else times)

    def _keys_of(self, steps: Sequence[Records | WatermarkStep]) -> list[list[Any]]:
        """For each input, the keys of its records in a stretch."""
        by_input: list[list[list[Any]]] = [[] for _ in self.calls]
        for step in steps:
            if isinstance(step, Records):
                parts = by_input[step.input_index]
                if parts and parts[-1].__class__ is step.values.__class__:
                    parts[-1].extend(step.values)
                else:
                    # a slice: records may have come with their keys
                    parts.append(step.values[:])
        found = [
            [keys_of(selector, part) for part in parts] for selector, parts in zip(self.context.key_selectors, by_input)
        ]
        return [parts[0] if len(parts) == 1 else [key for part in parts for key in part] for parts in found]

    def process_watermark(self, watermark_ms: int) -> None:
        if self.keyed_state.may_be_due(TimeDomain.EVENT_TIME, watermark_ms):
            results, times = self._fire(TimeDomain.EVENT_TIME, watermark_ms)
            if results:
                self.collect(results, times)
        self.output.emit_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        if self.keyed_state.may_be_due(TimeDomain.PROCESSING_TIME, time_ms):
            results, _ = self._fire(TimeDomain.PROCESSING_TIME, time_ms)
            self.collect(results, None)

    def _fire(self, domain: TimeDomain, upto_ms: int) -> tuple[list[Any], list[int]]:
        """Call ``on_timer`` for all timers that are due. Returns the results, and for each the timestamp of its
        timer."""
        backend, ctx, on_timer = self.keyed_state, self._timer_context, self.on_timer
        ctx.current_domain = domain
        shared, hand_over = self.shared, self.handed_over
        lent, settle = backend.loans.open, backend.loans.settle
        results: list[Any] = []
        times: list[int] = []
        iterable: Any = None
        for timestamp_ms, key, _ in backend.due(TIMER_SERVICE, domain, upto_ms):
            if lent:
                settle()
            backend.current_key = key
            ctx.current_timestamp = timestamp_ms
            iterable = on_timer(timestamp_ms, ctx)
            if iterable:
                for result in iterable:
                    if type(result) not in shared:
                        result = hand_over(result)
                    results.append(result)
                    times.append(timestamp_ms)
        if iterable.__class__ in PARTED:
            self.warn_of_parts(iterable, method="on_timer")
        return results, times


@dataclass
class KeyedProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on a keyed stream.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: KeyedProcessFunction
    converter: Converter | None = None
    keyed: bool = True
    watermark_sensitive: bool = True

    @property
    def has_timers(self) -> bool:  # type: ignore[override]
        """Whether the function does anything when a timer fires."""
        return overrides_on_timer(self.function, KeyedProcessFunction)

    def create(self) -> KeyedProcessOperator:
        return KeyedProcessOperator(self.function, "process_element", self.converter, in_stretches=True)


def overrides_on_timer(function: Function, kind: type[Any]) -> bool:
    """Whether a function has another ``on_timer`` than its base class ``kind``, which does nothing."""
    return not inherits(function, kind, "on_timer")


@dataclass
class KeyedCoProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on connected keyed streams.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: KeyedCoProcessFunction | CoProcessFunction
    converter: Converter | None = None
    keyed: bool = True
    watermark_sensitive: bool = True

    @property
    def has_timers(self) -> bool:  # type: ignore[override]
        """Whether the function does anything when a timer fires."""
        kind = KeyedCoProcessFunction if isinstance(self.function, KeyedCoProcessFunction) else CoProcessFunction
        return overrides_on_timer(self.function, kind)

    def create(self) -> KeyedProcessOperator:
        methods = "process_element1", self.converter, "process_element2"
        return KeyedProcessOperator(self.function, *methods, in_stretches=True)
