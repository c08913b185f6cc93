"""The reader of the Kafka source: reads ranges of partitions in a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flinkish.connectors.kafka.decoding import decoded
from flinkish.connectors.kafka.enumerator import partition_of
from flinkish.connectors.kafka.kept_consumer import KeptConsumer, PartitionBuffer, give_back, lend
from flinkish.connectors.kafka.offsets import Partition
from flinkish.connectors.kafka.settings import KafkaSourceSettings
from flinkish.core.source import SplitRange, SplitReader, SplitRecords, positions_text
from flinkish.errors import InternalError


class KafkaSplitReader(SplitReader):
    """Reads ranges of partitions. The ranges of an epoch are opened together and read side by side by one consumer,
    which is given back to the pool of the process when the last range has been read, or closed when it fails."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self._consumer: KeptConsumer | None = None
        self._unread: dict[Partition, PartitionBuffer] = {}
        #: the messages of the last batch, with its split
        self._last: tuple[str, list[Any]] = ("", [])

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        starts = {partition_of(entry.split): entry.start for entry in ranges if entry.start < _stop(entry)}
        self._unread = {}
        if not starts:
            self._give_back()
            return
        if self._consumer is None:
            self._consumer = lend(self._settings, starts)
        with self._used() as consumer:
            self._unread = consumer.open(starts)

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        stop = _stop(wanted)
        if wanted.start >= stop:
            return
        buffer = self._unread.get(partition_of(wanted.split))
        if buffer is None or buffer.start != wanted.start:
            raise InternalError(f"the range {wanted} was not opened", where=self._settings.label)
        while buffer.start < stop:
            batch = buffer.take(stop, batch_size)
            if batch:
                self._last = (wanted.split.id, batch)
                yield decoded(self._settings.deserializer, batch, wanted.split.id, self.with_timestamps)
            elif buffer.reached >= stop:
                # there are no records at the last offsets of the range
                buffer.skip_to(stop)
            else:
                with self._used() as consumer:
                    consumer.fetch(buffer)
        del self._unread[buffer.partition]
        if not self._unread:
            self._give_back()

    def place_of(self, split: str, first: int, last: int) -> str:
        """Messages without a record may stand between the others: then only the offsets of the batch are known."""
        known, messages = self._last
        if known != split:
            return super().place_of(split, first, last)
        records = decoded(self._settings.deserializer, messages, split, False).values
        numbers = (first, last) if len(records) == len(messages) else (0, len(messages) - 1)
        offsets = [messages[number].offset() for number in numbers]
        return f"split {split}, {positions_text('offset', *offsets)}"

    def close(self) -> None:
        self._unread, self._last = {}, ("", [])
        self._give_back()

    @contextmanager
    def _used(self) -> Iterator[KeptConsumer]:
        """The consumer; if the call fails, it is closed, since its state is unknown then."""
        assert self._consumer is not None
        try:
            yield self._consumer
        except BaseException:
            self._unread = {}
            consumer, self._consumer = self._consumer, None
            consumer.close()
            raise

    def _give_back(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            give_back(self._settings, consumer)


def _stop(wanted: SplitRange) -> int:
    if wanted.stop is None:
        raise InternalError(f"the range {wanted} of a Kafka partition has no end", where="KafkaSource")
    return wanted.stop
