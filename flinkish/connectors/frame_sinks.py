"""Sinks that get the records of an epoch as a DataFrame: Delta tables, and functions of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import no_columns
from flinkish.common.typeinfo.spark_ddl import holds_pickled
from flinkish.connectors.spark_types import ddl_of
from flinkish.core.sink import CommitContext, DataFrameSink, Guarantee
from flinkish.errors import ProgramError, TypeMismatchError


class DeltaSink(DataFrameSink):
    """Appends Rows to a Delta table, which is created if it is not there.

    Takes every declared type but SQL_TIME and PICKLED_BYTE_ARRAY, nested as one likes (see docs/connectors.md).

    Guarantee: exactly once. The epoch is written as Delta's transaction version of the application
    ``<job id>/<sink uid>``; Delta skips a version that it has.

    Args:
        path: of the table.
        mode: only ``append``: any other would undo what an earlier epoch wrote.
        partition_by: columns to partition a new table by.
        options: further options of Delta's writer, such as ``mergeSchema``.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self,
        path: str,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        if mode != "append":
            raise ProgramError(f"the mode '{mode}'", where=f"DeltaSink {path}", expected="append")
        self._path = path
        self._partition_by = list(partition_by)
        self._options = dict(options or {})

    def check_type(self, input_type: TypeInformation, where: str) -> None:
        _check_row(input_type, where, "DeltaSink")

    def write_frame(self, frame: Any, context: CommitContext) -> None:
        from pyspark.errors import AnalysisException

        writer = frame.write.format("delta").mode("append")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        options = {
            **self._options,
            "txnAppId": f"{context.job_id}/{context.sink_uid}",
            "txnVersion": str(context.epoch),
        }
        try:
            writer.options(**options).save(self._path)
        except AnalysisException as error:
            raise ProgramError(
                f"the Delta table refuses the rows: {str(error).splitlines()[0]}",
                where=f"DeltaSink '{context.sink_uid}' into {self._path}, epoch {context.epoch}",
                expected="rows of the table's schema",
                hint="alter the table, or allow new columns with options={'mergeSchema': 'true'}",
            ) from error


class FunctionSink(DataFrameSink):
    """Calls ``function(frame, epoch)`` with each epoch's records as a DataFrame, in the driver.

    Guarantee: at least once. After a failure the function is called again with the same epoch and the same records: a
    function that writes idempotently by epoch is exactly-once. The frame reads files that are deleted some epochs
    later: do not keep it.

    >>> sink = FunctionSink(lambda frame, epoch: frame.write.mode("overwrite").parquet(f"/out/epoch={epoch}"))
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self, function: Callable[[Any, int], None]) -> None:
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
        self._function(frame, context.epoch)


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
    ddl_of(input_type)  # types that Spark does not have
