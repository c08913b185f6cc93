"""Changes of many keys of a state in columns, as the changelog has them (`changelog`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.types import _create_rows
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps_all, loads_all

if TYPE_CHECKING:
    import pyarrow as pa

    from flinkish.runtime.stored.column_pickles import Column


class ColumnChanges(NamedTuple):
    """The values that keys of a value state have at the end of an epoch, or that they have none."""

    uid: str
    state: str
    #: the namespace of each key, or the one of all
    namespaces: list[Hashable]
    #: the names of the fields, if the values are Rows; else there is one column of them, or none: the keys are gone
    fields: list[str] | None
    keys: list[pa.Array]
    values: list[Column]
    rows: int

    def encode(self, classes: ProgramClasses = NO_CLASSES) -> tuple[Any, ...]:
        """The stored form: plain data, and an Arrow stream with the columns; of values without a type there, the
        pickles."""
        import pyarrow as pa

        objects = [place for place, column in enumerate(self.values) if isinstance(column, list)]
        columns = [
            pa.array(dumps_all(column, classes), pa.binary()) if isinstance(column, list) else column
            for column in (*self.keys, *self.values, pa.nulls(self.rows))
        ]
        batch = pa.RecordBatch.from_arrays(columns, [str(place) for place in range(len(columns))])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        stream = sink.getvalue().to_pybytes()
        return self.uid, self.state, self.namespaces, self.fields, len(self.keys), objects, stream

    @staticmethod
    def entries(
        stored: Sequence[Any], classes: ProgramClasses = NO_CLASSES
    ) -> Iterator[tuple[str, str, Hashable, Any, tuple[Any, ...]]]:
        """(uid, state, namespace, key, its values) of each key of the stored form."""
        import pyarrow as pa

        from flinkish.core.column_batch import python_values
        from flinkish.runtime.exchange.column_keys import keys_of_columns

        uid, state, namespaces, fields, key_columns, objects, stream = stored
        batch = pa.ipc.open_stream(stream).read_next_batch()
        columns = [python_values(column) for column in batch.columns[key_columns:-1]]
        for place in objects:
            columns[place] = loads_all(columns[place], "a change of state", "", classes)
        if fields is not None:
            rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
            values: Any = zip(_create_rows(fields, rows))
        else:
            values = zip(*columns) if columns else repeat((), batch.num_rows)
        keys = keys_of_columns(batch.columns[:key_columns], batch.num_rows)
        of_all = namespaces if len(namespaces) > 1 else repeat(namespaces[0], batch.num_rows)
        for namespace, key, found in zip(of_all, keys, values, strict=True):
            yield uid, state, namespace, key, found
