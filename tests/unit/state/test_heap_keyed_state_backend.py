"""The heap backend: lazy, honest about changes, strict about kinds."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.state import ListStateDescriptor, ValueStateDescriptor
from flinkish.core.time_domain import TimeDomain
from flinkish.errors import CorruptStateError, InternalError, StateAccessError
from flinkish.runtime.operator import EpochInfo
from flinkish.runtime.state.heap_keyed_state_backend import HeapKeyedStateBackend

ANY = Types.PICKLED_BYTE_ARRAY()


class Body:
    """A stored body that counts how often it is loaded."""

    def __init__(self, body: bytes | None) -> None:
        self.body = body
        self.loads = 0

    def __call__(self) -> bytes | None:
        self.loads += 1
        return self.body


def written() -> Body:
    backend = HeapKeyedStateBackend()
    backend.activate(0, lambda: None)
    backend.table("count", "value").namespace(None)["a"] = 1
    backend.table("count", "value").mark(None, "a")
    backend.timers("t").register(TimeDomain.EVENT_TIME, 70, "a")
    backend.timers("u").register(TimeDomain.EVENT_TIME, 50, "a")
    backend.timers("u").register(TimeDomain.PROCESSING_TIME, 90, "a")
    return Body(backend.snapshot())


def test_nothing_is_loaded_to_know_the_next_timer_or_whether_anything_changed() -> None:
    backend, body = HeapKeyedStateBackend(), written()
    backend.activate(3, body)
    backend.set_timer_hint(50, None)
    assert backend.next_timer_ms() == (50, None)
    assert not backend.changed() and backend.changed_keys() == {}
    assert body.loads == 0 and not backend.holds(3)


def test_without_a_hint_no_timer_is_missed() -> None:
    backend, body = HeapKeyedStateBackend(), written()
    backend.activate(3, body)
    backend.set_timer_hint(None, None)
    backend.activate(3, body)
    assert backend.next_timer_ms() == (50, 90)


def test_once_decoded_the_timers_themselves_are_asked_and_the_body_is_not_loaded_again() -> None:
    backend, body = HeapKeyedStateBackend(), written()
    backend.activate(3, body)
    backend.set_timer_hint(1, 2)
    assert backend.table("count", "value").namespace(None) == {"a": 1}
    assert backend.next_timer_ms() == (50, 90)
    backend.activate(4, Body(None))
    assert backend.next_timer_ms() == (None, None)
    backend.activate(3, body)
    assert backend.table("count", "value").namespace(None) == {"a": 1}
    assert body.loads == 1 and backend.holds(3)


def test_a_snapshot_of_an_untouched_key_group_is_its_body() -> None:
    backend, body = HeapKeyedStateBackend(), written()
    backend.activate(3, body)
    assert backend.snapshot() == body.body
    assert backend.table("count", "value").namespace(None) == {"a": 1}
    assert body.loads == 1


def test_a_snapshot_gives_the_same_bytes_as_long_as_nothing_changes() -> None:
    backend, body = HeapKeyedStateBackend(), written()
    backend.activate(3, body)
    backend.table("count", "value")
    assert backend.snapshot() == body.body


def test_a_key_group_that_became_empty_has_no_body() -> None:
    backend = HeapKeyedStateBackend()
    backend.activate(0, lambda: None)
    backend.table("s", "value").namespace("w")["k"] = 1
    backend.table("s", "value").remove("w", "k")
    assert backend.changed()
    assert backend.snapshot() is None
    assert list(backend.table("s", "value").namespaces()) == []


def test_a_forgotten_key_group_is_loaded_again_and_handles_follow() -> None:
    backend, body = HeapKeyedStateBackend(), written()
    state: Any = backend.partitioned_state(ValueStateDescriptor("count", ANY))
    backend.activate(3, body)
    backend.current_key = "a"
    state.update(99)
    backend.forget(3)
    assert not backend.holds(3)
    backend.activate(3, body)
    backend.current_key = "a"
    assert state.value() == 1
    assert body.loads == 2


def test_changes_of_timers_are_reported_under_a_name_of_their_own() -> None:
    backend = HeapKeyedStateBackend()
    backend.activate(0, lambda: None)
    backend.timers("t").register(TimeDomain.EVENT_TIME, 5, "k")
    backend.timers("u").register(TimeDomain.EVENT_TIME, 5, "l", "w")
    assert backend.changed()
    assert backend.changed_keys() == {"__timers__": {(None, "k"), ("w", "l")}}
    backend.snapshot()
    assert not backend.changed()


def test_a_state_name_has_one_kind_in_a_program() -> None:
    backend = HeapKeyedStateBackend("operator 'counts'")
    backend.partitioned_state(ValueStateDescriptor("s", ANY))
    with pytest.raises(StateAccessError, match="'s' is declared as list state, but it was declared as value state"):
        backend.partitioned_state(ListStateDescriptor("s", ANY))


def test_a_state_that_was_written_with_another_kind_is_refused() -> None:
    backend = HeapKeyedStateBackend("operator 'counts'")
    state: Any = backend.partitioned_state(ListStateDescriptor("count", ANY))
    backend.activate(0, written())
    backend.current_key = "a"
    with pytest.raises(StateAccessError, match=r"'count' is declared as list.*it was written as value.*'counts'"):
        state.get()


def test_a_corrupt_body_names_operator_key_group_and_epoch() -> None:
    backend = HeapKeyedStateBackend("operator 'counts'", EpochInfo(epoch=7))
    backend.activate(12, lambda: b"garbage")
    with pytest.raises(CorruptStateError, match="operator 'counts', key group 12, epoch 7"):
        backend.table("s", "value")
    assert not backend.holds(12)


def test_state_without_a_key_group_is_an_internal_error() -> None:
    with pytest.raises(InternalError):
        HeapKeyedStateBackend().table("s", "value")
