"""Checks rows against the catalogue of the database before their epoch is prepared, while a mended program can still
emit other rows in it: types, lengths, ranges and NOT NULL.

Rule upheld here: the catalogue accuses, and the database decides. Most values have a class and a size that prove that
they fit their column. Rows with other values (a text for a date, a null in a column that is NOT NULL) are executed in a
transaction that is rolled back, and only what the database itself refuses for its content is an error. So nothing is
refused that the database would take, whatever its triggers, casts and conflict clauses make of it. Violations of
uniqueness and of foreign keys are left to the commit, since they depend on the rows that are there by then.

No database is asked for rows that fit; and if the database cannot be asked, the rows are not checked.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from flinkish.connectors.jdbc.location import SQLITE
from flinkish.connectors.jdbc.statement import JdbcStatement, parted

if TYPE_CHECKING:
    from flinkish.connectors.jdbc.committer import JdbcCommitter

_NONE = type(None)
_FLOAT32_MAX = 3.4028235e38


class Column(NamedTuple):
    """What a catalogue says of a column. ``size`` is the length of a text or the digits before the point of a number,
    if the catalogue limits them. A column is ``required`` if a statement that leaves it out fails."""

    name: str
    type: str
    size: int | None
    nullable: bool
    required: bool


#: Whether all of these values, which have one class, are known to fit a column.
_Within = Callable[[Sequence[Any]], bool]


@dataclass(frozen=True)
class _Rule:
    """Values of the classes ``free`` fit a column; those of the classes ``limited`` do if the function says so."""

    free: frozenset[type] = frozenset()
    limited: Mapping[type, _Within] = field(default_factory=dict)

    def fit(self, values: Sequence[Any]) -> bool:
        """Whether all values are known to fit."""
        kinds = set(map(type, values))
        for kind in kinds - self.free:
            within = self.limited.get(kind)
            if within is None:
                return False
            if not within(values if len(kinds) == 1 else [value for value in values if type(value) is kind]):
                return False
        return True


def _integers(code: str) -> _Within:
    """Whole numbers that fit a type of C, given by its letter in the module ``array``."""

    def within(values: Sequence[Any]) -> bool:
        try:
            array(code, values)
        except OverflowError:
            return False
        return True

    return within


def _between(low: Any, high: Any) -> _Within:
    def within(values: Sequence[Any]) -> bool:
        try:
            # false for NaN, too
            return bool(low <= min(values) and max(values) <= high)
        except ArithmeticError:  # a decimal NaN has no order
            return False

    return within


def _texts(length_max: int | None, zero: bool) -> _Within:
    """Texts without half of a surrogate pair, and without the character 0 unless ``zero``."""

    def within(values: Sequence[Any]) -> bool:
        if length_max is not None and max(map(len, values)) > length_max:
            return False
        whole = "".join(values)
        if not zero and "\0" in whole:
            return False
        try:
            return whole.isascii() or bool(whole.encode())
        except UnicodeEncodeError:
            return False

    return within


_BYTES = frozenset((bytes, bytearray, memoryview))
_DATES = frozenset((date, datetime))
_INT64 = _integers("q")


def _postgresql_rule(column: Column) -> _Rule:
    kind, size = column.type, column.size
    if kind == "numeric":
        if size is None:
            return _Rule(frozenset((int, float, Decimal)))
        # less one, since the database rounds to the digits behind the point
        return _Rule(limited=dict.fromkeys((int, float, Decimal), _between(1 - 10**size, 10**size - 1)))
    if kind in ("text", "varchar", "bpchar"):
        return _Rule(limited={str: _texts(size, zero=False)})
    return {
        "int2": _Rule(limited={int: _integers("h")}),
        "int4": _Rule(limited={int: _integers("i")}),
        "int8": _Rule(limited={int: _INT64}),
        "float4": _Rule(limited=dict.fromkeys((int, float), _between(-_FLOAT32_MAX, _FLOAT32_MAX))),
        "float8": _Rule(frozenset((float,)), {int: _between(-(2**1023), 2**1023)}),
        "bool": _Rule(frozenset((bool,))),
        "date": _Rule(frozenset((date,))),
        "timestamp": _Rule(_DATES),
        "timestamptz": _Rule(_DATES),
        "time": _Rule(frozenset((time,))),
        "bytea": _Rule(_BYTES),
        "uuid": _Rule(frozenset((UUID,))),
    }.get(kind, _Rule())


def _sqlite_rule(column: Column) -> _Rule:
    # a column of no known type takes values of all classes that SQLite stores
    texts = _texts(None, zero=True)
    return {
        "integer": _Rule(frozenset((bool,)), {int: _INT64}),
        "real": _Rule(frozenset((float, bool)), {int: _INT64}),
        "text": _Rule(limited={str: texts}),
        "blob": _Rule(_BYTES),
    }.get(column.type, _Rule(_BYTES | {bool, float}, {int: _INT64, str: texts}))


class RowCheck:
    """Checks the rows of one writer. Rows that do not surely fit are kept until the barrier and tried together."""

    def __init__(self, committer: JdbcCommitter, statement: JdbcStatement, kind: str) -> None:
        self._committer = committer
        self._statement = statement
        self._rule = _sqlite_rule if kind == SQLITE else _postgresql_rule
        #: for each placeholder, as far as the statement says its column; None: the catalogue is to be read
        self._rules: list[_Rule] | None = None
        self._doubtful: list[Any] = []

    def add(self, rows: Sequence[Any]) -> None:
        """Check rows as far as the catalogue goes."""
        if not rows or not self._statement.target:
            return
        if self._rules is None:
            self._rules = self._read()
        deletions, rows = parted(rows) if self._statement.is_upsert else ((), rows)
        self._check(deletions, self._statement.key_positions)
        self._check(rows, range(self._statement.width))

    def confirm(self) -> None:
        """At the barrier, let the database decide on the rows that do not surely fit.

        Raises:
            ProgramError: the database refuses a row, or the statement.
        """
        doubtful, self._doubtful = self._doubtful, []
        if doubtful:
            self._committer.try_rows(doubtful)
            # the table may have been altered meanwhile
            self._rules = None

    def _check(self, rows: Sequence[Any], positions: Sequence[int]) -> None:
        rules, found = self._rules, set[int]()
        if rules is None or not rows:
            return
        columns = list(zip(*rows, strict=True))
        for position in positions:
            if position < len(rules) and not rules[position].fit(columns[position]):
                fit = rules[position].fit
                found.update(number for number, value in enumerate(columns[position]) if not fit((value,)))
        self._doubtful += [rows[number] for number in sorted(found)]

    def _read(self) -> list[_Rule] | None:
        """The rules for the placeholders; None if the database cannot be asked."""
        statement = self._statement
        columns = self._committer.columns_of(statement.target)
        if columns is None:
            return None
        is_sqlite = self._rule is _sqlite_rule
        # names in SQLite have no case
        fold: Callable[[str], str] = str.lower if is_sqlite else str
        by_name = {fold(column.name): column for column in columns}
        names = list(map(fold, statement.columns)) or list(by_name)[: statement.values]
        missing = any(column.required and name not in names for name, column in by_name.items())
        # without names, only PostgreSQL takes values for the first columns
        too_few = not statement.columns and is_sqlite and len(columns) > len(names)
        if missing or too_few or len(names) != statement.values:
            # whatever the row: the database says what is wrong with the statement
            return [_Rule()] * statement.width
        return [self._rule_of(by_name.get(name)) for name in names]

    def _rule_of(self, column: Column | None) -> _Rule:
        if column is None:
            return _Rule()
        rule = self._rule(column)
        return _Rule(rule.free | {_NONE}, rule.limited) if column.nullable else rule
