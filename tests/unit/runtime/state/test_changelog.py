"""The changes of epochs, applied one after the other, give the rows of the last one."""

from __future__ import annotations

import operator
import tempfile
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Time
from flinkish.common.typeinfo import Types
from flinkish.core.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.core.time import TimeDomain
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.changelog import (
    Change,
    apply_changes,
    decode_changes,
    encode_changes,
    key_texts,
    operator_changes,
)
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.columns import stored_rows as rows
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.stored.texts import to_text
from tests.support.any_values import HALVES, LONG_INTEGERS
from tests.support.functions import Aggregate
from tests.support.profiles import examples

ANY = Types.PICKLED_BYTE_ARRAY()
KINDS = ("value", "list", "map", "reducing", "aggregating")


def descriptor(kind: str, ttl: bool) -> StateDescriptor:
    name = f"{kind}{' that expires' if ttl else ''}"
    made: dict[str, StateDescriptor] = {
        "value": ValueStateDescriptor(name, ANY),
        "list": ListStateDescriptor(name, ANY),
        "map": MapStateDescriptor(name, ANY, ANY),
        "reducing": ReducingStateDescriptor(name, max, ANY),
        "aggregating": AggregatingStateDescriptor(name, Aggregate(int, operator.add, operator.add), ANY),
    }
    if ttl:
        made[kind].enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(25)).build())
    return made[kind]


_places = st.tuples(st.sampled_from(KINDS), st.booleans(), st.sampled_from([None, (0, 10)]), st.sampled_from("abc"))
_actions = st.one_of(
    st.tuples(st.just("write"), _places, st.integers(0, 3)),
    st.tuples(st.just("read"), _places),
    st.tuples(st.just("remove"), _places, st.integers(0, 3)),
    st.tuples(st.just("clear"), _places),
    st.tuples(st.just("drop"), st.sampled_from(KINDS), st.sampled_from([None, (0, 10)])),
    st.tuples(st.just("register"), st.sampled_from(TimeDomain), st.integers(0, 5), st.sampled_from("abc")),
    st.tuples(st.just("register_all"), st.sampled_from(TimeDomain), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.sampled_from(TimeDomain), st.integers(0, 5), st.sampled_from("abc")),
    st.tuples(st.just("fire"), st.sampled_from(TimeDomain), st.integers(0, 5)),
)


class Epochs:
    """A key group at work."""

    def __init__(self, directory: StateDirectory | None = None) -> None:
        self.epoch = EpochInfo()
        self.backend = KeyedStateBackend(
            "test", self.epoch, directory=directory, inline_bytes=150, recording=True, uid="op"
        )
        self.backend.restore(None)

    def act(self, action: tuple[Any, ...]) -> None:
        what, *args = action
        if what in ("write", "read", "remove", "clear"):
            (kind, ttl, namespace, key), *values = args
            self.backend.current_key = key
            state: Any = self.backend.partitioned_state(descriptor(kind, ttl), namespace)
            getattr(self, what)(kind, state, *values)
        elif what == "drop":
            kind, namespace = args
            table = self.backend.table(kind, kind)
            table.remove_all(namespace, list(table.existing(namespace) or ()))
        else:
            timers = self.backend.timers("timers")
            domain, timestamp_ms, *keys = args
            if what == "fire":
                list(timers.pop_due(domain, timestamp_ms))
            elif what == "register_all":
                timers.register_all(domain, timestamp_ms, "abca", (0, 10))
            else:
                getattr(timers, what)(domain, timestamp_ms, *keys)

    def write(self, kind: str, state: Any, value: int) -> None:
        if kind == "value":
            state.update(value)
        elif kind == "map":
            state.put(value, value)
        else:
            state.add(value)

    def read(self, kind: str, state: Any) -> None:
        _ = state.value() if kind == "value" else list(state.items()) if kind == "map" else state.get()

    def remove(self, kind: str, state: Any, value: int) -> None:
        if kind == "map":
            state.remove(value)
        elif kind == "list":
            state.update([value] if value else [])

    def clear(self, kind: str, state: Any) -> None:
        state.clear()


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.lists(_actions, max_size=12)), max_size=6), st.booleans()
)
def test_the_changes_of_all_epochs_give_the_rows_of_the_last(
    epochs: list[tuple[int, bool, list[Any]]], in_files: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _check_changes(StateDirectory(folder) if in_files else None, epochs)


def _check_changes(directory: StateDirectory | None, epochs: list[tuple[int, bool, list[Any]]]) -> None:
    group = Epochs(directory)
    table: dict[tuple[Any, ...], tuple[StateRow, ...]] = {}
    body = None
    for number, (elapsed_ms, reloaded, actions) in enumerate(epochs):
        group.epoch.processing_time_ms += elapsed_ms
        group.epoch.epoch = number
        for action in actions:
            group.act(action)
        if group.backend.changed():
            body = group.backend.snapshot()
            data = encode_changes(number, group.backend.take_changes())
            epoch, changes = decode_changes(data)
            assert epoch == number
            apply_changes(table, changes)
            apply_changes(table, changes)
        assert Counter(map(repr, rows(body, directory))) == Counter(
            repr(row) for entry in table.values() for row in entry
        )
        group.backend.release()
        if reloaded:
            group.backend.restore(body)


def test_a_change_of_one_entry_of_a_map_leaves_the_others_and_one_of_the_map_leaves_none() -> None:
    def change(*pairs: tuple[Any, Any], of: tuple[Any, ...] = ()) -> Change:
        return Change("op", "m", "map", None, "k", None, pairs, of)

    table: dict[tuple[Any, ...], tuple[StateRow, ...]] = {}
    seen = []
    for changed in (
        change(("a", 1), ("b", 2)),
        change(("b", 3), of=("b",)),
        change(of=("a",)),
        change((1, 4), of=(1,)),
        change((True, 5), of=(True,)),
        change(("c", 6)),
        change(of=("c",)),
    ):
        apply_changes(table, decode_changes(encode_changes(0, [changed]))[1])
        seen.append(dict(row.value for rows_of_key in table.values() for row in rows_of_key))
    assert seen == [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}, {"b": 3, 1: 4}, {"b": 3, True: 5}, {"c": 6}, {}]


def test_the_changes_of_operator_state_are_the_names_that_were_put_or_removed() -> None:
    state = OperatorState()
    state.restore({"operator": {"kept": 1, "gone": 2, "was None": None, "list": [1]}})
    state.put("new", 3)
    for name in ("gone", "was None", "never there"):
        state.remove(name)
    changes = {change.state: change.values for change in operator_changes("op", 7, 8, state)}
    assert changes == {"new": (3,), "gone": (), "was None": ()}
    state.snapshot()
    assert not list(operator_changes("op", 7, 8, state))


_keys = st.recursive(
    st.integers(-2, 3)
    | LONG_INTEGERS
    | HALVES
    | st.booleans()
    | st.none()
    | st.text(max_size=1)
    | st.binary(max_size=1)
    | st.floats(0, 2),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@settings(max_examples=examples(75))
@given(_keys, _keys)
def test_equal_keys_have_the_same_texts_or_none_that_can_be_told(one: Any, other: Any) -> None:
    texts = key_texts(one)
    if texts is not None:
        assert to_text(one) in texts
        other_texts = key_texts(other)
        if other_texts is not None:
            assert (one == other) == bool(set(texts) & set(other_texts))
