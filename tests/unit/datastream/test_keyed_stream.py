"""KeyedStream: operators with state, PyFlink's quirks, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flinkish.common import Row, Types
from flinkish.connectors.results import PrintSink
from flinkish.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeyedStream,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.errors import InvalidKeyError, ProgramError, TypeMismatchError
from tests.support.programs import job_of, new_environment, results_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PAIRS = [("a", 1), ("b", 5), ("a", 3), ("b", 2)]


def keyed(parallelism: int = 1) -> KeyedStream:
    return new_environment(parallelism).from_collection(PAIRS, PAIR).key_by(lambda pair: pair[0])


def by_key(results: list[Any]) -> list[Any]:
    """Order is kept within a key, not between keys."""
    return sorted(results, key=lambda pair: pair[0])


class Counting:
    """Counts the records of a key in state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def count(self) -> int:
        count = (self.state.value() or 0) + 1
        self.state.update(count)
        return count


class NumberedMap(Counting, MapFunction):
    def map(self, value: Any) -> Any:
        return value[0], self.count()


class NumberedFlatMap(Counting, FlatMapFunction):
    def flat_map(self, value: Any) -> Iterator[Any]:
        yield value[0], self.count()


class OnlyFirst(Counting, FilterFunction):
    def filter(self, value: Any) -> bool:
        return self.count() == 1


class NumberedProcess(Counting, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield ctx.get_current_key(), self.count()


# --- operators ----------------------------------------------------------------------------------------------------


def test_rolling_aggregations_give_each_step() -> None:
    assert by_key(results_of(keyed().sum(1))) == [("a", 1), ("a", 4), ("b", 5), ("b", 7)]
    assert by_key(results_of(keyed().min(1))) == [("a", 1), ("a", 1), ("b", 5), ("b", 2)]
    assert by_key(results_of(keyed().max(1))) == [("a", 1), ("a", 3), ("b", 5), ("b", 5)]
    assert by_key(results_of(keyed().min_by(1))) == [("a", 1), ("a", 1), ("b", 5), ("b", 2)]
    assert by_key(results_of(keyed().max_by(1))) == [("a", 1), ("a", 3), ("b", 5), ("b", 5)]


def test_reduce_takes_functions_and_callables_and_keeps_the_type() -> None:
    class Longest(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return max(value1, value2, key=lambda pair: pair[1])

    reduced = keyed().reduce(Longest())
    assert reduced.get_type() == PAIR
    assert (
        by_key(results_of(reduced))
        == by_key(results_of(keyed().reduce(lambda x, y: max(x, y))))
        == [
            ("a", 1),
            ("a", 3),
            ("b", 5),
            ("b", 5),
        ]
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_function_with_open_has_state_per_key(parallelism: int) -> None:
    numbered = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert by_key(results_of(keyed(parallelism).map(NumberedMap()))) == numbered
    assert by_key(results_of(keyed(parallelism).flat_map(NumberedFlatMap()))) == numbered
    assert by_key(results_of(keyed(parallelism).process(NumberedProcess()))) == numbered
    assert by_key(results_of(keyed(parallelism).filter(OnlyFirst()))) == [("a", 1), ("b", 5)]


def test_a_position_that_cannot_be_is_refused() -> None:
    with pytest.raises(TypeError, match="must be of int or str type"):
        keyed().sum(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="sum of field 7"):
        results_of(keyed().sum(7))


def test_process_takes_only_the_function_for_keyed_streams() -> None:
    class Plain(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None: ...

    with pytest.raises(TypeError, match="KeyedProcessFunction is required for KeyedStream."):
        keyed().process(Plain())  # type: ignore[arg-type]


# --- keys ---------------------------------------------------------------------------------------------------------


def test_keys_are_converted_to_their_type() -> None:
    env = new_environment()
    stream = env.from_collection([(1, 1), (True, 2)]).key_by(lambda pair: pair[0], Types.INT())
    assert results_of(stream.sum(1)) == [(1, 1), (1, 3)], "both keys are 1 as an INT"
    merged = env.from_collection([(1, 1), (1 + 2**32, 2)]).key_by(lambda pair: pair[0], Types.INT())
    with pytest.raises(TypeMismatchError, match="the value 4294967297 of type int does not fit .* Integer .*the key"):
        results_of(merged.sum(1))
    wrong = env.from_collection([("a", 1)]).key_by(lambda pair: pair[1], Types.STRING())
    with pytest.raises(TypeMismatchError, match="the key"):
        results_of(wrong.sum(1))


def test_a_key_selector_is_a_function_or_an_object() -> None:
    class First(KeySelector):
        def get_key(self, value: Any) -> Any:
            return value[0]

    class Opened(First):
        def open(self, runtime_context: RuntimeContext) -> None: ...

    stream = new_environment().from_collection(PAIRS, PAIR)
    assert by_key(results_of(stream.key_by(First()).sum(1))) == [("a", 1), ("a", 4), ("b", 5), ("b", 7)]
    with pytest.raises(TypeError, match="key_selector should be type of KeySelector or a callable function"):
        stream.key_by(0)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"Opened overrides open\(\)"):
        stream.key_by(Opened())


@pytest.mark.parametrize("key", [float("nan"), {1}])
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    stream = new_environment().from_collection([1]).key_by(lambda value: key)
    with pytest.raises(InvalidKeyError):
        results_of(stream.sum())


# --- PyFlink's quirks ---------------------------------------------------------------------------------------------


def test_collected_records_are_rows_of_key_and_value() -> None:
    assert by_key(results_of(keyed())) == [
        Row(f0="a", f1=("a", 1)),
        Row(f0="a", f1=("a", 3)),
        Row(f0="b", f1=("b", 5)),
        Row(f0="b", f1=("b", 2)),
    ]


def test_sink_to_gets_rows_and_print_and_union_get_values(capsys: pytest.CaptureFixture[str]) -> None:
    stream = keyed()
    stream.print("p")
    stream.union(stream.project(0).map(lambda one: (one[0], 0), PAIR)).filter(lambda pair: pair[0] == "a").print("u")
    stream.get_execution_environment().execute()
    assert sorted(capsys.readouterr().out.split()) == sorted(
        ["p>", "(a,1)", "p>", "(b,5)", "p>", "(a,3)", "p>", "(b,2)"]
        + ["u>", "(a,1)", "u>", "(a,3)"]
        + ["u>", "(a,0)"] * 2
    )
    stream.sink_to(PrintSink("s"))
    sink = job_of(stream.get_execution_environment()).sinks[0]
    assert sink.input_type == Types.ROW([Types.PICKLED_BYTE_ARRAY(), PAIR])


def test_key_by_again_keys_the_original_stream() -> None:
    again = keyed().key_by(lambda pair: pair[1] % 2)
    assert sorted(results_of(again.sum(1))) == [("a", 1), ("a", 6), ("a", 9), ("b", 2)]


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("name", ["x"]),
        ("get_name", []),
        ("uid", ["x"]),
        ("set_uid_hash", ["x"]),
        ("set_parallelism", [2]),
        ("set_max_parallelism", [2]),
        ("force_non_parallel", []),
        ("set_buffer_timeout", [5]),
        ("cache", []),
        ("start_new_chain", []),
        ("disable_chaining", []),
        ("slot_sharing_group", ["x"]),
    ],
)
def test_settings_are_not_supported(method: str, arguments: list[Any]) -> None:
    with pytest.raises(Exception, match="KeyedStream is not supported."):
        getattr(keyed(), method)(*arguments)


@pytest.mark.parametrize("method", ["shuffle", "rebalance", "rescale", "forward", "broadcast"])
def test_the_partitioning_cannot_be_overridden(method: str) -> None:
    with pytest.raises(Exception, match="Cannot override partitioning for KeyedStream."):
        getattr(keyed(), method)()
    with pytest.raises(Exception, match="Cannot override partitioning for KeyedStream."):
        keyed().partition_custom(lambda key, count: 0, lambda pair: pair)
