"""``map_batches``: calls a function of columns (a ``pyarrow.RecordBatch`` or a ``pandas.DataFrame``) between operators
that work on records. The function returns one row for each record, in their order, so that each row has the timestamp
of its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import abbreviated
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import check_inserts_only
from flinkish.core.functions import MapBatchesFunction
from flinkish.errors import TypeMismatchError
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator

if TYPE_CHECKING:
    import pyarrow as pa


class ConvertOperator(StreamOperator):
    """Emits each batch in the form of the declared type and changes nothing else: the head of a typed source, or of the
    stream of a side output. It costs nothing per record if there is nothing to convert."""

    keeps_positions = True

    def __init__(self, converter: Converter | None) -> None:
        self._converter = converter

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.output.collect(values if self._converter is None else self._converter(values), timestamps)


@dataclass(frozen=True)
class ConvertFactory(OperatorFactoryBase):
    """Makes converting operators. ``converter`` None: there is nothing to convert."""

    converter: Converter | None
    reads_timestamps: bool = False

    def create(self) -> ConvertOperator:
        """A fresh operator."""
        return ConvertOperator(self.converter)


class MapBatchesOperator(UserFunctionOperator):
    """Calls a MapBatchesFunction for each batch of records.

    Args:
        write: makes a batch of records, for the function.
        read: makes records of a RecordBatch that has the columns of ``schema``.
        schema: columns of the declared type of the results.
        of_frame: makes a RecordBatch with the columns of ``schema`` of a DataFrame that has columns of these names.
    """

    def __init__(
        self,
        function: MapBatchesFunction | Callable[[Any], Any],
        write: Callable[[list[Any]], Any],
        read: Callable[[pa.RecordBatch], list[Any]],
        schema: pa.Schema,
        of_frame: Callable[[Any, pa.Schema], pa.RecordBatch],
    ) -> None:
        super().__init__(function, "map_batches", None)
        self._write = write
        self._read = read
        self._schema = schema
        self._of_frame = of_frame

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        if not values:
            return
        check_inserts_only(values, "the input of map_batches(), whose columns have no kind")
        result = self._batch_of(self.call(self._write(values)))
        if result.num_rows != len(values):
            raise self._wrong(
                f"gave {result.num_rows} rows for {len(values)} records",
                "one row for each record, in their order",
                "drop records with filter, and multiply them with flat_map",
            )
        self.output.collect(self._read(result), timestamps)

    def _batch_of(self, result: Any) -> pa.RecordBatch:
        """The function's result as one RecordBatch with the columns of the declared type, which are found by name."""
        import pyarrow as pa

        names = self._schema.names
        if isinstance(result, pa.Table):
            result = result.combine_chunks()
            result = pa.RecordBatch.from_arrays(
                [_whole(column) for column in result.columns], names=result.schema.names
            )
        if not isinstance(result, pa.RecordBatch):
            result = self._of_pandas(result)
        self._check_names(result.schema.names)
        return result if result.schema.names == names else result.select(names)

    def _check_names(self, found: list[str]) -> None:
        if sorted(found) != sorted(self._schema.names):
            raise self._wrong(
                f"gave the columns {', '.join(found) or 'none'}",
                f"the columns of the declared type: {', '.join(self._schema.names)}",
            )

    def _of_pandas(self, result: Any) -> pa.RecordBatch:
        import pyarrow as pa

        if not hasattr(result, "columns") or not hasattr(result, "dtypes"):
            raise self._wrong(
                f"gave a {type(result).__name__}", "a pyarrow.RecordBatch, a pyarrow.Table or a pandas.DataFrame"
            )
        self._check_names([str(name) for name in result.columns])
        try:
            return self._of_frame(result, self._schema)
        except (pa.ArrowException, Mismatch, ArithmeticError, TypeError, ValueError) as error:
            why = " ".join(map(str, error.args))
            if isinstance(error, Mismatch):
                place = ", ".join(error.path)
                why = f"{place} has the value {abbreviated(error.value, 80)} of type {type(error.value).__name__}"
            raise self._wrong(
                f"gave a DataFrame that does not fit: {why}",
                f"columns of {', '.join(f'{field.name} {field.type}' for field in self._schema)}",
            ) from None

    def _wrong(self, what: str, expected: str, hint: str = "") -> TypeMismatchError:
        return TypeMismatchError(f"map_batches() {what}", where=self.where, expected=expected, hint=hint)


def _whole(column: Any) -> Any:
    """A column of a table whose chunks were combined, as one array: it has one chunk, or none if it is empty."""
    chunks = column.chunks
    import pyarrow as pa

    return chunks[0] if chunks else pa.array([], column.type)


@dataclass
class MapBatchesFactory(OperatorFactoryBase):
    """Makes `MapBatchesOperator` instances, with the same arguments."""

    function: MapBatchesFunction | Callable[[Any], Any]
    write: Callable[[list[Any]], Any]
    read: Callable[[Any], list[Any]]
    schema: Any
    of_frame: Callable[[Any, Any], Any]
    takes_misfits: bool = False
    reads_timestamps: bool = False

    def create(self) -> MapBatchesOperator:
        return MapBatchesOperator(self.function, self.write, self.read, self.schema, self.of_frame)
