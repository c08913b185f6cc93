"""The functions that users write, with PyFlink's names and methods, and the tags of their side outputs.

The rules: one instance per parallel subtask; ``open`` once before the first record and ``close`` once after the last;
what a function keeps in attributes is shared by all keys of its subtask and is not part of any checkpoint (keyed state
is). Methods with several results return an iterable, mostly as generators; a falsy result means none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from flinkish.common.accumulators import Accumulator, DoubleCounter, Histogram, IntCounter, LongCounter
from flinkish.common.arguments import inherits, kind_of
from flinkish.common.detach import share
from flinkish.common.no_effect import no_java_object
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.window.window import W, Window
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError, UnsupportedOperationError

if TYPE_CHECKING:
    from flinkish.core.metrics import MetricGroup
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
    from flinkish.core.time import TimeDomain, TimerService


IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W2 = TypeVar("W2", bound=Window)
A = TypeVar("A", bound=Accumulator[Any, Any])


class KeyedStateStore(ABC):
    """Gives functions on keyed streams their state. Get the handles once, in ``open``: they are always scoped to the
    key of the record (or timer) being processed.

    Raises:
        StateAccessError: the function runs on a stream without keys, or the name is in use by a state of another kind.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The handle of a state with one value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """The handle of a state with one list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """The handle of a state with one map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """The handle of a state with one value per key, to which a ReduceFunction reduces the values that are added."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """The handle of a state with one accumulator per key, to which an AggregateFunction adds values."""


class DistributedCache:
    """The files that a program has registered, on the node that runs the function."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def get_file(self, name: str) -> str:
        """The path of the file or directory that was registered under this name. Its content must not be changed.

        Raises:
            ProgramError: nothing was registered under this name.
        """
        if name not in self._paths:
            raise ProgramError(
                f"no cached file '{name}'",
                where="DistributedCache.get_file()",
                expected=f"one of {', '.join(sorted(self._paths))}" if self._paths else "a cached file",
                hint=f"call env.register_cached_file(path, '{name}')",
            )
        return self._paths[name]


def not_in_double(context: object, method: str) -> UnsupportedOperationError:
    """The error for a method beyond PyFlink's of a context that a test has made by itself. Such methods are not
    abstract, so that test doubles written for PyFlink can be made."""
    return UnsupportedOperationError(
        f"{type(context).__name__} has no {method}()",
        where="a context that the program has made by itself",
        expected="a method of that name",
        hint="write it, or test the function with flinkish.testing",
    )


class RuntimeContext(KeyedStateStore):
    """Information about the task that runs a function, and access to its keyed state; passed to ``open``."""

    @abstractmethod
    def get_task_name(self) -> str:
        """The name of the task."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the task."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The max parallelism (number of key groups) of the task."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """The index of the subtask, from 0 to the parallelism - 1."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """The number of the attempt: 0 for the first one, and one more after each restart."""

    def request_commit(self) -> None:
        """Ask that the next epoch begin as soon as the running one is committed, whatever ``flinkish.epoch.interval``
        says (Kafka Streams' ``ProcessorContext.commit``). The results of the running epoch are committed at its end."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """The name of the task with its subtask, such as ``"MyTask (3/6)"``: here the index counts from 1."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """The global job parameter of that key, or the default if there is none."""

    def get_distributed_cache(self) -> DistributedCache:
        """The files that the program registered with ``register_cached_file``, as in Java Flink."""
        raise not_in_double(self, "get_distributed_cache")

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """The group in which the function registers its metrics."""

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """Register an accumulator, in ``open``. All subtasks and operators that use one name add to one value, which
        ``JobExecutionResult.get_accumulator_result(name)`` returns. The accumulator begins empty.

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
        raise not_in_double(self, "add_accumulator")

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        """The accumulator that the function has registered under that name; None if there is none."""
        raise not_in_double(self, "get_accumulator")

    def get_int_counter(self, name: str) -> IntCounter:
        """Return the IntCounter of that name, registering it if there is none.

        Raises:
            ProgramError: the accumulator of that name is of another class.
        """
        return self._counter(name, IntCounter)

    def get_long_counter(self, name: str) -> LongCounter:
        """Return the LongCounter of that name, registering it if there is none.

        Raises:
            ProgramError: the accumulator of that name is of another class.
        """
        return self._counter(name, LongCounter)

    def get_double_counter(self, name: str) -> DoubleCounter:
        """Return the DoubleCounter of that name, registering it if there is none.

        Raises:
            ProgramError: the accumulator of that name is of another class.
        """
        return self._counter(name, DoubleCounter)

    def get_histogram(self, name: str) -> Histogram:
        """Return the Histogram of that name, registering it if there is none.

        Raises:
            ProgramError: the accumulator of that name is of another class.
        """
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


class Function(ABC):
    """Base of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional for users
        """Called once per subtask before the first record: the place to get state handles and open connections."""

    def close(self) -> None:  # noqa: B027 - optional for users
        """Called once per subtask after all other methods, also when the task failed."""


def opens(function: Any) -> bool:
    """Whether a function has an ``open`` of its own, so that it may ask its context for state."""
    return isinstance(function, Function) and not inherits(function, Function, "open")


class MapFunction(Function):
    """Maps each record to one result."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The result for a record; None is passed on."""


class FlatMapFunction(Function):
    """Maps each record to any number of results."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """The results for a record."""


class MapBatchesFunction(Function):
    """Maps many records at once, given as columns."""

    @abstractmethod
    def map_batches(self, batch: Any) -> Any:
        """The results: one row for each row of ``batch``, in the same order. They must not depend on how records are
        batched."""


class FilterFunction(Function):
    """Decides which records are kept."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether the record is kept."""


class ReduceFunction(Function):
    """Combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """The two values as one; ``value1`` is the result so far. Neither may be changed in place."""


class AggregateFunction(Function):
    """Adds values to an accumulator, from which the result is computed.

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
        """The accumulator with the value added; it may be the same object."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result of an accumulator, which must not be changed."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """One accumulator with the values of both; only needed for windows that merge."""


class KeySelector(Function):
    """Extracts the key of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key: hashable, and always the same for the same record."""


class Partitioner(Function):
    """Chooses the subtask of a key for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The subtask of a key, from 0 to ``num_partitions`` - 1."""


class ProcessFunction(Function):
    """Processes the records of a stream without keys, with access to time."""

    class Context(ABC):
        """The context of the record that is processed; only valid during the call of ``process_element``."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Access to the current time. Registering a timer raises StateAccessError: only keyed streams have
            timers."""

        @abstractmethod
        def timestamp(self) -> int:
            """The record's timestamp in ms; ``-9223372036854775808`` if it has none."""

        def request_commit(self) -> None:  # noqa: B027 - optional for users
            """Ask that the next epoch begin as soon as possible; see `RuntimeContext.request_commit`."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record. ``yield tag, result`` with an OutputTag emits to that side output."""


class KeyedProcessFunction(Function):
    """Processes the records of a keyed stream, with state, time and timers."""

    class Context(ABC):
        """The context of the record that is processed; only valid during the call of ``process_element``."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record or timer."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Access to the current time, and to the timers of the current key."""

        @abstractmethod
        def timestamp(self) -> int:
            """The timestamp in ms of the record (``-9223372036854775808`` if it has none) or of the firing timer."""

        def request_commit(self) -> None:  # noqa: B027 - optional for users
            """Ask that the next epoch begin as soon as possible; see `RuntimeContext.request_commit`."""

    class OnTimerContext(Context):
        """The context of the timer that fires; only valid during the call of ``on_timer``."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether it is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        """The results for a record. ``yield tag, result`` with an OutputTag emits to that side output."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer fires; the results are as in ``process_element``."""
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluated over the elements of one key and window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results for the elements of a key and window."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Evaluated over the elements of one key and window, with access to state and time."""

    class Context(ABC, Generic[W2]):
        """The context of the window being evaluated; only valid during the call."""

        @abstractmethod
        def window(self) -> W2:
            """The window that is evaluated, or cleaned up."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The current processing time in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The current watermark in ms."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """The state of this key and window; clear it in ``clear``."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """The state of this key, shared by all of its windows."""

        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""
            raise not_in_double(self, "output")

    @abstractmethod
    def process(self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The results for the elements of a key and window."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called when the window is over and is cleaned up: delete what ``window_state`` holds."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluated over the elements of one window of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results for the elements of a window."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Evaluated over the elements of one window of a stream without keys, with access to state."""

    class Context(ABC, Generic[W2]):
        """The context of the window being evaluated; only valid during the call."""

        @abstractmethod
        def window(self) -> W2:
            """The window that is evaluated, or cleaned up."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """The state of this window; clear it in ``clear``."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """The state that all windows share."""

        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""
            raise not_in_double(self, "output")

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The results for the elements of a window."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Called when the window is over and is cleaned up: delete what ``window_state`` holds."""


class OutputTag:
    """A named and typed side output. A function emits to it with ``yield tag, value``.

    Example::

        late = OutputTag("late", Types.STRING())
        main = ds.process(MyFunction())
        main.get_side_output(late)

    Two tags with the same id are the same side output.
    """

    #: whether a tag was made or unpickled in this process; without one, no result of a function can be tagged
    exists: ClassVar[bool] = False

    def __new__(cls, *arguments: Any, **options: Any) -> OutputTag:
        OutputTag.exists = True
        return super().__new__(cls)

    def __init__(self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None) -> None:
        if not tag_id:
            raise ArgumentValueError(
                "OutputTag tag_id cannot be None or empty string",
                where="OutputTag",
                expected="a name",
                hint="tags with the same name are one side output",
            )
        self.tag_id = tag_id
        if type_info is None:
            self.type_info: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        elif isinstance(type_info, list):
            self.type_info = Types.ROW(type_info)
        elif isinstance(type_info, TypeInformation):
            self.type_info = type_info
        else:
            raise ArgumentTypeError(
                f"OutputTag type_info must be None, list or TypeInformation. It is {kind_of(type_info)}",
                where=f"OutputTag '{tag_id}'",
                expected="a TypeInformation, such as Types.STRING(), or a list of such",
                hint="without a type it takes any Python object",
            )

    def get_java_output_tag(self) -> object:
        """Raises ProgramError: there is no Java object."""
        no_java_object("get_java_output_tag()")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(("OutputTag", self.tag_id))

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


share(OutputTag)
