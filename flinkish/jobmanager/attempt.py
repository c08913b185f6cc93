"""One attempt of a job: its queries, from the one that starts or goes on to the one that announces the end.

Rule: an attempt runs and fails as a whole. What happens next (a restart, the end of the job) is decided by whoever
made the attempt, which knows the job's directory, but neither the job's state nor its other attempts.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from flinkish.core.source import Source
from flinkish.errors import EpochTimeoutError, FencedError, FlinkishError, JobDirectoryError, SparkLostError
from flinkish.jobdir.checks import with_free_space
from flinkish.jobdir.connect_server import ServerEnd, StopRequest
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.layout import EndOfInput
from flinkish.jobdir.query import QueryLog, Traces, check_query
from flinkish.jobdir.waiting_epoch import known_sources
from flinkish.jobmanager import epoch_gate as epoch_listeners
from flinkish.jobmanager.epoch_gate import EpochListener, StateReaders, StopQuery
from flinkish.jobmanager.epochs import EpochFunction, ProgressWatch, explained
from flinkish.jobmanager.giving_up import QueryEnd, RunningEpoch, give_up_planned
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.jobmanager.query_inputs import (
    EndCause,
    LeftBehind,
    QueryRun,
    RunningQuery,
    check_committed,
    check_end,
    check_sources,
    end_offsets,
    input_has_ended,
    keep_packing,
    plan_runs,
    planned_position,
    prepare_sinks,
    source_positions,
)
from flinkish.jobmanager.remote import ReportReader
from flinkish.jobmanager.wishes import Wishes
from flinkish.launch.spark_version import plans_with_start
from flinkish.runtime.epoch.changelog_files import changelog_directory
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpochs, prepared_directory
from flinkish.runtime.epoch.planner import directory_beside_driver
from flinkish.runtime.epoch.steps import Acknowledgements, EpochReport, end_epoch
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ClockWatch
from flinkish.runtime.sources.progress import StoreIds
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.task.open_functions import AttemptFiles
from flinkish.runtime.task.progress import interval_s
from flinkish.spark.executors import Trouble, interpreter_settings
from flinkish.spark.failures import translate
from flinkish.spark.object_stores import deletes_old_files_itself, file_settings
from flinkish.spark.place import partitions_of
from flinkish.spark.plan import PlanOptions, build_plan
from flinkish.spark.session import is_remote
from flinkish.spark.settings import epochs_that_do_not_run, query_settings, settings_in_force
from flinkish.spark.split_source import RecordsInProgress
from flinkish.spark.state_files import OldFiles
from flinkish.spark.worker import Deployment, deploy, numbers_announced
from flinkish.storage.paths import for_spark, is_local

_log = logging.getLogger("flinkish.JobMaster")

#: Seconds between two looks at what is about to happen: a commit, or the end of a query that is to end.
_POLL_S = 0.02
#: The same at commits in another storage than a local one; and under Spark Connect, where another process reports
#: epochs.
_REMOTE_POLL_S = 0.1
#: Seconds between two looks at the clock and at the tasks that have failed.
LOOK_S = 1.0


@dataclass(frozen=True)
class AttemptPlan:
    """The plan of one attempt. ``base``: the positions at which its sources begin, and the rows of a savepoint to take
    in first."""

    job: JobDescriptor
    sources: dict[int, Source]
    base: PlanOptions


class QueryAttempt(EpochListener):
    """Runs the queries of one attempt, one after the other, and reports their epochs to an observer.

    Args:
        wishes: they say when the attempt is to stop, and when the running epoch is given up then.
        readers: those who read the state of an epoch, and whom later ones wait for.
    """

    def __init__(
        self,
        spark: Any,
        plan: AttemptPlan,
        settings: DriverSettings,
        directory: JobDirectory,
        observer: JobObserver,
        wishes: Wishes,
        readers: StateReaders,
    ) -> None:
        self.spark = spark
        self.job = plan.job
        self.sources = plan.sources
        self.directory = directory
        self.partitions = partitions_of(plan.job)
        #: whether the input has ended
        self.ended = False
        self._settings = settings
        self._base = plan.base
        #: Spark's settings for the packing of the files that it reads itself
        self._packing: dict[str, str] = {}
        self._observer = observer
        self._wishes, self._readers = wishes, readers
        #: the error that the attempt must fail with, for a reason outside of its query
        self._failure: FlinkishError | None = None
        #: the query that runs, or the one that has run last
        self._query: RunningQuery | None = None
        #: py4j's connection over which the query's thread calls this process
        self._connection: Any = None
        self.move_to(directory.query_location())
        self._commits = threading.Lock()
        self.clock_watch = ClockWatch()
        self._trouble: Trouble | None = None
        self._secret = b""
        self._records = RecordsInProgress(spark, self.job.name)
        self._running = RunningEpoch(plan.job.name, settings, directory if is_remote(spark) else None)
        self.gate = self._running.gate
        self._reports = ReportReader(directory, plan.job) if is_remote(spark) else None
        self._acknowledgements = Acknowledgements(plan.job, SegmentFiles(directory.path))
        self._left_behind = LeftBehind(plan.job, plan.sources)
        self._deployment: Any = None
        #: the queries that are still to be run
        self._queries: deque[QueryRun] = deque()
        #: what is to be ended with the attempt
        self._at_end = ExitStack()

    def move_to(self, location: QueryLocation) -> None:
        """Run the query at this location from now on; not to be called while it runs at another one."""
        self.location = location
        self._reported = self._committed = location.first_epoch - 1
        self._prepared = PreparedEpochs(prepared_directory(location.path))
        self._old_files = OldFiles(self.spark, location.path, location.first_epoch)

    # ------------------------------------------------------------------ called by the query, for each epoch

    def before_epoch(self, epoch: int) -> None:
        """The last moment at which an epoch can be prevented.

        Raises:
            StopQuery: a stop was asked for, the input has ended, all that was there is read, the attempt must fail, or
                the query is to be started again because the clock was set back.
        """
        self._connection = epoch_listeners.connection_of_this_thread(self.spark)
        while epoch > self._readers.last_epoch and not self._ends:
            time.sleep(_POLL_S)
        if self._ends or self.ended:
            if self._query is not None:
                self._query.refused = True
            raise StopQuery
        self.gate.begin()
        self._observer.epoch_begun()

    def given_up(self) -> bool:
        return self._running.given_up

    def after_epoch(self, report: EpochReport) -> None:
        """Report an epoch that is done but for Spark's own commit. Raises StopQuery if the epoch was given up."""
        self.gate.go_through()
        self._records.show(report)
        self._report(self._left_behind.added_to(report, self.location))

    def _report(self, report: EpochReport) -> None:
        self.ended = self.ended or report.end_of_input
        self._reported = report.epoch
        self._observer.epoch_done(report)
        self._wishes.notify()

    # ------------------------------------------------------------------ the queries

    def begin(self) -> None:
        """Make the attempt ready for its first query. Raises failures as typed errors, as `run_query` does; after both
        it is to be closed."""
        watch = ProgressWatch(self.job, self.location.path, lambda: self._reported, self._observer.epoch_running)
        self._at_end.callback(self._acknowledgements.close)
        self._at_end.callback(watch.close)
        epoch_listeners.register(self.job.job_id, self)
        self._at_end.callback(epoch_listeners.unregister, self.job.job_id)
        watch.start()
        with self._fenced_first():
            traces = check_query(self.location)
            check_committed(self.spark, self.job, self.directory, traces.last_delivered)
            prepare_sinks(self.spark, self.job)
            self._take_earlier_reports()
            self._deploy(traces)

    @contextmanager
    def _fenced_first(self) -> Iterator[None]:
        """Who moves the query's files away (a newer driver), or deletes them, is the cause of what fails in here."""
        try:
            yield
        except Exception as error:
            fenced = None if isinstance(error, FencedError) else self._fenced()
            if fenced is not None:
                raise fenced from error
            raise

    @property
    def has_more_queries(self) -> bool:
        """Whether there is a query to run, besides those that were run."""
        return bool(self._queries)

    def run_query(self, again: bool = False) -> None:
        """Run the next query, or (``again``) the last one once more, until it has ended or a stop was asked for."""
        with self._fenced_first():
            run = self._query.run if again and self._query is not None else self._queries.popleft()
            if run.announces_end and not again:
                self.directory.write(EndOfInput(query=self.location.first_epoch))
            self._run_once(run)
            if self.ended and not self._queries:
                # Spark has committed the last epoch: nothing will be delivered again
                self._prepared.delete_up_to(self._reported, self.directory.fence)

    def close(self) -> None:
        """End what goes beside the queries. Does nothing if that was done."""
        self._at_end.close()

    def _forget_earlier_stops(self) -> None:
        """Withdraw from the process that runs epochs, if it is another one, the stop of an earlier query, such as one
        that had to fail: it would end the next query, and that would pass for the end of the job."""
        if self._reports is not None:
            self.directory.delete(StopRequest)
            if self._wishes.to_end:
                # asked for since, and maybe deleted just now: a stop is set first and told afterwards
                self.wake()

    def _take_earlier_reports(self) -> None:
        """Take the reports of epochs that Spark has committed and an earlier attempt has not lived to take. A query
        that has nothing more to run has no progress from which it would be seen that they are committed."""
        committed = QueryLog(self.location.path).committed() if self._reports is not None else []
        if committed:
            self._take_reports(self.location.first_epoch + committed[-1])

    def _fenced(self) -> FlinkishError | None:
        try:
            self.directory.check_owner(self.job.name)
        except (FencedError, JobDirectoryError) as fenced:
            return fenced
        except FlinkishError:
            return None
        return None

    def _deploy(self, traces: Traces) -> None:
        beside = "" if self._reports else directory_beside_driver(self.location.path)
        changelog, state = changelog_directory(self.directory.path), self.directory.keyed_state
        files = EpochFiles(self._prepared.path, changelog, state, beside)
        self._deployment = deploy(self.job, self.partitions, self.location.first_epoch, self.directory.fence, files)
        committed = give_up_planned(self.directory, self.location, self._prepared, traces, self.sources, self.job.name)
        self._running.begin_behind(committed)
        self._running.open_functions = AttemptFiles(self.location.path, self._deployment.version)
        self._at_end.callback(self._trace)
        self._at_end.callback(self._running.close_functions)
        self._queries = deque(self._runs())
        self._at_end.enter_context(epochs_that_do_not_run(self.spark))
        self._at_end.enter_context(numbers_announced(self.spark, self._deployment))

    def _runs(self) -> list[QueryRun]:
        """The runs of the query that are still to be made."""
        # announced for this query only: one that takes its place begins before the end again
        announced = (self.directory.read(EndOfInput) or EndOfInput()).query == self.location.first_epoch
        self._packing = keep_packing(self.directory, self.job, self._base)
        check_sources(self.job, self.sources, self.directory, self._base)
        bounded = all(source.bounded for source in self.sources.values())
        ended = bounded and input_has_ended(self.job, self.sources, QueryLog(self.location.path).committed_positions())
        return plan_runs(self.job, self.sources, self._settings, self._base, announced, ended)

    def _run_once(self, run: QueryRun) -> None:
        deployment = self._deployment
        where = f"job '{self.job.name}', directory {self.directory.path}"
        self._forget_earlier_stops()
        self._query = query = RunningQuery(run)
        if self._wishes.to_end and time.monotonic() >= self._deadline_s():
            # the job was cancelled before its query has begun
            return
        self._secret = deployment.secret
        self.directory.delete(ServerEnd)
        self._look_at_tasks()
        assert self._running.open_functions is not None
        self._running.open_functions.begin()
        try:
            query.of_spark = self._start(query, deployment)
            self._observer.query_started()
            self._follow(query)
            if not (self._ends or self.ended):
                check_end(self.spark, run, where)
        except Exception as error:
            if isinstance(error, SparkLostError) or not self._was_stopped(query, error):
                typed = explained(translate(error, where, deployment.secret), self.spark, self.location.path)
                raise with_free_space(typed, self.directory.path) from error
            # a query is stopped between two epochs, or in one that is never reported: all others are committed
            with self._commits:
                self._take_reports(None)
        finally:
            self._look_at_tasks()
            self._running.leave(self.spark, query.of_spark, must_go_on=not self._wishes.to_end)
            epoch_listeners.close_connection(self._connection)
            self._connection = None
        if self._failure is not None:
            raise self._failure

    def _was_stopped(self, query: RunningQuery, error: Exception) -> bool:
        """Whether the query ended on purpose. Raises the error that ``foreachBatch`` in another process has left."""
        end = self._reports.end() if self._reports is not None else False
        if isinstance(end, FlinkishError):
            raise end from error
        return end or query.refused or self._running.given_up

    def _start(self, query: RunningQuery, deployment: Deployment) -> Any:
        backend, run = self._settings.state_backend, query.run
        settings = self._packing | query_settings(backend, self.partitions, self.job.settings.source_batch_size)
        settings |= file_settings(self.spark, self.location.path, backend)
        settings |= interpreter_settings(self.spark)
        options = run.options
        if not plans_with_start():
            begins_at = planned_position(self.job, self.location)
            options = replace(options, begins_at=begins_at, frozen=run.available_now)
        with settings_in_force(self.spark, settings):
            frame = build_plan(self.spark, self.job, self.sources, deployment, options, self.directory.path)
            writer = (
                frame.writeStream.outputMode("append")
                .queryName(f"{self.job.name}-{self.job.job_id[:8]}")
                .option("checkpointLocation", for_spark(self.location.path))
                .foreachBatch(self._epoch_function(deployment))
            )
            if run.available_now and not run.is_to_be_ended:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{run.interval_ms} milliseconds")
            return writer.start()

    def _epoch_function(self, deployment: Deployment) -> EpochFunction:
        return EpochFunction(deployment, self.directory.path, self.directory.token)

    def _follow(self, query: RunningQuery) -> None:
        """Look after a running query until it has ended. Spark is asked for nothing as long as nothing happens."""
        looked = asked = time.monotonic()
        ask_s = interval_s(self.location.path)
        end = QueryEnd(query.of_spark, self._wishes.notify)
        while not (end.has_come or self._running.interrupted):
            # what has happened until now is seen below
            self._wishes.wait(0)
            self._look_whether_all_is_read(query)
            if self._ends or self._is_over():
                self._end(query.of_spark)
            self._look_for_commits()
            if time.monotonic() - looked > LOOK_S:
                self._look_at_clock(query)
                self._look_at_tasks()
                looked = time.monotonic()
            if time.monotonic() - asked > ask_s:
                self.directory.check_owner(self.job.name)
                self._failure = self._failure or self._running.overdue(
                    self.location, self._committed, self._readers.last_epoch
                )
                asked = time.monotonic()
            self._wishes.wait(self._pause_s(query))
        self._running.await_end(query.of_spark, must_go_on=not self._wishes.to_end)
        self._look_for_commits(at_end=True)

    def _pause_s(self, query: RunningQuery) -> float:
        """How long to wait until the next look, in seconds, if nothing happens."""
        if self._ends or query.run.is_to_be_ended or self._is_over():
            return _POLL_S
        local = is_local(self.location.path)
        if self._reports is not None:
            # each look lists the commits, which elsewhere is a request
            return _REMOTE_POLL_S if local else LOOK_S
        if self._reported <= self._committed:
            return LOOK_S
        return _POLL_S if local else _REMOTE_POLL_S

    @property
    def _ends(self) -> bool:
        """Whether the running query is to end before its next epoch, though its input has not ended."""
        ends_by_itself = self._query is not None and self._query.cause is not None
        return self._wishes.to_end or self._failure is not None or ends_by_itself

    @property
    def set_back(self) -> bool:
        """Whether the query is to be run again, since the clock was set back while it waited."""
        return self._query is not None and self._query.cause is EndCause.CLOCK_SET_BACK

    def _look_whether_all_is_read(self, query: RunningQuery) -> None:
        """Have a query end that has read all that is there, where Spark does not see to it: Spark before 4.2 gives a
        data source that is written in Python one epoch for all that is there. It ends where Spark would end it, at the
        first trigger that finds nothing. What is planned later, of a source that Spark reads, is refused and left to
        the next start."""
        if query.run.is_to_be_ended and query.cause is None and "Waiting for data" in query.of_spark.status["message"]:
            query.cause = EndCause.HAS_READ_ALL
            self.wake()

    def _is_over(self) -> bool:
        """Whether the last epoch of the input is committed."""
        return self.ended and self._committed >= self._reported

    def _look_at_tasks(self) -> None:
        """Tell which tasks have failed and run again since the last look."""
        with suppress(Exception):
            # if Spark cannot be asked, the query says why
            self._trouble = self._trouble or Trouble(self.spark, self.job.name, self._secret, self._task_failed)
            query = None if self._query is None else self._query.of_spark
            self._trouble.look("" if query is None else str(query.runId))

    def _task_failed(self, failure: FlinkishError) -> None:
        self._observer.task_failed(explained(failure, self.spark, self.location.path))

    def _look_at_clock(self, query: RunningQuery) -> None:
        """Have a query that waits for the time of its next epoch started again if the clock was set back."""
        back_ms = self.clock_watch.set_back_ms()
        if back_ms:
            if query.run.waits:
                # from now on no epoch begins: the query is stopped while it waits, and not in an epoch that has just
                # begun
                query.cause = EndCause.CLOCK_SET_BACK
                self.wake()
            _log.warning(
                "job '%s': the clock was set back by %.1f s; the job goes on, its processing time stands still until "
                "the clock has caught up",
                self.job.name,
                back_ms / 1000,
            )

    def _end(self, query: Any) -> None:
        """Stop a query that waits for data at once. One that is running an epoch ends before its next one, or, once it
        is time to give the epoch up, as soon as that is possible."""
        if epoch_listeners.listener_of(self.job.job_id) is not None:
            status = query.status
            if not status["isTriggerActive"] or "Waiting" in status["message"]:
                query.stop()
                return
        if time.monotonic() >= self._deadline_s():
            self._running.give_up(query)

    def _deadline_s(self) -> float:
        """When the running epoch is given up, in seconds of the monotonic clock."""
        if isinstance(self._failure, EpochTimeoutError):
            return -math.inf
        return self._wishes.epoch_deadline_s if self._wishes.to_end else math.inf

    def _look_for_commits(self, at_end: bool = False) -> None:
        """Do what follows the commit of epochs, if Spark has committed some since the last look. ``at_end``: the query
        has ended."""
        with self._commits:
            committed = self._last_committed(at_end)
            if committed <= self._committed:
                return
            self._committed = committed
            end_epoch(
                committed,
                lambda: self._clean_up(committed),
                self._acknowledgements,
                lambda: end_offsets(self.location, committed)[0],
            )
            self._observer.epoch_committed(committed)
            self._trace()

    def _trace(self) -> None:
        """Tell of the calls of the lifecycle of operators, if they are traced."""
        if self.job.settings.trace_lifecycle and self._running.open_functions is not None:
            self._observer.lifecycle_traced(self._running.open_functions.trace())

    def _last_committed(self, at_end: bool) -> int:
        """The last epoch that is committed, as far as that can be seen."""
        log, first, reported = QueryLog(self.location.path), self.location.first_epoch, self._reported
        if self._reports is None and reported > self._committed:
            # Spark runs an epoch once the one before is committed
            return reported if log.is_committed(reported - first) else reported - 1
        if self._committed < first and (self._reports is not None or at_end):
            # it may have been an earlier attempt that has run the last one and has not lived to see its commit
            before = self._committed_before()
            return self._committed if before is None else before
        batches = log.committed() if self._reports is not None else []
        return first + batches[-1] if batches else self._committed

    def _clean_up(self, committed: int) -> None:
        self._take_reports(committed)
        if deletes_old_files_itself(self.location.path, self._settings.state_backend):
            self._old_files.delete(committed, self.directory.fence)
        else:
            self._prepared.delete_up_to(committed - 2, self.directory.fence)

    def _take_reports(self, committed: int | None) -> None:
        """Pass on the reports of epochs that ran in another process, up to this epoch (None: all there are)."""
        if self._reports is not None:
            for report in self._reports.take(committed):
                self._report(report)

    # ------------------------------------------------------------------ what a savepoint needs

    def committed_epoch(self) -> int | None:
        """The last epoch that Spark has committed; None before the first one, and also while a later epoch, of an
        earlier attempt, is prepared and still to be committed: sinks may have it already, so there is no epoch at whose
        end state and sinks agree."""
        if self._query is not None and self._query.of_spark is not None:
            self._look_for_commits()
        return self._committed if self._committed >= self.location.first_epoch else self._committed_before()

    def _committed_before(self) -> int | None:
        """The last epoch that earlier attempts have committed; None if sinks can have heard of a later one."""
        committed = QueryLog(self.location.path).committed()
        if not committed:
            return None
        epoch = self.location.first_epoch + committed[-1]
        return None if any(prepared > epoch for prepared in self._prepared.epochs()) else epoch

    def positions(self, epoch: int, store_ids: StoreIds | None = None) -> dict[str, str]:
        """Source uid -> its position after an epoch; without the sources that have had nothing to read yet.
        ``store_ids``: as for `encode_position`."""
        ends = end_offsets(self.location, epoch)
        store, known = SegmentFiles(self.directory.path), known_sources(self.directory)
        return source_positions(self.job, self.sources, ends, store, known, store_ids)

    def fail(self, failure: FlinkishError) -> None:
        """End after the running epoch and fail with this error, whatever becomes of the query."""
        self._failure = self._failure or failure
        self._wishes.notify()
        self.wake()

    def wake(self) -> None:
        """Look at once at what was asked for, and tell the process that runs epochs, if it is another one, of it."""
        self._wishes.notify()
        if self._reports is not None:
            self.directory.write(StopRequest())
