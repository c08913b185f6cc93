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
from operator import ne
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.connectors.jdbc.statement import JdbcStatement, parted

if TYPE_CHECKING:
    from flinkish.connectors.jdbc.committer import JdbcCommitter

_NONE = type(None)


class Column(NamedTuple):
    """What a catalogue says of a column. ``size`` is the length of a text or the digits before the point of a number,
    if the catalogue limits them. A column is ``required`` if a statement that leaves it out fails."""

    name: str
    type: str
    size: int | None
    nullable: bool
    required: bool


#: Whether all of these values, which have one class, are known to fit a column.
Within = Callable[[Sequence[Any]], bool]


@dataclass(frozen=True)
class Rule:
    """Values of the classes ``free`` fit a column; those of the classes ``limited`` do if the function says so."""

    free: frozenset[type] = frozenset()
    limited: Mapping[type, Within] = field(default_factory=dict)

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


def integers(code: str) -> Within:
    """Whole numbers that fit a type of C, given by its letter in the module ``array``."""

    def within(values: Sequence[Any]) -> bool:
        try:
            array(code, values)
        except OverflowError:
            return False
        return True

    return within


def between(low: Any, high: Any) -> Within:
    def within(values: Sequence[Any]) -> bool:
        try:
            # NaN is different from itself
            return bool(low <= min(values) and max(values) <= high) and not any(map(ne, values, values))
        except ArithmeticError:  # a decimal NaN has no order
            return False

    return within


def texts(length_max: int | None, zero: bool, only_ascii: bool = False) -> Within:
    """Texts without half of a surrogate pair, and without the character 0 unless ``zero``. ``only_ascii``: others are
    not known to fit."""

    def within(values: Sequence[Any]) -> bool:
        if length_max is not None and max(map(len, values)) > length_max:
            return False
        whole = "".join(values)
        if not zero and "\0" in whole:
            return False
        try:
            return whole.isascii() or not only_ascii and bool(whole.encode())
        except UnicodeEncodeError:
            return False

    return within


class RowCheck:
    """Checks the rows of one writer. Rows that do not surely fit are kept until the barrier and tried together."""

    def __init__(self, committer: JdbcCommitter, statement: JdbcStatement) -> None:
        self._committer = committer
        self._statement = statement
        #: for each placeholder, as far as the statement says its column; None: the catalogue is to be read
        self._rules: list[Rule] | None = None
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

    def _read(self) -> list[Rule] | None:
        """The rules for the placeholders; None if the database cannot be asked."""
        statement, dialect = self._statement, self._statement.dialect
        columns = self._committer.columns_of(statement)
        if columns is None:
            return None
        by_name = {dialect.column_key(column.name): column for column in columns}
        names = list(map(dialect.column_key, statement.columns)) or list(by_name)[: statement.values]
        missing = any(column.required and name not in names for name, column in by_name.items())
        too_few = not statement.columns and not dialect.takes_first_columns and len(columns) > len(names)
        if missing or too_few or len(names) != statement.values:
            # whatever the row: the database says what is wrong with the statement
            return [Rule()] * statement.width
        return [self._rule_of(by_name.get(name)) for name in names]

    def _rule_of(self, column: Column | None) -> Rule:
        if column is None:
            return Rule()
        rule = self._statement.dialect.rule(column)
        return Rule(rule.free | {_NONE}, rule.limited) if column.nullable else rule
