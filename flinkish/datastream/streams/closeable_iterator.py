"""CloseableIterator: iterates over the records of a running job.

Rule upheld here: records pass a bounded queue. A consumer that does not keep up slows the job down, as with Flink's
collect sink; a consumer that closes the iterator ends the job.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from flinkish.common.job_client import JobClient

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
