"""The observers that show a running job as text: its progress (where to look, then for each epoch its time and
duration, records in and out, rate, watermark and lag, the last checkpoint and the number of restarts), and in the
driver's log what comes from the tasks: the lines of user functions, calls that do not return, and what keeps windows
and event-time timers from firing.

Rule: progress goes to stderr, because stdout belongs to the job's own ``print``. On a terminal one line is redrawn;
elsewhere (a log file) lines come at most every two seconds, and the last epoch's line is always among them. Progress is
only a view: whatever happens to the stream that it is written to, the job goes on.

Rule: a warning that holds for as long as the job goes on is also among the job's ``warnings``, from which it is
described.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TextIO

from flinkish.common.job_status import JobStatus
from flinkish.common.options import tables
from flinkish.connectors.results import PrintSink
from flinkish.errors import ConfigurationError, FlinkishError, indented
from flinkish.jobmanager.job.description import CheckpointDescription, JobObserver
from flinkish.jobmanager.job.lifecycle import time_text
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.log import OF_PROGRAM, LogLine, log_in_driver
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.runtime.task.progress import EpochProgress, TaskProgress

#: The least time between two lines where the line is not redrawn.
LINE_INTERVAL_MS = 2_000
#: The least time between two drawings of a line that is redrawn.
RENEW_INTERVAL_MS = 100
#: The length of the time window over which the rate is computed.
RATE_WINDOW_MS = 10_000

#: Environment variable that overrides the mode ``auto``, but no other mode: ``always`` or ``never``.
ENVIRONMENT = "FLINKISH_PROGRESS"


def progress_for(
    mode: str,
    job: JobDescriptor,
    where_to_look: Callable[[], str] | None = None,
    checkpoints: Callable[[], Sequence[CheckpointDescription]] = tuple,
) -> JobObserver:
    """The observer that shows a job's progress on stderr, or one that shows nothing.

    Args:
        mode: the value of ``flinkish.progress``: ``always``, ``never``, or ``auto``, which is the value of the
            environment variable ``FLINKISH_PROGRESS`` or, without it, ``always`` except inside pytest.
        job: the job whose progress is shown; its name begins each line.
        where_to_look: gives the line that is shown at the start; None: there is no such line.
        checkpoints: gives the last checkpoints, the oldest first.

    Raises:
        ConfigurationError: the environment variable has another value than ``always`` or ``never``.
    """
    if mode == "auto":
        mode = os.environ.get(ENVIRONMENT) or ("never" if "pytest" in sys.modules else "always")
        if mode not in ("always", "never"):
            raise ConfigurationError(f"{ENVIRONMENT}={mode}", expected="always or never")
    if mode == "never":
        return NoProgress()
    stream = sys.stderr
    # a job's own output would be mixed with a progress line that is not ended yet
    prints = any(isinstance(sink.sink, PrintSink) for sink in job.sinks)
    renewing = stream.isatty() and not prints
    return ProgressLine(job, stream, SystemClock(), renewing, where_to_look=where_to_look, checkpoints=checkpoints)


class NoProgress(JobObserver):
    """The observer of a job whose progress is not shown: does nothing."""


class ProgressLine(JobObserver):
    """Writes the progress of a job to ``stream``. ``renewing``: one line is redrawn, instead of a line per report.

    It is called from the thread that runs epochs and from the one that ends the job.
    """

    def __init__(
        self,
        job: JobDescriptor,
        stream: TextIO,
        clock: Clock,
        renewing: bool,
        columns: int | None = None,
        where_to_look: Callable[[], str] | None = None,
        checkpoints: Callable[[], Sequence[CheckpointDescription]] = tuple,
    ) -> None:
        self._job = job
        self._stream: TextIO | None = stream
        self._clock = clock
        self._renewing = renewing
        self._columns = columns
        self._where_to_look = where_to_look
        self._checkpoints = checkpoints
        self._lock = threading.Lock()
        self._started_ms = clock.now_ms()
        #: (time in ms, records in so far) at the ends of the last epochs
        self._history: deque[tuple[int, int]] = deque([(self._started_ms, 0)])
        self._epochs = self._in = self._out = self._restarts = 0
        #: the last epoch that is counted: one whose commit was interrupted is reported again
        self._counted = -1
        self._shown_ms: int | None = None
        #: the watermark of the last epoch
        self._watermark_ms: int | None = None
        #: line of the last epoch as long as it is not shown yet
        self._pending: str | None = None
        #: number of characters of the line that is redrawn
        self._drawn = 0

    def attempt_started(self, attempt: int) -> None:
        """Say where to look when the job begins to run."""
        with self._lock:
            if not attempt and self._where_to_look is not None:
                self._write(f"{self._job.name}: {self._where_to_look()}\n")

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """Count the restart that follows a failure."""
        with self._lock:
            self._restarts += restart_delay_ms is not None

    def epoch_done(self, report: EpochReport) -> None:
        """Count the epoch, and show it unless the last line was shown too recently."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if report.epoch > self._counted:
                self._epochs += 1
                self._in += report.records_in
                self._out += report.records_out
                self._counted = report.epoch
            if now_ms < self._history[-1][0]:
                # the clock was set back: neither rates nor waiting times go by what it said before
                self._history, self._shown_ms = deque([(now_ms, self._in)]), None
            self._history.append((now_ms, self._in))
            while len(self._history) > 2 and self._history[1][0] <= now_ms - RATE_WINDOW_MS:
                self._history.popleft()
            self._watermark_ms, took = report.watermark_ms, f"{report.duration_ms / 1000:,.1f} s"
            self._pending = (
                f"{self._job.name}: epoch {report.epoch:,} at {_time_of_day(now_ms)} took {took}"
                f" | in {self._in:,} | out {self._out:,} | {self._rate():,}/s{self._tail(now_ms, report)}"
            )
            if self._is_time(now_ms):
                self._show_pending()

    def epoch_running(self, progress: EpochProgress) -> None:
        """Show how far the running epoch is, unless the last line was shown too recently. Its records stand apart from
        those that are committed, since the epoch may fail and run again. The watermark is that of the last epoch: what
        single tasks have reached is none of the job before all have."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if not self._is_time(now_ms):
                return
            committed_ms, committed = self._history[-1]
            elapsed_ms = min(max(now_ms - committed_ms, 1), max(progress.running_ms, 1))
            self._pending = (
                f"{self._job.name}: epoch {progress.epoch:,} at {_time_of_day(now_ms)}"
                f" running for {progress.running_ms / 1000:,.0f} s"
                f" | in {committed:,} + {progress.records_in:,} | out {self._out:,} + {progress.records_out:,}"
                f" | {progress.records_in * 1000 // elapsed_ms:,}/s"
                f"{self._tail(now_ms)}"
            )
            self._show_pending()

    def _tail(self, now_ms: int, report: EpochReport | None = None) -> str:
        """The end of a line: the watermark with what holds it back, its lag, the backlog of the sources with its age,
        the last checkpoint, and restarts, as far as there are any. ``report``: of the epoch, if it is done."""
        ended = report is not None and report.end_of_input and self._watermark_ms is None
        text = " | end of input" if ended else f" | watermark {watermark_text(self._watermark_ms)}"
        silent = [] if report is None else report.silent_splits(self._job)
        if silent:
            more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            text += f", held back by {silent[0].split} of {silent[0].source_name}{more}"
        if self._watermark_ms is not None:
            text += f" | lag {_duration_text(now_ms - self._watermark_ms)}"
        backlogs = [] if report is None else list(report.backlogs(self._job).values())
        if backlogs:
            texts = [str(one) for one in backlogs if one.splits]
            records = sum(one.records for one in backlogs)
            ages = [one.age_ms for one in backlogs if one.age_ms is not None]
            text += f" | backlog {', '.join([f'{records:,}'] * bool(records) + texts)}"
            text += f" ({_duration_text(max(ages))})" if ages else ""
        checkpoints = self._checkpoints()
        completed = [one for one in checkpoints if one.status == "COMPLETED"]
        if completed:
            text += f" | checkpoint {completed[-1].id}, {_duration_text(now_ms - _completed_ms(completed[-1]))} ago"
        elif checkpoints:
            text += " | checkpoint none"
        return text + (f" | restarts {self._restarts:,}" if self._restarts else "")

    def _is_time(self, now_ms: int) -> bool:
        """Whether a line may be shown now, which then counts as shown."""
        interval_ms = RENEW_INTERVAL_MS if self._renewing else LINE_INTERVAL_MS
        if self._shown_ms is not None and now_ms - self._shown_ms < interval_ms:
            return False
        self._shown_ms = now_ms
        return True

    def job_done(self, status: JobStatus) -> None:
        """Show the last epoch if it is not shown yet, then the status with which the job has ended and its totals."""
        with self._lock:
            if self._pending is not None:
                self._show_pending()
            if self._drawn:
                self._write("\n")
                self._drawn = 0
            elapsed_ms = max(self._clock.now_ms() - self._started_ms, 0)
            epochs = f"{self._epochs:,} epoch{'s'[: self._epochs != 1]}"
            self._write(
                f"{self._job.name}: {status.name.lower()} after {epochs} and {elapsed_ms / 1000:,.1f} s,"
                f" records in {self._in:,}, out {self._out:,}\n"
            )

    def _rate(self) -> int:
        """Records in per second over the last `RATE_WINDOW_MS`."""
        (first_ms, first), (last_ms, last) = self._history[0], self._history[-1]
        return (last - first) * 1000 // max(last_ms - first_ms, 1)

    def _show_pending(self) -> None:
        text, self._pending = self._pending or "", None
        if not self._renewing:
            self._write(text + "\n")
            return
        # a line that wraps cannot be redrawn
        columns = self._columns or shutil.get_terminal_size().columns
        text = text[: max(columns - 1, 1)]
        self._write("\r" + text.ljust(self._drawn))
        self._drawn = len(text)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # the terminal or pipe is gone (ValueError: closed); the job does not end because nobody watches it
            self._stream = None


def _completed_ms(checkpoint: CheckpointDescription) -> int:
    return checkpoint.trigger_time_ms + (checkpoint.duration_ms or 0)


def _time_of_day(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%H:%M:%S}Z"


def _duration_text(duration_ms: int) -> str:
    """A duration in the largest unit of which it has two, or in seconds.

    >>> _duration_text(-5), _duration_text(1_500), _duration_text(119_000), _duration_text(7_200_000)
    ('0.0 s', '1.5 s', '119 s', '2 h')
    """
    seconds = max(duration_ms, 0) / 1000
    for unit, size_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:,.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def watermark_text(watermark_ms: int | None) -> str:
    """A watermark as UTC time; in ms if it is outside of the range of dates.

    >>> watermark_text(1_700_000_000_123), watermark_text(None)
    ('2023-11-14T22:13:20.123Z', 'none')
    """
    return "none" if watermark_ms is None else time_text(watermark_ms)


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
                f".with_idleness(Duration.of_seconds(...)), or a query '{tables.SOURCE_IDLE_TIMEOUT.key}'"
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
