"""Keyed state of a subtask: lazy, honest about changes, strict about kinds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.core.state import ListStateDescriptor, ValueStateDescriptor
from flinkish.core.time import TimeDomain
from flinkish.errors import CorruptStateError, StateAccessError
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import OpenFiles, StateDirectory
from flinkish.runtime.state.files.references import FileSet, delete_unneeded
from flinkish.runtime.state.limits import ManagedMemory
from tests.support.changed_keys import changed_keys
from tests.support.profiles import examples

ANY = Types.PICKLED_BYTE_ARRAY()


def in_files(folder: Path, **options: Any) -> KeyedStateBackend:
    """A backend all of whose state goes to files."""
    return KeyedStateBackend("t", directory=StateDirectory(str(folder)), **{"inline_bytes": 0, **options})


def with_numbers(folder: Path) -> bytes | None:
    """A body of 80 values in files."""
    backend = in_files(folder)
    backend.table("s", "value").namespace(None).update((number, number) for number in range(80))
    backend.table("s", "value").mark_all(None, range(80))
    return backend.snapshot()


def written() -> bytes | None:
    backend = KeyedStateBackend()
    backend.table("count", "value").namespace(None)["a"] = 1
    backend.table("count", "value").mark(None, "a")
    backend.timers("t").register(TimeDomain.EVENT_TIME, 70, "a")
    backend.timers("u").register(TimeDomain.EVENT_TIME, 50, "a")
    backend.timers("u").register(TimeDomain.PROCESSING_TIME, 90, "a")
    return backend.snapshot()


def test_timers_of_all_services_are_due_one_day() -> None:
    backend = KeyedStateBackend()
    backend.restore(written())
    assert backend.table("count", "value").namespace(None) == {"a": 1}
    assert backend.may_be_due(TimeDomain.EVENT_TIME, 50) and backend.may_be_due(TimeDomain.PROCESSING_TIME, 90)
    assert list(backend.due("u", TimeDomain.EVENT_TIME, 60)) == [(50, "a", None)]
    assert list(backend.due("t", TimeDomain.EVENT_TIME, 70)) == [(70, "a", None)]
    assert not backend.may_be_due(TimeDomain.EVENT_TIME, 1_000)


def test_a_snapshot_gives_the_same_bytes_as_long_as_nothing_changes() -> None:
    backend, body = KeyedStateBackend(), written()
    backend.restore(body)
    assert backend.snapshot() == body
    backend.table("count", "value")
    assert backend.snapshot() == body


def test_state_that_became_empty_has_no_body() -> None:
    backend = KeyedStateBackend()
    backend.table("s", "value").namespace("w")["k"] = 1
    assert backend.snapshot() is not None
    backend.table("s", "value").remove("w", "k")
    assert backend.changed()
    assert backend.snapshot() is None
    assert list(backend.table("s", "value").items()) == []


def test_restoring_takes_the_place_of_what_was_there_and_handles_follow() -> None:
    backend = KeyedStateBackend()
    state: Any = backend.partitioned_state(ValueStateDescriptor("count", ANY))
    for _ in range(2):
        backend.restore(written())
        backend.current_key = "a"
        assert state.value() == 1
        state.update(99)


def test_changes_of_timers_are_reported_by_service_if_they_are_asked_for() -> None:
    backend = KeyedStateBackend(recording=True)
    backend.timers("t").register(TimeDomain.EVENT_TIME, 5, "k")
    backend.timers("u").register(TimeDomain.EVENT_TIME, 5, "l", "w")
    assert backend.changed()
    assert changed_keys(backend, "t", "u") == {"t": {(None, "k")}, "u": {("w", "l")}}
    backend.snapshot()
    assert not backend.changed()


def test_a_state_name_has_one_kind_in_a_program() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    backend.partitioned_state(ValueStateDescriptor("s", ANY))
    with pytest.raises(StateAccessError, match="'s' is declared as list state, but it was declared as value state"):
        backend.partitioned_state(ListStateDescriptor("s", ANY))


def test_a_state_that_was_written_with_another_kind_is_refused() -> None:
    backend = KeyedStateBackend("operator 'counts'")
    state: Any = backend.partitioned_state(ListStateDescriptor("count", ANY))
    backend.restore(written())
    backend.current_key = "a"
    with pytest.raises(StateAccessError, match=r"'count' is declared as list.*it was written as value.*'counts'"):
        state.get()


def test_a_corrupt_body_names_operator_and_epoch() -> None:
    backend = KeyedStateBackend("operator 'counts'", EpochInfo(epoch=7))
    with pytest.raises(CorruptStateError, match="operator 'counts', epoch 7"):
        backend.restore(b"garbage")


def test_state_of_which_much_is_looked_up_is_read_as_a_whole_and_what_is_newer_stays(tmp_path: Path) -> None:
    written = in_files(tmp_path)
    values = written.table("s", "value").namespace(None)
    values.update((f"k{number}", number) for number in range(80))
    written.table("s", "value").mark_all(None, list(values))
    body = written.snapshot()

    restored = in_files(tmp_path)
    restored.restore(body)
    table = restored.table("s", "value")
    table.fetch(None, ["k0", "k1"])
    assert len(table.namespace(None)) == 2
    table.namespace(None)["k0"] = "newer"
    table.mark(None, "k0")
    table.remove(None, "k1")
    table.fetch(None, [f"k{number}" for number in range(2, 20)])
    assert table.namespace(None) == {"k0": "newer"} | {f"k{number}": number for number in range(2, 80)}

    # everything is in memory now: what lies in files is not looked at any more
    restored.stored.files = FileSet()
    assert table.fetch(None, ["k79", "never there"]) is None
    assert "never there" not in table.namespace(None)


def test_state_that_is_too_large_for_memory_is_not_read_as_a_whole(tmp_path: Path) -> None:
    body = with_numbers(tmp_path)
    restored = in_files(tmp_path, memory=ManagedMemory(10_000))
    restored.restore(body)
    restored.table("s", "value").fetch(None, list(range(40)))
    assert len(restored.table("s", "value").namespace(None)) == 40


@pytest.mark.parametrize("by_timers", [False, True])
def test_memory_stays_bounded_however_few_keys_each_step_has(by_timers: bool, tmp_path: Path) -> None:
    keys, step = 3_000, 13
    backend = in_files(tmp_path, memory=ManagedMemory(1))
    values = backend.table("s", "value")
    values.namespace(None).update((key, key) for key in range(keys))
    values.mark_all(None, range(keys))
    for key in range(keys):
        backend.timers("t").register(TimeDomain.EVENT_TIME, key, key)
    backend.snapshot()
    backend.make_room()
    assert not values.namespace(None)
    most = 0
    for begin in range(0, keys, step):
        of_step = range(begin, min(begin + step, keys))
        if by_timers:
            fired = backend.due("t", TimeDomain.EVENT_TIME, of_step[-1])
            assert [values.namespace(None)[key] for _, key, _ in fired] == list(of_step)
        else:
            backend.prefetch(of_step)
            assert [values.namespace(None)[key] for key in of_step] == list(of_step)
        most = max(most, len(values.namespace(None)))
    assert 10 * step < most < 1_100, "not counted at each step, but at each thousand keys"


def test_state_is_read_as_a_whole_only_into_memory_that_is_free(tmp_path: Path) -> None:
    bodies = [with_numbers(tmp_path / str(number)) for number in (1, 2)]
    # half of it is enough for one of them, but then not for the other one
    memory = ManagedMemory(2 * 80 * 400)
    whole = []
    for number, body in zip((1, 2), bodies):
        restored = in_files(tmp_path / str(number), memory=memory)
        restored.restore(body)
        restored.prefetch(range(40))
        restored.table("s", "value").fetch(None, range(40))
        whole.append(restored.in_memory)
    assert whole == [True, False]


def test_beside_files_changes_of_a_quarter_of_what_may_be_inline_go_to_a_file(tmp_path: Path) -> None:
    backend = in_files(tmp_path, inline_bytes=40_000)
    values = backend.table("count", "value")

    def epoch(keys: range) -> int:
        """The number of files behind an epoch in which these keys change."""
        backend.epoch.epoch += 1
        backend.prefetch(keys)
        values.namespace(None).update(dict.fromkeys(keys, backend.epoch.epoch))
        values.mark_all(None, keys)
        body = backend.snapshot()
        restored = in_files(tmp_path, inline_bytes=40_000)
        restored.restore(body)
        found = restored.table("count", "value")
        restored.prefetch(range(10_000))
        assert found.namespace(None) == values.namespace(None)
        return len(backend.file_names())

    assert epoch(range(2_000)) == 0, "all of it is less than may be inline"
    assert epoch(range(10_000)) == 1
    assert epoch(range(100)) == 1, "a few changes stay beside the file"
    assert epoch(range(100, 3_000)) == 2


def test_a_worker_lets_go_of_the_files_that_another_one_has_replaced_meanwhile(tmp_path: Path) -> None:
    open_files, seen = [OpenFiles(), OpenFiles()], set[str]()
    body = None
    for epoch in range(1, 40):
        of_worker = open_files[epoch // 6 % 2]
        directory = StateDirectory(str(tmp_path), open_files=of_worker)
        backend = KeyedStateBackend(directory=directory, inline_bytes=0, epoch=EpochInfo())
        backend.epoch.epoch = epoch
        backend.restore(body)
        delete_unneeded(directory, [backend], epoch - 1, 2)
        keys = [f"{epoch}-{number}" for number in range(200)] + [f"1-{number}" for number in range(200)]
        backend.prefetch(keys)
        table = backend.table("s", "value")
        table.namespace(None).update(dict.fromkeys(keys, epoch))
        table.mark_all(None, keys)
        body = backend.snapshot()
        seen |= backend.file_names()
        here = {name for name in seen if of_worker.get(directory.path_of(name)) is not None}
        here |= {os.path.basename(path) for path in of_worker.verified}
        assert here and here <= backend.file_names()


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["w1", "w2"]), st.sets(st.sampled_from("abc"), min_size=1)),
        st.tuples(st.just("end"), st.sampled_from(["w1", "w2"])),
        st.tuples(st.sampled_from(["barrier", "restart", "room"])),
    ),
    max_size=25,
)


@settings(max_examples=examples(75), deadline=None)
@given(steps=_steps, inline_bytes=st.sampled_from([0, 1 << 20]))
def test_namespaces_that_end_are_gone_whatever_lies_in_files(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], inline_bytes: int
) -> None:
    directory = str(tmp_path_factory.mktemp("state"))

    def new(body: bytes | None) -> KeyedStateBackend:
        backend = KeyedStateBackend(directory=StateDirectory(directory), inline_bytes=inline_bytes)
        backend.restore(body)
        return backend

    backend, model, body = new(None), {"w1": {}, "w2": {}}, None
    value = 0
    for step in steps:
        table = backend.table("s", "aggregating")
        if step[0] == "put":
            value += 1
            backend.prefetch(step[2], step[1])
            table.namespace(step[1]).update(dict.fromkeys(step[2], value))
            table.mark_grown(step[1], step[2])
            model[step[1]].update(dict.fromkeys(step[2], value))
        elif step[0] == "end":
            keys = sorted(model[step[1]])
            backend.prefetch(keys, step[1])
            table.remove_all(step[1], keys)
            model[step[1]].clear()
        elif step[0] == "room":
            backend.spill()
        else:
            backend.epoch.epoch += 1
            if backend.changed():
                body = backend.snapshot()
            if step[0] == "restart":
                epoch, backend = backend.epoch.epoch, new(body)
                backend.epoch.epoch = epoch
        table = backend.table("s", "aggregating")
        for namespace, expected in model.items():
            backend.prefetch("abc", namespace)
            assert {key: v for key, v in table.namespace(namespace).items() if key in "abc"} == expected


def test_a_value_that_was_set_unread_stays_when_all_state_is_read(tmp_path: Path) -> None:
    backend = in_files(tmp_path, memory=ManagedMemory(10_000_000))
    backend.restore(None)
    state: Any = backend.partitioned_state(ValueStateDescriptor("s", ANY), "w")
    for number in range(20):
        backend.current_key = number
        state.update("old")
    backend.snapshot()
    backend.release()
    backend.current_key = 0
    assert state.value() == "old"
    # the value of this key is not evicted yet, those of all others are
    backend.release()
    state.update("new")
    for number in range(1, 20):
        backend.current_key = number
        assert state.value() == "old"
    backend.current_key = 0
    assert state.value() == "new"
