"""The committers of the Kafka sink: they produce the records of one (sink, subtask, epoch), either without a
transaction or in a transaction that also holds the number of the epoch.

How a transaction tells that its epoch is committed: it also commits an offset of a consumer group of its own, the
marker, which is the epoch's number plus one (on the first partition of a topic that the epoch writes to). Kafka makes
records and marker visible together or not at all, as it does for the positions of Kafka Streams. A new producer first
fences off the earlier producers with its transactional id, which ends the transactions that they left open; so the
marker that it reads then is final.

Producers are kept per process and used again by later epochs (``kept_resources``). A kept transactional producer need
not read the marker again: only a transaction with its transactional id moves the marker, and the broker refuses the
transactions of a producer as soon as another producer has been initialized with that id. So either only this producer
has moved the marker since it was read, or this producer can commit nothing any more. It learns that before it writes a
record, since it sends the marker first; then it is closed, and a new producer is initialized.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from flinkish.connectors.kafka.client import (
    REQUEST_TIMEOUT_S,
    Cluster,
    check_reachable,
    driver,
    new_producer,
    not_allowed,
    refusal,
)
from flinkish.connectors.kafka.properties import writing_settings
from flinkish.connectors.kept_resources import KeptResources
from flinkish.core.sink import CommitContext, Committer, ahead_of, how_to_skip
from flinkish.errors import (
    ConnectionFailedError,
    FinalOperationError,
    OperationError,
    ProgramError,
    RetryableError,
)

_log = logging.getLogger("flinkish.KafkaCommitter")

#: how long to wait for the acknowledgements of an epoch after its last record was handed to the client, in seconds
FLUSH_TIMEOUT_S = 120.0
ABORT_TIMEOUT_S = 5.0
#: time after which a broker aborts a transaction whose producer is gone, unless the sink's properties set another one
TRANSACTION_TIMEOUT_MS = 300_000
#: how many idle producers a worker process keeps
PRODUCERS_KEPT_MAX = 16
#: how many subtasks' markers are asked for at the same time
_MARKERS_AT_ONCE = 8


class _Producer:
    """A producer that can be kept for later epochs."""

    def __init__(self, settings: Mapping[str, Any], where: str) -> None:
        # connection errors are recorded by the callback, not printed
        self.client = new_producer({**settings, "error_cb": self._on_error}, where)
        #: whether the client has reported an error, such as a lost connection, since the producer was made
        self.disturbed = False

    def _on_error(self, error: Any) -> None:
        self.disturbed = True

    def close(self) -> None:
        """Discard the records that the client still holds, and close it; never raises."""
        # an error here must not replace the one that is being handled
        with suppress(Exception):
            self.client.purge()
        with suppress(Exception), warnings.catch_warnings():
            # the warning that a producer that was fenced off could not end its transaction
            warnings.simplefilter("ignore", RuntimeWarning)
            self.client.close()


class _TransactionalProducer(_Producer):
    """A producer that writes one epoch per transaction. It fences off the earlier producers with its transactional
    id."""

    def __init__(self, settings: Mapping[str, Any], where: str) -> None:
        super().__init__(settings, where)
        #: all epochs below this one are committed; advances only with this producer's transactions
        self.next_epoch = 0
        self._group: Any = None
        #: whether it was made for the current commit, and not kept from an earlier one
        self.fresh = True
        self._hangs = False

    def initialize(self, cluster: Cluster) -> None:
        """Fence off earlier producers, then read the marker. The group of ``cluster``, which holds the marker, has the
        transactional id as its id."""
        self.client.init_transactions(REQUEST_TIMEOUT_S * 2)
        self.next_epoch = _next_epoch(cluster)
        self._group = cluster.group_metadata()

    def begin(self, topic: str, epoch: int) -> None:
        """Begin the transaction of the epoch and send its marker, before any record."""
        self.client.begin_transaction()
        marker = driver("KafkaSink").TopicPartition(topic, 0, epoch + 1)
        failures: list[BaseException] = []

        def send() -> None:
            try:
                self.client.send_offsets_to_transaction([marker], self._group, REQUEST_TIMEOUT_S)
            except BaseException as error:
                failures.append(error)

        # in a thread of its own, since librdkafka does not always observe its timeout
        sender = threading.Thread(target=send, daemon=True)
        self._hangs = True
        sender.start()
        sender.join(REQUEST_TIMEOUT_S + ABORT_TIMEOUT_S)
        if sender.is_alive():
            raise ConnectionFailedError("Kafka does not answer when a transaction begins", where="KafkaSink")
        self._hangs = False
        if failures:
            raise failures[0]

    def begin_again(self, topic: str, epoch: int) -> None:
        """The same as :meth:`begin`, for a producer that was kept from an earlier commit.

        Raises:
            _Outdated: the producer cannot be used any more.
        """
        kafka = driver("KafkaSink")
        try:
            self.client.poll(0)  # calls _on_error
            if self.disturbed:
                # librdkafka 2.16 may never return from sending offsets once the group's broker has been away
                raise _Outdated
            self.begin(topic, epoch)
        except (kafka.KafkaException, ConnectionFailedError) as error:
            raise _Outdated from error

    def commit(self, epoch: int) -> None:
        """Commit the transaction, and record the epoch as committed."""
        self.client.commit_transaction(FLUSH_TIMEOUT_S)
        self.next_epoch = epoch + 1

    def close(self) -> None:
        """Abort a transaction that is open (readers of committed records would wait for it until it times out), then
        close the client."""
        if self._hangs:
            return  # aborting and closing would hang as well
        with suppress(Exception):
            self.client.abort_transaction(ABORT_TIMEOUT_S)
        super().close()


class _Outdated(Exception):
    """A kept producer cannot be used any more; no record of the epoch has been written with it."""


#: The producers of this process that are not in use.
PRODUCERS = KeptResources[Any](lambda producer: producer.close(), PRODUCERS_KEPT_MAX)


class KafkaCommitter(Committer):
    """Produces an epoch at least once: the commit returns when all in-sync replicas have acknowledged all records. With
    ``log_failures`` the records that Kafka refuses are logged and lost."""

    def __init__(self, servers: str, properties: Mapping[str, str], log_failures: bool = False) -> None:
        self._servers = servers
        self._properties = dict(properties)
        self._log_failures = log_failures

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        kafka = driver("KafkaSink")
        batches = (batch for batch in committables if batch)
        first = next(batches, None)
        if first is None:
            return 0
        try:
            return self._commit(first, batches, context)
        except (kafka.KafkaException, SystemError) as error:
            # a fatal error that the client detects while it calls on_delivery is raised as Python's SystemError
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, kafka.KafkaException):
                raise
            raise _classified(cause, self._where(context), context) from error

    def _commit(self, first: list[Any], batches: Iterator[list[Any]], context: CommitContext) -> int:
        with PRODUCERS.use(self._key(), partial(self._open, context)) as producer:
            return self._produce(producer.client, first, batches, context)

    def _open(self, context: CommitContext) -> _Producer:
        with self._cluster(context):
            return _Producer(self._settings(), self._where(context))

    @contextmanager
    def _cluster(self, context: CommitContext, group_id: str = "", settled: bool = True) -> Iterator[Cluster]:
        """A connection for queries. It raises the reason at once if brokers cannot be reached or refuse access; a
        producer would only wait."""
        check_reachable(self._servers, self._where(context))
        with Cluster(self._servers, self._properties, group_id, "KafkaSink", settled) as cluster:
            cluster.first_partitions()
            yield cluster

    def _settings(self) -> dict[str, Any]:
        return {**writing_settings(self._properties), "bootstrap.servers": self._servers, "acks": "all"}

    def _key(self) -> tuple[Any, ...]:
        return (self._servers, tuple(sorted(self._properties.items())))

    def _produce(self, producer: Any, first: list[Any], batches: Iterator[list[Any]], context: CommitContext) -> int:
        kafka = driver("KafkaSink")
        failures: list[Any] = []

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        records = 0
        for batch in chain((first,), batches):
            for record in batch:
                try:
                    _send(producer, record, on_delivery)
                except kafka.KafkaException as error:
                    # the client itself refuses records larger than its message.max.bytes
                    if error.args[0].code() != kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                        raise
                    failures.append(error.args[0])
            producer.poll(0)
            records += len(batch)
        left = producer.flush(FLUSH_TIMEOUT_S)
        if failures and self._log_failures:
            _log.error(
                "%d of %d records are lost, as set_log_failures_only(True) allows; the first: %s [%s]",
                len(failures),
                records,
                failures[0].str(),
                self._where(context),
            )
            records -= len(failures)
        elif failures:
            raise _classified(kafka.KafkaException(failures[0]), self._where(context), context)
        if left:
            raise ConnectionFailedError(
                f"{left} of {records} records were not acknowledged in {FLUSH_TIMEOUT_S:.0f} s",
                where=self._where(context),
                hint="see the brokers' logs; nothing of this epoch is lost",
            )
        return records

    def _where(self, context: CommitContext) -> str:
        return (
            f"KafkaSink '{context.sink_uid}' of job {context.job_id}, epoch {context.epoch}, "
            f"subtask {context.subtask}, Kafka {self._servers}"
        )


class KafkaTransactionCommitter(KafkaCommitter):
    """Produces an epoch exactly once: its records and its marker are one transaction, and an epoch whose marker is
    committed is skipped (see the module's docstring)."""

    def __init__(self, servers: str, properties: Mapping[str, str], transactional_id_prefix: str) -> None:
        super().__init__(servers, properties)
        self._prefix = transactional_id_prefix

    def last_committed_epoch(self, context: CommitContext) -> int | None:
        """The highest marker of the sink's subtasks, each of which is in a consumer group of its own. A transaction
        that a killed worker has left open does not count: it ends when the next commit fences that worker off."""

        def marker(subtask: int) -> int:
            with self._cluster(context, self._name(replace(context, subtask=subtask)), settled=False) as cluster:
                return _next_epoch(cluster) - 1

        with ThreadPoolExecutor(_MARKERS_AT_ONCE) as threads:
            found = max(threads.map(marker, range(context.parallelism)))
        return None if found < 0 else found

    def _name(self, context: CommitContext) -> str:
        """The transactional id of a subtask, and the group that holds its marker."""
        return f"{self._prefix}-{context.job_id}-{context.sink_uid}-{context.subtask}"

    def _commit(self, first: list[Any], batches: Iterator[list[Any]], context: CommitContext) -> int:
        name = self._name(context)
        use = partial(PRODUCERS.use, (*self._key(), name), partial(self._open_transactional, context, name))
        try:
            with use() as producer:
                return self._transaction(producer, first, batches, context)
        except _Outdated:
            # a driver that was superseded must not fence off the producer of the newer one
            context.fence.check()
        with use() as producer:
            return self._transaction(producer, first, batches, context)

    def _transaction(
        self, producer: _TransactionalProducer, first: list[Any], batches: Iterator[list[Any]], context: CommitContext
    ) -> int:
        fresh, producer.fresh = producer.fresh, False
        if context.epoch < producer.next_epoch:
            if context.epoch < producer.next_epoch - 1:
                # a driver that was superseded is told so
                context.fence.check()
                raise ahead_of(context, producer.next_epoch - 1)
            return 0
        begin = producer.begin if fresh else producer.begin_again
        begin(first[0][0], context.epoch)
        records = self._produce(producer.client, first, batches, context)
        # the producer of a newer driver fences this one off, but perhaps has not been initialized yet
        context.fence.check()
        producer.commit(context.epoch)
        return records

    def _open_transactional(self, context: CommitContext, name: str) -> _TransactionalProducer:
        settings = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, **self._settings(), "transactional.id": name}
        with self._cluster(context, name) as cluster:
            producer = _TransactionalProducer(settings, self._where(context))
            try:
                producer.initialize(cluster)
            except BaseException:
                producer.close()
                raise
        return producer


def _next_epoch(cluster: Cluster) -> int:
    """The marker that the group of ``cluster`` holds: all epochs below it are committed."""
    # Over all topics: with a topic selector the last epoch may have begun with a record for another topic. Fetched by
    # the consumer: librdkafka 2.16 sometimes crashes when an admin client fetches the offsets of a group.
    return max(cluster.committed(cluster.first_partitions()).values(), default=0)


def _send(producer: Any, record: Any, on_delivery: Callable[[Any, Any], None]) -> None:
    """Hand a record to the client as soon as there is room in the client's queue."""
    topic, key, value, timestamp, *headers = record
    more = {"headers": headers[0]} if headers else {}
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=on_delivery, timestamp=timestamp, **more)
            return
        except BufferError:
            producer.poll(0.5)


def _classified(error: Any, where: str, context: CommitContext) -> Exception:
    kafka = driver("KafkaSink")
    found = error.args[0]
    if not isinstance(found, kafka.KafkaError):
        return ProgramError(f"the Kafka client refuses its settings: {error}", where=where)
    said = f"Kafka refused the records: {found.str()} ({found.name()})"
    if found.code() in (kafka.KafkaError.MSG_SIZE_TOO_LARGE, kafka.KafkaError.INVALID_RECORD):
        hint = f"raise message.max.bytes of the client and the topic; {how_to_skip(context)}"
        return ProgramError(said, where=where, hint=hint)
    # a producer that was fenced off while it was sending reports only a fatal error
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
    if not_allowed(found):
        return refusal(found, where)
    unknown = (kafka.KafkaError._UNKNOWN_TOPIC, kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)
    kind = FinalOperationError if found.code() in unknown else OperationError
    return kind(said, where=where, hint="create the topic, or correct its name, and start the job again")
