"""The encoded form of one key group's state and timers, and its form as rows.

A body is the stored form (`stored_pickle`) of ``({state name: (kind, {namespace: (keys, values)})},
{timer service: {domain name: [(timestamp, namespace, keys)]}})``: parallel lists, since one object per entry takes
several times as long. Rows are what savepoints hold: one per value, list or map entry and one per timer.
``body_from_rows(rows(body)) == body`` but for empty namespaces and maps, which have no row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from flinkish.core.time_domain import TimeDomain
from flinkish.errors import CorruptStateError, StoredClassError, TypeMismatchError
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.timer_queue import TimerQueue, TimerRun
from flinkish.runtime.stored_pickle import dumps, loads

#: Version of the layout above. A reader refuses what it does not know.
FORMAT_VERSION = 2

#: State name of timers in rows, followed by the name of the timer service.
TIMERS_PREFIX = "__timers__/"

_States = dict[str, tuple[str, dict[Hashable, tuple[list[Any], list[Any]]]]]
_Timers = dict[str, dict[str, list[TimerRun]]]


class StateRow(NamedTuple):
    """One entry of a key group's state.

    ``value`` is the value itself (value, reducing), the accumulator (aggregating), the list (list) or the pair
    ``(map key, map value)`` (map). A timer has ``TIMERS_PREFIX`` + service as state name, the name of its TimeDomain
    as kind and its timestamp as value.
    """

    state: str
    kind: str
    namespace: Hashable
    key: Any
    value: Any


class StateColumns(NamedTuple):
    """Entries of one state of a key group, as parallel columns; what a `StateRow` says of each."""

    state: str
    kind: str
    namespaces: list[Hashable]
    keys: list[Any]
    values: list[Any]

    def rows(self) -> Iterator[StateRow]:
        """The entries as rows."""
        for namespace, key, value in zip(self.namespaces, self.keys, self.values, strict=True):
            yield StateRow(self.state, self.kind, namespace, key, value)


def encode_body(
    tables: dict[str, StateTable],
    timers: dict[str, TimerQueue],
    where: str = "",
    classes: ProgramClasses = NO_CLASSES,
) -> bytes | None:
    """The body; None when there is neither state nor a timer.

    Raises:
        StoredClassError: a key, namespace or value is, or holds, what could not be read again; names its state and key.
        TypeMismatchError: a value cannot be pickled; names its state and key.
    """
    states: _States = {}
    for name, table in tables.items():
        namespaces = {ns: (list(values), list(values.values())) for ns, values in table.items()}
        if namespaces:
            states[name] = (table.kind, namespaces)
    queues: _Timers = {}
    for service, queue in timers.items():
        domains = {domain.name: runs for domain in TimeDomain if (runs := queue.runs(domain))}
        if domains:
            queues[service] = domains
    return _dump(states, queues, where, classes)


def decode_body(
    body: bytes | None, where: str = "", classes: ProgramClasses = NO_CLASSES
) -> tuple[dict[str, StateTable], dict[str, TimerQueue]]:
    """The inverse of `encode_body`; ``where`` names the operator and the key group in errors.

    Raises:
        CorruptStateError: the body cannot be decoded; see `loads` for what else.
    """
    states, queues = _load(body, where, classes)
    tables: dict[str, StateTable] = {}
    for name, (kind, namespaces) in states.items():
        table = tables[name] = StateTable(name, kind)
        for namespace, (keys, values) in namespaces.items():
            table.namespace(namespace).update(zip(keys, values, strict=True))
    timers: dict[str, TimerQueue] = {}
    for service, domains in queues.items():
        queue = timers[service] = TimerQueue()
        for domain, runs in domains.items():
            queue.load_runs(TimeDomain[domain], runs)
    return tables, timers


def rows(body: bytes | None, where: str = "", classes: ProgramClasses = NO_CLASSES) -> Iterator[StateRow]:
    """All entries of a body. Raises what `decode_body` raises."""
    for found in columns(body, where, classes):
        yield from found.rows()


def columns(body: bytes | None, where: str = "", classes: ProgramClasses = NO_CLASSES) -> Iterator[StateColumns]:
    """All entries of a body, those of one state together, in the order of `rows`. Raises what `decode_body` raises."""
    states, queues = _load(body, where, classes)
    for name, (kind, namespaces) in states.items():
        found = StateColumns(name, kind, [], [], [])
        for namespace, (keys, values) in namespaces.items():
            if kind == "map":
                keys = [key for key, entries in zip(keys, values, strict=True) for _ in entries]
                values = [pair for entries in values for pair in entries.items()]
            found.namespaces.extend(repeat(namespace, len(keys)))
            found.keys.extend(keys)
            found.values.extend(values)
        yield found
    for service, domains in queues.items():
        for domain, runs in domains.items():
            found = StateColumns(TIMERS_PREFIX + service, domain, [], [], [])
            for timestamp_ms, namespace, keys in runs:
                found.namespaces.extend(repeat(namespace, len(keys)))
                found.keys.extend(keys)
                found.values.extend(repeat(timestamp_ms, len(keys)))
            yield found


def body_from_rows(
    state_rows: Iterable[StateRow], where: str = "", classes: ProgramClasses = NO_CLASSES
) -> bytes | None:
    """The body that holds these entries, None if there are none. Rows of one state keep their order.

    Raises:
        CorruptStateError: two rows for one entry, or one state with two kinds.
    """
    tables: dict[str, StateTable] = {}
    timers: dict[str, TimerQueue] = {}
    for row in state_rows:
        if row.state.startswith(TIMERS_PREFIX):
            queue = timers.setdefault(row.state[len(TIMERS_PREFIX) :], TimerQueue())
            queue.register(TimeDomain[row.kind], row.value, row.key, row.namespace)
            continue
        table = tables.setdefault(row.state, StateTable(row.state, row.kind))
        if table.kind != row.kind:
            raise _bad_rows(f"state {row.state!r} has rows of kind {table.kind} and of kind {row.kind}", where)
        _put(table, row, where)
    return encode_body(tables, timers, where, classes)


def _put(table: StateTable, row: StateRow, where: str) -> None:
    values = table.namespace(row.namespace)
    entry = row.key
    if row.kind == "map":
        values = values.setdefault(row.key, {})
        entry, value = row.value
    else:
        value = row.value
    if entry in values:
        raise _bad_rows(f"state {row.state!r} has two rows for namespace {row.namespace!r}, key {row.key!r}", where)
    values[entry] = value


def _bad_rows(what: str, where: str) -> CorruptStateError:
    return CorruptStateError(what, where=where, expected="one row per entry", hint="mend the savepoint's table")


def _dump(states: _States, queues: _Timers, where: str, classes: ProgramClasses) -> bytes | None:
    if not states and not queues:
        return None
    try:
        return dumps((states, queues), FORMAT_VERSION, classes)
    except Exception as error:
        for name, (_, namespaces) in states.items():
            for namespace, (keys, values) in namespaces.items():
                for key, value in zip(keys, values, strict=True):
                    _check_stored(f"state {name!r}", namespace, key, value, where, classes, error)
        for service, domains in queues.items():
            for runs in domains.values():
                for timestamp_ms, namespace, timer_keys in runs:
                    for key in timer_keys:
                        _check_stored(f"timers {service!r}", namespace, key, timestamp_ms, where, classes, error)
        raise


def _check_stored(
    what: str, namespace: Any, key: Any, value: Any, where: str, classes: ProgramClasses, cause: Exception
) -> None:
    """Raise what is wrong with one entry, if it is the one."""
    for part, found in (("key", key), ("namespace", namespace), ("value", value)):
        try:
            dumps(found, FORMAT_VERSION, classes)
        except StoredClassError as error:
            raise StoredClassError(
                f"{what}, the {part} of key {_shown(key)}: {error.what}",
                where=where,
                expected=error.expected,
                hint=error.hint,
            ) from cause
        except Exception as error:
            raise TypeMismatchError(
                f"{what} of key {_shown(key)} holds a {type(found).__name__} that cannot be written: {error}",
                where=where,
                expected="values that can be pickled",
                hint="keep plain data in state, and what cannot be pickled in attributes set by open()",
            ) from cause


def _shown(key: Any) -> str:
    try:
        return repr(key)[:200]
    except Exception:
        return f"a {type(key).__name__}"


def _load(body: bytes | None, where: str, classes: ProgramClasses) -> tuple[_States, _Timers]:
    if not body:
        return {}, {}
    states, queues = loads(body, FORMAT_VERSION, "the state", where, classes)
    return states, queues
