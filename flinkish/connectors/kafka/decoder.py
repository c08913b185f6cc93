"""The values of Kafka's records through the schema; timestamps beside them, in ms."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

from flinkish.common.serialization import DeserializationSchema
from flinkish.core.source import SPLIT_COLUMN, RecordDecoder
from flinkish.errors import MalformedRecordError, ProgramError

if TYPE_CHECKING:
    import pyarrow


class KafkaDecoder(RecordDecoder):
    """Batches with the columns ``value``, ``timestamp`` (ms), ``offset`` and SPLIT_COLUMN."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        messages = batch.column("value").to_pylist()
        try:
            records = self._schema.deserialize_batch(messages)
        except MalformedRecordError:
            raise self._located(batch, messages) from None
        timestamps = batch.column("timestamp").to_pylist()
        if type(None) in set(map(type, records)):
            # null messages (tombstones) and what the schema was told to pass over
            kept = [record is not None for record in records]
            records, timestamps = list(compress(records, kept)), list(compress(timestamps, kept))
        return records, timestamps

    def _located(self, batch: pyarrow.RecordBatch, messages: list[bytes | None]) -> Exception:
        """The error again, with partition and offset: which record it was is asked of the schema one by one."""
        for position, message in enumerate(messages):
            try:
                self._schema.deserialize_batch([message])
            except MalformedRecordError as error:
                split = batch.column(SPLIT_COLUMN)[position].as_py()
                offset = batch.column("offset")[position].as_py()
                return MalformedRecordError(
                    error.what,
                    where=", ".join(part for part in (f"partition {split}, offset {offset}", error.where) if part),
                    expected=error.expected,
                    hint=error.hint,
                )
        return ProgramError(
            "the schema refuses a batch of messages and none of them alone", where=type(self._schema).__name__
        )
