"""State handles against plain dicts, over barriers and reloads."""

from __future__ import annotations

import copy
import gc
import pickle
import tempfile
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.types import Row, RowKind
from flinkish.core.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from flinkish.core.state_ttl import StateTtlConfig
from flinkish.errors import StateAccessError, TypeMismatchError
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.ttl import HandleCache
from flinkish.runtime.stored.classes import ProgramClasses
from tests.support.changed_keys import changed_keys
from tests.support.functions import Aggregate, average
from tests.support.profiles import examples
from tests.support.rows import hold

ANY = Types.PICKLED_BYTE_ARRAY()


DESCRIPTORS = {
    "value": ValueStateDescriptor("value", ANY),
    "list": ListStateDescriptor("list", ANY),
    "map": MapStateDescriptor("map", ANY, ANY),
    "reducing": ReducingStateDescriptor("reducing", lambda a, b: a + b, ANY),
    "aggregating": AggregatingStateDescriptor("aggregating", average(), ANY),
}


class Store:
    """A backend whose state can be written, forgotten and loaded again. With a directory all of it goes to files; each
    time that it was forgotten, what changes from then on stays beside the files, or goes to files again."""

    def __init__(self, directory: StateDirectory | None = None) -> None:
        self.body: bytes | None = None
        self._directory = directory
        self._inline_bytes = 150
        self._make()

    def _make(self) -> None:
        self.backend = KeyedStateBackend(
            "operator 'tested'",
            classes=ProgramClasses(modules=frozenset({__name__})),
            directory=self._directory,
            inline_bytes=self._inline_bytes,
        )
        self._inline_bytes = 1_000_000 if self._inline_bytes == 150 else 150
        self.backend.restore(self.body)
        self.states: dict[str, Any] = {
            name: self.backend.partitioned_state(descriptor) for name, descriptor in DESCRIPTORS.items()
        }

    def enter(self, key: int) -> None:
        self.backend.loans.enter(key)

    def barrier(self, forget: bool) -> None:
        if self.backend.changed():
            self.backend.epoch.epoch += 1
            self.body = self.backend.snapshot()
        assert not self.backend.changed()
        if forget:
            self._make()


def _value(state: Any, model: dict[str, Any], action: str, number: int) -> None:
    if action == "set":
        state.update(number)
        model["value"] = number
    elif action == "clear":
        state.clear()
        model.pop("value", None)
    assert state.value() == model.get("value")


def _list(state: Any, model: dict[str, Any], action: str, number: int) -> None:
    elements = model.setdefault("list", [])
    if action == "set":
        state.update([number] * (number % 3))
        elements[:] = [number] * (number % 3)
    elif action == "add":
        state.add(number)
        elements.append(number)
    elif action == "add many":
        state.add_all([number, -number])
        elements += [number, -number]
    elif action == "clear":
        state.clear()
        elements.clear()
    assert list(state) == state.get() == elements


def _map(state: Any, model: dict[str, Any], action: str, number: int) -> None:
    entries = model.setdefault("map", {})
    if action in ("set", "add"):
        state[number] = -number
        entries[number] = -number
    elif action == "add many":
        state.put_all({number: 1, 0: 2})
        entries.update({number: 1, 0: 2})
    elif action == "remove":
        del state[number]
        entries.pop(number, None)
    elif action == "clear":
        state.clear()
        entries.clear()
    assert dict(state.items()) == entries
    assert list(state) == list(state.keys()) == list(entries)
    assert list(state.values()) == list(entries.values())
    assert state.is_empty() == (not entries)
    assert (number in state) == state.contains(number) == (number in entries)
    assert state[number] == state.get(number) == entries.get(number)


def _reducing(state: Any, model: dict[str, Any], action: str, number: int) -> None:
    if action in ("set", "add"):
        state.add(number)
        model["reducing"] = model["reducing"] + number if "reducing" in model else number
    elif action == "clear":
        state.clear()
        model.pop("reducing", None)
    assert state.get() == model.get("reducing")


def _aggregating(state: Any, model: dict[str, Any], action: str, number: int) -> None:
    numbers = model.setdefault("aggregating", [])
    if action in ("set", "add"):
        state.add(number)
        numbers.append(number)
    elif action == "remove":
        state.add(None)
        numbers.clear()
    elif action == "clear":
        state.clear()
        numbers.clear()
    assert state.get() == (sum(numbers) / len(numbers) if numbers else None)


_CHECKS = {"value": _value, "list": _list, "map": _map, "reducing": _reducing, "aggregating": _aggregating}
_steps = st.one_of(
    st.tuples(
        st.sampled_from(sorted(_CHECKS)),
        st.sampled_from(["set", "add", "add many", "remove", "clear", "read"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    st.tuples(st.just("barrier"), st.booleans()),
    st.tuples(st.just("release")),
    st.tuples(st.just("prefetch"), st.sets(st.integers(0, 3))),
)


@settings(max_examples=examples(75), deadline=None)
@given(st.lists(_steps, max_size=60), st.booleans())
def test_states_behave_like_dicts_per_key_over_barriers_and_reloads(steps: list[Any], in_files: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _check_steps(Store(StateDirectory(folder) if in_files else None), steps)


def _check_steps(store: Store, steps: list[Any]) -> None:
    models: dict[int, dict[str, Any]] = {key: {} for key in range(4)}
    for step in steps:
        if step[0] == "barrier":
            store.barrier(forget=step[1])
            continue
        if step[0] == "release":
            store.backend.release()
            continue
        if step[0] == "prefetch":
            store.backend.prefetch(step[1])
            continue
        kind, action, number, key = step
        store.enter(key)
        _CHECKS[kind](store.states[kind], models[key], action, number)
    store.barrier(forget=True)
    for key, model in models.items():
        store.enter(key)
        for kind, check in _CHECKS.items():
            check(store.states[kind], model, "read", 1)


def test_reading_changes_nothing_and_writing_is_reported_per_key() -> None:
    store = Store()
    store.enter(0)
    for name, state in store.states.items():
        _CHECKS[name](state, {}, "read", 0)
        state.clear()
    assert not store.backend.changed()
    store.states["value"].update(1)
    store.states["map"]["a"] = 1
    store.enter(2)
    store.states["list"].add(1)
    assert changed_keys(store.backend) == {"value": {(None, 0)}, "map": {(None, 0)}, "list": {(None, 2)}}


def test_a_map_can_be_changed_while_it_is_iterated() -> None:
    store = Store()
    store.enter(0)
    state = store.states["map"]
    state.put_all({1: "a", 2: "b", 3: "c"})
    for key in state:
        del state[key]
    for key, _ in state.items():
        state[key + 1] = "d"
    assert state.is_empty()


def test_the_internal_state_of_a_map_is_the_map_as_in_pyflink() -> None:
    store = Store()
    descriptor = MapStateDescriptor("expiring", ANY, ANY)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    for key, state in enumerate([store.states["map"], store.backend.partitioned_state(descriptor)]):
        store.enter(key)
        state.get_internal_state().put("a", 1)
        assert dict(state.items()) == dict(state.get_internal_state().items()) == {"a": 1}


class Plain:
    def __init__(self, n: Any) -> None:
        self.n = n


@dataclass(slots=True)
class Slots:
    n: Any


class Pair(NamedTuple):
    name: str
    rest: list[Any]


def appended(value: Any) -> None:
    value.append(2)


#: values that can change, and changes in them, some of which Python's `==` does not see
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1], appended),
    "list, an element": (lambda: [1, 2], lambda v: v.__setitem__(0, True)),
    "dict": (lambda: {"a": 1}, lambda v: v.update(b=2)),
    "dict, a value": (lambda: {"a": 0.0, "b": 1}, lambda v: v.update(a=-0.0)),
    "dict, its order": (lambda: {"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a"))),
    "set": (lambda: {1}, lambda v: v.add(2)),
    "Row": (lambda: Row(a=1), lambda v: v.__setitem__(0, 2)),
    "Row, its kind": (lambda: Row(1), lambda v: v.set_row_kind(RowKind.DELETE)),
    "instance": (lambda: Plain(1), lambda v: setattr(v, "n", 2)),
    "instance, deep": (lambda: Plain({"a": [Plain([1])]}), lambda v: v.n["a"][0].n.append(2)),
    "slots": (lambda: Slots([1]), lambda v: v.n.append(2)),
    "named tuple": (lambda: Pair("a", [1]), lambda v: v.rest.append(2)),
    "nested": (lambda: ("a", {"b": [{"c": [1]}]}), lambda v: v[1]["b"][0]["c"].append(2)),
    "default dict": (lambda: defaultdict(list, a=[1]), lambda v: v["b"].append(2)),
    "counter": (lambda: Counter("aab"), lambda v: v.update("b")),
    "ordered dict": (lambda: OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
    "deque": (lambda: deque([1], maxlen=3), appended),
    "bytearray": (lambda: bytearray(b"a"), lambda v: v.extend(b"b")),
    "array": (lambda: np.arange(3), lambda v: v.__setitem__(0, 7)),
}

#: ways to a value in state: what puts it there, and what reads it
WAYS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "value": (lambda s, v: s["value"].update(v), lambda s: s["value"].value()),
    "list": (lambda s, v: s["list"].add(v), lambda s: s["list"].get()[0]),
    "list, iterated": (lambda s, v: s["list"].update([v, 1]), lambda s: next(iter(s["list"]))),
    "map": (lambda s, v: s["map"].put("k", v), lambda s: s["map"].get("k")),
    "map, items": (lambda s, v: s["map"].put_all({"k": v}), lambda s: next(iter(s["map"].items()))[1]),
    "map, values": (lambda s, v: s["map"].put_all([("k", v)]), lambda s: next(iter(s["map"].values()))),
    "reducing": (lambda s, v: s["reducing"].add(v), lambda s: s["reducing"].get()),
    "aggregating": (lambda s, v: s["accumulator"].add(v), lambda s: s["accumulator"].get()),
    "value, expiring": (lambda s, v: s["ttl value"].update(v), lambda s: s["ttl value"].value()),
    "list, expiring": (lambda s, v: s["ttl list"].add(v), lambda s: s["ttl list"].get()[0]),
    "map, expiring": (lambda s, v: s["ttl map"].put("k", v), lambda s: s["ttl map"].get("k")),
}


class InPlace(Store):
    """A store with expiring states, too."""

    def _make(self) -> None:
        super()._make()
        for kind, descriptor in (
            ("value", ValueStateDescriptor("ttl value", ANY)),
            ("list", ListStateDescriptor("ttl list", ANY)),
            ("map", MapStateDescriptor("ttl map", ANY, ANY)),
        ):
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
            self.states["ttl " + kind] = self.backend.partitioned_state(descriptor)
        # the accumulator is the one value that was added, and the result is the accumulator
        only = Aggregate(lambda: None, lambda a, value: value, lambda a, b: a)
        self.states["accumulator"] = self.backend.partitioned_state(AggregatingStateDescriptor("only", only, ANY))


def shown(value: Any) -> Any:
    """What tells values apart of which Python says that they are equal."""
    return pickle.dumps(copy.deepcopy(value), 4)


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_is_changed_in_place_is_changed_in_the_state_until_the_call_ends(way: str) -> None:
    hold(lambda change: check_change(way, change), ((change,) for change in CHANGES))


def check_change(way: str, change: str) -> None:
    (make, alter), (put, read) = CHANGES[change], WAYS[way]
    expected = make()
    with tempfile.TemporaryDirectory() as folder:
        for directory in (None, StateDirectory(folder)):
            store, expected = InPlace(directory), make()
            store.enter(0)
            value = make()
            put(store.states, value)
            if way != "aggregating":
                alter(value)
                alter(expected)
                assert shown(read(store.states)) == shown(expected), "in the same call"
            for forget in (False, True, True):
                store.enter(1)
                store.enter(0)
                kept = read(store.states)
                assert shown(kept) == shown(expected), "in a later call"
                alter(kept)
                alter(expected)
                assert read(store.states) is kept or way == "reducing"
                store.enter(1)
                alter(kept)
                store.barrier(forget)
            store.enter(0)
            assert shown(read(store.states)) == shown(expected), "after the barrier"


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_is_only_read_is_not_written(way: str) -> None:
    put, read = WAYS[way]
    for make, _ in CHANGES.values():
        store = InPlace()
        store.enter(0)
        put(store.states, make())
        store.barrier(forget=False)
        for _ in range(2):
            store.enter(0)
            read(store.states)
        assert not store.backend.changed()


def test_explicit_writes_count_more_than_what_was_changed_in_place() -> None:
    store = Store()
    store.enter(0)
    value, entries, elements = store.states["value"], store.states["map"], store.states["list"]
    value.update([1])
    entries.put_all({"a": [1], "b": [1]})
    elements.update([[1], [2]])
    store.enter(0)
    for read in (value.value(), entries.get("a"), entries.get("b"), *elements.get()):
        read.append("lost")
    value.update([2])
    entries.put("a", [2])
    entries.remove("b")
    elements.update([[3]])
    store.enter(0)
    assert (value.value(), dict(entries.items()), elements.get()) == ([2], {"a": [2]}, [[3]])
    value.value().append("lost")
    value.clear()
    store.enter(0)
    assert value.value() is None


def test_an_object_in_two_states_is_two_objects_when_the_call_has_ended() -> None:
    store = Store()
    store.enter(0)
    one: list[Any] = []
    store.states["value"].update(one)
    store.states["map"].put("k", one)
    one.append(1)
    store.enter(0)
    store.states["value"].value().append(2)
    store.enter(0)
    assert (store.states["value"].value(), store.states["map"].get("k")) == ([1, 2], [1])


def test_a_change_after_the_call_is_not_in_the_state_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.enter(0)
    kept: list[Any] = [1]
    store.states["value"].update(kept)
    for key in (1, 0, 1):
        store.enter(key)
        kept.append(key)
        store.barrier(forget=False)
    store.enter(0)
    assert store.states["value"].value() == [1]
    assert [record.getMessage() for record in caplog.records] == [
        "operator 'tested': an object that was read from state 'value', or put into it, was changed after the call for "
        "its key had ended, and the state does not have the change: call update() or put() with it"
    ]


def test_an_object_that_is_kept_and_given_back_is_no_reason_for_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    kept: list[Any] = []
    for key in range(3):
        store.enter(key)
        kept.append(key)
        store.states["value"].update(kept)
        store.barrier(forget=False)
    assert (store.states["value"].value(), caplog.records) == ([0, 1, 2], [])


@pytest.mark.parametrize("pairs", [[("a", 1)], {"a": 1}, iter([("a", 1)]), {"a": 1}.items()])
def test_put_all_takes_pairs_as_well_as_a_dict(pairs: Any) -> None:
    store = InPlace()
    store.enter(0)
    store.states["map"].put_all(pairs)
    assert dict(store.states["map"].items()) == {"a": 1}
    store.states["ttl map"].put_all([("a", 1)])
    assert dict(store.states["ttl map"].items()) == {"a": 1}


def test_whole_numbers_under_a_text_are_the_text_of_the_number() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.current_key = "k"
    expiring = MapStateDescriptor("t", Types.STRING(), Types.STRING())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    for descriptor in (MapStateDescriptor("m", Types.STRING(), Types.STRING()), expiring):
        entries: Any = backend.partitioned_state(descriptor)
        entries.put(1, 2)
        entries.put_all({3: 4})
        assert (dict(entries.items()), entries.get(1), entries[3], 1 in entries) == (
            {"1": "2", "3": "4"},
            "2",
            "4",
            True,
        )
        entries.remove(1)
        assert list(entries) == ["3"]
    value: Any = backend.partitioned_state(ValueStateDescriptor("v", Types.STRING()))
    values: Any = backend.partitioned_state(ListStateDescriptor("l", Types.STRING()))
    value.update(5)
    values.add_all(["a", 6])
    assert (value.value(), values.get()) == ("5", ["a", "6"])
    for wrong in (True, 1.5, [1]):
        with pytest.raises(TypeMismatchError):
            value.update(wrong)


@pytest.mark.parametrize("declared", [Types.INT(), ANY])
@pytest.mark.parametrize("ttl", [False, True])
def test_a_value_state_that_is_updated_with_none_is_cleared(declared: TypeInformation, ttl: bool) -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.restore(None)
    backend.current_key = "k"
    descriptor = ValueStateDescriptor("n", declared)
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    state: Any = backend.partitioned_state(descriptor)
    state.update(None)
    for value in (7, None):
        state.update(value)
        assert state.value() == value
    assert list(stored_rows(backend.snapshot())) == []


def test_a_state_that_is_declared_again_with_another_type_is_refused() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    for descriptor in (ValueStateDescriptor("n", Types.INT()), ValueStateDescriptor("n", Types.INT())):
        backend.partitioned_state(descriptor)
    with pytest.raises(StateAccessError, match="state 'n'.*was Integer before, and is String now.*'counts'"):
        backend.partitioned_state(ValueStateDescriptor("n", Types.STRING()))


@pytest.mark.parametrize("name", ["__ttl__/count", "__timers__/user", "__watermark__"])
@pytest.mark.parametrize("ttl", [False, True])
def test_a_state_whose_name_would_be_read_as_one_of_the_engine_is_refused(name: str, ttl: bool) -> None:
    descriptor = ValueStateDescriptor(name, Types.LONG())
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(StateAccessError, match=f"the state name '{name}' is one of the engine's own"):
        KeyedStateBackend("operator 'counts'").partitioned_state(descriptor)


def test_state_outside_of_records_and_timers_is_refused() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    state: Any = backend.partitioned_state(DESCRIPTORS["value"])
    for _ in range(2):
        with pytest.raises(StateAccessError, match=r"state 'value' was used while no record is processed.*'counts'"):
            state.value()


def test_states_of_different_namespaces_are_apart_even_if_one_is_emptied() -> None:
    backend = KeyedStateBackend()
    backend.current_key = "k"
    one: Any = backend.partitioned_state(DESCRIPTORS["value"], "w1")
    two: Any = backend.partitioned_state(DESCRIPTORS["value"], "w2")
    one.update(1)
    two.update(2)
    backend.table("value", "value").remove_all("w1", ["k"])
    assert (one.value(), two.value()) == (None, 2)
    one.update(3)
    assert backend.table("value", "value").namespace("w1") == {"k": 3}


@pytest.mark.parametrize("not_a_function", [7, "add"])
def test_descriptors_refuse_what_is_no_function(not_a_function: Any) -> None:
    with pytest.raises(TypeError, match="must be a ReduceFunction or a callable"):
        ReducingStateDescriptor("s", not_a_function, ANY)
    with pytest.raises(TypeError, match="must be an AggregateFunction"):
        AggregatingStateDescriptor("s", not_a_function, ANY)


def test_values_of_basic_types_take_the_form_of_the_declared_type_or_are_refused() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.current_key = "k"
    value: Any = backend.partitioned_state(ValueStateDescriptor("v", Types.DOUBLE()))
    values: Any = backend.partitioned_state(ListStateDescriptor("l", Types.INT()))
    entries: Any = backend.partitioned_state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    value.update(3)
    values.update([True, 2])
    values.add(False)
    values.add_all([5])
    entries.put("a", True)
    entries.put_all({"b": 2, "c": None})
    assert (repr(value.value()), repr(values.get())) == ("3.0", "[1, 2, 0, 5]")
    assert repr(list(entries.items())) == "[('a', 1), ('b', 2), ('c', None)]"
    for wrong in (
        lambda: value.update("three"),
        lambda: values.add("three"),
        lambda: values.add(None),
        lambda: values.add_all([1, 2.5]),
        lambda: values.update([None]),
        lambda: entries.put(3.5, 3),
        lambda: entries.put("d", "three"),
        lambda: entries.put_all({"d": 1.5}),
    ):
        with pytest.raises(TypeMismatchError, match="was given .*key 'k'.*expected a value of the declared type"):
            wrong()
    assert (value.value(), list(values.get()), sorted(entries.keys())) == (3.0, [1, 2, 0, 5], ["a", "b", "c"])


@pytest.mark.parametrize(
    ("key_type", "merged", "apart"),
    [
        (Types.INT(), 2**32 + 1, 2**31 - 1),
        (Types.BYTE(), 257, 127),
        (Types.LONG(), 2**64 + 1, 2**63 - 1),
        (Types.BOOLEAN(), 2, False),
        (Types.DOUBLE(), 2**53 + 1, 2**53),
        (Types.FLOAT(), None, 0.1),
        (DecimalTypeInfo(4, 2), None, Decimal("1.999")),
    ],
)
def test_keys_of_a_map_never_become_other_keys(key_type: TypeInformation, merged: Any, apart: Any) -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.current_key = "k"
    entries: Any = backend.partitioned_state(MapStateDescriptor("m", key_type, Types.STRING()))
    entries.put_all({1: "one", apart: "apart"})
    assert dict(entries.items()) == {1: "one", apart: "apart"}
    if merged is not None:
        for put in (lambda: entries.put(merged, "other"), lambda: entries.put_all({merged: "other"})):
            with pytest.raises(TypeMismatchError, match=rf"was given {merged} .*the declared type, {key_type!r}"):
                put()
    assert dict(entries.items()) == {1: "one", apart: "apart"}


def test_a_tuple_with_a_part_that_can_change_is_refused_by_a_type_without_such_parts() -> None:
    store = Store()
    declared = Types.TUPLE([Types.STRING(), Types.LONG()])
    state = store.backend.partitioned_state(ValueStateDescriptor("pair", declared))
    store.backend.current_key = "k"
    state.update(("a", 1))
    assert state.value() == ("a", 1)
    with pytest.raises(TypeMismatchError, match="state 'pair' was given"):
        state.update(("a", [1]))
    assert state.value() == ("a", 1)


def test_numbers_beyond_the_declared_type_are_narrowed_when_they_are_put_into_state() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.current_key = "k"
    value: Any = backend.partitioned_state(ValueStateDescriptor("v", Types.FLOAT()))
    values: Any = backend.partitioned_state(ListStateDescriptor("l", Types.SHORT()))
    entries: Any = backend.partitioned_state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    number: Any = backend.partitioned_state(ValueStateDescriptor("n", Types.INT()))
    value.update(0.1)
    number.update(9147483648)
    values.add(43878)
    values.add_all([1, -(2**15) - 1])
    entries.put("a", 2**63)
    entries.put_all({"b": None, "c": 2**63 - 1})
    assert (value.value(), number.value()) == (0.10000000149011612, 557549056)
    assert values.get() == [-21658, 1, 2**15 - 1]
    assert dict(entries.items()) == {"a": -(2**63), "b": None, "c": 2**63 - 1}


def test_a_reduced_value_is_converted_to_the_declared_type() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.current_key = "k"
    wrapped: Any = backend.partitioned_state(ReducingStateDescriptor("w", lambda a, b: a + b, Types.INT()))
    wrapped.add(2**31 - 1)
    wrapped.add(True)
    assert wrapped.get() == -(2**31)
    halved: Any = backend.partitioned_state(ReducingStateDescriptor("h", lambda a, b: (a + b) / 2, Types.LONG()))
    halved.add(4)
    for wrong in ("four", None, 3):
        with pytest.raises((TypeMismatchError, TypeError)):
            halved.add(wrong)
    assert halved.get() == 4


def test_an_object_that_a_reduction_passes_on_is_not_shared_with_the_state() -> None:
    backend = KeyedStateBackend()
    backend.current_key = "k"
    last: Any = backend.partitioned_state(ReducingStateDescriptor("last", lambda a, b: b, Types.PICKLED_BYTE_ARRAY()))
    for value in ([1], [2]):
        last.add(value)
        value.append(9)
    assert last.get() == [2]


def test_who_asks_for_a_state_again_gets_the_same_handle_and_windows_do_not_pile_up() -> None:
    backend = KeyedStateBackend()
    backend.current_key = "a"
    handles = HandleCache(backend)
    count, other = ValueStateDescriptor("count", Types.LONG()), ValueStateDescriptor("other", Types.LONG())
    handle = handles.state(count, (0, 10))
    assert handles.state(count, (0, 10)) is handle
    assert handles.state(other, (0, 10)) is not handle
    cast(Any, handle).update(1)
    made = []
    for start in range(3_000):
        of_window: Any = handles.state(count, (start, start + 10))
        of_window.value()
        made.append(weakref.ref(of_window))
    del of_window
    gc.collect()
    assert sum(found() is not None for found in made) <= 1_000
    assert cast(Any, handles.state(count, (0, 10))).value() == 1
    assert cast(Any, handles.state(count, (10, 20))).value() is None
