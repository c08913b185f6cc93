"""``StreamTableEnvironment``: tables as sources and sinks of DataStream programs.

Rule upheld here: a table is a stream of Rows, or what makes one. Nothing is computed on tables; whatever would need the
Table API or an SQL engine is refused in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flinkish.common.arguments import check_instance
from flinkish.common.configuration import Configuration
from flinkish.common.job_client import JobClient
from flinkish.common.options import execution
from flinkish.common.text import text_writer
from flinkish.common.time import Instant
from flinkish.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.basic import BasicType, BasicTypeInfo
from flinkish.common.types import Row, RowKind, _create_row
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.errors import ArgumentValueError, ProgramError, TypeMismatchError
from flinkish.graph.stream_graph import StreamNode
from flinkish.table.connectors import EPOCH, SINKS, SOURCES, ColumnFormat, Options, TableFormat
from flinkish.table.schema import Schema, TableDescriptor, name_of, no_table_api, parse

__all__ = ["EnvironmentSettings", "StatementSet", "StreamTableEnvironment", "Table", "TableConfig", "TableResult"]

_WHERE = "the table environment"
_LOCAL_TIME_ZONE = "table.local-time-zone"


class EnvironmentSettings:
    """Whether the program of a table environment is a streaming or a batch one; its own builder.

    Example: ``EnvironmentSettings.in_streaming_mode()``, ``EnvironmentSettings.new_instance().in_batch_mode().build()``
    """

    def __init__(self, mode: str = "STREAMING") -> None:
        self._configuration = Configuration().set_string("execution.runtime-mode", mode)

    @staticmethod
    def new_instance() -> EnvironmentSettings:
        return EnvironmentSettings()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        return EnvironmentSettings()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        return EnvironmentSettings("BATCH")

    def with_configuration(self, configuration: Configuration) -> EnvironmentSettings:
        """Add the entries of a configuration, which the environment takes over."""
        check_instance(
            configuration,
            Configuration,
            "the configuration is",
            "with_configuration()",
            "Configuration.from_dict({...})",
        )
        self._configuration.add_all(configuration)
        return self

    def get_configuration(self) -> Configuration:
        return self._configuration

    def is_streaming_mode(self) -> bool:
        return self._configuration.get(execution.RUNTIME_MODE) == "STREAMING"

    def use_blink_planner(self) -> EnvironmentSettings:
        """Has no effect: PyFlink has had no other planner since 1.14."""
        return self

    def build(self) -> EnvironmentSettings:
        return self


@dataclass(frozen=True)
class TableConfig:
    """The configuration of the environment, by keys. Those that begin with ``table.`` have no effect."""

    _env: StreamExecutionEnvironment

    def set(self, key: str, value: str) -> TableConfig:
        self._env.configure(Configuration().set_string(key, value))
        return self

    def get(self, key: str, default_value: str) -> str:
        return self._env._configuration.get_string(key, default_value)

    def get_configuration(self) -> Configuration:
        return self._env._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        self._env.configure(configuration)

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set ``table.local-time-zone``, such as ``Europe/Berlin``, ``UTC`` or ``GMT-08:00``. It has no effect: nothing
        is computed on tables, and texts of TIMESTAMP_LTZ are those of UTC, as in Flink's formats. Raises
        ArgumentValueError for what is no time zone."""
        zone = re.sub(r"^(?:UTC|GMT)?(?=[+-])", "", timezone_id) if isinstance(timezone_id, str) else ""
        try:
            known = bool(re.fullmatch(r"Z|[+-](?:0?\d|1[0-8])(?::?[0-5]\d)?", zone)) or ZoneInfo(zone) is not None
        except (ZoneInfoNotFoundError, ValueError, OSError):
            known = False
        if not known:
            raise ArgumentValueError(
                f"{timezone_id!r} is no time zone",
                where="TableConfig.set_local_timezone()",
                expected="the name of a zone or an offset",
                hint="such as 'Europe/Berlin', 'UTC' or 'GMT-08:00'",
            )
        self.set(_LOCAL_TIME_ZONE, timezone_id)

    def get_local_timezone(self) -> str:
        """The time zone that was set, or ``default``, which is that of the machine."""
        return self.get(_LOCAL_TIME_ZONE, "default")


@dataclass(frozen=True)
class TableResult:
    """The result of a statement: a job that writes into tables, or nothing."""

    _client: JobClient | None = None

    def get_job_client(self) -> JobClient | None:
        """The client of the job; None: the statement started none."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the end of the job, and raise what ended it; TimeoutError if it goes on for longer."""
        if self._client is not None:
            self._client.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1_000)

    def print(self) -> None:
        """Print the id of the job, or OK."""
        print("OK" if self._client is None else f"Job ID: {self._client.get_job_id()}")


@dataclass(frozen=True)
class Table:
    """A stream of Rows, or a table of a connector, which makes one."""

    _t_env: StreamTableEnvironment
    _stream: Callable[[], DataStream]

    def execute_insert(self, table_path: str) -> TableResult:
        """Start a job that writes the rows into a table, whose columns they have in their order."""
        return self._t_env.create_statement_set().add_insert(table_path, self).execute()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else no_table_api(f"Table.{name}()", _WHERE)


class StatementSet:
    """Inserts that run as one job, or within the job of the DataStream program."""

    def __init__(self, t_env: StreamTableEnvironment) -> None:
        self._t_env = t_env
        self._inserts: dict[str, Table] = {}

    def add_insert(self, target_path: str, table: Table) -> StatementSet:
        check_instance(table, Table, "the table is", "add_insert()", "from_data_stream(ds) makes one")
        self._inserts[name_of(target_path)] = table
        return self

    def add_insert_sql(self, stmt: str) -> StatementSet:
        found = parse(stmt)
        return self.add_insert(found.name, self._t_env.from_path(found.source))

    def attach_as_datastream(self) -> list[StreamNode]:
        """Leave the inserts to the next ``env.execute()``."""
        return [self._t_env._add_sink(name, table._stream()) for name, table in self._inserts.items()]

    def execute(self) -> TableResult:
        """Start a job of these inserts alone. ``env.execute()`` does not run them again."""
        name = "insert-into_" + ",".join(f"default_catalog.default_database.{table}" for table in self._inserts)
        return TableResult(self._t_env._env._execute_part(self.attach_as_datastream(), name))


class StreamTableEnvironment:
    """Reads and writes tables as streams. There is no Table API: SQL declares tables and says what is copied.

    Example::

        t_env = StreamTableEnvironment.create(env)
        t_env.execute_sql("CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '9')")
        t_env.to_data_stream(t_env.from_path("numbers")).map(lambda row: row.n % 10).print()
        env.execute()
    """

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env
        self._tables: dict[str, TableDescriptor | Table] = {}

    @staticmethod
    def create(
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        env = stream_execution_environment or StreamExecutionEnvironment.get_execution_environment()
        check_instance(env, StreamExecutionEnvironment, "the environment is", _WHERE, "get_execution_environment()")
        if environment_settings is not None:
            env.configure(environment_settings._configuration)
        return StreamTableEnvironment(env)

    def get_config(self) -> TableConfig:
        return TableConfig(self._env)

    def execute_sql(self, stmt: str) -> TableResult:
        """Carry out a statement: CREATE TABLE, CREATE VIEW v AS SELECT * FROM t, INSERT INTO sink SELECT * FROM t, or
        DROP. An INSERT starts a job.

        Raises:
            ProgramError: another statement, or a table that is there already, or is not there.
        """
        found = parse(stmt)
        if found.verb == "INSERT":
            return self.from_path(found.source).execute_insert(found.name)
        if found.verb == "SELECT":
            raise no_table_api("the rows of a SELECT are not shown", "execute_sql()")
        if found.verb != "DROP":
            self._register(found.name, found.table or self.from_path(found.source), found.tolerant)
        elif self._tables.pop(found.name, None) is None and not found.tolerant:
            self.from_path(found.name)
        return TableResult()

    def sql_query(self, query: str) -> Table:
        """The table of ``SELECT * FROM t``."""
        return self.from_path(parse(query).source)

    def from_path(self, path: str) -> Table:
        """The table or view of that name. Raises ProgramError if there is none."""
        entry = self._tables.get(name := name_of(path))
        if entry is None:
            known = ", ".join(self._tables) or "a table that CREATE TABLE has declared"
            raise ProgramError(f"there is no table '{name}'", where=_WHERE, expected=known)
        return entry if isinstance(entry, Table) else Table(self, partial(self._source, name, entry))

    def to_data_stream(self, table: Table) -> DataStream:
        """The rows of a table, as Rows with the names of its columns. If it has a WATERMARK, the records have their
        event time, and there are watermarks."""
        check_instance(table, Table, "the table is", "to_data_stream()", "from_path('name') gives one")
        return table._stream()

    #: the rows of tables are inserts, and those of streams have the kinds that they have
    to_changelog_stream = to_data_stream

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The rows of a table, converted to a type."""
        return self.to_data_stream(table).map(lambda row: row, output_type=type_info)

    def from_data_stream(self, data_stream: DataStream, schema: Schema | None = None) -> Table:
        """A stream as a table. Its columns are the fields of the declared type (those of a tuple are f0, f1 and so on);
        with a schema, those that it names, or, if the stream has none of them, all by their order.

        Raises:
            ProgramError: the stream has no declared type, or not the columns of the schema.
        """
        check_instance(data_stream, DataStream, "the stream is", "from_data_stream()", "such as env.from_source(...)")
        columns = _columns(data_stream)
        wanted = columns if schema is None else schema.row_type
        have, names = columns.get_field_names(), wanted.get_field_names()
        by_name = not set(have).isdisjoint(names)
        if by_name and not set(names) <= set(have):
            raise ProgramError(f"the columns {names}", where="from_data_stream()", expected=f"columns among {have}")
        positions = [have.index(name) for name in names] if by_name else range(len(have))
        stream = _converted(data_stream, positions, wanted, "from_data_stream()")
        return Table(self, lambda: stream)

    from_changelog_stream = from_data_stream

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream, schema: Schema | None = None
    ) -> None:
        """Give a name to a table or stream. Raises ProgramError if the name is taken."""
        found = table_or_data_stream
        view = found if isinstance(found, Table) else self.from_data_stream(found, schema)
        self._register(name_of(view_path), view, False)

    def create_statement_set(self) -> StatementSet:
        return StatementSet(self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else no_table_api(f"{name}()", _WHERE)

    def _register(self, name: str, entry: TableDescriptor | Table, tolerant: bool) -> None:
        if name in self._tables and not tolerant:
            raise ProgramError(f"the table '{name}' exists", where=_WHERE, expected="another name")
        self._tables.setdefault(name, entry)

    def _source(self, name: str, declared: TableDescriptor) -> DataStream:
        options, strategy, schema = Options(declared, name), WatermarkStrategy.no_watermarks(), declared.schema
        if options.connector not in SOURCES:
            raise options.error("the table is read", f"one of the connectors {', '.join(SOURCES)}")
        table = TableFormat(options, declared)
        for column in [each for each in table.columns if each.column.name == schema.rowtime]:
            # SQL's watermark is the expression itself; that of the DataStream API is a millisecond less
            strategy = WatermarkStrategy("bounded", schema.delay_ms - 1, RowTime(column))
        stream = self._env.from_source(SOURCES[options.connector](table), strategy, name)
        return stream if table.stored == table.row_type else stream.map(table.read, output_type=table.row_type)

    def _add_sink(self, name: str, stream: DataStream) -> StreamNode:
        self.from_path(name)
        declared, where = self._tables[name], f"INSERT INTO {name}"
        if isinstance(declared, Table):
            raise ProgramError("the target is a view", where=where, expected="a table with a connector")
        options = Options(declared, name)
        if options.connector not in SINKS:
            raise options.error("rows are inserted", f"one of the connectors {', '.join(SINKS)}")
        table = TableFormat(options, declared)
        rows = _converted(stream, range(len(_columns(stream).get_field_names())), table.written, where)
        if options.connector == "blackhole":
            rows = rows.filter(lambda row: False)
        if options.connector in ("print", "blackhole"):
            # the text of a row as Java has it
            rows = rows.map(text_writer(table.written), output_type=Types.STRING())
        elif table.stored != table.written:
            rows = rows.map(table.write, output_type=table.stored)
        sink = rows.sink_to(SINKS[options.connector](table)).name(name)
        return sink.set_parallelism(options.get("sink.parallelism", int, -1))._settings._node


def _columns(stream: DataStream) -> RowTypeInfo:
    """The columns of a stream: the fields of its Rows, f0, f1 and so on of tuples, or else f0.

    Raises:
        ProgramError: the stream has no declared type.
    """
    kind = stream.get_type()
    if isinstance(kind, PickledBytesTypeInfo):
        hint = "call map(..., output_type=Types.ROW_NAMED([...], [...]))"
        raise ProgramError("the stream has no declared type", where=_WHERE, expected="a type with columns", hint=hint)
    if isinstance(kind, RowTypeInfo):
        return kind
    types = kind.get_field_types() if isinstance(kind, TupleTypeInfo) else [kind]
    return Types.ROW_NAMED([f"f{index}" for index in range(len(types))], types)


def _converted(stream: DataStream, positions: Sequence[int], row_type: RowTypeInfo, where: str) -> DataStream:
    """The stream of the columns at these positions, as Rows of a type.

    Raises:
        ProgramError: the columns are others.
    """
    columns, wanted = _columns(stream), row_type.get_field_types()
    found = [columns.get_field_types()[position] for position in positions]
    if len(found) != len(wanted) or not all(map(_fits, found, wanted)):
        raise ProgramError(f"the columns are {columns!r}", where=where, expected=f"in their order {row_type!r}")
    if stream.get_type() == row_type:
        return stream
    return stream.map(partial(_picked, list(positions), row_type.get_field_names()), output_type=row_type)


_NUMBERS = [BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.FLOAT, BasicType.DOUBLE]


def _fits(kind: TypeInformation, wanted: TypeInformation) -> bool:
    if not isinstance(kind, BasicTypeInfo) or not isinstance(wanted, BasicTypeInfo):
        return kind == wanted
    one, other = kind._basic_type, wanted._basic_type
    return one is other or one in _NUMBERS and other in _NUMBERS[_NUMBERS.index(one) :]


def _picked(positions: Sequence[int], names: list[str], value: Any) -> Row:
    values = value if isinstance(value, (Row, tuple, list)) else (value,)
    kind = value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT
    return _create_row(names, [values[position] for position in positions], kind)


@dataclass(frozen=True)
class RowTime(TimestampAssigner):
    """The event time of a stored record of a table."""

    column: ColumnFormat

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time = self.column.read(value)
        if time is None:
            where = f"column '{self.column.column.name}' of a table, which has a WATERMARK for it"
            raise TypeMismatchError(f"the event time of {value!r:.200} is None", where=where, expected="a time")
        return time.to_epoch_milli() if isinstance(time, Instant) else (time - EPOCH) // timedelta(milliseconds=1)
