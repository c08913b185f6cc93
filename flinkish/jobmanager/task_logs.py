"""Writes what comes from the tasks into the driver's log: the lines of user functions, and calls that do not return."""

from __future__ import annotations

import logging

from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError, indented
from flinkish.jobmanager.job_run import JobObserver
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.task_log import OF_PROGRAM, LogLine, log_in_driver
from flinkish.runtime.task_progress import EpochProgress, TaskProgress

_JOB_LOG = logging.getLogger("flinkish.JobMaster")
_TASK_LOG = logging.getLogger("flinkish.Task")


class TaskLogs(JobObserver):
    """Logs, after each epoch and each failed attempt of a job, the lines that the tasks have sent."""

    def __init__(self, job: JobDescriptor) -> None:
        self._job = job
        #: what the tasks have warned the author of the program of
        self._warned: set[str] = set()

    def epoch_done(self, report: EpochReport) -> None:
        """Log the lines of all tasks of the epoch; of the engine's warnings each only once."""
        for task in report.tasks:
            name = self._job.vertex(task.vertex).task_name(task.subtask)
            log_in_driver(filter(self._is_new, task.log), name, report.epoch)

    def _is_new(self, line: LogLine) -> bool:
        if line[2] != OF_PROGRAM:
            return True
        known = line[3] in self._warned
        self._warned.add(line[3])
        return not known

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """Log the lines of the failed task; those of the other tasks of that epoch are in the executors' logs."""
        log_in_driver(failure.log, failure.task, failure.epoch)

    def job_done(self, status: JobStatus) -> None:
        """Wait until what functions have printed is printed here, too, because the program may end next."""
        from flinkish.spark.driver_jvm import wait_for_output_of_workers

        wait_for_output_of_workers()


class SilentSplits(JobObserver):
    """Warns of splits of sources, such as partitions of Kafka, that hold the watermark back because nothing comes from
    them: once, and then each time that a split has been silent twice as long."""

    def __init__(self, job: JobDescriptor) -> None:
        self._job = job
        #: (uid of the source, split) -> for how long it had been silent when it was warned of, in ms
        self._warned: dict[tuple[str, str], int] = {}

    def epoch_done(self, report: EpochReport) -> None:
        """Warn of the silent splits that the tasks have reported."""
        for one in report.silent_splits(self._job):
            warned_ms = self._warned.get((one.source_uid, one.split), 0)
            if warned_ms <= one.silent_ms < 2 * warned_ms:
                continue
            self._warned[one.source_uid, one.split] = one.silent_ms
            what = "any split" if one.split == "?" else f"split '{one.split}'"
            _JOB_LOG.warning(
                "job '%s': the watermark is held back since nothing has come from %s of '%s' (uid %s) for %d s, while "
                "others go on: windows and event-time timers wait for it; if it may be silent, give the source a "
                "WatermarkStrategy with .with_idleness(Duration.of_seconds(...))",
                self._job.name,
                what,
                one.source_name,
                one.source_uid,
                one.silent_ms // 1000,
            )


class SlowCalls(JobObserver):
    """Warns of calls of user functions that have not returned for ``flinkish.task.slow-call-warning``: once, and then
    each time that a call has taken twice as long."""

    def __init__(self, job: JobDescriptor) -> None:
        self._job = job
        #: (vertex, subtask) -> the call that was warned of last: where it runs, its number, the number of warnings
        self._warned: dict[tuple[int, int], tuple[str, int, int]] = {}

    def epoch_running(self, progress: EpochProgress) -> None:
        """Warn of the slow calls of the tasks of the epoch."""
        for task in progress.tasks:
            self._warn(task, progress.epoch)

    def _warn(self, task: TaskProgress, epoch: int) -> None:
        call, key = task.slow_call, (task.vertex, task.subtask)
        if call is None or self._warned.get(key) == (warning := (str(task.place), call.number, call.warnings)):
            return
        self._warned[key] = warning
        name = self._job.vertex(task.vertex).task_name(task.subtask)
        record = "" if call.record is None else f", record {call.record}"
        text = (
            f"a call of operator '{call.operator}' (uid {call.uid}){call.details}{record} has not returned for "
            f"{call.running_ms / 1000:,.1f} s: task '{name}', epoch {epoch}"
            f"{'' if task.place is None else f', {task.place}'}\n{call.stack}"
        )
        _TASK_LOG.warning("%s", indented(text), extra={"task": name, "epoch": epoch})
