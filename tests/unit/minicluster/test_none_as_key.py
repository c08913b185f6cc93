"""None is a key, whatever type is declared for keys: PyFlink's keys are fields of a Row, which may be null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flinkish.common import Types
from flinkish.common.typeinfo import TypeInformation
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.errors import TypeMismatchError
from flinkish.testing import End, Pause, ProgramTestHarness, TestingSink, TestingSource
from tests.support.programs import new_environment, results_of

TYPES = [None, Types.STRING(), Types.TUPLE([Types.STRING(), Types.INT()]), Types.LIST(Types.STRING())]


def other_key(key_type: TypeInformation | None) -> Any:
    return {TYPES[2]: ("a", 1), TYPES[3]: ["a"]}.get(key_type, "a")


class Count(KeyedProcessFunction):
    """Counts the records of a key, and tells the count and the numbers of the records when event time ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.INT(), Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._count.update((self._count.value() or 0) + 1)
        self._seen.put(value[1], 0)
        ctx.timer_service().register_event_time_timer(10_000)
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), self._count.value(), sorted(self._seen.keys())


@pytest.mark.parametrize("key_type", TYPES, ids=str)
def test_state_windows_and_rolling_functions_have_none_as_a_key(key_type: TypeInformation | None) -> None:
    other = other_key(key_type)
    records = [(None, 1), (other, 2), (None, 3)]

    def keyed() -> Any:
        return new_environment(2).from_collection(records).key_by(lambda record: record[0], key_type)

    sums = results_of(keyed().reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert sorted(sums, key=repr) == sorted([(None, 1), (other, 2), (None, 4)], key=repr)
    assert results_of(keyed().count_window(2).reduce(lambda a, b: (a[0], a[1] + b[1]))) == [(None, 4)]
    counted = results_of(keyed().process(Count()))
    assert sorted(counted, key=repr) == sorted([(None, 2, [1, 3]), (other, 1, [2])], key=repr)


@pytest.mark.parametrize("key_type", TYPES, ids=str)
def test_the_state_of_none_is_restored_at_another_parallelism(key_type: TypeInformation | None) -> None:
    def program(parallelism: int, *steps: Any) -> tuple[StreamExecutionEnvironment, TestingSink]:
        env, sink = new_environment(parallelism), TestingSink()
        stream = env.add_source(TestingSource(*steps)).uid("source")
        stream.key_by(lambda record: record[0], key_type).process(Count()).uid("count").sink_to(sink).uid("out")
        return env, sink

    env, _ = program(1, (None, 1), Pause())
    with ProgramTestHarness(env) as harness:
        harness.run_epoch()
        saved = harness.savepoint()
    env, sink = program(3, (None, 1), Pause(), (None, 2), End())
    with ProgramTestHarness(env, restored=saved) as harness:
        harness.run()
    assert sink.values == [(None, 2, [1, 2])]


def test_the_parts_of_a_key_are_not_none() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    stream = new_environment().from_collection([(None, 1)]).key_by(lambda record: record, pair)
    with pytest.raises(TypeMismatchError, match=r"the value None (?s:.*)the key, field 0"):
        results_of(stream.map(lambda record: record))
