"""``JdbcSink``: the public API of the JDBC sink."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flinkish.common.arguments import check_instance
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.connectors.jdbc.catalogue import RowCheck
from flinkish.connectors.jdbc.committer import JdbcCommitter, RowWriter, UpsertWriter
from flinkish.connectors.jdbc.database import DatabaseLocation, parse_url
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.statement import JdbcStatement, upsert_statement, user_statement
from flinkish.core.sink import Committer, Guarantee, SinkWriter, WriterSink
from flinkish.errors import ProgramError


class JdbcSink(WriterSink):
    """Writes rows to PostgreSQL, MySQL, MariaDB or SQLite.

    Guarantee: exactly once. The rows of one (subtask, epoch) and the marker of the epoch in the table
    ``flinkish_epochs`` are one transaction; an epoch that is committed again finds its marker and writes nothing.
    Whatever fails within the transaction, in the database or in the program, rolls it back.

    Made by :meth:`sink` (PyFlink's) or :meth:`upsert`. The records are Rows, tuples or lists with as many fields as the
    type.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def __init__(
        self,
        statement: JdbcStatement,
        type_info: RowTypeInfo,
        location: DatabaseLocation,
        execution_options: JdbcExecutionOptions,
    ) -> None:
        self._statement = statement
        self._types = repr(type_info)
        self._names = tuple(type_info.get_field_names())
        self._location = location
        self._execution_options = execution_options

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """A sink that executes one statement per record; its placeholders ``?`` are the fields, in their order. A
        statement knows no kinds, so Rows of another kind than INSERT are refused.

        >>> from flinkish.common.typeinfo import Types
        >>> options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("sqlite:////tmp/shop.db").build()
        >>> sink = JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", Types.ROW([Types.STRING(), Types.LONG()]), options)

        Raises:
            ProgramError: the type is no ROW, or has another number of fields than the statement has placeholders.
            ConfigurationError: the URL is not understood.
            TypeError: the options are none.
        """
        row_type = _row_type(type_info)
        location, execution = _options(jdbc_connection_options, jdbc_execution_options, "JdbcSink.sink()")
        statement = user_statement(sql, len(row_type.get_field_types()), location.dialect)
        return JdbcSink(statement, row_type, location, execution)

    @staticmethod
    def upsert(
        table: str,
        key_columns: Sequence[str],
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """A sink that keeps one row per primary key up to date (``INSERT ... ON CONFLICT DO UPDATE``, in MySQL ``ON
        DUPLICATE KEY UPDATE``). Of the records of an epoch with the same key only the last one is written. A Row of
        kind DELETE deletes the row of its key, and one of kind UPDATE_BEFORE has no effect.

        Args:
            table: ``table`` or ``schema.table``.
            key_columns: the columns of the primary key, which must have a unique constraint.
            type_info: a ROW_NAMED whose field names are the columns. Names are quoted, so they keep their case.

        Raises:
            ProgramError: the type is no ROW with names, or there is no key column, one that is named twice, or one that
                is no field.
            ConfigurationError: the URL is not understood.
            TypeError: the options are none.
        """
        row_type = _row_type(type_info)
        if not row_type._has_names:
            raise ProgramError(
                f"the fields of the type {type_info!r} have no names, which would be the columns",
                where=f"JdbcSink.upsert into {table}",
                expected="Types.ROW_NAMED([...], [...])",
                hint="name the fields as the columns of the table",
            )
        location, execution = _options(jdbc_connection_options, jdbc_execution_options, "JdbcSink.upsert()")
        statement = upsert_statement(table, row_type.get_field_names(), list(key_columns), location.dialect)
        return JdbcSink(statement, row_type, location, execution)

    @property
    def default_name(self) -> str:
        return "JdbcSink"

    @property
    def is_idempotent(self) -> bool:
        """True for `upsert`, with which there is one row per key. What a statement of the program does is not known."""
        return self._statement.is_upsert

    def create_writer(self) -> SinkWriter:
        writer = UpsertWriter if self._statement.is_upsert else RowWriter
        return writer(self._statement, self._names, RowCheck(self._committer(), self._statement))

    @property
    def _destination(self) -> str:
        table = re.search(r"\b(?:into|update|from)\s+([^\s(]+)", self._statement.sql, re.IGNORECASE)
        return f"{self._location.label}, {f'table {table[1]}' if table else self._statement.sql}"

    def create_committer(self) -> Committer:
        return self._committer()

    def _committer(self) -> JdbcCommitter:
        return JdbcCommitter(self._location, self._statement, self._execution_options, self._types)


def _row_type(type_info: TypeInformation) -> RowTypeInfo:
    if not isinstance(type_info, RowTypeInfo):
        raise ProgramError(
            f"the type {type_info!r} has no columns",
            where="JdbcSink",
            expected="Types.ROW([...]) or Types.ROW_NAMED([...], [...])",
        )
    return type_info


def _options(
    connection: JdbcConnectionOptions, execution: JdbcExecutionOptions | None, where: str
) -> tuple[DatabaseLocation, JdbcExecutionOptions]:
    execution = JdbcExecutionOptions.defaults() if execution is None else execution
    hint = "make them with JdbcConnectionOptions.JdbcConnectionOptionsBuilder()...build()"
    check_instance(connection, JdbcConnectionOptions, "the jdbc_connection_options are", where, hint)
    hint = "make them with JdbcExecutionOptions.builder()...build()"
    check_instance(execution, JdbcExecutionOptions, "the jdbc_execution_options are", where, hint)
    return parse_url(connection.url, connection.user_name, connection.password), execution
