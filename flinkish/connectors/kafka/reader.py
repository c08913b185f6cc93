"""The reader of the Kafka source: reads ranges of partitions in a worker, with consumers that a worker process keeps
from epoch to epoch.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby
from operator import methodcaller
from typing import Any

from flinkish.connectors.kafka.client import REQUEST_TIMEOUT_S, driver, new_consumer, not_allowed, refusal
from flinkish.connectors.kafka.enumerator import gone, partition_of
from flinkish.connectors.kafka.settings import KafkaSourceSettings, Partition, decoded, split_id
from flinkish.connectors.kept_resources import never_free
from flinkish.core.source import SplitRange, SplitReader, SplitRecords, positions_text
from flinkish.errors import ConnectionFailedError, FinalOperationError, FlinkishError, InternalError, OperationError

_log = logging.getLogger("flinkish.KafkaPartitionSplitReader")

#: the size of all buffers of a consumer together; librdkafka's own queue of fetched messages comes on top of it
BUFFER_BYTES = 32 * 1024 * 1024
QUEUE_KIB = 16 * 1024
#: a batch ends with the record with which it reaches this size
BATCH_BYTES = 4 * 1024 * 1024
#: the buffer of a partition with more messages is full, however small they are
BUFFER_MESSAGES = 50_000
#: how many messages, and bytes, are taken from librdkafka at a time
TAKE_MESSAGES = 10_000
TAKE_BYTES = 4 * 1024 * 1024
POLL_S = 0.5
#: the time after which a partition that delivers nothing, although it has more records, fails the epoch
STALLED_S = 60.0
#: the times after which a partition that is not read is unassigned, and a consumer that is not used is closed
PARTITION_IDLE_S = 30.0
CONSUMER_IDLE_S = 600.0

_offset = methodcaller("offset")


class PartitionBuffer:
    """The messages of one partition that were fetched and not read yet. ``start`` is the offset of the next one to
    read, ``reached`` the offset up to which (exclusive) the partition has been fetched.

    Rule: ``messages`` holds every record from ``start`` (inclusive) to ``reached`` (exclusive). Offsets without a
    record (compacted away, or markers of transactions) are known to be empty once ``reached`` is beyond them; Kafka
    reports the end of a partition even if there are no records at the last offsets.
    """

    def __init__(self, partition: Partition, start: int) -> None:
        self.partition = partition
        self.messages: list[Any] = []
        self.bytes = 0
        self.start = self.reached = start
        #: whether librdkafka fetches the partition, from ``reached`` on
        self.assigned = False
        #: the error that prevents further messages; raised when more are fetched
        self.failure: FlinkishError | None = None
        self.used_at = 0.0

    def add(self, messages: list[Any]) -> None:
        """Append messages that were fetched, in the order of their offsets; those before ``reached`` are ignored."""
        if messages[0].offset() < self.reached:
            messages = messages[bisect_left(messages, self.reached, key=_offset) :]
            if not messages:
                return
        self.messages += messages
        self.bytes += sum(map(len, messages))
        self.reached = messages[-1].offset() + 1

    def skip_to(self, start: int) -> None:
        """Discard the messages before the offset ``start``, which is at most ``reached``."""
        self._remove(bisect_left(self.messages, start, key=_offset))
        self.start = start

    def take(self, stop: int, batch_size: int) -> list[Any]:
        """Remove and return the next batch of messages before ``stop``; [] while the batch is not complete. Where a
        batch ends depends on its records alone, never on how much has been fetched so far."""
        messages = self.messages
        end = len(messages)
        if end and messages[-1].offset() >= stop:
            end = bisect_left(messages, stop, key=_offset)
        size = min(end, batch_size)
        whole = size == batch_size or self.reached >= stop
        if self.bytes >= BATCH_BYTES and sum(map(len, messages[:size])) >= BATCH_BYTES:
            size, whole = bisect_left(list(accumulate(map(len, messages[:size]))), BATCH_BYTES) + 1, True
        if not whole or not size:
            return []
        batch = messages[:size]
        self._remove(size)
        self.start = batch[-1].offset() + 1
        return batch

    def _remove(self, count: int) -> None:
        if count:
            self.bytes -= sum(map(len, self.messages[:count]))
            del self.messages[:count]


class KeptConsumer:
    """A consumer that is assigned its partitions, with a buffer for each of them of the messages that were fetched but
    not yet read.

    Rules:

    * A consumer is used by one reader at a time, which gets it by `lend` and returns it by `give_back`; one of which a
      call has failed is closed instead, since its state is unknown. A worker process that runs one task at a time
      therefore has one consumer per source, whichever subtasks it runs.
    * Messages that were fetched beyond the end of an epoch's range are kept: if a partition goes on exactly there,
      nothing is fetched again.
    * Memory is bounded: a partition whose buffer is full is unassigned until the buffer has been read; then it is
      assigned at ``reached``. No partition is ever paused: librdkafka keeps it paused over unassign and assign, and its
      position, the end that it has reported and an offset that is gone start anew only with an assignment. So
      `PartitionBuffer.assigned` is all there is to know, and what librdkafka does follows from ``reached`` alone.
    """

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._kafka = driver("KafkaSource")
        self._where = settings.label
        self._fail_on_data_loss = settings.fail_on_data_loss
        self._last_error = ""
        given = settings.consumer_settings("reader")
        queue_kib = max(QUEUE_KIB, int(given.get("fetch.max.bytes", 0)) // 1024 + 1)
        self._consumer = new_consumer(
            {
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": queue_kib,
                **given,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "error_cb": self._on_error,
            },
            settings.label,
        )
        self._buffers: dict[Partition, PartitionBuffer] = {}
        self._bytes_per_message = 1024.0
        self.used_at = time.monotonic()

    def continues(self, starts: Mapping[Partition, int]) -> int:
        """The number of partitions whose start offset lies within this consumer's buffer, so that nothing is fetched
        again."""
        return sum(self._goes_on(partition, start) for partition, start in starts.items())

    def open(self, starts: Mapping[Partition, int]) -> dict[Partition, PartitionBuffer]:
        """Assign the partitions and return their buffers, which begin at these offsets. Partitions that have been idle
        for ``PARTITION_IDLE_S`` are unassigned."""
        now = time.monotonic()
        changed = {partition: start for partition, start in starts.items() if not self._goes_on(partition, start)}
        idle = [
            partition
            for partition, buffer in self._buffers.items()
            if partition not in starts and now - buffer.used_at > PARTITION_IDLE_S
        ]
        self._unassign([self._buffers.pop(partition) for partition in (*idle, *changed) if partition in self._buffers])
        self._buffers.update({partition: PartitionBuffer(partition, start) for partition, start in changed.items()})
        self._assign([self._buffers[partition] for partition in changed])
        for partition, start in starts.items():
            self._buffers[partition].used_at = now
            self._buffers[partition].skip_to(start)
        return {partition: self._buffers[partition] for partition in starts}

    def fetch(self, wanted: PartitionBuffer) -> None:
        """Poll until the buffer's ``reached`` advances: by messages, or by offsets that are known to hold no record.

        Raises:
            FinalOperationError: the next records were deleted.
            OperationError: Kafka refuses to deliver records.
            ConnectionFailedError: Kafka has delivered nothing for ``STALLED_S``.
        """
        before = wanted.reached
        deadline = time.monotonic() + STALLED_S
        if not wanted.assigned and wanted.failure is None:
            self._assign([wanted])
        while wanted.reached == before:
            if wanted.failure is not None:
                raise wanted.failure
            if time.monotonic() > deadline:
                raise ConnectionFailedError(
                    f"Kafka has not delivered partition {split_id(wanted.partition)} from offset {wanted.reached} on "
                    f"for {STALLED_S:.0f} s" + (f": {self._last_error}" if self._last_error else ""),
                    where=self._where,
                    expected="the records that the partition had when the epoch began",
                    hint="see the brokers' logs",
                )
            try:
                self._poll()
                self._unassign_full_ones(wanted)
            except self._kafka.KafkaException as error:
                raise ConnectionFailedError(
                    f"Kafka does not deliver records: {error}", where=self._where, hint="see the brokers' logs"
                ) from error

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _goes_on(self, partition: Partition, start: int) -> bool:
        buffer = self._buffers.get(partition)
        return buffer is not None and buffer.failure is None and buffer.start <= start <= buffer.reached

    def _assign(self, buffers: list[PartitionBuffer]) -> None:
        if buffers:
            self._consumer.incremental_assign(
                [self._kafka.TopicPartition(*buffer.partition, buffer.reached) for buffer in buffers]
            )
            for buffer in buffers:
                buffer.assigned = True

    def _unassign(self, buffers: list[PartitionBuffer]) -> None:
        assigned = [buffer for buffer in buffers if buffer.assigned]
        if assigned:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*buffer.partition) for buffer in assigned])
            for buffer in assigned:
                buffer.assigned = False

    def _poll(self) -> None:
        messages = self._consumer.consume(1, POLL_S)
        if not messages:
            return
        # the first call waits for a message; the second one takes those that came with it, and does not wait
        count = max(1, min(TAKE_MESSAGES, int(TAKE_BYTES / self._bytes_per_message)))
        messages += self._consumer.consume(count, 0)
        events = [message for message in messages if message.error() is not None]
        if events:
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._bytes_per_message = max(1.0, sum(map(len, messages)) / len(messages))
        for partition, run in groupby(messages, key=_partition_of):
            buffer = self._buffers.get(partition)
            if buffer is not None:
                buffer.add(list(run))
        for event in events:
            self._on_event(event)

    def _unassign_full_ones(self, wanted: PartitionBuffer) -> None:
        limit = BUFFER_BYTES / len(self._buffers)
        full = [
            buffer
            for buffer in self._buffers.values()
            if buffer is not wanted
            and buffer.assigned
            and (buffer.bytes > limit or len(buffer.messages) > BUFFER_MESSAGES)
        ]
        self._unassign(full)

    def _on_error(self, error: Any) -> None:
        self._last_error = error.str()

    def _on_event(self, event: Any) -> None:
        error, codes = event.error(), self._kafka.KafkaError
        buffer = self._buffers.get(_partition_of(event)) if event.topic() is not None else None
        if error.code() == codes._PARTITION_EOF:
            if buffer is not None:
                buffer.reached = max(buffer.reached, event.offset())
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            if buffer is not None:
                self._out_of_range(buffer)
        elif error.retriable() or error.code() in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT):
            self._on_error(error)
        else:
            failure = (
                refusal(error, self._where)
                if not_allowed(error)
                else OperationError(
                    f"Kafka refuses to deliver records: {error.str()} ({error.name()})",
                    where=f"{self._where}, {_partition_text(event)}",
                    expected="a topic that is there and may be read",
                    hint="create the topic, or grant the right to read",
                )
            )
            for concerned in [buffer] if buffer is not None else list(self._buffers.values()):
                concerned.failure = failure

    def _out_of_range(self, buffer: PartitionBuffer) -> None:
        """Handle a next offset that the partition does not have: fail the buffer if records are lost, or go on from the
        first offset that still exists."""
        self._unassign([buffer])
        partition = self._kafka.TopicPartition(*buffer.partition)
        first, end = self._consumer.get_watermark_offsets(partition, REQUEST_TIMEOUT_S)
        lost = gone({buffer.partition: buffer.reached}, {buffer.partition: (first, end)})
        if lost and (self._fail_on_data_loss or buffer.reached > end):
            hint = "start the job in a new job directory (from a savepoint of before, or from the earliest offsets)"
            if self._fail_on_data_loss:
                hint += "; or set_fail_on_data_loss(False) to go on here without those records"
            buffer.failure = FinalOperationError(
                lost[0], where=self._where, expected="the records that the job has not read yet", hint=hint
            )
            return
        if lost:
            _log.warning("%s; the job goes on without these records [%s]", lost[0], self._where)
        buffer.reached = max(buffer.reached, first)
        self._assign([buffer])


def _partition_of(message: Any) -> Partition:
    return message.topic(), message.partition()


def _partition_text(event: Any) -> str:
    return f"partition {event.topic()}-{event.partition()}" if event.topic() is not None else "all partitions"


# ------------------------------------------------------------------------------------- the consumers of this process

_lock = threading.Lock()
_idle: dict[str, list[KeptConsumer]] = {}


def lend(settings: KafkaSourceSettings, starts: Mapping[Partition, int]) -> KeptConsumer:
    """A consumer for the source: of the idle ones of this process, the one whose buffers continue most of the
    partitions; a new one if none is idle."""
    with _lock:
        _close_unused()
        idle = _idle.get(_key(settings), [])
        if idle:
            best = max(idle, key=lambda consumer: consumer.continues(starts))
            idle.remove(best)
            return best
    return KeptConsumer(settings)


def give_back(settings: KafkaSourceSettings, consumer: KeptConsumer) -> None:
    """Return a consumer that was lent, so that the next reader of the source can use it."""
    consumer.used_at = time.monotonic()
    with _lock:
        _idle.setdefault(_key(settings), []).append(consumer)


def _key(settings: KafkaSourceSettings) -> str:
    return f"{settings.label} {settings.fail_on_data_loss} {sorted(settings.consumer_settings('reader').items())}"


def _close_unused() -> None:
    now = time.monotonic()
    for key, consumers in list(_idle.items()):
        for consumer in [entry for entry in consumers if now - entry.used_at > CONSUMER_IDLE_S]:
            consumers.remove(consumer)
            consumer.close()
        if not consumers:
            del _idle[key]


@atexit.register
def close_idle() -> None:
    """Close the idle consumers of this process."""
    for consumers in _idle.values():
        for consumer in consumers:
            consumer.close()
    _idle.clear()


def _leave_to_parent() -> None:
    # a forked process does not have the threads of its parent's consumers: to free one would wait for them forever
    global _lock
    _lock = threading.Lock()
    for consumers in _idle.values():
        for consumer in consumers:
            never_free(consumer)
    _idle.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


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
