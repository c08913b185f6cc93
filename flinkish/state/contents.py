"""What a savepoint or checkpoint holds, read without Spark where that is possible: its states with their rows, keys and
bytes, single entries, and how it differs from another one.

Rule: an entry of a state is known by its key, its namespace (the window) and, in map state, its map key; what else a
row holds is its value. All of them are texts, as the table has them, and equal texts are equal values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain, islice
from typing import Any, NamedTuple

from flinkish.checkpoint.manifest import Savepoint
from flinkish.checkpoint.plain_tables import reading_files, rows_of_savepoint
from flinkish.checkpoint.rows import is_edited, open_table, reading
from flinkish.common.arguments import abbreviated
from flinkish.common.html_text import facts, table
from flinkish.common.text_table import aligned
from flinkish.delta.log import DeltaLog
from flinkish.errors import FlinkishError, SavepointError
from flinkish.runtime.state.saved.texts import SavepointColumns
from flinkish.runtime.state.state_rows import MAP_KINDS, TIMERS_PREFIX, WATERMARK, DeclaredState
from flinkish.runtime.stored.texts import from_text
from flinkish.state.reading import open_snapshot, session_of

#: Of a larger state, keys and bytes are not counted, which takes seconds.
MAX_COUNTED = 1_000_000

#: So many rows Spark hands over before they are looked at.
_ROWS_AT_ONCE = 10_000

_MAX_TEXT = 50

#: uid and name of a state
StateName = tuple[str, str]
#: state -> kind, rows, keys and bytes
_Counted = dict[StateName, tuple[str, int, int | None, int | None]]


class Entry(NamedTuple):
    """What an entry is known by within its state: texts. ``map_key``: None where the state is no map."""

    key: str
    namespace: str
    map_key: str | None


@dataclass(frozen=True)
class StateContent:
    """One state of one operator.

    Args:
        uid: uid of the operator.
        state: name of the state.
        kind: value, list, map, reducing, aggregating, broadcast, ...; of timers, their time domain.
        rows: the number of its rows: values, lists, entries of maps, timers; 0: it is declared, but empty.
        keys: the number of its keys; None: not counted.
        bytes: the size of the texts of keys and values; None: not counted.
        key_type, value_type, map_key_type: Spark's types as DDL text; None: not declared.
    """

    uid: str
    state: str
    kind: str
    rows: int
    keys: int | None = None
    bytes: int | None = None
    key_type: str | None = None
    value_type: str | None = None
    map_key_type: str | None = None

    @property
    def type(self) -> str:
        """The type of the value, with that of a map's keys."""
        value = self.value_type or "?"
        return f"{self.map_key_type or '?'} -> {value}" if self.kind in MAP_KINDS else value


@dataclass(frozen=True)
class SavepointContent:
    """A savepoint or checkpoint. A notebook shows it as a table; ``str()`` is the same as text."""

    path: str
    job_id: str
    job_name: str
    epoch: int | None
    time_ms: int
    #: uids of all operators, with state or without
    operators: tuple[str, ...]
    #: source uid -> its position, as a text
    sources: dict[str, str] = field(repr=False)
    states: tuple[StateContent, ...]

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self._facts().items()]
        return "\n".join([*lines, "", aligned([_HEADER, *map(_cells, self.states)])])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return facts(self._facts()) + table(_HEADER, map(_cells, self.states))

    def _facts(self) -> dict[str, str]:
        made = datetime.fromtimestamp(self.time_ms / 1000, timezone.utc)
        without = sorted(set(self.operators) - {state.uid for state in self.states} - set(self.sources))
        found = {
            "path": self.path,
            "job": f"{self.job_name} ({self.job_id})",
            "epoch": "before any epoch" if self.epoch is None else str(self.epoch),
            "time": f"{made:%Y-%m-%d %H:%M:%S} UTC",
            "positions of sources": ", ".join(sorted(self.sources)),
            "operators without state": ", ".join(without),
        }
        return {name: value for name, value in found.items() if value}


_HEADER = ("uid", "state", "kind", "key", "value", "rows", "keys", "bytes")


def _cells(state: StateContent) -> tuple[str, ...]:
    counts = (f"{count:,}" if count is not None else "-" for count in (state.rows, state.keys, state.bytes))
    return state.uid, state.state, state.kind, state.key_type or "?", state.type, *counts


def describe_savepoint(path: str) -> SavepointContent:
    """What a savepoint, a checkpoint, or the latest completed checkpoint of a job directory holds.

    Example::

        print(describe_savepoint("/savepoints/savepoint-1f"))

    Raises:
        SavepointError: there is no such savepoint, or it is damaged.
    """
    savepoint = open_snapshot(path)
    manifest = savepoint.manifest
    known = None if manifest.contents is None or is_edited(savepoint) else manifest.contents.states
    if known is not None and sum(one.rows for one in known) > MAX_COUNTED:
        counted: _Counted = {(one.uid, one.state): (one.kind, one.rows, None, None) for one in known}
    else:
        counted = _counted(savepoint)
    declared = {(known.uid, known.name): known for known in manifest.states}
    for name, state in declared.items():
        counted.setdefault(name, (state.kind, 0, 0, 0))
    states = tuple(
        _content(name, *counts, declared.get(name))
        for name, counts in sorted(counted.items())
        if counts[0] != WATERMARK
    )
    return SavepointContent(
        savepoint.path,
        manifest.job_id,
        manifest.job_name,
        manifest.epoch,
        manifest.time_ms,
        manifest.operators,
        dict(manifest.sources),
        states,
    )


def _counted(savepoint: Savepoint) -> _Counted:
    kinds: dict[StateName, str] = {}
    rows: dict[StateName, int] = defaultdict(int)
    sizes: dict[StateName, int] = defaultdict(int)
    #: None: there are too many
    keys: dict[StateName, set[str]] | None = defaultdict(set)
    for saved in _columns(savepoint):
        name = saved.uid, saved.state
        kinds[name] = saved.kind
        rows[name] += len(saved.keys)
        sizes[name] += sum(len(text.encode()) for text in chain(saved.keys, saved.values))
        keys = keys if sum(rows.values()) <= MAX_COUNTED else None
        if keys is not None:
            keys[name].update(saved.keys)
    return {
        name: (kind, rows[name], None if keys is None else len(keys[name]), sizes[name]) for name, kind in kinds.items()
    }


def _content(
    name: StateName, kind: str, rows: int, keys: int | None, size: int | None, declared: DeclaredState | None
) -> StateContent:
    known = declared or DeclaredState(*name, kind)
    return StateContent(*name, kind, rows, keys, size, known.key_type, known.value_type, known.map_key_type)


def _columns(savepoint: Savepoint) -> Iterator[SavepointColumns]:
    """The rows of a savepoint, by batch and state. Spark reads a table that only Delta can."""
    where = f"savepoint {savepoint.path}"
    if _needs_delta(savepoint):
        with reading(session_of(None), where) as session:
            rows = open_table(session, savepoint).toLocalIterator()
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                yield from _by_state(some)
        return
    with reading_files(where):
        for saved, _ in rows_of_savepoint(savepoint):
            yield saved


def _needs_delta(savepoint: Savepoint) -> bool:
    manifest = savepoint.manifest
    tables = [(savepoint.table, manifest.state.version)]
    if manifest.changes is not None and savepoint.changes is not None:
        tables.append((savepoint.changes, manifest.changes.version))
    return any(DeltaLog(table).needs_delta(version) for table, version in tables)


def _by_state(rows: list[Any]) -> Iterator[SavepointColumns]:
    states: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for row in rows:
        states[row["uid"], row["state"], row["kind"]].append(row)
    for state, some in states.items():
        yield SavepointColumns(*state, *([row[name] for row in some] for name in ("key", "namespace", "value")))


# ------------------------------------------------------------------------------------------------ entries


def entries(path: str, uid: str, state: str, key: str | None = None) -> Iterator[tuple[Entry, str]]:
    """The entries of a state with their values, as texts.

    Args:
        path: a savepoint, a checkpoint, or a job directory, which stands for its latest completed checkpoint.
        uid, state: the uid of the operator, and the name of the state.
        key: only the entries of this key: its text, or a plain string, or a JSON list for a tuple.

    Raises:
        SavepointError: there is no such savepoint or state, or it cannot be read.
    """
    savepoint = open_snapshot(path)
    wanted, found = None if key is None else _texts_of(key), False
    for saved in _columns(savepoint):
        if (saved.uid, saved.state) == (uid, state):
            found = True
            yield from ((entry, value) for entry, value in _entries(saved) if wanted is None or entry.key in wanted)
    if not found and not any((known.uid, known.name) == (uid, state) for known in savepoint.manifest.states):
        raise SavepointError(
            f"there is no state {state!r} of an operator with the uid {uid!r}",
            where=f"savepoint {savepoint.path}",
            hint="flinkish state list shows all",
        )


def _texts_of(key: str) -> set[str]:
    """The texts that a key may have which somebody has typed."""
    texts = {key, json.dumps(key, ensure_ascii=False)}
    if key.startswith("["):
        texts.add(f'{{"$tuple": {key}}}')
    return texts


def _entries(saved: SavepointColumns) -> Iterator[tuple[Entry, str]]:
    for key, namespace, value in zip(saved.keys, saved.namespaces, saved.values, strict=True):
        map_key = None
        if saved.kind in MAP_KINDS:
            map_key, value = _pair(value)
        elif saved.state.startswith(TIMERS_PREFIX):
            # a key may have many timers
            map_key = value
        yield Entry(key, namespace or "null", map_key), value


def _pair(text: str) -> tuple[str, str]:
    """The texts of the key and the value of a map entry."""
    content = json.loads(text)
    pair = content.get("$tuple") if isinstance(content, dict) else content
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError(f"{text[:200]!r} is no entry of a map")
    return json.dumps(pair[0], ensure_ascii=False), json.dumps(pair[1], ensure_ascii=False)


def shown(text: str | None) -> str:
    """A text of a savepoint's table as Python shows its value; "" for none; the beginning of the text itself if only
    the program has the value's class."""
    if text is None or text == "null":
        return ""
    try:
        return abbreviated(from_text(text))
    except FlinkishError:
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


# ------------------------------------------------------------------------------------------------ differences


@dataclass(frozen=True)
class Change:
    """An entry that two savepoints do not both have, or that has another value; None: it has none."""

    entry: Entry
    before: str | None
    after: str | None

    @property
    def kind(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class StateDifference:
    """How a state differs: the number of entries that were added, removed, changed and that are the same, and some of
    the changes."""

    uid: str
    state: str
    added: int
    removed: int
    changed: int
    same: int
    changes: tuple[Change, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.added + self.removed + self.changed


def difference(before: str, after: str, uid: str | None = None, limit: int = 10) -> list[StateDifference]:
    """How the states of two savepoints differ. The entries of both are held in memory.

    Args:
        before, after: savepoints, checkpoints, or job directories, which stand for their latest completed checkpoints.
        uid: only the states of this operator.
        limit: so many changes of each state are named.

    Raises:
        SavepointError: there is no such savepoint, or it cannot be read.
    """
    old, new = _all_entries(before, uid), _all_entries(after, uid)
    found: list[StateDifference] = []
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name, {}), new.get(name, {})
        gone = [Change(entry, value, other.get(entry)) for entry, value in one.items() if other.get(entry) != value]
        added = [Change(entry, None, value) for entry, value in other.items() if entry not in one]
        removed = sum(change.after is None for change in gone)
        changes = sorted([*added, *gone], key=_order)[:limit]
        counts = len(added), removed, len(gone) - removed, len(one) - len(gone)
        found.append(StateDifference(*name, *counts, tuple(changes)))
    return found


def _order(change: Change) -> tuple[str, str, str]:
    return change.entry.key, change.entry.namespace, change.entry.map_key or ""


def _all_entries(path: str, uid: str | None) -> dict[StateName, dict[Entry, str]]:
    savepoint = open_snapshot(path)
    found: dict[StateName, dict[Entry, str]] = {
        (known.uid, known.name): {} for known in savepoint.manifest.states if uid in (None, known.uid)
    }
    for saved in _columns(savepoint):
        if saved.kind != WATERMARK and uid in (None, saved.uid):
            found.setdefault((saved.uid, saved.state), {}).update(_entries(saved))
    return found


def as_json(value: Any) -> Any:
    """A description, an entry or a difference as JSON has it. The texts of entries are JSON, as the table has them:
    ``{"$tuple": ["a", 1]}`` is a tuple."""
    if isinstance(value, Change):
        return {
            "kind": value.kind,
            **as_json(value.entry),
            "before": _parsed(value.before),
            "after": _parsed(value.after),
        }
    if isinstance(value, Entry):
        return {name: _parsed(text) for name, text in value._asdict().items()}
    if isinstance(value, SavepointContent):
        return {**{name: as_json(one) for name, one in vars(value).items()}, "sources": _of_sources(value)}
    if isinstance(value, (StateContent, StateDifference)):
        return {name: as_json(one) for name, one in vars(value).items()}
    return list(map(as_json, value)) if isinstance(value, (tuple, list)) else value


def entry_json(entry: Entry, value: str) -> dict[str, Any]:
    """An entry with its value as JSON has it."""
    return {**as_json(entry), "value": _parsed(value)}


def _of_sources(found: SavepointContent) -> dict[str, Any]:
    return {uid: _parsed(position) for uid, position in found.sources.items()}


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        # somebody has edited the row
        return text
