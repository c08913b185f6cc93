"""Bodies survive being encoded, and being taken apart into rows and put together again."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.types import Row
from flinkish.core.time_domain import TimeDomain
from flinkish.errors import CorruptStateError, IncompatibleJobError, TypeMismatchError
from flinkish.runtime.list_keys import frozen
from flinkish.runtime.state.body_codec import StateRow, body_from_rows, decode_body, encode_body, rows
from flinkish.runtime.state.key_texts import key_texts
from flinkish.runtime.state.savepoint_rows import from_savepoint_row, to_savepoint_row
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.timer_queue import TimerQueue

_keys = st.one_of(st.integers(), st.text(max_size=3), st.tuples(st.integers(), st.text(max_size=2)))
_namespaces = st.sampled_from([None, (0, 1000), (1000, 2000), "w"])
_scalars = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.builds(Row, st.integers()))
_contents = {
    "value": _scalars,
    "reducing": _scalars,
    "aggregating": st.tuples(st.integers(), st.integers()),
    "list": st.lists(_scalars, max_size=3),
    "map": st.dictionaries(_keys, _scalars, min_size=1, max_size=3),
}


@st.composite
def _tables(draw: st.DrawFn) -> dict[str, StateTable]:
    tables = {}
    for name in draw(st.sets(st.sampled_from(["s1", "s2", "__ttl__/s1"]))):
        kind = draw(st.sampled_from(sorted(_contents)))
        table = tables[name] = StateTable(name, kind)
        for namespace in draw(st.sets(_namespaces)):
            table.namespace(namespace).update(draw(st.dictionaries(_keys, _contents[kind], max_size=4)))
    return tables


@st.composite
def _queues(draw: st.DrawFn) -> dict[str, TimerQueue]:
    queues = {}
    for service in draw(st.sets(st.sampled_from(["user-timers", "window-timers"]))):
        queue = queues[service] = TimerQueue()
        timers = st.tuples(st.sampled_from(TimeDomain), st.integers(-5, 5), _keys, _namespaces)
        for timer in draw(st.lists(timers, max_size=8)):
            queue.register(*timer)
    return queues


def _content(tables: dict[str, StateTable], queues: dict[str, TimerQueue]) -> Any:
    states = {name: (table.kind, dict(table.items())) for name, table in tables.items()}
    runs = {name: {domain: queue.runs(domain) for domain in TimeDomain} for name, queue in queues.items()}
    return (
        {name: state for name, state in states.items() if state[1]},
        {name: run for name, run in runs.items() if any(run.values())},
    )


@settings(max_examples=100, deadline=None)
@given(_tables(), _queues())
def test_a_body_gives_back_what_was_encoded_and_so_do_its_rows(
    tables: dict[str, StateTable], queues: dict[str, TimerQueue]
) -> None:
    body = encode_body(tables, queues)
    assert (body is None) == (_content(tables, queues) == ({}, {}))
    assert _content(*decode_body(body)) == _content(tables, queues)
    again = body_from_rows(rows(body))
    assert _content(*decode_body(again)) == _content(tables, queues)
    assert list(rows(again)) == list(rows(body))


def test_rows_are_one_per_value_list_map_entry_and_timer() -> None:
    count, seen, words = StateTable("count", "value"), StateTable("seen", "list"), StateTable("words", "map")
    count.namespace(None)["k"] = 3
    seen.namespace("w")["k"] = [1, 2]
    words.namespace(None)["k"] = {"a": 1, "b": 2}
    queue = TimerQueue()
    queue.register(TimeDomain.EVENT_TIME, 17, "k")
    queue.register(TimeDomain.PROCESSING_TIME, 18, "k", "w")
    body = encode_body({"count": count, "seen": seen, "words": words}, {"t": queue})
    assert list(rows(body)) == [
        StateRow("count", "value", None, "k", 3),
        StateRow("seen", "list", "w", "k", [1, 2]),
        StateRow("words", "map", None, "k", ("a", 1)),
        StateRow("words", "map", None, "k", ("b", 2)),
        StateRow("__timers__/t", "EVENT_TIME", None, "k", 17),
        StateRow("__timers__/t", "PROCESSING_TIME", "w", "k", 18),
    ]


def test_nothing_is_no_body() -> None:
    empty = StateTable("s", "value")
    empty.namespace("w")
    assert encode_body({"s": empty}, {"t": TimerQueue()}) is None
    assert decode_body(None) == ({}, {})
    assert body_from_rows([]) is None
    assert list(rows(None)) == []


@pytest.mark.parametrize("body", [b"garbage", b"\x80\x05", b"\xf1\x02", b"\xf1\x02\x80\x05.", b"\xf1\x02\x80\x05\x95"])
def test_bytes_that_are_no_body_are_corrupt_state_and_say_where(body: bytes) -> None:
    with pytest.raises(CorruptStateError, match="cannot be decoded.*uid 'counts', key group 3"):
        decode_body(body, "uid 'counts', key group 3")


def test_a_cut_body_is_corrupt_state() -> None:
    table = StateTable("s", "value")
    table.namespace(None).update({n: str(n) for n in range(1000)})
    body = encode_body({"s": table}, {})
    assert body is not None
    for length in (1, 100, len(body) - 1):
        with pytest.raises(CorruptStateError):
            decode_body(body[:length])


def test_a_body_of_another_format_version_is_refused() -> None:
    with pytest.raises(IncompatibleJobError, match=r"format version 99 .*expected format version 2; start in a new"):
        decode_body(b"\xf1\x63" + pickle.dumps(({}, {})), "uid 'u'")


def test_a_body_that_may_hold_pickled_code_is_refused_for_its_version() -> None:
    with pytest.raises(IncompatibleJobError, match="before version 2, which may hold code.*from a savepoint"):
        decode_body(pickle.dumps((1, {}, {})))


def test_a_value_that_cannot_be_pickled_is_named_with_its_state_and_key() -> None:
    table = StateTable("conn", "value")
    table.namespace(None).update(fine=1, bad=threading.Lock())
    with pytest.raises(TypeMismatchError, match=r"state 'conn' of key 'bad' holds a lock.*uid 'u'"):
        encode_body({"conn": table}, {}, "uid 'u'")


def test_rows_that_contradict_each_other_are_refused() -> None:
    row = StateRow("s", "value", None, "k", 1)
    with pytest.raises(CorruptStateError, match="two rows for namespace None, key 'k'"):
        body_from_rows([row, row])
    with pytest.raises(CorruptStateError, match="rows of kind value and of kind list"):
        body_from_rows([row, row._replace(kind="list", key="other", value=[1])])


def test_a_key_that_is_a_list_is_one_in_a_body_and_in_a_savepoint() -> None:
    for key, text in (([5, ["a"]], '[5, ["a"]]'), (("a", [5]), '{"$tuple": ["a", [5]]}')):
        table, queue = StateTable("count", "value"), TimerQueue()
        table.namespace(None)[frozen(key)] = 3
        queue.register(TimeDomain.EVENT_TIME, 7, frozen(key))
        body = encode_body({"count": table}, {"timers": queue})
        tables, timers = decode_body(body)
        assert tables["count"].namespace(None)[frozen(key)] == 3
        assert not timers["timers"].register(TimeDomain.EVENT_TIME, 7, frozen(key))
        saved = [to_savepoint_row("counts", row) for row in rows(body)]
        assert {row.key for row in saved} == {text} == set(key_texts(frozen(key)) or [])
        assert body_from_rows(from_savepoint_row(row)[1] for row in saved) == body
