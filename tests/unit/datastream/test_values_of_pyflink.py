"""Names of PyFlink's give what they give there: defaults, accessors, texts, equality, conversions, results of programs.

``values_of_pyflink.txt`` has a line for each: an expression, and the repr of its value in PyFlink 2.3. They were got by
evaluating the same expressions, with the functions below, in PyFlink; names that differ have a note in
``tests/public_names/notes.toml`` and are not in the list.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import importlib
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    AggregateFunction,
    AsyncRetryStrategy,
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    MergingWindowAssigner,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    TimeWindow,
    WindowFunction,
)
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions
from flinkish.datastream.functions import ProcessAllWindowFunction
from flinkish.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tests.support.rows import hold


def env():
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration().set_string("execution.target", "minicluster")
    )


def checkpoints():
    return env().get_checkpoint_config()


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def raised_kind(call, kind):
    return isinstance(raised(call), kind)


def pickled(value):
    return pickle.loads(pickle.dumps(value))


def changed(value, change):
    change(value)
    return value


def group():
    builder = SlotSharingGroup.builder("a").set_cpu_cores(1.5).set_task_heap_memory_mb(10)
    builder.set_task_off_heap_memory_mb(20).set_managed_memory_mb(30).set_external_resource("gpu", 1.0)
    return builder.build()


def ttl():
    return StateTtlConfig.new_builder(Time.hours(1))


class _Context:
    def get_current_processing_time(self):
        return 7

    def get_runtime_context(self):
        return None


def assigned(assigner, timestamp):
    return list(assigner.assign_windows("element", timestamp, _Context()))


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 3


def assigners():
    second = Time.seconds(1)
    return [
        TumblingEventTimeWindows.of(second),
        TumblingProcessingTimeWindows.of(second),
        SlidingEventTimeWindows.of(second, second),
        SlidingProcessingTimeWindows.of(second, second),
        EventTimeSessionWindows.with_gap(second),
        ProcessingTimeSessionWindows.with_gap(second),
        EventTimeSessionWindows.with_dynamic_gap(Gap()),
        ProcessingTimeSessionWindows.with_dynamic_gap(Gap()),
        GlobalWindows.create(),
        CountTumblingWindowAssigner.of(2),
        CountSlidingWindowAssigner.of(2, 1),
    ]


def triggers():
    return [
        EventTimeTrigger.create(),
        ProcessingTimeTrigger.create(),
        ContinuousEventTimeTrigger.of(Time.seconds(1)),
        ContinuousProcessingTimeTrigger.of(Time.seconds(1)),
        CountTrigger.of(2),
        PurgingTrigger.of(EventTimeTrigger.create()),
        NeverTrigger(),
    ]


def merged(*windows):
    calls = []

    class Callback(MergingWindowAssigner.MergeCallback):
        def merge(self, to_be_merged, merge_result):
            calls.append((sorted(to_be_merged), merge_result))

    TimeWindow.merge_windows(list(windows), Callback())
    return calls


def serialized(window, assigner):
    serializer = assigner.get_window_serializer()
    stream = io.BytesIO()
    serializer.serialize(window, stream)
    return len(stream.getvalue()), serializer.deserialize(io.BytesIO(stream.getvalue()))


def fixed():
    return AsyncRetryStrategy.fixed_delay(3, 10, None, None)


def exponential():
    return AsyncRetryStrategy.exponential_backoff(3, 10, 100, 2.0, None, None)


class Reduce(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


class Plain(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class KeyedPlain(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class InWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        return list(elements)


class Assigner(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return 0


def words():
    return env().from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))


def keyed():
    return words().key_by(lambda word: word[0], Types.STRING())


def windows():
    return keyed().window(TumblingEventTimeWindows.of(Time.seconds(1)))


def keyed_misuses():
    names = (
        "shuffle rescale rebalance forward broadcast get_name force_non_parallel start_new_chain disable_chaining cache"
    )
    return [getattr(keyed(), name) for name in names.split()]


def jdbc():
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:postgresql://host/db")
    return builder.with_user_name("user").with_password("secret").with_driver_name("org.postgresql.Driver").build()


def sorted_texts(values):
    return sorted(map(repr, values))


def results(stream):
    stream.get_execution_environment().set_parallelism(1)
    with stream.execute_and_collect() as found:
        return sorted_texts(found)


def converted(declared, value):
    environment = env()
    environment.set_parallelism(1)
    with environment.from_collection([value], declared).map(lambda each: each, declared).execute_and_collect() as found:
        return list(found)


def numbers():
    environment = env()
    environment.set_parallelism(1)
    return environment.from_collection([1, 2, 3, 4], Types.INT())


def pairs():
    environment = numbers().get_execution_environment()
    declared = Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING()])
    return environment.from_collection([("a", 2, "x"), ("a", 1, "y"), ("a", 1, "z"), ("b", 3, "x")], declared)


class CoMap(CoMapFunction):
    def map1(self, value):
        return repr(value)

    def map2(self, value):
        return None if value == 2 else value


def connected(change):
    first = pairs()
    second = first.get_execution_environment().from_collection([1, 2, 3], Types.INT())
    return change(first).connect(second).map(CoMap())


def with_itself(stream):
    return stream.union(stream)


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.timestamp(), ctx.timer_service().current_watermark()


class ToSide(ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield OutputTag("odd", Types.INT()), value
        else:
            yield value


VALUE = ValueStateDescriptor("s", Types.INT())
LIST = ListStateDescriptor("s", Types.INT())
MAP = MapStateDescriptor("s", Types.STRING(), Types.INT())
REDUCING = ReducingStateDescriptor("s", lambda a, b: a + b, Types.INT())


class Counted(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


AGGREGATING = AggregatingStateDescriptor("s", Counted(), Types.INT())


class OnState(KeyedProcessFunction):
    def __init__(self, descriptor, getter, use):
        self.descriptor, self.getter, self.use = descriptor, getter, use

    def open(self, runtime_context):
        self.state = getattr(runtime_context, self.getter)(self.descriptor)

    def process_element(self, value, ctx):
        yield repr(self.use(self.state, value))


def with_state(descriptor, getter, use):
    return results(numbers().key_by(lambda n: 0).process(OnState(descriptor, getter, use)))


class InOpen(MapFunction):
    def __init__(self, use):
        self.use = use

    def open(self, runtime_context):
        self.found = repr(self.use(runtime_context))

    def map(self, value):
        return self.found


def in_open(use):
    return results(numbers().key_by(lambda n: 0).map(InOpen(use)))


class Timers(KeyedProcessFunction):
    def __init__(self, use):
        self.use = use

    def process_element(self, value, ctx):
        self.use(value[1], ctx.timer_service())
        yield "element", ctx.timestamp()

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.timestamp(), ctx.time_domain().name, ctx.get_current_key()


def timed():
    declared = Types.TUPLE([Types.STRING(), Types.INT()])
    stream = numbers().get_execution_environment().from_collection([("a", 1), ("a", 3), ("b", 4), ("a", 8)], declared)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
    return stream.assign_timestamps_and_watermarks(strategy)


class BySecond(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def timers(use):
    return results(timed().key_by(lambda pair: pair[0]).process(Timers(use)))


class Keys(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key(), value


class WindowInfo(ProcessWindowFunction):
    def process(self, key, context, elements):
        return [(key, context.window().start, context.window().end, list(elements))]


class AllInfo(ProcessAllWindowFunction):
    def process(self, context, elements):
        return [(context.window().start, sorted(elements))]


class Applied(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, window.max_timestamp(), list(inputs))]


MODULES = (
    "common",
    "common.typeinfo",
    "datastream",
    "datastream.async_retry_predicates",
    "datastream.connectors",
    "datastream.connectors.file_system",
    "datastream.connectors.jdbc",
    "datastream.externalized_checkpoint_retention",
    "datastream.functions",
    "datastream.state",
    "datastream.window",
)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """All that the expressions refer to."""
    found: dict[str, Any] = {"datetime": datetime, "decimal": decimal}
    for module in MODULES:
        found.update(vars(importlib.import_module(f"flinkish.{module}")))
    return found | globals()


def text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return f"[{', '.join(map(text, value))}]" if isinstance(value, list) else repr(value)


def listed() -> Iterator[tuple[str, str]]:
    for line in Path(__file__).with_name("values_of_pyflink.txt").read_text().splitlines():
        if line and not line.startswith("# "):
            expression, _, value = line.partition(" => ")
            yield expression, value


def test_an_expression_has_the_value_that_it_has_in_pyflink(names: dict[str, Any]) -> None:
    def has(expression: str, value: str) -> None:
        assert text(eval(expression, names)) == value

    hold(has, listed())
