"""What calls of user code do to state: values that are changed in place, functions that get their handles in other
places than ``open``, and keyed state where there is no key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from flinkish.common import Types, WatermarkStrategy
from flinkish.datastream import OnError
from flinkish.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.errors import StateAccessError, UserCodeError
from flinkish.minicluster import StateStore
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, list_source, run

ANY = Types.PICKLED_BYTE_ARRAY()
#: settings with which all state goes to files, and is evicted from memory
IN_FILES = {"inline_state_bytes": 0, "managed_memory_bytes": 1}
SEEN = ValueStateDescriptor("seen", ANY)
RULES = MapStateDescriptor("rules", Types.STRING(), ANY)


def results(program: Callable[[Any], Any], values: list[Any], per_epoch: int = 1, **how: Any) -> list[Any]:
    """What a program makes of these values of one key."""
    env, sink = environment(1), TestingSink()
    program(env.from_source(list_source(values), bounded(), "numbers")).sink_to(sink)
    run(job_of(env, **(IN_FILES if "store" in how else {})), per_epoch, **how)
    return sink.values


def by_key(stream: Any) -> Any:
    return stream.key_by(lambda value: value[0])


def seen(state: Any, value: Any) -> list[Any]:
    """The values of the key so far, which are changed in place only."""
    if state.value() is None:
        state.update([])
    state.value().append(value[1])
    return state.value()  # type: ignore[no-any-return]


class Opens:
    def open(self, context: Any) -> None:
        self.state = context.get_state(SEEN)


class Maps(Opens, MapFunction):
    def map(self, value: Any) -> Any:
        return list(seen(self.state, value))


class FlatMaps(Opens, FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        yield seen(self.state, value)


class Filters(Opens, FilterFunction):
    def filter(self, value: Any) -> Any:
        value[2:] = seen(self.state, value)
        return True


class Processes(Opens, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return [seen(self.state, value)]


class Fires(Opens, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.state.value() is None:
            self.state.update([])
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.state.value().append(timestamp)
        yield self.state.value()


class BothInputs(Opens, KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield seen(self.state, value)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.state.value().append(-value[1])


class InWindows(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield seen(context.global_state().get_state(SEEN), list(elements)[-1])


class Reduces(Opens, ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return ["a", value2[1], *seen(self.state, value2)]


#: programs over ["a", 1], ["a", 2], ["a", 3] whose last result is all that is in state
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: by_key(s).map(Maps()),
    "flat_map": lambda s: by_key(s).flat_map(FlatMaps()),
    "filter": lambda s: by_key(s).filter(Filters()).map(lambda value: value[2:]),
    "process": lambda s: by_key(s).process(Processes()),
    "timers": lambda s: by_key(s).process(Fires()),
    "windows": lambda s: by_key(s).count_window(1).process(InWindows()),
    "on_error": lambda s: by_key(s).process(Processes()).on_error(OnError.skip()),
}


@pytest.mark.parametrize("per_epoch", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_value_that_is_changed_in_place_is_seen_by_the_next_call(name: str, per_epoch: int) -> None:
    values = [["a", 1], ["a", 2], ["a", 3]]
    with TemporaryDirectory() as folder:
        ways: list[dict[str, Any]] = [
            {},
            {"restart_every": 1},
            {"restart_every": 1, "store": StateStore(keyed_state=folder)},
        ]
        for how in ways:
            made = results(PROGRAMS[name], [list(value) for value in values], per_epoch, **how)
            assert made == [[1], [1, 2], [1, 2, 3]]


def test_both_inputs_and_other_keys_see_what_was_changed_in_place() -> None:
    def program(stream: Any) -> Any:
        return by_key(stream).connect(by_key(stream)).process(BothInputs())

    made = results(program, [["a", 1], ["b", 2], ["a", 3], ["b", 4]])
    assert made == [[1], [2], [1, -1, 3], [2, -2, 4]]


class FailsAtTwo(Opens, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        found = seen(self.state, value)
        if value[1] == 2:
            raise ValueError("two")
        yield found


def test_a_call_that_fails_has_changed_nothing_in_place() -> None:
    made = results(
        lambda s: by_key(s).process(FailsAtTwo()).on_error(OnError.skip(max_failures=9)),
        [["a", n] for n in range(4)],
        per_epoch=4,
    )
    assert made == [[0], [0, 1], [0, 1, 3]]


# --- broadcast and operator state -------------------------------------------------------------------------------------


class _Rules:
    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        rule: dict[Any, Any] = {}
        if not rules.contains("r"):
            rules.put("r", rule)
        rule["put"] = True
        rules.get("r").setdefault("in place", []).append(value)
        for _, each in rules.items():
            each["n"] = len(each["in place"])
        if value == "fails":
            raise ValueError(value)


class Rules(_Rules, BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(RULES).get("r")


class KeyedRules(_Rules, KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(RULES).get("r")


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("restart_every", [None, 1])
def test_broadcast_state_that_is_changed_in_place_by_a_broadcast_element_is_kept(
    keyed: bool, restart_every: int | None
) -> None:
    env, sink = environment(1), TestingSink()
    never = WatermarkStrategy.no_watermarks()
    numbers = env.from_source(list_source([1, 2], pauses=(4,)), never, "numbers")
    rules = env.from_source(list_source(["a", "fails", "b"]), never, "rules").broadcast(RULES)
    function: Any = KeyedRules() if keyed else Rules()
    connected = (numbers.key_by(lambda n: n) if keyed else numbers).connect(rules)
    connected.process(function).on_error(OnError.skip()).sink_to(sink)
    run(job_of(env), 1, restart_every=restart_every)
    assert sink.values == [{"put": True, "in place": ["a", "b"], "n": 2}] * 2


class ChangesRules(Rules):
    def process_element(self, value: Any, ctx: Any) -> Any:
        rule = ctx.get_broadcast_state(RULES).get("r")
        rule["mine"] = value
        yield sorted(ctx.get_broadcast_state(RULES).get("r"))


def test_broadcast_state_that_is_changed_where_it_is_read_only_stays_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env, sink = environment(1), TestingSink()
    never = WatermarkStrategy.no_watermarks()
    numbers = env.from_source(list_source([1, 2], pauses=(2,)), never, "numbers")
    rules = env.from_source(list_source(["a"]), never, "rules").broadcast(RULES)
    numbers.connect(rules).process(ChangesRules()).sink_to(sink)
    run(job_of(env), 1)
    assert sink.values == [["in place", "n", "put"]] * 2
    (line,) = [record.getMessage() for record in caplog.records if "in place" in record.getMessage()]
    assert "broadcast state 'rules' was changed in place where the state is read-only" in line


class Counts(MapFunction, CheckpointedFunction):
    """Counts in an element of its list, which it puts into state once."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("counts", ANY))
        if not self.state.get():
            self.state.add({"n": 0})
        self.counts = self.state.get()[0]

    def map(self, value: Any) -> Any:
        self.counts["n"] += 1
        return self.counts["n"]

    def snapshot_state(self, context: Any) -> None:
        """The state has it already."""


@pytest.mark.parametrize("restart_every", [None, 1, 2])
def test_an_element_of_operator_state_that_is_changed_in_place_is_written_at_the_barrier(
    restart_every: int | None,
) -> None:
    values = results(lambda s: s.rebalance().map(Counts()), [["a", n] for n in range(6)], restart_every=restart_every)
    assert values == [1, 2, 3, 4, 5, 6]


# --- where handles come from ------------------------------------------------------------------------------------------


class Initializes(CheckpointedFunction):
    """Gets its handle in ``initialize_state``."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_keyed_state_store().get_state(SEEN)

    def snapshot_state(self, context: Any) -> None:
        """There is nothing else to keep."""


class Asks:
    """Keeps its context, and asks for the handle in each call."""

    def open(self, context: Any) -> None:
        self.context = context

    @property
    def state(self) -> Any:
        return self.context.get_state(SEEN)


class KeepsStore(CheckpointedFunction):
    """Keeps the context of ``initialize_state``, and asks for the handle in each call."""

    def initialize_state(self, context: Any) -> None:
        self.context = context

    def snapshot_state(self, context: Any) -> None:
        """There is nothing else to keep."""

    @property
    def state(self) -> Any:
        return self.context.get_keyed_state_store().get_state(SEEN)


class OpensLater:
    """Has an ``open`` that was set on the object."""

    def __init__(self) -> None:
        self.open = self.opened  # type: ignore[method-assign, assignment]

    def opened(self, context: Any) -> None:
        self.state = context.get_state(SEEN)


def of(way: type, function: type) -> Any:
    """A function of a kind that gets its state in a way."""
    name = f"{way.__name__}{function.__name__}"
    bases = tuple(base for base in function.__mro__ if base not in (function, Opens))
    return type(name, (way, bases[0]), {k: v for k, v in vars(function).items() if k[:2] != "__"})()


class CoMaps(Opens, CoMapFunction):
    def map1(self, value: Any) -> Any:
        return list(seen(self.state, value))

    map2 = map1


class CoFlatMaps(Opens, CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        yield list(seen(self.state, value))

    flat_map2 = flat_map1


def connected(stream: Any) -> Any:
    return by_key(stream).connect(by_key(stream.filter(lambda _: False)))


#: kind of function -> the program that uses it
KINDS: dict[type, Callable[[Any, Any], Any]] = {
    Maps: lambda s, f: by_key(s).map(f),
    FlatMaps: lambda s, f: by_key(s).flat_map(f),
    Filters: lambda s, f: by_key(s).filter(f).map(lambda value: value[2:]),
    Processes: lambda s, f: by_key(s).process(f),
    Reduces: lambda s, f: by_key(s).reduce(f).map(lambda value: [1, *value[2:]]),
    CoMaps: lambda s, f: connected(s).map(f),
    CoFlatMaps: lambda s, f: connected(s).flat_map(f),
}


@pytest.mark.parametrize("way", [Opens, Initializes, Asks, KeepsStore, OpensLater])
@pytest.mark.parametrize("function", KINDS)
def test_keyed_state_is_that_of_the_record_wherever_the_handle_comes_from(function: type, way: type) -> None:
    if function in (Processes, Reduces) and way is OpensLater:
        way = Opens
    values = [[key, number] for number in (1, 2, 3) for key in "ab"]
    made = results(lambda s: KINDS[function](s, of(way, function)), values, per_epoch=4)
    assert made == [[1], [1], [1, 2], [1, 2], [1, 2, 3], [1, 2, 3]]


# --- where there is no key --------------------------------------------------------------------------------------------


class WithoutKey(MapFunction, CheckpointedFunction):
    """Uses all kinds of keyed state in a method that has no key."""

    def __init__(self, method: str) -> None:
        self.method, self.found = method, SEEN

    def initialize_state(self, context: Any) -> None:
        store = context.get_keyed_state_store()
        self.value = store.get_state(ValueStateDescriptor("value", ANY))
        self.list = store.get_list_state(ListStateDescriptor("list", ANY))
        self.map_ = store.get_map_state(MapStateDescriptor("map", ANY, ANY))
        self.use("initialize_state")

    def open(self, context: Any) -> None:
        self.use("open")

    def close(self) -> None:
        self.use("close")

    def snapshot_state(self, context: Any) -> None:
        self.use("snapshot_state")

    def use(self, method: str) -> None:
        if method != self.method:
            return
        value, elements, entries = self.value, self.list, self.map_
        FOUND.append((value.value(), elements.get(), list(entries.items()), entries.get("k"), entries.is_empty()))
        value.update(["lost"])
        elements.update([1])
        elements.add(2)
        elements.add_all([3])
        entries.put("k", {})
        entries.put_all({"l": 1, "m": 2})
        entries.remove("m")
        entries.get("k")["n"] = 1
        FOUND.append((value.value(), elements.get(), list(entries.items()), entries.get("k"), entries.is_empty()))
        for state in (value, elements, entries):
            state.clear()

    def map(self, value: Any) -> Any:
        n = (self.value.value() or 0) + 1
        self.value.update(n)
        self.list.add(n)
        self.map_.put("n", n)
        return value[0], n, self.list.get(), dict(self.map_.items())


FOUND: list[Any] = []


@pytest.mark.parametrize("method", ["initialize_state", "open", "snapshot_state", "close"])
@pytest.mark.parametrize("restart_every", [None, 1])
def test_keyed_state_that_is_written_where_there_is_no_key_is_never_seen(
    method: str, restart_every: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    FOUND.clear()
    made = results(
        lambda s: by_key(s).map(WithoutKey(method)), [["a", 1], ["b", 1], ["a", 1]], restart_every=restart_every
    )
    assert made == [("a", 1, [1], {"n": 1}), ("b", 1, [1], {"n": 1}), ("a", 2, [1, 2], {"n": 2})]
    assert FOUND[:2] == [
        (None, [], [], None, True),
        (["lost"], [1, 2, 3], [("k", {"n": 1}), ("l", 1)], {"n": 1}, False),
    ]
    lines = [line for record in caplog.records if "belongs to no key" in (line := record.getMessage())]
    if restart_every is None:
        assert [line.partition("state '")[2].partition("'")[0] for line in lines] == ["value", "list", "map"]
        assert all(f"was used in {method}(), where no record is processed" in line for line in lines)


def test_one_of_many_subtasks_says_that_open_has_no_key(caplog: pytest.LogCaptureFixture) -> None:
    env, sink = environment(4), TestingSink()
    numbers = env.from_source(list_source([["a", 1], ["b", 1]]), bounded(), "numbers")
    by_key(numbers).map(WithoutKey("open")).sink_to(sink)
    run(job_of(env))
    assert len(sink.values) == 2
    assert len([record for record in caplog.records if "belongs to no key" in record.getMessage()]) == 3


class ReadsInBroadcast(KeyedBroadcastProcessFunction):
    def open(self, context: Any) -> None:
        self.state = context.get_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> Any:
        return []

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.state.update(1)
        return iter(())


def test_keyed_state_in_the_call_of_a_broadcast_element_is_refused_as_before() -> None:
    env = environment(1)
    numbers = env.from_source(list_source([1]), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda n: n).connect(numbers.broadcast(RULES)).process(ReadsInBroadcast()).sink_to(TestingSink())
    with pytest.raises((UserCodeError, StateAccessError), match="was used while no record is processed"):
        run(job_of(env))
