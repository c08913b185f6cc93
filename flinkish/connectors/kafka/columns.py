"""Kafka as a source of columns, for tables: the columns of values and keys, which their formats decode, and what Kafka
itself knows of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.common.typeinfo import PickledBytesTypeInfo, TypeInformation
from flinkish.common.types import RowKind
from flinkish.connectors.kafka.reader import KafkaSplitReader
from flinkish.connectors.kafka.settings import ConsumerRecord, KafkaRecordDeserializationSchema
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.core.column_batch import ColumnBatch
from flinkish.core.source import SplitRange, SplitReader, SplitRecords
from flinkish.errors import InternalError
from flinkish.formats.columns import ColumnDecoder, as_declared

#: The most records of a batch. A batch ends also with `flinkish.connectors.kafka.reader.BATCH_BYTES`.
BATCH_RECORDS = 65_536

_DELETE, _UPDATE = int(RowKind.DELETE.value), int(RowKind.UPDATE_AFTER.value)
_value, _key = methodcaller("value"), methodcaller("key")
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    # as in Flink, the last header of a name is that of the map
    return list(dict(message.headers() or ()).items())


#: What Kafka knows of a record, by the keys of Flink's connector: the type of the column and its value.
RECORD_FACTS: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "topic": (pa.string(), methodcaller("topic")),
    "partition": (pa.int32(), methodcaller("partition")),
    "offset": (pa.int64(), methodcaller("offset")),
    "timestamp": (pa.timestamp("ms", "UTC"), lambda message: message.timestamp()[1]),
    "timestamp-type": (pa.string(), lambda message: _TIMESTAMP_TYPES[message.timestamp()[0]]),
    "headers": (pa.map_(pa.string(), pa.binary()), _headers),
    "leader-epoch": (pa.int32(), methodcaller("leader_epoch")),
}


@dataclass(frozen=True)
class KafkaColumns(KafkaRecordDeserializationSchema):
    """Makes columns of Kafka's records: the fields of ``schema`` in their order.

    Args:
        value, key: what makes columns of values and keys; None: they are not read.
        key_prefix: what the names of the columns of keys begin with, and the fields of keys do not.
        facts: the names of columns that Kafka knows, with their keys in `RECORD_FACTS`.
        keyed: whether a record without a value is one, which says that the row of its key is deleted.
        zone: that of local times.
    """

    schema: pa.Schema
    value: ColumnDecoder | None
    key: ColumnDecoder | None = None
    key_prefix: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    keyed: bool = False
    zone: str = "UTC"

    gives_columns = True

    def deserialize(self, record: ConsumerRecord) -> Any:
        raise InternalError("columns are not made record by record", where="KafkaColumns")

    def get_produced_type(self) -> TypeInformation:
        return PickledBytesTypeInfo()

    def deserialize_batch(self, messages: Sequence[Any]) -> Any:
        """The columns of these messages."""
        values = list(map(_value, messages))
        columns: dict[str, pa.Array] = {}
        kept: Sequence[int] | None = None
        if self.value is not None:
            batch, kept = self.value.decode(values)
            if self.keyed:
                batch, kept = _with_deleted(batch, kept, values)
            columns.update(zip(batch.schema.names, batch.columns, strict=True))
        chosen = messages if kept is None else [messages[place] for place in kept]
        if self.key is not None:
            batch, there = self.key.decode(list(map(_key, chosen)))
            if there is not None:
                batch = batch.take(_places(there, len(chosen)))
            names = [self.key_prefix + name for name in batch.schema.names]
            columns.update(zip(names, batch.columns, strict=True))
        for name, fact in self.facts.items():
            kind, of = RECORD_FACTS[fact]
            facts = pa.array(list(map(of, chosen)), kind)
            columns[name] = as_declared(facts, self.schema.field(name).type, self.zone)
        made = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        if not self.keyed:
            return made
        return ColumnBatch(made, np.array([_DELETE if _value(one) is None else _UPDATE for one in chosen], np.int8))


def _places(there: Sequence[int], count: int) -> pa.Array:
    """For each of so many rows, its place among those that are there; null: it is not."""
    places: list[int | None] = [None] * count
    for number, place in enumerate(there):
        places[place] = number
    return pa.array(places, pa.int64())


def _with_deleted(
    batch: pa.RecordBatch, kept: Sequence[int] | None, values: Sequence[bytes | None]
) -> tuple[pa.RecordBatch, Sequence[int] | None]:
    """The rows with one of nulls for each message without a value, and the places of the messages."""
    if kept is None:
        return batch, None
    there = set(kept)
    all_kept = [place for place, value in enumerate(values) if place in there or value is None]
    numbers = {place: number for number, place in enumerate(kept)}
    return batch.take(pa.array([numbers.get(place) for place in all_kept], pa.int64())), all_kept


class ColumnKafkaSource(KafkaSource):
    """Reads topics of Kafka as batches of columns."""

    def create_reader(self) -> SplitReader:
        return ColumnKafkaReader(self._settings)


class ColumnKafkaReader(KafkaSplitReader):
    """Reads ranges of partitions in large batches."""

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        return super().read(wanted, BATCH_RECORDS)
