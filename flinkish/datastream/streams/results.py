"""The results of a job in the program that runs it: ``execute_and_collect`` and ``show`` add a sink that returns the
records, `CloseableIterator` iterates over them, and `CachedDataStream` is a stream that several jobs can read.

Rule upheld here: records pass a bounded queue. A consumer that does not keep up slows the job down, as with Flink's
collect sink; a consumer that closes the iterator ends the job.

Rule upheld here: every job that reads a cached stream gets the records of the original stream. Flink keeps them after
the first job as an optimization, and computes them again if they are lost; here each job computes them.
"""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, NoReturn

from flinkish.common.job_client import JobClient
from flinkish.common.no_effect import warn_without_effect
from flinkish.common.text import PRINT_ROW_SEPARATOR, text_writer
from flinkish.connectors.results import NAMED, CollectSink, register_collector, unregister_collector
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.data_stream import DataStream
from flinkish.datastream.streams.operator_stream import unsupported
from flinkish.datastream.streams.sinks import add_sink
from flinkish.errors import ArgumentValueError

#: The most lists of records, one per commit of the sink, that may wait for the consumer.
QUEUE_SIZE = 16

#: How long each side waits for the queue before it checks whether the other side is still there.
POLL_SECONDS = 0.05


class CollectedRows:
    """The bounded queue through which the thread that commits passes lists of records to the consumer."""

    def __init__(self) -> None:
        self._batches: queue.Queue[list[Any]] = queue.Queue(QUEUE_SIZE)
        self._closed = False

    def put(self, rows: list[Any]) -> None:
        """Add the records of a commit, waiting while the queue is full. The sink calls it. After `close` the records
        are dropped."""
        while not self._closed:
            try:
                self._batches.put(rows, timeout=POLL_SECONDS)
                return
            except queue.Full:
                continue

    def take(self, timeout_s: float) -> list[Any] | None:
        """The next list of records, or None if none comes within ``timeout_s`` seconds."""
        try:
            return self._batches.get(timeout=timeout_s) if timeout_s > 0 else self._batches.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the consumption: records that still come are dropped."""
        self._closed = True


class CloseableIterator:
    """Iterates over the records of a job. The iteration ends when the job ends, and raises the error of a job that
    fails.

    Example::

        with ds.execute_and_collect() as results:
            for result in results: ...
    """

    def __init__(self, rows: CollectedRows, client: JobClient, on_close: Callable[[], None]) -> None:
        self._rows = rows
        self._client = client
        self._result = client.get_job_execution_result()
        self._on_close = on_close
        self._current: Iterator[Any] = iter(())
        self._closed = False

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        return self.next()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()

    def next(self) -> Any:
        """The next record.

        Raises:
            StopIteration: the job has finished and all its records were read, or the iterator is closed.
            Exception: the error that the job failed with.
        """
        for value in self._current:
            return value
        batch = None if self._closed else self._next_batch()
        if batch is None:
            self.close()
            raise StopIteration("No more data.")
        self._current = iter(batch)
        return self.next()

    def _next_batch(self) -> list[Any] | None:
        while True:
            # checked before the queue is read, because all records of a finished job are in the queue already
            finished = self._result.done()
            batch = self._rows.take(0 if finished else POLL_SECONDS)
            if batch is not None:
                return batch
            if finished:
                self._result.result()
                return None

    def close(self) -> None:
        """End the iteration, and cancel the job if it still runs. May be called more than once."""
        if self._closed:
            return
        self._closed = True
        self._current = iter(())
        self._rows.close()
        try:
            if not self._result.done():
                self._client.cancel().result()
        finally:
            self._on_close()


class CachedDataStream(DataStream):
    """A stream that several jobs of one environment can read. Since it is not the output of an operator, setting an
    operator's name, uid or parallelism on it raises UnsupportedOperationError, as in PyFlink."""

    def __init__(self, *stream: Any) -> None:
        super().__init__(*stream)
        warn_without_effect("cache", "each job that reads the stream computes it again; write it to files to keep it")

    def invalidate(self) -> None:
        """Discard the cached records. It has no effect, and a warning says so: nothing is kept between jobs."""
        warn_without_effect("invalidate", "nothing is kept between jobs")

    def get_name(self) -> NoReturn:
        self._refuse("Get name of CachedDataStream", "get_name")

    def name(self, name: str) -> NoReturn:
        self._refuse("Set name for CachedDataStream", "name")

    def uid(self, uid: str) -> NoReturn:
        self._refuse("Set uid for CachedDataStream", "uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        self._refuse("Set uid hash for CachedDataStream", "set_uid_hash")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        self._refuse("Set parallelism for CachedDataStream", "set_parallelism")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        self._refuse("Set max parallelism for CachedDataStream", "set_max_parallelism")

    def force_non_parallel(self) -> NoReturn:
        self._refuse("Set force non-parallel for CachedDataStream", "force_non_parallel")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        self._refuse("Set buffer timeout for CachedDataStream", "set_buffer_timeout")

    def start_new_chain(self) -> NoReturn:
        self._refuse("Start new chain for CachedDataStream", "start_new_chain")

    def disable_chaining(self) -> NoReturn:
        self._refuse("Disable chaining for CachedDataStream", "disable_chaining")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        self._refuse("Setting slot sharing group for CachedDataStream", "slot_sharing_group")

    def _refuse(self, what: str, method: str) -> NoReturn:
        raise unsupported(self, what, method, "call it on the operator before cache()")


def execute_and_collect(stream: DataStream, job_name: str | None, limit: int | None) -> CloseableIterator | list[Any]:
    """See `DataStream.execute_and_collect`."""
    if limit is not None and limit <= 0:
        raise ArgumentValueError(
            f"execute_and_collect with the limit {limit}",
            where="DataStream.execute_and_collect()",
            expected="Limit must be greater than 0",
            hint="leave it out to get all records through an iterator",
        )
    rows = CollectedRows()
    # the sink finds its collector by this name, since the job's id is not known before the job runs
    collector = uuid.uuid4().hex
    # one subtask, as in Flink: the records of several would come back in the order in which they happen to commit
    add_sink(stream, CollectSink(collector)).set_parallelism(1)
    register_collector(collector, NAMED, rows.put)
    forget = partial(unregister_collector, collector, NAMED)
    try:
        client = stream.get_execution_environment().execute_async(job_name or "DataStream Collect")
    except BaseException:
        forget()
        raise
    results = CloseableIterator(rows, client, forget)
    if limit is None:
        return results
    with results:
        return list(islice(results, limit))


def show(stream: DataStream, count: int) -> None:
    """See `DataStream.show`."""
    with stream.get_execution_environment()._apart():
        records = list(execute_and_collect(stream, "DataStream Show", count))
    text = text_writer(stream._type, PRINT_ROW_SEPARATOR)
    for record in records:
        print(text(record))
    if len(records) == count:
        print(f"the first {count} records; show({10 * count}) shows more")
