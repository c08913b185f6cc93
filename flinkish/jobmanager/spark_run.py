"""A job at work on Spark."""

from __future__ import annotations

import json
import posixpath
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flinkish.common.job_id import JobID
from flinkish.core.source import DataFrameSource, GeneratedSource, Source
from flinkish.errors import FlinkishError, SavepointError
from flinkish.jobmanager import epoch_listeners
from flinkish.jobmanager.epoch_function import EpochFunction
from flinkish.jobmanager.epoch_listeners import STOP_MARK, StopQuery
from flinkish.jobmanager.job_directory import JobDirectory
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.query_inputs import keep_heartbeat, keep_tick_size, position_after
from flinkish.jobmanager.remote_reports import END_FILE, STOP_FILE, Inbox
from flinkish.jobmanager.run_plan import QueryRun, plan_runs
from flinkish.jobmanager.settings import DriverSettings
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.addressing import partitions_of
from flinkish.spark.failures import translate
from flinkish.spark.plan import PlanOptions, build_plan, first_tick
from flinkish.spark.session import is_remote, query_settings, settings_in_force
from flinkish.spark.worker import Deployment, deploy

#: How often the driver looks whether the query has ended, in seconds.
_POLL_S = 0.02
#: The same where each look is a request to a server.
_REMOTE_POLL_S = 0.1
_RENEW_S = 10.0


class SparkRun(JobRun):
    """The queries of one job."""

    def __init__(
        self,
        spark: Any,
        job: JobDescriptor,
        sources: dict[int, Source],
        settings: DriverSettings,
        directory: JobDirectory,
        base: PlanOptions,
        temporary: bool,
    ) -> None:
        super().__init__(JobID.from_hex_string(job.job_id), job.name)
        self.spark = spark
        self.job = job
        self.directory = directory
        self.partitions = partitions_of(job)
        self.sources = sources
        self._settings = settings
        self._base = base
        self._temporary = temporary
        self._ended = False
        self._query: Any = None
        self._options = base
        self._committed = -1
        self._inbox = Inbox(directory, job) if is_remote(spark) else None
        #: None: too late to ask
        self._at_end: list[Callable[[BaseException | None], None]] | None = []

    # ------------------------------------------------------------------ called by the query, for each epoch

    def before_epoch(self, epoch: int) -> None:
        """The last moment at which an epoch can be kept from happening."""
        if self._stop.is_set() or self._ended:
            raise StopQuery
        self.directory.check_owner(self.name)

    def after_epoch(self, report: EpochReport) -> None:
        """Only Spark's own commit is left."""
        self.directory.check_owner(self.name)
        self._ended = self._ended or report.end_of_input
        self._epoch_done(report)

    # ------------------------------------------------------------------ the thread

    def _work(self) -> None:
        epoch_listeners.register(self.job.job_id, self)
        try:
            if self.directory.read("finished.json") is None:
                self._run_queries()
            self._keep_promises(None)
        except BaseException as error:
            self._keep_promises(error)
            raise
        finally:
            epoch_listeners.unregister(self.job.job_id)
            self.directory.release()
            if self._temporary:
                shutil.rmtree(self.directory.path, ignore_errors=True)

    def _keep_promises(self, failure: BaseException | None) -> None:
        """What was asked for the end of the job, while the directory is still there and still its own."""
        with self._lock:
            promised, self._at_end = self._at_end or [], None
        for at_end in promised:
            at_end(failure)

    def stop_and(self, at_end: Callable[[BaseException | None], None]) -> None:
        """End after the running epoch, then call this with what the job failed with, if it did.

        It is called while the job still holds its directory: :meth:`wait` for the end.
        """
        self.request_stop()
        with self._lock:
            if self._at_end is not None:
                self._at_end.append(at_end)
                return
        at_end(None)

    def _run_queries(self) -> None:
        deployment = deploy(self.job, self.partitions)
        announced = self.directory.read("end-of-input.json") is not None
        self._base = keep_tick_size(self.directory, self.job, self._base)
        for run in plan_runs(self.job, self.sources, self._settings, self._base, announced):
            control = keep_heartbeat(self.directory, self.name, run.options.control)
            run = replace(run, options=replace(run.options, control=control))
            if run.announces_end:
                self.directory.write("end-of-input.json", {"announced": True})
            self._run_query(run, deployment)
            if self._stop.is_set():
                return
        bounded = all(source.bounded for source in self.sources.values())
        if bounded:
            self.directory.write("finished.json", {"job_id": self.job.job_id, "last_epoch": self.last_epoch})

    def _run_query(self, run: QueryRun, deployment: Deployment) -> None:
        where = f"job '{self.name}', directory {self.directory.path}"
        self.directory.delete(END_FILE)
        try:
            self._query = self._start(run, deployment)
            self._follow(self._query)
        except Exception as error:
            if not self._was_stopped(error):
                raise translate(error, where) from error
            # a query is stopped between two epochs: all that were reported are committed
            self._take_reports(None)
        finally:
            if self._query is not None and self._query.isActive:
                self._query.stop()

    def _was_stopped(self, error: Exception) -> bool:
        """Whether a query ended on purpose. Raises the error that the other process has left, if there is one."""
        end = self._inbox.end() if self._inbox is not None else False
        if isinstance(end, FlinkishError):
            raise end from error
        return end or STOP_MARK in str(error)

    def _start(self, run: QueryRun, deployment: Deployment) -> Any:
        self._options = run.options
        settings = query_settings(
            self._settings.state_backend,
            self.partitions,
            self.job.settings.source_batch_size,
            self.directory.is_local,
        )
        with settings_in_force(self.spark, settings):
            frame = build_plan(self.spark, self.job, self.sources, deployment, run.options)
            writer = (
                frame.writeStream.outputMode("append")
                .queryName(f"{self.name}-{self.job.job_id[:8]}")
                .option("checkpointLocation", self.directory.spark_checkpoint)
                .foreachBatch(EpochFunction(deployment, self.directory.path, self.directory.token))
            )
            if run.available_now:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{run.interval_ms} milliseconds")
            return writer.start()

    def _follow(self, query: Any) -> None:
        renewed = time.monotonic()
        while query.isActive:
            if self._stop.is_set():
                self._stop_idle(query)
            if self._may_have_committed():
                self._look_for_commits(query)
            if time.monotonic() - renewed > _RENEW_S:
                self.directory.renew(self.name)
                renewed = time.monotonic()
            query.awaitTermination(_REMOTE_POLL_S if self._inbox else _POLL_S)
        query.awaitTermination()
        self._look_for_commits(query)

    def _stop_idle(self, query: Any) -> None:
        """A query that waits for data is stopped at once; one that works ends before its next epoch."""
        if epoch_listeners.listener_of(self.job.job_id) is not None:
            status = query.status
            if not status["isTriggerActive"] or "Waiting" in status["message"]:
                query.stop()

    def _may_have_committed(self) -> bool:
        """Asking Spark costs: only when an epoch has been reported, or when reports come from another process."""
        return self._inbox is not None or (self.last_epoch is not None and self.last_epoch > self._committed)

    def _look_for_commits(self, query: Any) -> None:
        progress = query.lastProgress
        if progress is None:
            return
        epoch = int(progress["batchId"])
        committed = epoch if progress["durationMs"].get("commitOffsets") is not None else epoch - 1
        if committed > self._committed:
            self._committed = committed
            passed(Phase.METADATA_COMMITTED, epoch=committed)
            self._take_reports(committed)
            passed(Phase.CLEANED_UP, epoch=committed)

    def _take_reports(self, committed: int | None) -> None:
        """The reports of epochs that ran in another process (None: of all there are)."""
        if self._inbox is not None:
            for report in self._inbox.take(committed):
                self._epoch_done(report)

    # ------------------------------------------------------------------ what a savepoint needs

    def committed_epoch(self) -> int | None:
        """The last epoch that Spark has committed."""
        if self._query is not None:
            self._look_for_commits(self._query)
        return self._committed if self._committed >= 0 else None

    def end_offsets(self, epoch: int) -> list[str]:
        """Where each source of the plan stood after an epoch, as Spark writes it."""
        for progress in reversed(self._query.recentProgress):
            batch = int(progress["batchId"])
            # the one that follows begins where this one ended, also when it has nothing to read
            if batch in (epoch, epoch + 1):
                edge = "endOffset" if batch == epoch else "startOffset"
                return [_offset_text(source[edge]) for source in progress["sources"]]
        raise SavepointError(
            f"the source positions of epoch {epoch} are not known any more",
            where=f"job '{self.name}'",
            hint="trigger the savepoint again",
        )

    def positions(self, epoch: int) -> dict[str, str]:
        """Source uid -> where it stood after an epoch."""
        ends = self.end_offsets(epoch)
        found: dict[str, str] = {}
        for index, (vertex, source) in enumerate(sorted(self.sources.items())):
            uid = self.job.vertex(vertex).head.uid
            if isinstance(source, DataFrameSource):
                found[uid] = source.position(self.spark, ends[index], self.directory.spark_checkpoint, index)
            elif isinstance(source, GeneratedSource):
                found[uid] = position_after(source, ends[index], first_tick(self.job, vertex, self._options))
        return found

    def savepoint_directory(self) -> str:
        """Where savepoints go if nobody says it."""
        if self._settings.savepoint_directory is not None:
            return self._settings.savepoint_directory
        if self._temporary:
            raise SavepointError(
                "it is not known where to write the savepoint: the job's directory is a temporary one",
                where=f"job '{self.name}'",
                expected="a directory in the call, or execution.checkpointing.savepoint-dir",
                hint="name a directory",
            )
        return posixpath.join(self.directory.path, "savepoints")

    def request_stop(self) -> None:
        """End after the running epoch."""
        super().request_stop()
        if self._inbox is not None:
            self.directory.write(STOP_FILE, {"stop": True})


def _offset_text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def prepare_directory(settings: DriverSettings, name: str) -> tuple[JobDirectory, bool]:
    """The job's directory, claimed; True when it is a temporary one."""
    temporary = settings.job_dir is None
    path = tempfile.mkdtemp(prefix="flinkish-") if settings.job_dir is None else settings.job_dir
    directory = JobDirectory(path)
    directory.claim(name)
    directory.delete(STOP_FILE)
    return directory, temporary
