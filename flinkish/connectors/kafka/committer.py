"""Producing the records of one (sink, subtask, epoch): plainly, or as a transaction that carries the epoch's number.

How a transaction knows that its epoch is done: it also commits an offset of a consumer group of its own, and that
offset is the epoch's number plus one (on the first partition of a topic that the epoch writes to). Kafka makes records
and offset visible together or not at all, as it does for the positions of Kafka Streams. A producer begins by fencing
off the earlier ones with its transactional id and ending what they left open; what it then reads as the group's offset
is final.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from flinkish.connectors.kafka.client import REQUEST_TIMEOUT_S, Cluster, check_reachable, client_settings, driver
from flinkish.core.sink import CommitContext, Committer
from flinkish.errors import ConnectionFailedError, OperationError, ProgramError, RetryableError

#: how long acknowledgements of one epoch are waited for after its last record was handed to the client
FLUSH_TIMEOUT_S = 120.0
ABORT_TIMEOUT_S = 5.0

# producers without transactions stay open from epoch to epoch, per thread and process
_open = threading.local()


class KafkaCommitter(Committer):
    """At least once: returns when all replicas in sync have acknowledged all records."""

    def __init__(self, servers: str, properties: Mapping[str, str], producer_properties: Mapping[str, str]) -> None:
        self._servers = servers
        self._properties = dict(properties)
        self._producer_properties = dict(producer_properties)

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        kafka = driver("KafkaSink")
        batches = (batch for batch in committables if batch)
        first = next(batches, None)
        if first is None:
            return 0
        try:
            return self._commit(first, batches, context)
        except (kafka.KafkaException, SystemError) as error:
            self._forget(context)
            # a fatal error that the client finds while it calls on_delivery comes as a SystemError of Python's
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, kafka.KafkaException):
                raise
            raise _classified(cause, self._where(context)) from error
        except BaseException:
            # the client may hold records of this epoch; they must not go out with the next one
            self._forget(context)
            raise

    def _commit(self, first: list[Any], batches: Iterator[list[Any]], context: CommitContext) -> int:
        return self._produce(self._producer(context, {"acks": "all"}), first, batches, context)

    def _produce(self, producer: Any, first: list[Any], batches: Iterator[list[Any]], context: CommitContext) -> int:
        failures: list[Any] = []

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        records = 0
        for batch in chain((first,), batches):
            for topic, key, value, timestamp in batch:
                while True:
                    try:
                        producer.produce(topic, value, key, on_delivery=on_delivery, timestamp=timestamp)
                        break
                    except BufferError:
                        producer.poll(0.5)
            producer.poll(0)
            records += len(batch)
        left = producer.flush(FLUSH_TIMEOUT_S)
        if failures:
            raise _classified(driver("KafkaSink").KafkaException(failures[0]), self._where(context))
        if left:
            raise ConnectionFailedError(
                f"{left} of {records} records were not acknowledged in {FLUSH_TIMEOUT_S:.0f} s",
                where=self._where(context),
                hint="see the brokers' logs; nothing of this epoch is lost",
            )
        return records

    def _producer(self, context: CommitContext, settings: Mapping[str, Any]) -> Any:
        producers = _producers()
        key = self._key(context)
        if key not in producers:
            check_reachable(self._servers, self._where(context))
            access = client_settings(self._servers, self._properties)
            producers[key] = driver("KafkaSink").Producer(
                {
                    "linger.ms": 20,
                    "log_level": 0,
                    "enable.idempotence": True,
                    **self._producer_properties,
                    **access,
                    **settings,
                }
            )
        return producers[key]

    def _key(self, context: CommitContext) -> str:
        return f"{self._servers} {sorted(self._producer_properties.items())}"

    def _forget(self, context: CommitContext) -> None:
        producer = _producers().pop(self._key(context), None)
        if producer is not None:
            producer.purge()

    def _where(self, context: CommitContext) -> str:
        return (
            f"KafkaSink '{context.sink_uid}' of job {context.job_id}, epoch {context.epoch}, "
            f"subtask {context.subtask}, Kafka {self._servers}"
        )


class KafkaTransactionCommitter(KafkaCommitter):
    """Exactly once: see the head of this module."""

    def __init__(
        self,
        servers: str,
        properties: Mapping[str, str],
        producer_properties: Mapping[str, str],
        transactional_id_prefix: str,
    ) -> None:
        super().__init__(servers, properties, producer_properties)
        self._prefix = transactional_id_prefix

    def _commit(self, first: list[Any], batches: Iterator[list[Any]], context: CommitContext) -> int:
        name = self._transactional_id(context)
        # a new one for each epoch: only a producer that has just begun is sure that no other is at work
        self._forget(context)
        producer = self._producer(context, {"transactional.id": name, "transaction.timeout.ms": 300_000})
        producer.init_transactions(REQUEST_TIMEOUT_S * 2)
        kafka = driver("KafkaSink")
        topic = first[0][0]
        with Cluster(self._servers, self._properties, name, "KafkaSink") as cluster:
            # over all topics: with a selector the last epoch may have begun with a record for another one
            if max(cluster.all_committed(name).values(), default=0) > context.epoch:
                return 0
            producer.begin_transaction()
            records = self._produce(producer, first, batches, context)
            marker = kafka.TopicPartition(topic, 0, context.epoch + 1)
            group = cluster.group_metadata()
            producer.send_offsets_to_transaction([marker], group, REQUEST_TIMEOUT_S)
            # a newer driver's producer has fenced this one off, unless it has not begun yet
            context.fence.check()
            producer.commit_transaction(FLUSH_TIMEOUT_S)
        _producers().pop(self._key(context), None)
        return records

    def _forget(self, context: CommitContext) -> None:
        # ends a transaction that failed half way: readers of committed records would wait for it until it times out
        producer = _producers().pop(self._key(context), None)
        if producer is not None:
            with suppress(driver("KafkaSink").KafkaException):
                producer.abort_transaction(ABORT_TIMEOUT_S)

    def _transactional_id(self, context: CommitContext) -> str:
        return f"{self._prefix}-{context.job_id}-{context.sink_uid}-{context.subtask}"

    def _key(self, context: CommitContext) -> str:
        return f"{super()._key(context)} {self._transactional_id(context)}"


def _classified(error: Any, where: str) -> Exception:
    kafka = driver("KafkaSink")
    found = error.args[0]
    if not isinstance(found, kafka.KafkaError):
        return ProgramError(f"the Kafka client refuses its settings: {error}", where=where)
    said = f"Kafka refused the records: {found.str()} ({found.name()})"
    if found.code() in (kafka.KafkaError.MSG_SIZE_TOO_LARGE, kafka.KafkaError.INVALID_RECORD):
        return ProgramError(said, where=where, hint="make the records smaller, or raise message.max.bytes")
    # a producer that was fenced off while it sent says only that it cannot go on
    if found.code() in (kafka.KafkaError._FENCED, kafka.KafkaError._FATAL, kafka.KafkaError.INVALID_PRODUCER_EPOCH):
        return RetryableError(f"another committer of this subtask has taken over: {found.str()}", where=where)
    if found.code() in (
        kafka.KafkaError._TRANSPORT,
        kafka.KafkaError._ALL_BROKERS_DOWN,
        kafka.KafkaError._MSG_TIMED_OUT,
        kafka.KafkaError._TIMED_OUT,
    ):
        return ConnectionFailedError(
            f"Kafka does not answer: {found.str()}", where=where, hint="nothing of this epoch is lost; start the broker"
        )
    return OperationError(said, where=where, hint="create the topic, or grant the right to write")


def _producers() -> dict[str, Any]:
    if getattr(_open, "process", None) != os.getpid():
        _open.process = os.getpid()
        _open.producers = {}
    found: dict[str, Any] = _open.producers
    return found
