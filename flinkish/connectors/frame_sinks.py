"""Sinks that receive the records of an epoch as a DataFrame: Delta tables, and functions of the user."""

from __future__ import annotations

import inspect
import json
import posixpath
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import holds_pickled, no_columns, quoted
from flinkish.connectors.spark import DeltaTable, ddl_of, with_wider_decimals
from flinkish.core.sink import DELETED_COLUMN, CommitContext, DataFrameSink, Guarantee, how_to_skip
from flinkish.delta.log import DeltaLog, commits_in, described_table, last_checkpoint
from flinkish.errors import ProgramError, TypeMismatchError

#: The texts that a partition column of a Delta table cannot hold: they are its ways of writing null.
_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")


class _Demands:
    """What a Delta table demands of the rows that are written to it, as far as its log says so.

    The log is read once, and again before rows are refused, since the table may have been altered.

    Args:
        table: the table, which need not exist.
        partition_by: columns by which the table is partitioned if the sink creates it.
    """

    def __init__(self, table: DeltaTable, partition_by: Sequence[str]) -> None:
        self._table = table
        #: where its log is; None: not known
        self.location: str | None = table.path or None
        self._declared = frozenset(name.lower() for name in partition_by)
        self._is_read = False
        self._partitions = self._declared
        self._required: frozenset[str] = frozenset()

    def check(self, columns: Any, where: str) -> None:
        """Check a ``pyarrow.RecordBatch`` of rows.

        Raises:
            TypeMismatchError: a row could not be written as it is.
        """
        if not self._is_read:
            self._read()
        if self._misfit(columns) is None:
            return
        self._read()
        misfit = self._misfit(columns)
        if misfit is not None:
            raise TypeMismatchError(
                f"the record {misfit[0]!r:.300} cannot be written to the Delta table {self._table}: {misfit[1]}",
                where=where,
                expected=misfit[2],
                hint="mend or filter such records before the sink, or alter the table",
            )

    def _read(self) -> None:
        described = None if self.location is None else described_table(self.location)
        self._is_read = True
        self._partitions, self._required = self._declared, frozenset()
        if described is not None:
            fields = json.loads(described["schemaString"])["fields"]
            self._partitions = frozenset(name.lower() for name in described["partitionColumns"])
            self._required = frozenset(field["name"].lower() for field in fields if not field["nullable"])

    def _misfit(self, columns: Any) -> tuple[dict[str, Any], str, str] | None:
        """The first row that does not fit, why, and what is expected instead."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, column in zip(columns.schema.names, columns.columns, strict=True):
            if name.lower() in self._required and column.null_count:
                row = columns.slice(column.is_null().index(True).as_py(), 1).to_pylist()[0]
                return row, f"the column '{name}' is NOT NULL", "a value in each such column"
            kind = column.type
            if name.lower() in self._partitions and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
                at = pc.index_in(pa.array(_NULLS, kind), column).drop_null()
                if len(at):
                    row = columns.slice(min(at.to_pylist()), 1).to_pylist()[0]
                    why = f"in the partition column '{name}', {row[name]!r} would become null"
                    return row, why, "other texts than '' and '__HIVE_DEFAULT_PARTITION__', or no partition column"
        return None


class DeltaSink(DataFrameSink):
    """Appends Rows to a Delta table, which is created if it does not exist.

    The stream's type is a ROW_NAMED; its fields may have every type but SQL_TIME and PICKLED_BYTE_ARRAY, nested to any
    depth (see docs/connectors.md). A null in a column that the table says is NOT NULL, and a text that a partition
    column would turn into null, fail the job before their epoch is prepared.

    Guarantee: exactly once. Each epoch is one transaction of Delta, with the epoch as the transaction version
    (``txnVersion``) of the application ``<job id>/<sink uid>`` (``txnAppId``); Delta skips a version that it has
    committed already.

    Args:
        path: path or URI of the table.
        table: instead of ``path``, the name of the table in a catalog of Spark: ``catalog.schema.table``.
        mode: only ``append``, since any other mode would undo what an earlier epoch wrote.
        partition_by: columns to partition a new table by.
        options: further options of Delta's writer, such as ``mergeSchema``.

    Raises:
        ProgramError: another mode; or, when an epoch is written, the table refuses the rows.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    repeats_conflicts = True

    def __init__(
        self,
        path: str = "",
        mode: str = "append",
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        *,
        table: str = "",
    ) -> None:
        self._table = DeltaTable(path, table)
        if mode != "append":
            raise ProgramError(f"the mode '{mode}'", where=f"DeltaSink {self._table}", expected="append")
        self._demands = _Demands(self._table, partition_by)
        self._partition_by = list(partition_by)
        self._options = dict(options or {})

    @property
    def _destination(self) -> str:
        return f"Delta table {self._table}"

    @staticmethod
    def merge(
        path: str = "",
        key_columns: Sequence[str] = (),
        delete_when: str | None = None,
        partition_by: Sequence[str] = (),
        *,
        table: str = "",
    ) -> DeltaMergeSink:
        """A sink that inserts or updates (Delta's ``MERGE``) one row per key. A Row of kind DELETE deletes the row of
        its key, and one of kind UPDATE_BEFORE has no effect.

        Args:
            path: path or URI of the table.
            table: instead of ``path``, the name of the table in a catalog of Spark: ``catalog.schema.table``.
            key_columns: fields that identify the row; None is a key value like any other.
            delete_when: a condition of Spark SQL over the fields (``"amount IS NULL"``); a record that meets it
                deletes the row of its key. None: no row is deleted.
            partition_by: columns to partition a new table by.

        Raises:
            ProgramError: no key column, or one that is named twice.
        """
        return DeltaMergeSink(DeltaTable(path, table), key_columns, delete_when, partition_by)

    def check_type(self, input_type: TypeInformation, where: str) -> None:
        _check_row(input_type, where, "DeltaSink")

    def last_committed_epoch(self, session: Any, context: CommitContext) -> int | None:
        return _last_transaction(session, self._table.location(session), _application(context))

    def prepare(self, session: Any) -> None:
        self._demands.location = self._table.location(session)

    def check_columns(self, columns: Any, where: str) -> None:
        self._demands.check(columns, where)

    def write_frame(self, frame: Any, context: CommitContext) -> None:
        from pyspark.errors import AnalysisException

        options = {
            **self._options,
            "txnAppId": _application(context),
            "txnVersion": str(context.epoch),
        }
        try:
            if self._table.name:
                # Spark does not pass the options on to Delta when it creates a table by its name
                _create(self._table, frame, self._partition_by)
            self._append(frame, options)
        except AnalysisException as error:
            raise ProgramError(
                f"the Delta table refuses the rows: {_why_refused(self._table, frame, error)}",
                where=f"DeltaSink '{context.sink_uid}' into {self._table}, epoch {context.epoch}",
                expected="rows of the table's schema",
                hint="alter the table, or allow new columns with options={'mergeSchema': 'true'}; "
                + how_to_skip(context),
            ) from error

    def _append(self, frame: Any, options: dict[str, str]) -> None:
        from pyspark.errors import AnalysisException

        def write(rows: Any) -> None:
            self._table.write(_partitioned(rows.write, self._partition_by).mode("append").options(**options))

        try:
            write(frame)
        except AnalysisException:
            # Delta takes no decimals of other digits, not even into a wider column, and writes nothing then
            widened = with_wider_decimals(frame, self._table.read(frame.sparkSession).schema)
            if widened is None:
                raise
            write(widened)


class DeltaMergeSink(DataFrameSink):
    """Inserts or updates one row per key in a Delta table, which is created if it does not exist. Made by
    :meth:`DeltaSink.merge`.

    If an epoch has several records of the same key, the last one counts. Key the stream by the same fields, or set its
    parallelism to 1, since there is no order between the records of different subtasks.

    Guarantee: exactly once. Each epoch is one merge, with the epoch as Delta's transaction version of the application
    ``<job id>/<sink uid>``; Delta skips a version that it has committed already.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    takes_changes = True
    repeats_conflicts = True

    def __init__(
        self, table: DeltaTable, key_columns: Sequence[str], delete_when: str | None, partition_by: Sequence[str]
    ) -> None:
        if not key_columns or len(set(key_columns)) < len(key_columns):
            raise ProgramError(
                f"the key columns {list(key_columns)}",
                where=f"DeltaSink {table}",
                expected="at least one name, each of them once",
            )
        self._table = table
        self.key_columns = list(key_columns)
        self._delete_when = delete_when
        self._demands = _Demands(table, partition_by)
        self._partition_by = list(partition_by)

    @property
    def default_name(self) -> str:
        return "DeltaSink"

    @property
    def is_idempotent(self) -> bool:
        """True: there is one row per key."""
        return True

    @property
    def _destination(self) -> str:
        return f"Delta table {self._table}"

    def last_committed_epoch(self, session: Any, context: CommitContext) -> int | None:
        return _last_transaction(session, self._table.location(session), _application(context))

    def check_type(self, input_type: TypeInformation, where: str) -> None:
        _check_row(input_type, where, "DeltaSink")
        assert isinstance(input_type, RowTypeInfo)
        names = input_type.get_field_names()
        missing = [key for key in self.key_columns if key not in names]
        if missing:
            raise TypeMismatchError(
                f"the key column '{missing[0]}' is no field of the records",
                where=where,
                expected=f"one of {', '.join(names)}",
            )

    def prepare(self, session: Any) -> None:
        self._demands.location = self._table.location(session)

    def check_columns(self, columns: Any, where: str) -> None:
        self._demands.check(columns, where)

    def write_frame(self, frame: Any, context: CommitContext) -> None:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions

        session = frame.sparkSession
        records = frame.drop(DELETED_COLUMN)
        if DELETED_COLUMN not in frame.columns:
            frame = frame.withColumn(DELETED_COLUMN, functions.lit(False))
        settings = {
            "spark.databricks.delta.write.txnAppId": _application(context),
            "spark.databricks.delta.write.txnVersion": str(context.epoch),
        }
        view = f"flinkish_{zlib.crc32(_application(context).encode())}"
        table = f"{view}_table"
        try:
            _create(self._table, records, self._partition_by)
            # Spark's SQL takes no relative path in the place of a table, as its readers and writers do
            target = self._table.read(session)
            target.createOrReplaceTempView(table)
            missing = set(records.columns) - set(target.columns)
            if missing:
                raise self._refused(context, f"it has no column '{min(missing)}' ({', '.join(target.columns)})")
            self._last_of_each_key(frame).createOrReplaceTempView(view)
            for key, value in settings.items():
                session.conf.set(key, value)
            session.sql(self._statement(records.columns, view, table)).collect()
        except AnalysisException as error:
            raise self._refused(context, _why_refused(self._table, records, error)) from error
        finally:
            for key in settings:
                session.conf.unset(key)
            session.catalog.dropTempView(view)
            session.catalog.dropTempView(table)

    def _refused(self, context: CommitContext, why: str) -> ProgramError:
        return ProgramError(
            f"the Delta table refuses the rows: {why}",
            where=f"DeltaSink '{context.sink_uid}' into {self._table}, epoch {context.epoch}",
            expected="a table with a column for each field, and a condition that Spark understands",
            hint=f"alter the table, or the condition for what is deleted; {how_to_skip(context)}",
        )

    def _last_of_each_key(self, frame: Any) -> Any:
        from pyspark.sql import functions

        columns = [functions.col(quoted(name)) for name in frame.columns]
        # the ids increase in the order of the stream within a subtask
        numbered = frame.select(functions.struct(*columns).alias("row"), functions.monotonically_increasing_id())
        numbered = numbered.toDF("row", "number")
        keys = [functions.col(f"row.{quoted(key)}").alias(f"key{n}") for n, key in enumerate(self.key_columns)]
        rows = numbered.groupBy(*keys).agg(functions.max_by("row", "number").alias("row")).select("row.*")
        delete = functions.coalesce(functions.expr(self._delete_when or "false"), functions.lit(False))
        return rows.withColumn(DELETED_COLUMN, functions.col(DELETED_COLUMN) | delete)

    def _statement(self, columns: Sequence[str], view: str, table: str) -> str:
        names = [quoted(name) for name in columns]
        same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in self.key_columns)
        return (
            f"MERGE INTO {table} t USING {view} s ON {same}"
            f" WHEN MATCHED AND s.{DELETED_COLUMN} THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)}"
            f" WHEN NOT MATCHED AND NOT s.{DELETED_COLUMN} THEN INSERT ({', '.join(names)})"
            f" VALUES ({', '.join(f's.{name}' for name in names)})"
        )


class FunctionSink(DataFrameSink):
    """Calls ``function(frame, epoch)`` in the driver, with the records of each epoch as a DataFrame (the counterpart of
    Spark's ``foreachBatch``). The stream's type is a ROW_NAMED, one column per field. A function with a third parameter
    is given the `CommitContext` as well.

    Guarantee: at least once. After a failure the function is called again with the same epoch and the same records, so
    a function whose writes are idempotent per epoch is exactly-once. Epochs are numbered from 0 in each job directory:
    what identifies an epoch to the destination must also hold the id of the job (and the uid of the sink, if a job has
    several). Do not keep the DataFrame beyond the call: it reads files that are deleted some epochs later.

    >>> def write(frame, epoch, context):
    ...     frame.write.mode("overwrite").parquet(f"/out/job={context.job_id}/epoch={epoch}")
    >>> sink = FunctionSink(write)
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self, function: Callable[..., None]) -> None:
        if not callable(function):
            raise ProgramError(
                f"{function!r} is no function", where="sink_to", expected="a Sink, or a function of (DataFrame, epoch)"
            )
        self._function = function

    @property
    def default_name(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    def check_type(self, input_type: TypeInformation, where: str) -> None:
        _check_row(input_type, where, "a function sink")

    def write_frame(self, frame: Any, context: CommitContext) -> None:
        if _positional_parameters(self._function) >= 3:
            self._function(frame, context.epoch, context)
        else:
            self._function(frame, context.epoch)


def _positional_parameters(function: Callable[..., None]) -> int:
    """How many arguments must be given to the function, as far as it says."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that is not written in Python
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds and parameter.default is parameter.empty for parameter in parameters)


def _application(context: CommitContext) -> str:
    """The application whose transactions Delta counts: that of one sink of one job directory."""
    return f"{context.job_id}/{context.sink_uid}"


def _last_transaction(session: Any, path: str | None, application: str) -> int | None:
    """The last version of an application that a Delta table has committed; None if there is none. Delta's API for
    Python does not say it, so Spark, which may reach what this process does not, reads the table's log."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions

    if path is None:
        return None
    # a path may hold characters that mean something in a pattern
    log = DeltaLog(re.sub(r"[]\[{}*?\\]", r"\\\g<0>", path)).path
    try:
        names = [posixpath.basename(file) for file in session.read.text(f"{log}/[0-9]*").inputFiles()]
    except AnalysisException:
        return None  # there is no table yet
    last, needed = last_checkpoint(names)
    needed += [name for name in names if any(version > last for version in commits_in([name]))]
    versions: list[int] = []
    for form in ("json", "parquet"):
        files = [f"{log}/{name}" for name in needed if name.endswith(form)]
        if files:
            actions = session.read.schema("txn struct<appId string, version bigint>").format(form).load(files)
            own = actions.where(functions.col("txn.appId") == application).agg(functions.max("txn.version"))
            versions += [row[0] for row in own.collect() if row[0] is not None]
    return max(versions, default=None)


def _partitioned(writer: Any, columns: Sequence[str]) -> Any:
    """Delta's writer, with the columns by which a new table is partitioned."""
    writer = writer.format("delta")
    return writer.partitionBy(*columns) if columns else writer


def _create(table: DeltaTable, frame: Any, partition_by: Sequence[str]) -> None:
    """Create an empty table with the columns of a DataFrame, or do nothing if the table exists."""
    table.write(_partitioned(frame.limit(0).write, partition_by).mode("ignore"))


def _why_refused(table: DeltaTable, frame: Any, error: Exception) -> str:
    """Why a table refuses the rows of a DataFrame: the columns in which they differ, and what Spark says."""
    try:
        fields = {field.name.lower(): field for field in table.read(frame.sparkSession).schema.fields}
    except Exception:
        return _text_of(error)
    names = ", ".join(field.name for field in fields.values())
    differences = []
    for field in frame.schema.fields:
        there = fields.get(field.name.lower())
        if there is None:
            differences.append(f"it has no column {field.name!r} ({names})")
        elif there.dataType != field.dataType:
            kinds = there.dataType.simpleString(), field.dataType.simpleString()
            differences.append(f"the column {there.name!r} is {kinds[0]} in the table and {kinds[1]} in the rows")
    return "; ".join([*differences, _text_of(error)])


def _text_of(error: Exception) -> str:
    """The first line of Spark's error message. PySpark fails to format Delta's own errors, whose names Spark does not
    know; for these it is the first line of the description that the error carries."""
    try:
        return str(error).split("\n")[0]
    except Exception:
        return str(getattr(error, "_desc", None) or getattr(error, "_origin", type(error).__name__)).split("\n")[0]


def _check_row(input_type: TypeInformation, where: str, what: str) -> None:
    if not isinstance(input_type, RowTypeInfo):
        raise TypeMismatchError(
            f"{what} cannot make columns of the type {input_type!r}",
            where=where,
            expected="a stream of Types.ROW_NAMED([...], [...])",
            hint="declare output_type=Types.ROW_NAMED(...) on the operator before the sink",
        )
    if not input_type.get_field_types() or holds_pickled(input_type):
        raise no_columns(input_type, f"{what}, {where}")
    ddl_of(input_type)  # raises for types that Spark does not have
