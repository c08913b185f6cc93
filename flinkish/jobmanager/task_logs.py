"""Writes what comes from the tasks into the driver's log: the lines of user functions, calls that do not return, and
what keeps windows and event-time timers from firing. A warning that holds for as long as the job goes on is also among
the job's ``warnings``, from which it is described.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timezone

from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError, indented
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.log import OF_PROGRAM, LogLine, log_in_driver
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.task.progress import EpochProgress, TaskProgress

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


def _warn(job: JobDescriptor, warnings: dict[str, str], matter: str, text: str) -> None:
    warnings[matter] = text
    _JOB_LOG.warning("job '%s': %s", job.name, text)


class SilentSplits(JobObserver):
    """Warns of splits of sources, such as partitions of Kafka, that hold the watermark back because nothing comes from
    them: once, and then each time that a split has been silent twice as long."""

    def __init__(self, job: JobDescriptor, warnings: dict[str, str] | None = None) -> None:
        self._job = job
        self._warnings = {} if warnings is None else warnings
        #: (uid of the source, split) -> for how long it had been silent when it was warned of, in ms
        self._warned: dict[tuple[str, str], int] = {}

    def epoch_done(self, report: EpochReport) -> None:
        """Warn of the silent splits that the tasks have reported."""
        silent = report.silent_splits(self._job)
        for source_uid, split in self._warned.keys() - {(one.source_uid, one.split) for one in silent}:
            self._warnings.pop(f"split {split} of {source_uid}", None)
        for one in silent:
            warned_ms = self._warned.get((one.source_uid, one.split), 0)
            if warned_ms <= one.silent_ms < 2 * warned_ms:
                continue
            self._warned[one.source_uid, one.split] = one.silent_ms
            what = "any split" if one.split == "?" else f"split '{one.split}'"
            text = (
                f"the watermark is held back since nothing has come from {what} of '{one.source_name}' (uid "
                f"{one.source_uid}) for {one.silent_ms // 1000} s, while others go on: windows and event-time timers "
                "wait for it; if it may be silent, give the source a WatermarkStrategy with "
                ".with_idleness(Duration.of_seconds(...))"
            )
            _warn(self._job, self._warnings, f"split {one.split} of {one.source_uid}", text)


#: Watermarks in these ranges are times from 2001 to 2100 in another unit than ms: unit, lowest, highest, what makes ms.
_OTHER_UNITS = (
    ("seconds", 978_307_200, 4_102_444_800, "multiply them by 1000"),
    ("microseconds", 978_307_200 * 10**6, 4_102_444_800 * 10**6, "divide them by 1000 (//)"),
    ("nanoseconds", 978_307_200 * 10**9, 4_102_444_800 * 10**9, "divide them by 1000000 (//)"),
)


class EventTimeWatch(JobObserver):
    """Warns, once each, of windows and event-time timers that wait although no watermark will come, after
    ``patience_s`` seconds or at the end of the job, and of timestamps that are not milliseconds."""

    def __init__(self, job: JobDescriptor, warnings: dict[str, str], patience_s: float = 30.0) -> None:
        self._job = job
        self._warnings = warnings
        self._patience_s = patience_s
        #: vertex -> subtask -> the number of its timers that wait for a first watermark
        self._waiting: dict[int, dict[int, int]] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        #: the vertices whose timers were warned of
        self._warned: set[int] = set()
        #: the vertices whose timestamps were looked at: only the first ones, since what counts up from 0 comes through
        #: each range
        self._looked_at: set[int] = set()

    def epoch_done(self, report: EpochReport) -> None:
        """Note which timers wait, and look at the timestamps."""
        with self._lock:
            for task in report.tasks:
                waiting = self._waiting.setdefault(task.vertex, {})
                waiting.pop(task.subtask, None)
                if task.waiting_timers:
                    waiting[task.subtask] = task.waiting_timers
                elif not waiting:
                    self._warnings.pop(f"timers of vertex {task.vertex}", None)
            if self._timer is None and any(self._waiting.values()):
                # not by the clock of epochs: without new data there may be none
                self._timer = threading.Timer(self._patience_s, self._warn_of_timers)
                self._timer.daemon = True
                self._timer.start()
        for task in report.tasks:
            if task.event_time_ms is not None and task.vertex not in self._looked_at:
                self._looked_at.add(task.vertex)
                self._check_unit(self._job.vertex(task.vertex), task.event_time_ms)

    def job_done(self, status: JobStatus) -> None:
        """Warn before the job is over, unless it has failed, which is worse."""
        if self._timer is not None:
            self._timer.cancel()
            if status is not JobStatus.FAILED:
                self._warn_of_timers(at_end=True)

    def _warn_of_timers(self, at_end: bool = False) -> None:
        with self._lock:
            counts = {vertex: sum(waiting.values()) for vertex, waiting in self._waiting.items() if waiting}
            for vertex, count in counts.items():
                if vertex not in self._warned:
                    self._warn_of(self._job.vertex(vertex), count, at_end)
            self._timer = None

    def _warn_of(self, vertex: VertexDescriptor, count: int, at_end: bool) -> None:
        sources = [one for one in sources_of(self._job, vertex) if not one[0].bounded]
        without = [f"'{source.head.name}' (uid {source.head.uid})" for source, watermarks in sources if not watermarks]
        name = f"'{vertex.head.name}' (uid {vertex.head.uid})"
        if without:
            self._warned.add(vertex.id)
            text = (
                f"at least {count:,} windows or event-time timers of {name} wait and can never fire, since no "
                f"watermark strategy gives watermarks behind {', '.join(without)}, as with "
                "WatermarkStrategy.no_watermarks(): give from_source(), or assign_timestamps_and_watermarks() before "
                "the keys, WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)), with a "
                "TimestampAssigner if the time is a field of the records"
            )
        elif sources and not at_end and not any(one.startswith("split ") for one in self._warnings):
            self._warned.add(vertex.id)
            text = (
                f"at least {count:,} windows or event-time timers of {name} wait, and there was no watermark yet: one "
                "of their sources has given no record, or a WatermarkGenerator of the program has emitted none"
            )
        else:
            return
        _warn(self._job, self._warnings, f"timers of vertex {vertex.id}", text)

    def _check_unit(self, vertex: VertexDescriptor, event_time_ms: int) -> None:
        for unit, lowest, highest, remedy in _OTHER_UNITS:
            if lowest <= event_time_ms < highest:
                at = vertex.head if vertex.source is not None else next(filter(makes_watermarks, vertex.operators))
                text = (
                    f"the timestamps of '{at.name}' (uid {at.uid}) look like {unit}: the watermark is {event_time_ms}, "
                    f"as milliseconds {_date_of(event_time_ms)}; {remedy} in the TimestampAssigner"
                )
                _warn(self._job, self._warnings, f"timestamps of vertex {vertex.id}", text)


def _date_of(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d}"
    except (OverflowError, ValueError, OSError):
        return "a time after the year 9999"


def makes_watermarks(operator: OperatorDescriptor) -> bool:
    """Whether the operator is that of a watermark strategy that gives watermarks."""
    return isinstance(operator.factory, TimestampsAndWatermarksFactory) and operator.factory.makes_watermarks


def sources_of(job: JobDescriptor, vertex: VertexDescriptor) -> list[tuple[VertexDescriptor, bool]]:
    """The sources whose records reach a vertex, each with whether a strategy gives watermarks on all ways from it."""
    found: dict[int, bool] = {}
    ways, seen = [(vertex.id, False)], set[tuple[int, bool]]()
    while ways:
        target, watermarks = ways.pop()
        for place in {one.vertex for one in job.vertex(target).inputs}:
            before = job.vertex(place)
            for index, operator in enumerate(before.operators):
                if not any(edge.target == target for edge in operator.edges):
                    continue
                made, at = watermarks, index
                while at >= 0:
                    made, at = made or makes_watermarks(before.operators[at]), before.operators[at].parent
                if before.source is not None:
                    found[place] = found.get(place, True) and made
                elif (place, made) not in seen:
                    seen.add((place, made))
                    ways.append((place, made))
    return [(job.vertex(place), made) for place, made in sorted(found.items())]


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
