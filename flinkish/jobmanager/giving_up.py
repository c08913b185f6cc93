"""Gives epochs up: the one that an earlier run of the query has left planned, and the one that is running.

Rule: an epoch is given up only before it is prepared (``runtime/epoch/files.py``), so nothing of it was delivered,
and nothing will be. Its work is lost, and nothing else: the next run plans the epoch anew, from where the last
committed one has ended and with what limits there are then, and may deliver something else under its number.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from flinkish.core.source import Source
from flinkish.errors import EpochTimeoutError, SparkLostError
from flinkish.jobdir.connect_server import StopRequest
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.layout import EndOfInput
from flinkish.jobdir.query import QueryLog, Traces, late_batch
from flinkish.jobmanager.epoch_gate import EpochGate
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.epoch.files import PreparedEpochs
from flinkish.runtime.sources.job_enumerator import offset_of
from flinkish.runtime.task.open_functions import AttemptFiles
from flinkish.spark.executors import running_tasks
from flinkish.spark.plan import frame_sources
from flinkish.spark.state_files import delete_state_from

_log = logging.getLogger("flinkish.JobMaster")

#: Seconds between two looks at whether tasks are still at work.
_POLL_S = 0.02


def give_up_planned(
    directory: JobDirectory,
    location: QueryLocation,
    prepared: PreparedEpochs,
    traces: Traces,
    sources: Mapping[int, Source],
    job_name: str,
) -> int:
    """Give up the epoch that is planned and not prepared, if there is one. To be called before the query starts.

    Exact, since nothing of the failed run is left that the new one could go on from. Its output files are deleted, then
    its state, then its entry in the query's log (`QueryLog.give_up`), in this order: if the process dies in between,
    the next one finds the epoch planned and does the same. What else the failed run has written (files of keyed state,
    changes of state for checkpoints) nothing refers to, or the new run writes it again. If the epoch was to announce
    the end of the input, it was not announced.

    Tasks of the failed run that end late (of an executor that Spark has lost, or under Spark Connect, where nobody
    knows of them) may write state of the epoch once more. It is deleted if the epoch is not planned again yet, and
    by the tasks of the epoch otherwise (`delete_state_of_failed_try`).

    Args:
        directory: the job directory.
        location: where the query is.
        prepared: the prepared epochs of the query.
        traces: those of the query.
        sources: the sources of the job.
        job_name: the name of the job.

    Returns:
        The last committed epoch; the one before the first if there is none.
    """
    prepared.delete_unreferenced(directory.fence)
    late = late_batch(location)
    if late is not None:
        directory.fence.check()
        delete_state_from(location.path, late + 1)
    committed = max(traces.committed, default=location.first_epoch - 1)
    last = max(traces.planned, default=None)
    if last is None or last in (*traces.committed, *traces.prepared):
        return committed
    directory.fence.check()
    batch, log = last - location.first_epoch, QueryLog(location.path)
    # the state after batch n is version n + 1
    delete_state_from(location.path, batch + 1)
    begin_anew = [number for number, (_, source) in enumerate(frame_sources(sources), 1) if source.begins_anew]
    if not log.can_be_planned_anew(batch, begin_anew):
        _log.warning(
            "job '%s': epoch %s, the first one, runs again as it was planned: a source that Spark reads keeps no "
            "record of where it has begun",
            job_name,
            last,
        )
        return committed
    # the source that reads split by split, and announces ends, is the plan's first input
    if offset_of(next(iter(log.positions(batch)), None), f"job '{job_name}'").get("announce"):
        directory.delete(EndOfInput)
    log.give_up(batch)
    _log.info("job '%s': epoch %s was planned and is not prepared: it is planned anew", job_name, last)
    return committed


class QueryEnd:
    """Sees the end of a query, of which Spark tells nobody: a thread waits for it, and calls ``notify``."""

    def __init__(self, query: Any, notify: Callable[[], None]) -> None:
        #: whether the query has ended; who follows it asks Spark for its error
        self.has_come = False
        threading.Thread(target=self._wait, args=(query, notify), name="flinkish-query-end", daemon=True).start()

    def _wait(self, query: Any, notify: Callable[[], None]) -> None:
        with suppress(Exception):
            query.awaitTermination()
        self.has_come = True
        notify()


class RunningEpoch:
    """The epoch that a query is running: how long it may take, and how it is given up.

    Args:
        job_name: the name of the job.
        settings: the timeouts.
        server_directory: the job directory, through which the process that runs epochs is told, if it is another one.
    """

    def __init__(self, job_name: str, settings: DriverSettings, server_directory: JobDirectory | None) -> None:
        #: the gate between the tasks of the epoch and its commit, if it runs in this process
        self.gate = EpochGate()
        self._where = f"job '{job_name}'"
        self._settings = settings
        self._server_directory = server_directory
        #: since when the epoch is being given up, in seconds of the monotonic clock; None: it is not
        self._since_s: float | None = None
        #: whether Spark was told to end the query in the midst of the epoch; its end is waited for by `await_end`
        self.interrupted = False
        #: the last epoch that was committed before this attempt
        self._begun_behind = -1
        #: the next epoch to be committed, and since when it is planned, in seconds of the monotonic clock
        self._planned: tuple[int, float] = (-1, 0.0)
        #: what says in which workers the attempt has functions open; None: in none yet
        self.open_functions: AttemptFiles | None = None
        #: set when the functions of an interrupted epoch are closed, as far as that can be waited for
        self._closed = threading.Event()

    @property
    def given_up(self) -> bool:
        """Whether the epoch was given up, or broken off in its commit."""
        return self.gate.closed or self.interrupted

    def begin_behind(self, epoch: int) -> None:
        """Remember the last epoch that was committed before this attempt."""
        self._begun_behind = epoch

    def overdue(self, location: QueryLocation, committed: int, may_begin: float) -> EpochTimeoutError | None:
        """The error for an epoch that takes longer than it may; None if there is no such epoch. To be called every now
        and then.

        Args:
            committed: the last epoch that this attempt has committed.
            may_begin: the last epoch that may have begun; the time for which a later one waits does not count.
        """
        limit_s, now_s = self._settings.epoch_timeout_s, time.monotonic()
        if not limit_s:
            return None
        epoch = max(committed, self._begun_behind) + 1
        known = self._planned[0] == epoch <= may_begin
        if not known or not QueryLog(location.path).is_planned(epoch - location.first_epoch):
            self._planned = (epoch, now_s)
        if now_s - self._planned[1] <= limit_s:
            return None
        return EpochTimeoutError(
            f"epoch {epoch} has not ended within {limit_s:g} s (flinkish.epoch.timeout): it is given up",
            where=f"{self._where}, epoch {epoch}",
            expected="functions that process the records of an epoch in this time",
            hint="make epochs smaller (flinkish.epoch.max-records-per-source), or allow more time",
        )

    def give_up(self, query: Any) -> None:
        """Have Spark end the query in the midst of the epoch. A commit that has begun is waited for, but not for longer
        than ``task.cancellation.timeout``; to be called again until the query has ended."""
        now_s, limit_s = time.monotonic(), self._settings.cancellation_timeout_s
        if self._since_s is None:
            self._since_s = now_s
            if self._server_directory is not None:
                self._server_directory.write(StopRequest(now=True))
        too_long = 0 < limit_s < now_s - self._since_s
        if too_long:
            _log.warning(
                "%s: the running epoch could not be given up and has not been committed within %g s "
                "(task.cancellation.timeout): it is broken off. If it is prepared, sinks may have a part of it; the "
                "next start commits the rest",
                self._where,
                limit_s,
            )
        if too_long or self._server_directory is None and self.gate.close():
            self.interrupted = True
            # a thread of its own, since it waits for Spark's thread, which may hang
            threading.Thread(target=self._interrupt, args=(query,), name="flinkish-interrupt", daemon=True).start()

    def _interrupt(self, query: Any) -> None:
        # Spark kills workers that are in user code, so they close their functions first
        try:
            self.close_functions()
        finally:
            self._closed.set()
            _stop(query)

    def close_functions(self) -> None:
        """Have the workers close what the attempt has open, and wait for it, for ``task.cancellation.timeout`` at most.
        Tasks that are at work for the attempt are cancelled."""
        if self.open_functions is None:
            return
        for worker in self.open_functions.end(self._settings.cancellation_timeout_s):
            _log.warning(
                "%s: process %d on %s has not closed its functions; it may have ended",
                self._where,
                worker.pid,
                worker.host,
            )

    def await_end(self, query: Any, must_go_on: bool) -> None:
        """Wait until the query's thread has ended; if it was interrupted, for ``task.cancellation.timeout`` at most.

        Raises:
            SparkLostError: the thread does not end, and the job must go on, which is possible in a new driver only.
        """
        limit_s = self._settings.cancellation_timeout_s
        if self.interrupted:
            self._closed.wait()
        if not self.interrupted or not limit_s:
            query.awaitTermination()
        elif not query.awaitTermination(limit_s):
            what = f"Spark has not ended the query within {limit_s:g} s (task.cancellation.timeout)"
            if must_go_on:
                raise SparkLostError(what, where=self._where, hint="start the same job in a new driver")
            _log.warning("%s: %s; the epoch was given up all the same", self._where, what)

    def leave(self, spark: Any, query: Any, must_go_on: bool) -> None:
        """Have a query end, and wait for the Spark tasks that it has left at work, for ``task.cancellation.timeout`` at
        most: a query that fails or is stopped waits for none of them, and they may write state of the epoch that the
        next query runs again.

        Raises:
            SparkLostError: a task does not end, and the job must go on, which is possible in a new driver only.
        """
        if query is None:
            return
        if query.isActive and not self.interrupted:
            query.stop()
        limit_s = self._settings.cancellation_timeout_s
        if _left_at_work(spark, query):
            self.close_functions()
        deadline_s = time.monotonic() + (limit_s or math.inf)
        while running := _left_at_work(spark, query):
            if time.monotonic() > deadline_s:
                what = f"{running} tasks of the epoch have not ended within {limit_s:g} s (task.cancellation.timeout)"
                if must_go_on:
                    raise SparkLostError(what, where=self._where, hint="start the same job in a new driver")
                _log.warning("%s: %s", self._where, what)
                return
            time.sleep(_POLL_S)


def _left_at_work(spark: Any, query: Any) -> int:
    with suppress(Exception):  # whatever keeps Spark from answering, the query has ended of it
        return running_tasks(spark, str(query.runId))
    return 0


def _stop(query: Any) -> None:
    try:
        query.stop()
    except Exception as error:
        _log.info("a query could not be stopped in order, its end is waited for: %s", error)
