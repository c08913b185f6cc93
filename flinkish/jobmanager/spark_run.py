"""A job at work on Spark."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from typing import Any

from flinkish.common.job_id import JobID
from flinkish.core.source import Source
from flinkish.errors import SavepointError
from flinkish.jobmanager import epoch_listeners
from flinkish.jobmanager.epoch_function import STOP_MARK, EpochFunction
from flinkish.jobmanager.epoch_listeners import StopQuery
from flinkish.jobmanager.job_directory import JobDirectory
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.remote_reports import STOP_FILE, read_report
from flinkish.jobmanager.run_plan import QueryRun, plan_runs
from flinkish.jobmanager.settings import DriverSettings
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.addressing import partitions_of
from flinkish.spark.failures import translate
from flinkish.spark.plan import PlanOptions, build_plan
from flinkish.spark.session import query_settings, settings_in_force
from flinkish.spark.worker import Deployment, deploy

#: How often the driver looks whether the query has ended, in seconds.
_POLL_S = 0.02
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
        self._committed = -1

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
        finally:
            epoch_listeners.unregister(self.job.job_id)
            self.directory.release()
            if self._temporary:
                shutil.rmtree(self.directory.path, ignore_errors=True)

    def _run_queries(self) -> None:
        deployment = deploy(self.job, self.partitions)
        announced = self.directory.read("end-of-input.json") is not None
        runs = plan_runs(self.job, self.sources, self._settings, self._base, announced)
        for run in runs:
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
        try:
            self._query = self._start(run, deployment)
            self._follow(self._query)
        except Exception as error:
            if STOP_MARK not in str(error):
                raise translate(error, where) from error

    def _start(self, run: QueryRun, deployment: Deployment) -> Any:
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
                .foreachBatch(EpochFunction(deployment, self.directory.path))
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
            self._look_for_commits(query)
            if time.monotonic() - renewed > _RENEW_S:
                self.directory.renew()
                renewed = time.monotonic()
            query.awaitTermination(_POLL_S)
        query.awaitTermination()
        self._look_for_commits(query)

    def _stop_idle(self, query: Any) -> None:
        """A query that waits for data is stopped at once; one that works ends before its next epoch."""
        if epoch_listeners.listener_of(self.job.job_id) is not None:
            status = query.status
            if not status["isTriggerActive"] or "Waiting" in status["message"]:
                query.stop()

    def _look_for_commits(self, query: Any) -> None:
        progress = query.lastProgress
        if progress is None:
            return
        epoch = int(progress["batchId"])
        committed = epoch if progress["durationMs"].get("commitOffsets") is not None else epoch - 1
        if committed > self._committed:
            self._committed = committed
            passed(Phase.METADATA_COMMITTED, epoch=committed)
            self._clean_up(committed)

    def _clean_up(self, epoch: int) -> None:
        report = read_report(self.directory, epoch) if not self.reports else None
        if report is not None and (self.last_epoch is None or report.epoch > self.last_epoch):
            self._epoch_done(report)
        passed(Phase.CLEANED_UP, epoch=epoch)

    # ------------------------------------------------------------------ what a savepoint needs

    def committed_epoch(self) -> int | None:
        """The last epoch that Spark has committed."""
        if self._query is not None:
            self._look_for_commits(self._query)
        return self._committed if self._committed >= 0 else None

    def end_offsets(self, epoch: int) -> list[str]:
        """Where each source of the plan stood after an epoch, as Spark writes it."""
        for progress in reversed(self._query.recentProgress):
            if int(progress["batchId"]) == epoch:
                return [_offset_text(source["endOffset"]) for source in progress["sources"]]
        raise SavepointError(
            f"the source positions of epoch {epoch} are not known any more",
            where=f"job '{self.name}'",
            hint="trigger the savepoint again",
        )

    def next_tick(self, epoch: int) -> int:
        """The tick that generated sources would give next. Each epoch of a query is one tick."""
        return self._base.first_tick + epoch + 1

    def request_stop(self) -> None:
        """End after the running epoch."""
        super().request_stop()
        if not self.reports:
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
