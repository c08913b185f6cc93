"""Connected and broadcast streams as users call them: what they give, PyFlink's quirks, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flinkish.common import Row, Time, Types
from flinkish.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    CoFlatMapFunction,
    CoMapFunction,
    ConnectedStreams,
    CoProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from flinkish.errors import ProgramError, TypeMismatchError
from tests.support.functions import Same
from tests.support.programs import chains_of, job_of, new_environment, results_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
WORDS = [("a", 1), ("b", 5), ("a", 3)]
NUMBERS = [(10, "a"), (20, "c"), (30, "b"), (40, "a")]
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


def two(parallelism: int = 1) -> tuple[StreamExecutionEnvironment, DataStream, DataStream]:
    env = new_environment(parallelism)
    return env, env.from_collection(WORDS, PAIR), env.from_collection(NUMBERS)


def first(value: Any) -> Any:
    return value[0]


def second(value: Any) -> Any:
    return value[1]


class Tell(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return "word", value

    def map2(self, value: Any) -> Any:
        return None if value[0] == 20 else ("number", value)


class TellFlat(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return [value[0]] * value[1]

    def flat_map2(self, value: Any) -> Iterator[Any]:
        yield value[1]


class Sum(KeyedCoProcessFunction):
    """(key, sum over both inputs so far)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        return self._added(value[1], ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        return self._added(value[0], ctx)

    def _added(self, number: int, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.sum.update((self.sum.value() or 0) + number)
        yield ctx.get_current_key(), self.sum.value()


class Untyped(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        yield 1, value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        yield 2, value


def last_sums(results: list[Any]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for key, total in results:
        sums[key] = max(total, sums.get(key, 0))
    return sums


SUMS = {"a": 54, "b": 35, "c": 20}


def test_streams_of_different_types_are_mapped_by_one_function() -> None:
    _, words, numbers = two()
    results = results_of(words.connect(numbers).map(Tell()))
    expected = [("word", word) for word in WORDS] + [("number", number) for number in NUMBERS if number[0] != 20]
    assert sorted(results, key=str) == sorted(expected, key=str)


def test_flat_map_and_declared_types() -> None:
    _, words, numbers = two()
    results = results_of(words.connect(numbers).flat_map(TellFlat(), Types.STRING()))
    assert sorted(results) == sorted(["a"] * 6 + ["b"] * 6 + ["c"])
    _, words, numbers = two()
    with pytest.raises(TypeMismatchError, match="results of 'Co-Flat Map'"):
        results_of(words.connect(numbers).flat_map(TellFlat(), Types.INT()))


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "connected",
    [
        lambda words, numbers: words.key_by(first).connect(numbers.key_by(second)),
        lambda words, numbers: words.connect(numbers).key_by(first, second),
        lambda words, numbers: words.connect(numbers).key_by(first, second, Types.STRING()),
        lambda words, numbers: words.key_by(second).connect(numbers).key_by(first, second),
        lambda words, numbers: words.rebalance().connect(numbers.shuffle()).key_by(first, second),
    ],
)
def test_however_streams_are_keyed_records_of_one_key_share_state(
    connected: Callable[..., ConnectedStreams], parallelism: int
) -> None:
    _, words, numbers = two(parallelism)
    stream = connected(words, numbers).process(Sum()).set_parallelism(parallelism)
    assert last_sums(results_of(stream)) == SUMS


def test_a_stream_can_be_connected_with_itself_and_with_a_union() -> None:
    _, words, _ = two(2)
    both = words.key_by(first).connect(words.union(words).map(lambda v: (v[1], v[0])).key_by(second))
    assert last_sums(results_of(both.process(Sum()))) == {"a": 12, "b": 15}


def test_streams_that_are_keyed_otherwise_unite_to_a_stream_of_their_values() -> None:
    _, words, numbers = two(2)
    united = words.key_by(first).union(words.key_by(second, Types.INT()), words)
    assert sorted(results_of(united.connect(numbers).process(Untyped()))) == sorted(
        [(1, word) for word in WORDS] * 3 + [(2, number) for number in NUMBERS]
    )


def test_side_outputs_of_connected_streams() -> None:
    tag = OutputTag("side", Types.INT())

    class Split(Tell):
        def map2(self, value: Any) -> Any:
            return tag, value[0]

    _, words, numbers = two()
    main = words.connect(numbers).map(Split())
    assert sorted(results_of(main.get_side_output(tag))) == [10, 20, 30, 40]


def test_what_runs_has_pyflinks_names_and_its_own_settings() -> None:
    env, words, numbers = two()
    connected = words.connect(numbers)
    streams = [
        connected.map(Tell()),
        connected.flat_map(TellFlat()),
        connected.process(Untyped()).uid("u").name("mine").set_parallelism(2),
        connected.key_by(first, second).process(Sum()),
        words.connect(numbers.broadcast(RULES)).process(Apply()),
    ]
    names = [stream.get_name() for stream in streams]
    assert names == ["Co-Map", "Co-Flat Map", "mine", "Keyed Co-Process", "Co-Process-Broadcast"]
    for stream in streams:
        stream.print()
    job = job_of(env)
    (mine,) = [vertex for vertex in job.vertices if vertex.name.startswith("mine")]
    assert (mine.head.uid, mine.parallelism, [i.input_index for i in mine.inputs]) == ("u", 2, [0, 1])
    assert any(chain.startswith("Co-Map -> ") for chain in chains_of(env)), "what comes behind is chained"


def test_only_functions_that_can_use_state_get_a_state_backend() -> None:
    class Stateful(Tell):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("s", Types.INT()))

    env, words, numbers = two()
    keyed = words.connect(numbers).key_by(first, second)
    keyed.map(Tell()).print()
    keyed.map(Stateful()).print()
    assert [v.keyed for v in job_of(env).vertices if v.name.startswith("Co-Map")] == [False, True]


def test_with_one_keyed_side_the_function_gets_rows_of_key_and_value_as_in_pyflink() -> None:
    _, words, numbers = two()
    results = results_of(words.key_by(first).connect(numbers).process(Untyped()))
    rows = [value for number, value in results if number == 1]
    assert rows == [Row(f0=word[0], f1=word) for word in WORDS]
    assert [value for number, value in results if number == 2] == NUMBERS


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_keyed_function_needs_two_keyed_streams_and_the_error_says_which_is_not() -> None:
    _, words, numbers = two()
    with pytest.raises(ProgramError, match="can only be applied on keyed streams.*input 1, which is keyed"):
        words.key_by(first).connect(numbers).process(Sum())


def test_key_types_must_be_the_same() -> None:
    _, words, numbers = two()
    with pytest.raises(ProgramError, match="Key types if input KeyedStreams don't match.*same key_type"):
        words.key_by(first, Types.STRING()).connect(numbers.key_by(first, Types.INT()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w, n: w.connect(n).map(lambda v: v), "The input function must be a CoMapFunction, not an instance"),
        (lambda w, n: w.connect(n).map(Tell), "must be a CoMapFunction, not the class Tell"),
        (lambda w, n: w.connect(n).map(Same()), "must be a CoMapFunction, not an instance of Same"),
        (lambda w, n: w.connect(n).flat_map(lambda v: v), "The input must be a CoFlatMapFunction"),
        (lambda w, n: w.connect(n).process(Same()), "must be a CoProcessFunction or KeyedCoProcessFunction"),
        (lambda w, n: w.connect(n).key_by(first, second).process(Same()), "CoProcessFunction or KeyedCoProcessF"),
        (lambda w, n: w.connect(n).key_by(first, 1), "key_selector should be type of KeySelector or a callable"),
        (
            lambda w, n: w.connect([1]),
            "what connect takes is an instance of list.*expected a DataStream or a Bro",
        ),
        (lambda w, n: w.broadcast("rules"), "broadcast_state_descriptor should be MapStateDescriptor, not an instan"),
        (lambda w, n: w.broadcast(None, RULES), "should be MapStateDescriptor, not None"),
        (lambda w, n: w.broadcast(RULES, ValueStateDescriptor("v", PAIR)), "should be MapStateDescriptor, not an inst"),
        (
            lambda w, n: w.connect(n.broadcast(RULES)).process(ApplyKeyed()),
            "KeyedBroadcastProcessFunction should be applied to keyed DataStream",
        ),
        (
            lambda w, n: w.key_by(first).connect(n.broadcast(RULES)).process(Apply()),
            "BroadcastProcessFunction should be applied to non-keyed DataStream",
        ),
        (
            lambda w, n: w.connect(n.broadcast(RULES)).process(Untyped()),
            "must be a BroadcastProcessFunction or KeyedBroadcastProcessFunction, not an instance of Untyped",
        ),
    ],
)
def test_functions_and_streams_of_other_kinds_are_refused(call: Callable[..., Any], message: str) -> None:
    _, words, numbers = two()
    with pytest.raises(TypeError, match=message):
        call(words, numbers)


def test_streams_of_two_environments_cannot_be_connected() -> None:
    words, others = two()[1], two()[2]
    with pytest.raises(ProgramError, match="two streams of different environments"):
        words.connect(others)
    with pytest.raises(ProgramError, match="two streams of different environments"):
        words.connect(others.broadcast(RULES))


def test_broadcast_states_have_names_of_their_own_and_do_not_expire() -> None:
    _, words, _ = two()
    with pytest.raises(ProgramError, match="two broadcast states are named 'rules'"):
        words.broadcast(RULES, MapStateDescriptor("rules", Types.INT(), Types.INT()))
    expiring = MapStateDescriptor("old", Types.STRING(), Types.INT())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(ProgramError, match="broadcast state 'old' has a time-to-live"):
        words.broadcast(expiring)


def test_a_keyed_stream_cannot_be_broadcast() -> None:
    _, words, _ = two()
    with pytest.raises(Exception, match="Cannot override partitioning for KeyedStream"):
        words.key_by(first).broadcast(RULES)


# --- broadcast ------------------------------------------------------------------------------------------------------


class Apply(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield value, dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
        ctx.get_broadcast_state(RULES).put(value[1], value[0])


class ApplyKeyed(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield ctx.get_current_key(), value, ctx.get_broadcast_state(RULES).get(value[0])

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        ctx.get_broadcast_state(RULES).put(value[1], value[0])


def test_broadcast_without_descriptors_is_a_way_and_with_them_a_stream_to_connect_with() -> None:
    _, words, numbers = two()
    assert type(words.broadcast()) is DataStream
    broadcast = numbers.broadcast(RULES)
    assert type(broadcast) is BroadcastStream and broadcast.broadcast_state_descriptors == [RULES]
    assert type(words.connect(broadcast)) is BroadcastConnectedStream
    assert type(words.key_by(first).connect(broadcast)) is BroadcastConnectedStream


def test_a_stateful_operator_without_uid_is_reported() -> None:
    from flinkish.graph.job_graph import stateful_without_uid

    env, words, numbers = two()
    words.connect(numbers.broadcast(RULES)).process(Apply()).print()
    assert [name.split(" (")[0] for name in stateful_without_uid(job_of(env))][-1] == "'Co-Process-Broadcast'"


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("keyed", [False, True])
def test_all_subtasks_get_all_broadcast_elements(parallelism: int, keyed: bool) -> None:
    env = new_environment(parallelism)
    # the source that is written first is read first within an epoch when there are no watermarks
    rules = env.from_collection(NUMBERS)
    words = env.from_collection(WORDS, PAIR).rebalance()
    if keyed:
        stream = words.key_by(first).connect(rules.broadcast(RULES)).process(ApplyKeyed())
        assert sorted(results_of(stream)) == [("a", ("a", 1), 40), ("a", ("a", 3), 40), ("b", ("b", 5), 30)]
    else:
        stream = words.connect(rules.broadcast(RULES)).process(Apply())
        known = {"a": 40, "c": 20, "b": 30}
        assert sorted(results_of(stream), key=str) == sorted([(word, known) for word in WORDS], key=str)
