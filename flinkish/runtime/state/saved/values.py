"""Checks row by row whether a program can restore the state in a savepoint, and migrates values on the way.

Rule: compatibility is never decided by comparing declared types alone. Each stored value is decoded, changed by the
migration if there is one, and converted by the type that the program declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.basic import for_map_keys
from flinkish.core.time import TimeDomain
from flinkish.errors import (
    FlinkishError,
    SavepointError,
    StoredClassError,
    TypeMismatchError,
    failures_of_user_code,
    message_of,
)
from flinkish.runtime.exchange.keys import frozen, thawed
from flinkish.runtime.state.saved.texts import (
    SavepointColumns,
    SavepointRow,
    from_savepoint_columns,
    from_savepoint_row,
)
from flinkish.runtime.state.state_rows import (
    BROADCAST_STATE_KIND,
    KINDS_WITHOUT_KEY,
    MAP_KINDS,
    OPERATOR_STATE_KIND,
    SHARED_KINDS,
    TIMERS_PREFIX,
    StateColumns,
    StateRow,
)
from flinkish.runtime.stored.calls import SAME_HASH_MAX, check_key_numbers, check_keys, crowded
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.texts import PLAIN

#: A function that migrates a stored value: old value -> new value.
Migration = Callable[[Any], Any]

#: Kinds of state with one value, and one row, per key.
_ONE_VALUE = ("value", "reducing", "aggregating")
KINDS = (*_ONE_VALUE, "list", "map", *KINDS_WITHOUT_KEY)


@dataclass(frozen=True)
class ProgramState:
    """A state as the program declares it. The types are None for state of the engine, which has no descriptor."""

    kind: str
    map_key_type: TypeInformation | None = None
    value_type: TypeInformation | None = None
    #: whether the type differs from the one under which the rows were written, or that one is unknown
    type_changed: bool = False


@dataclass(frozen=True)
class ProgramStates:
    """The states that a program declares: uid -> state name -> state."""

    #: uid -> state name -> state
    states: dict[str, dict[str, ProgramState]] = field(default_factory=dict)
    #: uid -> why the states of the operator could not be found out
    unknown: dict[str, str] = field(default_factory=dict)
    #: uid -> declared type of its keys
    key_types: dict[str, TypeInformation] = field(default_factory=dict)
    #: the uids of operators whose keys had another type when the rows were written
    other_keys: frozenset[str] = frozenset()

    def of(self, uid: str, name: str) -> ProgramState | None:
        """One state; None if the program does not declare it."""
        return self.states.get(uid, {}).get(name)


@dataclass
class StoredState:
    """The result of checking the rows of one stored state."""

    uid: str
    state: str
    kind: str
    rows: int = 0
    bad_rows: int = 0
    #: what is wrong with the first bad row
    problem: str = ""

    def add_bad(self, key: object, problem: str) -> None:
        """Count a bad row, given the text of its key and what is wrong with it."""
        self.bad_rows += 1
        self.problem = self.problem or f"the row of key {str(key)[:100]}: {problem}"

    def add(self, other: StoredState) -> None:
        """Add the result of another task for the same state."""
        self.rows += other.rows
        self.bad_rows += other.bad_rows
        self.problem = self.problem or other.problem


class RowReader:
    """Decodes, migrates and converts the rows of a savepoint for a program. Rows that the program cannot restore are
    left out and counted, and the first one of each state is described in ``found``."""

    def __init__(
        self,
        program: ProgramStates,
        migrations: dict[tuple[str, str], Migration],
        convert: bool,
        classes: ProgramClasses = NO_CLASSES,
    ) -> None:
        """
        Args:
            program: the states that the program declares.
            migrations: (uid, state name) -> function that changes each stored value.
            convert: whether the rows were edited or made elsewhere, so that each value is converted to its declared
                type (a JSON list under a TUPLE becomes a tuple).
            classes: the classes of the program that state may hold.
        """
        self.found: dict[tuple[str, str, str], StoredState] = {}
        self._program = program
        self._migrations = migrations
        self._convert = convert
        self._classes = classes

    def read(self, saved: SavepointRow) -> StateRow | None:
        """The row of state; None for a row that the program cannot restore."""
        found = self._found(saved)
        found.rows += 1
        try:
            return self._read(saved)
        except FlinkishError as error:
            hint = f"; {error.hint}" if isinstance(error, StoredClassError) else ""
            found.add_bad(saved.key, f"{error.what}{hint}")
        except Exception as error:
            # whatever a row of anybody does, it is this row that is bad
            found.add_bad(saved.key, f"{type(error).__name__}: {str(error)[:200]}")
        return None

    def read_columns(self, saved: SavepointColumns) -> StateColumns:
        """The rows of one state that the program can restore, in their order."""
        if (saved.uid, saved.state) not in self._migrations:
            try:
                columns = self._read_columns(saved)
            except Exception:
                # some row is bad: `read` finds out which one, and why
                columns = None
            if columns is not None:
                self._found(saved).rows += len(saved.keys)
                return columns
        rows = [row for row in map(self.read, saved.rows()) if row is not None]
        return self._without_crowds(saved, in_columns(saved, rows))

    def _without_crowds(self, saved: SavepointColumns, columns: StateColumns) -> StateColumns:
        """The columns without the rows whose keys, or keys of maps, have the hash of many others: each of them would be
        compared with all others."""
        of_maps = columns.kind in MAP_KINDS
        crowds = crowded(columns.keys)
        crowds_of_maps = crowded([value[0] for value in columns.values]) if of_maps else set()
        if not crowds and not crowds_of_maps:
            return columns
        kept = []
        for row in columns.rows():
            if hash(row.key) in crowds or (of_maps and hash(row.value[0]) in crowds_of_maps):
                self._found(saved).add_bad(abbreviated(thawed(row.key)), f"over {SAME_HASH_MAX} keys have one hash")
            else:
                kept.append(row)
        return in_columns(saved, kept)

    def _found(self, saved: SavepointRow | SavepointColumns) -> StoredState:
        key = (str(saved.uid), str(saved.state), str(saved.kind))
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = StoredState(*key)
        return found

    def _read_columns(self, saved: SavepointColumns) -> StateColumns:
        columns = from_savepoint_columns(saved, self._classes)
        state = self._program.of(saved.uid, saved.state)
        unchecked = state is None or state.kind != saved.kind or state.value_type is None
        unchecked = unchecked and not self._with_keys(saved.uid)
        if unchecked and saved.kind in _ONE_VALUE and not saved.state.startswith(TIMERS_PREFIX):
            # for these kinds `check_shape` asks nothing but that keys and namespaces have a hash
            check_keys(columns.keys)
            check_keys(columns.namespaces)
            return columns
        columns = in_columns(saved, [self._checked(saved.uid, row) for row in columns.rows()])
        return self._without_crowds(saved, columns)

    def _read(self, saved: SavepointRow) -> StateRow:
        if saved.namespace is None:  # left out by an INSERT
            saved = saved._replace(namespace="null")
        return self._checked(*from_savepoint_row(saved, self._classes))

    def _checked(self, uid: str, row: StateRow) -> StateRow:
        check_shape(row)
        if self._with_keys(uid) and row.kind not in KINDS_WITHOUT_KEY:
            row = _with_key(row, self._program.key_types.get(uid))
        migration = self._migrations.get((uid, row.state))
        if migration is not None:
            row = row._replace(value=_migrated(row, migration))
        state = self._program.of(uid, row.state)
        if state is None or state.kind != row.kind or state.value_type is None:
            return row
        changed = self._convert or state.type_changed
        value = _as_declared(row, state, changed)
        return row._replace(value=value) if changed else row

    def _with_keys(self, uid: str) -> bool:
        """Whether keys are converted to their declared type, too."""
        return self._convert or uid in self._program.other_keys


def in_columns(saved: SavepointColumns, rows: list[StateRow]) -> StateColumns:
    """Rows of one state as columns."""
    return StateColumns(
        saved.state, saved.kind, [r.namespace for r in rows], [r.key for r in rows], [r.value for r in rows]
    )


def check_shape(row: StateRow) -> None:
    """Check what the engine needs of a row, whatever the declared types are.

    Raises:
        SavepointError: the kind is unknown, the value does not have the shape of its kind, or the key cannot be one.
    """
    if row.state.startswith(TIMERS_PREFIX):
        if row.kind not in TimeDomain.__members__ or type(row.value) is not int:
            raise SavepointError(f"{_shown(row.value)} is no timestamp of a timer ({row.kind})")
    elif row.kind not in KINDS:
        raise SavepointError(f"{row.kind!r} is no kind of state", expected=", ".join(KINDS))
    elif row.kind in MAP_KINDS and not (type(row.value) is tuple and len(row.value) == 2):
        raise SavepointError(f"{_shown(row.value)} is no entry of a map", expected='{"$tuple": [map key, value]}')
    elif row.kind == "list" and type(row.value) is not list:
        raise SavepointError(f"{_shown(row.value)} is no list", expected="[...]")
    elif row.kind == OPERATOR_STATE_KIND and type(row.key) is not int:
        raise SavepointError(f"{_shown(row.key)} is no number of a subtask")
    elif row.kind in SHARED_KINDS and not _is_copy(row):
        what = "copy of a broadcast state" if row.kind == BROADCAST_STATE_KIND else "list of operator state"
        raise SavepointError(
            f"{_shown(row.key)} of {_shown(row.namespace)} is no {what}",
            expected="as key the number of a subtask and as namespace the number of subtasks, or null for both",
        )
    hashed = [row.key, row.namespace]
    if row.kind in MAP_KINDS:
        hashed.append(row.value[0])
    for found in hashed:
        try:
            check_key_numbers([found])
            hash(found)
        except FlinkishError:
            raise
        except Exception as error:
            raise SavepointError(
                f"{_shown(found)} cannot be a key: {error}", expected='{"$tuple": [...]} for tuples'
            ) from error


def _shown(value: Any) -> str:
    """A value in an error about a row, whose key is named anyway; no method of a program's class runs."""
    return abbreviated(value) if type(value) in PLAIN else f"a {type(value).__name__}"


def _is_copy(row: StateRow) -> bool:
    """Whether a row of broadcast state or of a list says which of how many subtasks wrote it, or that none did; the
    element of a list must also have an index."""
    subtask, subtasks = row.key, row.namespace
    if row.kind != BROADCAST_STATE_KIND and type(row.value[0]) is not int:
        return False
    if subtask is None and subtasks is None:
        return True
    return type(subtask) is int and type(subtasks) is int and 0 <= subtask < subtasks


def _with_key(row: StateRow, declared: TypeInformation | None) -> StateRow:
    """The row with its key converted to the declared type: the program would never find state of any other key."""
    return row._replace(
        key=frozen(_converted(thawed(row.key), None if declared is None else declared.for_keys(), False))
    )


def _migrated(row: StateRow, migration: Migration) -> Any:
    try:
        if row.kind in MAP_KINDS:
            return row.value[0], migration(row.value[1])
        return migration(row.value)
    except failures_of_user_code() as error:
        raise SavepointError(f"the migration raised {type(error).__name__}: {message_of(error)}") from error


def _as_declared(row: StateRow, state: ProgramState, changed: bool) -> Any:
    """The value converted to the declared type. Raises TypeMismatchError if that cannot be done."""
    if row.kind in MAP_KINDS:
        key_type = state.map_key_type
        if key_type is not None and changed:
            key_type = for_map_keys(key_type)
        key = _converted(row.value[0], key_type, False)
        return key, _converted(row.value[1], state.value_type, state.type_changed)
    if row.kind == "list":
        return [_converted(item, state.value_type, state.type_changed) for item in row.value]
    return _converted(row.value, state.value_type, state.type_changed)


def _converted(value: Any, declared: TypeInformation | None, type_changed: bool) -> Any:
    if declared is None or value is None:
        return value
    converted = declared.convert(value)
    if type_changed and _is_lost(value, converted):
        raise TypeMismatchError(f"{abbreviated(value)} would become {abbreviated(converted)}", expected=f"a {declared}")
    return converted


def _is_lost(value: Any, converted: Any) -> bool:
    """Whether a number was changed by conversion: integers wrap in a smaller type, as in Java, and floats overflow. A
    rounded fraction is no loss."""
    if type(value) is int:
        return bool(converted != value)
    return type(value) is float and math.isfinite(value) and not math.isfinite(converted)
