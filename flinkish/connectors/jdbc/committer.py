"""The writers and the committer of the JDBC sink. The writers convert the records of one subtask and epoch to rows for
the driver; a committable is a tuple, which is a row to be written, or a Row of kind DELETE, whose key is to be deleted.

Rule: the rows of one (sink, subtask, epoch) and the epoch's marker are ONE transaction.

After a lost connection or a conflict the transaction is retried with all rows; the marker tells whether a commit whose
answer got lost had succeeded. Every other failure becomes an error whose class says who must act: the user or the
operator.

Connections are kept per process and used again by the next epoch or subtask. Whatever fails in a transaction, in the
database or in the program, its connection is rolled back and closed, so that a kept connection never holds a part of an
epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from flinkish.common.types import Row, RowKind, check_inserts_only
from flinkish.connectors.jdbc.catalogue import Column, RowCheck
from flinkish.connectors.jdbc.database import (
    Database,
    DatabaseLocation,
    Failure,
    close,
    failure_of,
    no_connection,
    open_database,
)
from flinkish.connectors.jdbc.options import JdbcExecutionOptions
from flinkish.connectors.jdbc.statement import JdbcStatement
from flinkish.connectors.kept_resources import KeptResources
from flinkish.core.sink import CommitContext, Committer, SinkWriter, ahead_of, how_to_skip
from flinkish.errors import ConnectionFailedError, OperationError, ProgramError, RetryableError, TypeMismatchError

_RECORDS = (Row, tuple, list)


class RowWriter(SinkWriter):
    """Converts each record to a row at once; holds nothing until the barrier but the rows that the database has to
    decide on (`RowCheck`)."""

    def __init__(self, statement: JdbcStatement, names: Sequence[str], check: RowCheck) -> None:
        self._statement = statement
        self._check = check
        self._names = list(names)
        self._adapters = statement.dialect.adapters

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        rows = self.rows(values)
        self._check.add(rows)
        return rows

    def prepare_commit(self) -> list[Any]:
        self._check.confirm()
        return []

    def rows(self, values: list[Any]) -> list[tuple[Any, ...]]:
        """The records as tuples of values that the driver takes. Rows with the field names of the type give their
        values by name, as in PyFlink, and all other records by position.

        Raises:
            TypeMismatchError: a record is no Row, tuple or list, has another number of fields than the statement, or is
                a Row of another kind than INSERT.
        """
        return self._rows(self._checked(values))

    def _rows(self, checked: list[Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = list(map(tuple, checked))
        if not set(map(len, rows)) <= {self._statement.width}:
            raise self._mismatch(next(row for row in rows if len(row) != self._statement.width))
        return self._adapted(rows)

    def _checked(self, values: list[Any]) -> list[Any]:
        kinds = set(map(type, values))
        if not all(issubclass(kind, _RECORDS) for kind in kinds):
            raise self._mismatch(next(value for value in values if not isinstance(value, _RECORDS)))
        return self._plain(values) if Row in kinds else values

    def _plain(self, values: list[Any]) -> list[Any]:
        """Records with Rows among them as they are written: with their values in the order of the type's fields."""
        check_inserts_only(values, f"JdbcSink, {self._statement.sql!r}")
        return list(map(self._by_name, values))

    def _by_name(self, value: Any) -> Any:
        fields = getattr(value, "_fields", self._names) if type(value) is Row else self._names
        if fields == self._names or sorted(fields) != sorted(self._names):
            return value
        return tuple(value[name] for name in self._names)

    def _adapted(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        adapters = self._adapters
        columns: list[Sequence[Any]] | None = None
        for position in range(self._statement.width):
            column = list(map(itemgetter(position), rows))
            if not adapters.keys().isdisjoint(map(type, column)):
                columns = columns if columns is not None else list(zip(*rows, strict=True))
                columns[position] = [
                    adapters[type(value)](value) if type(value) in adapters else value for value in column
                ]
        return rows if columns is None else list(zip(*columns, strict=True))

    def _mismatch(self, value: Any) -> TypeMismatchError:
        return TypeMismatchError(
            f"the record {abbreviated(value)} of type {type(value).__name__} is no row for the statement",
            where=f"JdbcSink, {self._statement.sql!r}",
            expected=f"a Row or tuple of {self._statement.width} fields",
        )


class UpsertWriter(RowWriter):
    """Holds the last row of each primary key until the barrier. The rows before it need not be written, since nobody
    could see them: the epoch is one transaction.

    A Row of kind DELETE deletes the row of its key; one of kind UPDATE_BEFORE has no effect, since the UPDATE_AFTER
    that follows it replaces the row."""

    def __init__(self, statement: JdbcStatement, names: Sequence[str], check: RowCheck) -> None:
        super().__init__(statement, names, check)
        self._key = itemgetter(*statement.key_positions)
        self._last: dict[Any, Any] = {}

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        values = self._checked(values)
        try:
            self._last.update(zip(map(self._key, values), values, strict=True))
        except (TypeError, IndexError):
            self.rows(values)  # raises with the record that is no row
            raise self._unhashable() from None
        return []

    def _plain(self, values: list[Any]) -> list[Any]:
        plain = []
        for value in values:
            kind = value._row_kind if type(value) is Row else RowKind.INSERT
            if kind is RowKind.DELETE:
                plain.append(Row.of_kind(RowKind.DELETE, *self._by_name(value)))
            elif kind is not RowKind.UPDATE_BEFORE:
                plain.append(self._by_name(value))
        return plain

    def prepare_commit(self) -> list[Any]:
        last, self._last = self._last, {}
        values = list(last.values())
        rows: list[Any] = self._rows(values)
        for number, value in enumerate(values):
            if type(value) is Row and value._row_kind is RowKind.DELETE:
                rows[number] = Row.of_kind(RowKind.DELETE, *self._only_key(rows[number]))
        for row in rows:
            if any(row[position] is None for position in self._statement.key_positions):
                raise TypeMismatchError(
                    f"the row {abbreviated(row)} has a null in its primary key",
                    where=f"JdbcSink.upsert into {self._statement.table}",
                    expected="a value in each key column",
                    hint="filter such records before the sink",
                )
        self._check.add(rows)
        self._check.confirm()
        return rows

    def _only_key(self, row: tuple[Any, ...]) -> list[Any]:
        # the other columns of a deletion need not fit the table
        keys = self._statement.key_positions
        return [value if position in keys else None for position, value in enumerate(row)]

    def _unhashable(self) -> TypeMismatchError:
        return TypeMismatchError(
            "a primary key holds a value that cannot be hashed",
            where=f"JdbcSink.upsert into {self._statement.table}",
            expected="keys of texts, numbers, bytes or dates",
        )


def abbreviated(value: Any, limit: int = 200) -> str:
    """The ``repr`` of a value for messages, at most ``limit`` characters long."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


#: the longest delay before a retry, in seconds; the delays begin at 0.1 s and double
RETRY_DELAY_MAX_S = 2.0

#: how many refused rows of a subtask and epoch an error names
REFUSED_ROWS_MAX = 20

#: how many idle connections a worker process keeps
CONNECTIONS_KEPT_MAX = 8

T = TypeVar("T")

#: The connections of this process that are not in use.
CONNECTIONS = KeptResources[Database](close, CONNECTIONS_KEPT_MAX)


class JdbcCommitter(Committer):
    """Writes the rows of one subtask and epoch in one database transaction; commits nothing if the database has the
    epoch already.

    ``types`` describes the declared type of the rows in error messages.
    """

    def __init__(
        self, location: DatabaseLocation, statement: JdbcStatement, options: JdbcExecutionOptions, types: str
    ) -> None:
        self._location = location
        self._statement = statement
        self._options = options
        self._types = types
        self._delivered: list[tuple[Any, ...]] = []

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        # held in memory, since the retry of a failed transaction begins with its first row
        self._delivered = [row for batch in committables for row in batch]
        rows = self._in_order(self._delivered)
        return self._retried(rows, context, partial(self._transaction, rows, context)) if rows else 0

    def last_committed_epoch(self, context: CommitContext) -> int | None:
        """The highest marker of the sink's subtasks; None if they have none."""

        def ask() -> int | None:
            with self._connection() as database:
                return database.last_epoch(context.job_id, context.sink_uid)

        return self._retried([], context, ask)

    def _retried(self, rows: list[tuple[Any, ...]], context: CommitContext, action: Callable[[], T]) -> T:
        for attempt in range(self._options.max_retries + 1):
            try:
                return action()
            except Exception as error:
                failure = failure_of(self._location, error)
                if failure is None:
                    raise
                last = attempt == self._options.max_retries
                if last or failure not in (Failure.CONNECTION_LOST, Failure.UNKNOWN_NAME, Failure.CONFLICT):
                    raise self._error(failure, error, rows, context, attempt + 1) from error
            time.sleep(min(0.1 * 2**attempt, RETRY_DELAY_MAX_S))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _in_order(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        if not self._statement.is_upsert or len(rows) < 2:
            return rows
        # one row per key, and the keys in the same order in all subtasks, so that two transactions cannot deadlock
        key = itemgetter(*self._statement.key_positions)
        last = dict(zip(map(key, rows), rows, strict=True))
        try:
            return [last[value] for value in sorted(last)]
        except TypeError:
            return [last[value] for value in sorted(last, key=repr)]

    def _transaction(self, rows: list[tuple[Any, ...]], context: CommitContext) -> int:
        with self._connection() as database:
            database.begin()
            if not database.claim(context):
                found = database.last_epoch(context.job_id, context.sink_uid, context.subtask)
                database.rollback()
                if found is not None and found > context.epoch:
                    # a driver that was superseded is told so
                    context.fence.check()
                    raise ahead_of(context, found)
                return 0
            database.write(self._statement, rows, self._options.batch_size)
            # a driver that was paused here, and superseded meanwhile, must not commit when it goes on
            context.fence.check()
            database.commit()
        return len(rows)

    def _connection(self) -> AbstractContextManager[Database]:
        return CONNECTIONS.use(self._location.key, partial(open_database, self._location))

    def _error(
        self, failure: Failure, error: Exception, rows: list[tuple[Any, ...]], context: CommitContext, attempts: int
    ) -> Exception:
        where = (
            f"JdbcSink '{context.sink_uid}' of job {context.job_id}, epoch {context.epoch}, subtask {context.subtask}, "
            f"{self._location.label}"
        )
        said = " ".join(str(error).split())
        refused_to_connect = no_connection(failure, error, where)
        if refused_to_connect is not None:
            return refused_to_connect
        if failure is Failure.CONNECTION_LOST:
            return ConnectionFailedError(
                f"the database cannot be reached ({attempts} attempts): {said}",
                where=where,
                hint="nothing of this epoch is lost: when the database answers again, start the job again",
            )
        if failure is Failure.CONFLICT:
            return RetryableError(f"the transaction lost against others {attempts} times: {said}", where=where)
        if failure is Failure.OPERATOR:
            return OperationError(f"the database refused the transaction: {said}", where=where, hint="see its log")
        by_row = (Failure.ROW, Failure.OTHER_ROWS)
        refused = self._refused_rows(rows, by_row) if failure in by_row else []
        numbers = [number for number, row in enumerate(self._delivered, 1) if any(row is other for other in refused)]
        what = f"the row {abbreviated(refused[0])}" if refused else "the statement"
        others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        return ProgramError(
            f"the database refused {what}{others}: {said}",
            where=where,
            expected=f"rows of {self._types} that fit {self._statement.sql!r}",
            hint="create or alter the table and start the job again: of this subtask nothing of the epoch was written; "
            + how_to_skip(context, numbers),
        )

    def columns_of(self, statement: JdbcStatement) -> list[Column] | None:
        """What the database's catalogue says of the table of a statement; None if the database cannot be asked."""
        try:
            with self._connection() as database:
                return database.columns(statement)
        except Exception as error:
            if failure_of(self._location, error) is None:
                raise
            return None

    def try_rows(self, rows: list[tuple[Any, ...]]) -> None:
        """Execute the statement for rows in a transaction that is rolled back.

        Raises:
            ProgramError: the database refuses the statement, or a row for what it holds. No other failure is raised.
        """
        failed = self._failed(rows, (Failure.ROW, Failure.STATEMENT))
        if failed is None:
            return
        failure, error = failed
        refused = self._refused_rows(rows, (Failure.ROW,), 1) if failure is Failure.ROW else []
        raise ProgramError(
            f"the database refused {f'the row {abbreviated(refused[0])}' if refused else 'the statement'}: "
            f"{' '.join(str(error).split())}",
            where=f"JdbcSink, {self._location.label}",
            expected=f"rows of {self._types} that fit {self._statement.sql!r}",
            hint="create or alter the table, change the statement, or mend or filter such records; nothing of the "
            "epoch is prepared, so a mended program goes on in the same directory",
        ) from error

    def _refused_rows(
        self, rows: list[tuple[Any, ...]], failures: tuple[Failure, ...], limit: int = REFUSED_ROWS_MAX
    ) -> list[tuple[Any, ...]]:
        """The first rows that the database refuses on their own, found by bisection; empty if no single row is to
        blame."""
        if limit <= 0 or not self._failed(rows, failures):
            return []
        if len(rows) == 1:
            return rows
        half = len(rows) // 2
        found = self._refused_rows(rows[:half], failures, limit)
        return found + self._refused_rows(rows[half:], failures, limit - len(found))

    def _failed(self, rows: list[tuple[Any, ...]], failures: tuple[Failure, ...]) -> tuple[Failure, Exception] | None:
        """The failure of rows in a transaction that is rolled back, if it is one of these kinds."""
        try:
            with self._connection() as database:
                database.begin()
                database.write(self._statement, rows, self._options.batch_size)
                database.rollback()
        except Exception as error:
            failure = failure_of(self._location, error)
            return (failure, error) if failure in failures else None
        return None
