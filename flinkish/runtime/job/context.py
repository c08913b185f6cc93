"""What the runtime gives to user functions: the RuntimeContext of ``open``, the metrics of their operator, and the
timer services of ``ctx.timer_service()``. The current times are the operator's watermark and the processing time of the
epoch; nothing here reads a clock."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NoReturn, TypeVar, cast
from weakref import ref

from flinkish.common.accumulators import Accumulator
from flinkish.common.arguments import abbreviated, kind_of
from flinkish.core.functions import DistributedCache, RuntimeContext
from flinkish.core.metrics import Counter, Distribution, Meter, Metric, MetricGroup
from flinkish.core.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain, TimerService
from flinkish.errors import ArgumentTypeError, ProgramError, StateAccessError, TypeMismatchError
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.job.operator import OperatorContext
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.ttl import HandleCache

M = TypeVar("M", bound=Metric)


class TaskMetricGroup(MetricGroup):
    """A group of the metrics of one operator, collected by scoped name. It only collects them: the task reads their
    values at the end of each epoch and reports them.

    >>> g = TaskMetricGroup(); g.add_group("shop", "4").counter("sold").inc(3); g.snapshot()
    {'shop.4.sold': 3}
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._gauges: dict[str, Callable[[], int]] = {}
        self._groups: dict[str, TaskMetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> TaskMetricGroup:
        group = self._groups.setdefault(name, TaskMetricGroup())
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        return self._metric(name, Counter())

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        if name in self._metrics:
            raise self._in_use(name)
        self._gauges[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._metric(name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        return self._metric(name, Distribution())

    def snapshot(self, now_ms: int | None = None) -> dict[str, float]:
        """The current values, as scoped name (``group.name``) -> value. A distribution gives ``name.count`` and
        ``name.sum``, and if it has values also ``name.min`` and ``name.max``. With the processing time of the epoch
        that ends, a meter gives its count and ``name.rate``. Gauges are called, and their errors propagate."""
        values: dict[str, float] = {}
        for name, metric in self._metrics.items():
            if isinstance(metric, (Counter, Meter)):
                values[name] = metric.get_count()
                if isinstance(metric, Meter) and now_ms is not None:
                    values[f"{name}.rate"] = metric._report_rate(now_ms)
            elif isinstance(metric, Distribution):
                parts = {"count": metric.count, "sum": metric.sum, "min": metric.min, "max": metric.max}
                values |= {f"{name}.{part}": value for part, value in parts.items() if value is not None}
        values |= {name: gauge() for name, gauge in self._gauges.items()}
        for group_name, group in self._groups.items():
            values |= {f"{group_name}.{name}": value for name, value in group.snapshot(now_ms).items()}
        return values

    def _metric(self, name: str, fresh: M) -> M:
        metric = self._metrics.setdefault(name, fresh)
        if name in self._gauges or not isinstance(metric, type(fresh)):
            raise self._in_use(name)
        return metric

    def _in_use(self, name: str) -> ProgramError:
        return ProgramError(
            f"metric {name!r} is registered twice with different kinds", hint="give each metric a name of its own"
        )


class StreamingRuntimeContext(RuntimeContext):
    """The `RuntimeContext` that the user functions of one operator in one subtask are given in ``open``: it gives them
    access to the operator's context."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._handles = None if context.keyed_state is None else HandleCache(context.keyed_state)
        context.state_stores.append(ref(self))
        if isinstance(context.keyed_state, KeyedStateBackend):
            # state expires by the time of the operator that owns it
            context.keyed_state.epoch = context.epoch

    def get_task_name(self) -> str:
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return self._context.attempt

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return f"{context.task_name} ({context.subtask + 1}/{context.parallelism})"

    def request_commit(self) -> None:
        self._context.epoch.commit_requested = True

    def get_distributed_cache(self) -> DistributedCache:
        return DistributedCache(self._context.cached_files)

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._context.metrics

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        self._context.accumulators.add(name, accumulator)

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        return self._context.accumulators.get(name)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return cast("ValueState[Any]", self._state(state_descriptor, ValueStateDescriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return cast("ListState[Any]", self._state(state_descriptor, ListStateDescriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return cast("MapState[Any, Any]", self._state(state_descriptor, MapStateDescriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return cast("ReducingState[Any]", self._state(state_descriptor, ReducingStateDescriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        return cast("AggregatingState[Any, Any]", self._state(state_descriptor, AggregatingStateDescriptor))

    def _state(self, descriptor: StateDescriptor, expected: type[StateDescriptor]) -> State:
        if self._handles is None:
            raise StateAccessError(
                "This state is only accessible by functions executed on a KeyedStream.",
                where=self._where,
                expected="a keyed stream before the operator",
                hint="call key_by() before this operator",
            )
        if not isinstance(descriptor, expected):
            raise StateAccessError(
                f"a {type(descriptor).__name__} was given",
                where=self._where,
                expected=f"a {expected.__name__}",
                hint="each kind of state has a descriptor and a get_..._state of its own",
            )
        return self._handles.state(descriptor)

    @property
    def _where(self) -> str:
        return f"operator '{self._context.name}' (uid {self._context.uid})"


class NonKeyedTimerService(TimerService):
    """The timer service of a stream that is not keyed: it tells the time and refuses timers with StateAccessError."""

    def __init__(self, epoch: EpochInfo, where: str) -> None:
        self._epoch = epoch
        self._where = where

    def current_processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def current_watermark(self) -> int:
        return self._epoch.watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse("Register timers is only supported on a keyed stream.")

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse("Register timers is only supported on a keyed stream.")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse("Deleting timers is only supported on a keyed stream.")

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse("Deleting timers is only supported on a keyed stream.")

    def _refuse(self, what: str) -> NoReturn:
        raise StateAccessError(
            what, where=self._where, expected="a keyed stream", hint="call key_by() before process()"
        )


class KeyedTimerService(TimerService):
    """The timer service of a keyed stream: registers and deletes timers of the backend's current key, in the queue
    named ``service``. A timestamp that is not an integer raises a TypeError."""

    def __init__(self, epoch: EpochInfo, backend: KeyedStateBackend, service: str) -> None:
        self._epoch = epoch
        self._backend = backend
        self._service = service
        #: generation of the backend's state for which the two methods below were bound
        self._generation = -1
        self._register_event: Callable[[int, Any], None]
        self._register_processing: Callable[[int, Any], None]

    def current_processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def current_watermark(self) -> int:
        return self._epoch.watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        backend = self._backend
        if timestamp.__class__ is not int or not MIN_TIMESTAMP_MS <= timestamp <= MAX_WATERMARK_MS:
            timestamp = self._checked(timestamp)
        if self._generation != backend.generation:
            self._bind()
        self._register_processing(timestamp, backend.current_key)

    def register_event_time_timer(self, timestamp: int) -> None:
        backend = self._backend
        if timestamp.__class__ is not int or not MIN_TIMESTAMP_MS <= timestamp <= MAX_WATERMARK_MS:
            timestamp = self._checked(timestamp)
        if self._generation != backend.generation:
            self._bind()
        self._register_event(timestamp, backend.current_key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._delete(TimeDomain.PROCESSING_TIME, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._delete(TimeDomain.EVENT_TIME, timestamp)

    def _bind(self) -> None:
        """Bind the methods of the queue, which is another object after state was restored."""
        queue = self._backend.timers(self._service)
        self._register_event = queue.registrar(TimeDomain.EVENT_TIME)
        self._register_processing = queue.registrar(TimeDomain.PROCESSING_TIME)
        self._generation = self._backend.generation

    def _checked(self, timestamp: int) -> int:
        try:
            timestamp_ms = index(timestamp)
        except TypeError:
            raise ArgumentTypeError(
                f"a timer was registered for {abbreviated(timestamp)}, {kind_of(timestamp)}",
                where=self._where(),
                expected="a timestamp in ms, as an int",
                hint="round it: int(...)",
            ) from None
        if not MIN_TIMESTAMP_MS <= timestamp_ms <= MAX_WATERMARK_MS:
            raise TypeMismatchError(
                f"a timer was registered for {abbreviated(timestamp_ms)}",
                where=self._where(),
                expected="a timestamp in ms of 64 bits, as Java's long",
                hint="timestamps are milliseconds since 1970-01-01T00:00:00Z",
            )
        return timestamp_ms

    def _where(self) -> str:
        return f"{self._backend.where}, key {abbreviated(self._backend.current_key)}"

    def _delete(self, domain: TimeDomain, timestamp: int) -> None:
        backend = self._backend
        backend.timers(self._service).delete(domain, index(timestamp), backend.current_key)
