"""The functions that users write; PyFlink's names and methods.

The rules: one instance per parallel subtask; ``open`` once before the first record and ``close`` once after the last;
what a function keeps in attributes is shared by all keys of its subtask and is not part of any checkpoint (keyed state
is). Methods that give several results return an iterable, mostly as generators; a falsy result means none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flinkish.common.accumulators import Accumulator, DoubleCounter, Histogram, IntCounter, LongCounter
from flinkish.core.window.window import W, Window
from flinkish.errors import ProgramError

if TYPE_CHECKING:
    from flinkish.core.metrics import MetricGroup
    from flinkish.core.output_tag import OutputTag
    from flinkish.core.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )
    from flinkish.core.time_domain import TimeDomain
    from flinkish.core.timer_service import TimerService

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W2 = TypeVar("W2", bound=Window)
A = TypeVar("A", bound=Accumulator[Any, Any])


class KeyedStateStore(ABC):
    """Where functions on keyed streams get their state. Handles are got once, in ``open``, and are always scoped to
    the key of the record (or timer) being processed.

    Raises:
        StateAccessError: the function runs on a stream without keys, or the name is in use by a state of another kind.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """One value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """One list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """One map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """One value per key, into which values are folded by a ReduceFunction."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """One accumulator per key, into which values are folded by an AggregateFunction."""


class DistributedCache:
    """Files that a program has registered, on the node that runs the function."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def get_file(self, name: str) -> str:
        """The path of the file, or of the directory, that was registered by this name. It must not be changed.

        Raises:
            ProgramError: nothing was registered by this name.
        """
        if name not in self._paths:
            raise ProgramError(
                f"no cached file '{name}'",
                where="DistributedCache.get_file()",
                expected=f"one of {', '.join(sorted(self._paths))}" if self._paths else "a cached file",
                hint=f"call env.register_cached_file(path, '{name}')",
            )
        return self._paths[name]


class RuntimeContext(KeyedStateStore):
    """What a function may know of the task that runs it, and its keyed state. Given to ``open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Name of the task."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the task."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The max parallelism (number of key groups) of the task."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """From 0 to the parallelism - 1."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """0 for the first attempt, one more after each restart."""

    def request_commit(self) -> None:
        """Ask that the next epoch begin as soon as the running one is committed, whatever ``flinkish.epoch.interval``
        says (Kafka Streams' ``ProcessorContext.commit``). What the running epoch has made is committed at its end."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Such as ``"MyTask (3/6)"``: the index counts from 1 here."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter, or the default."""

    @abstractmethod
    def get_distributed_cache(self) -> DistributedCache:
        """The files that the program registered with ``register_cached_file``, as in Java Flink."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Where the function registers metrics."""

    @abstractmethod
    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """Register an accumulator, in ``open``. What all subtasks and operators add under one name is one value, which
        ``JobExecutionResult.get_accumulator_result(name)`` gives. It begins empty.

        Example::

            class Parse(MapFunction):
                def open(self, runtime_context):
                    self.lines = IntCounter()
                    runtime_context.add_accumulator("lines", self.lines)

                def map(self, value):
                    self.lines.add(1)
                    return json.loads(value)

        Raises:
            ProgramError: the function has an accumulator of that name already.
        """

    @abstractmethod
    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        """The accumulator that the function has registered by that name, or None."""

    def get_int_counter(self, name: str) -> IntCounter:
        """The IntCounter of that name, which is registered if there is none. ProgramError: it is of another class."""
        return self._counter(name, IntCounter)

    def get_long_counter(self, name: str) -> LongCounter:
        """The LongCounter of that name, which is registered if there is none. ProgramError: it is of another class."""
        return self._counter(name, LongCounter)

    def get_double_counter(self, name: str) -> DoubleCounter:
        """The DoubleCounter of that name, registered if there is none. ProgramError: it is of another class."""
        return self._counter(name, DoubleCounter)

    def get_histogram(self, name: str) -> Histogram:
        """The Histogram of that name, which is registered if there is none. ProgramError: it is of another class."""
        return self._counter(name, Histogram)

    def _counter(self, name: str, kind: type[A]) -> A:
        there = self.get_accumulator(name)
        if there is None:
            made = kind()
            self.add_accumulator(name, made)
            return made
        if not isinstance(there, kind):
            raise ProgramError(f"the accumulator '{name}' is a {type(there).__name__}", expected=f"a {kind.__name__}")
        return there


class Function(ABC):  # noqa: B024 - each kind of function has a method of its own
    """Base of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional for users
        """Called once per subtask before any other method: get state handles, open connections."""

    def close(self) -> None:  # noqa: B027 - optional for users
        """Called once per subtask after everything else, also when the task failed."""


class MapFunction(Function):
    """One result for each record."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The result; never None."""


class FlatMapFunction(Function):
    """Any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """The results."""


class MapBatchesFunction(Function):
    """Works on the columns of many records at once."""

    @abstractmethod
    def map_batches(self, batch: Any) -> Any:
        """One row for each row of ``batch``, in their order. How records are cut into batches must not matter."""


class FilterFunction(Function):
    """Keeps some records."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether the record goes on."""


class ReduceFunction(Function):
    """Combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """``value1`` is what was reduced so far. Neither may be changed in place."""


class AggregateFunction(Function):
    """Folds values into an accumulator, from which the result is made.

    Example::

        class Average(AggregateFunction):
            def create_accumulator(self): return 0, 0
            def add(self, value, accumulator): return accumulator[0] + value, accumulator[1] + 1
            def get_result(self, accumulator): return accumulator[0] / accumulator[1]
            def merge(self, acc_a, acc_b): return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A new accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with the value in it; may be the same object."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result. Must not change the accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Both accumulators in one. Only needed for windows that merge."""


class KeySelector(Function):
    """Extracts the key of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key: hashable, and always the same for the same record."""


class Partitioner(Function):
    """Chooses the subtask of a key for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """From 0 to ``num_partitions`` - 1."""


class ProcessFunction(Function):
    """Processes the records of a stream without keys, with access to time."""

    class Context(ABC):
        """What ``process_element`` may know of the record. Only valid during the call."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Time. Timers can only be registered on keyed streams: StateAccessError."""

        @abstractmethod
        def timestamp(self) -> int:
            """The record's timestamp in ms; ``-9223372036854775808`` if it has none."""

        @abstractmethod
        def request_commit(self) -> None:
            """As `RuntimeContext.request_commit`."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """The results. ``yield tag, result`` with an OutputTag goes to that side output."""


class KeyedProcessFunction(Function):
    """Processes the records of a keyed stream, with state, time and timers."""

    class Context(ABC):
        """What ``process_element`` may know of the record. Only valid during the call."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Time, and timers of the current key."""

        @abstractmethod
        def timestamp(self) -> int:
            """Timestamp in ms of the record (``-9223372036854775808`` if it has none) or of the firing timer."""

        @abstractmethod
        def request_commit(self) -> None:
            """As `RuntimeContext.request_commit`."""

    class OnTimerContext(Context):
        """What ``on_timer`` may know of the timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        """The results. ``yield tag, result`` with an OutputTag goes to that side output."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer fires; results as in ``process_element``."""
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluated over the elements of one window and key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluated over the elements of one window and key, with access to state and time."""

    class Context(ABC, Generic[W2]):
        """The window being evaluated. Only valid during the call."""

        @abstractmethod
        def window(self) -> W2:
            """The window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Processing time in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The watermark in ms."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and window; to be cleared in ``clear``."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key over all windows."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""

    @abstractmethod
    def process(self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The results."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:  # noqa: B027 - optional for users
        """The window is being purged: delete what ``window_state`` holds."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluated over the elements of one window of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluated over the elements of one window of a stream without keys, with access to state."""

    class Context(ABC, Generic[W2]):
        """The window being evaluated. Only valid during the call."""

        @abstractmethod
        def window(self) -> W2:
            """The window."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this window; to be cleared in ``clear``."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of all windows."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The results."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:  # noqa: B027 - optional for users
        """The window is being purged: delete what ``window_state`` holds."""
