"""What user functions log, on its way to the driver's log.

Rule upheld here: each line goes to one log, with the task and the epoch that it belongs to. It travels with the report
of its task, or with the error that ends it; a task that logs without end sends its first lines, and says how many more
there were. On executors of their own, lines go to the executor's standard error besides, at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextvars import ContextVar

#: (seconds since 1970, level, logger, message): data, since it lies in files of the job.
LogLine = tuple[float, int, str, str]

#: Of one task and epoch.
MAX_LINES = 1_000
MAX_CHARACTERS = 256 * 1024

#: The engine's own loggers: where it runs is their place.
_OWN = "flinkish"


class TaskLog:
    """What the functions of one task have logged since it was asked last."""

    def __init__(self) -> None:
        self._lines: list[LogLine] = []
        self._characters = 0
        self._left_out = 0

    def add(self, line: LogLine) -> None:
        """Another line, or only its number if there are too many."""
        if len(self._lines) >= MAX_LINES or self._characters + len(line[3]) > MAX_CHARACTERS:
            self._left_out += 1
            return
        self._lines.append(line)
        self._characters += len(line[3])

    def take(self) -> tuple[LogLine, ...]:
        """All lines since the last call."""
        lines = tuple(self._lines)
        if self._left_out:
            text = f"{self._left_out} more lines of this task and epoch are left out"
            lines = (*lines, (time.time(), logging.WARNING, f"{_OWN}.Task", text))
        self._lines, self._characters, self._left_out = [], 0, 0
        return lines


#: Of the task whose user code runs in this thread, or in calls that it has started on an event loop.
_current: ContextVar[TaskLog | None] = ContextVar("flinkish_task_log", default=None)


def enter(log: TaskLog | None) -> None:
    """What is logged from now on belongs to this task; None: to none."""
    _current.set(log)


def take_current() -> tuple[LogLine, ...]:
    """The lines of the running task."""
    log = _current.get()
    return () if log is None else log.take()


class TaskLogHandler(logging.Handler):
    """Of the root logger of a worker. ``also_here``: lines go to standard error besides, which is not the driver's."""

    #: beside it, whoever configures loggers adds a handler that shows what is logged
    collects_only = True

    def __init__(self, also_here: bool) -> None:
        super().__init__()
        self._also_here = also_here

    def emit(self, record: logging.LogRecord) -> None:
        """One record. The error of one that cannot be written is `logging`'s to report, not the job's."""
        log = _current.get()
        travels = log is not None and record.name.partition(".")[0] != _OWN
        try:
            if log is not None and travels:
                log.add((record.created, record.levelno, record.name, _text(record)))
                record.travels = not self._also_here
            alone = all(isinstance(handler, TaskLogHandler) for handler in logging.getLogger().handlers)
            if alone and logging.lastResort is not None and (self._also_here or not travels):
                # what Python does where no handler is
                if record.levelno >= logging.lastResort.level:
                    logging.lastResort.handle(record)
        except Exception:
            self.handleError(record)


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    return text


def forward_to_driver(also_here: bool) -> None:
    """In a worker, once: what functions log is collected by task."""
    root = logging.getLogger()
    if not any(isinstance(handler, TaskLogHandler) for handler in root.handlers):
        root.addHandler(TaskLogHandler(also_here))


def log_in_driver(lines: Iterable[LogLine], task: str, epoch: int | None) -> None:
    """Log what a task has sent, at the time and with the logger of its own. Formatters find ``task`` and ``epoch``."""
    for created, level, name, message in lines:
        logger = logging.getLogger(name)
        if logger.isEnabledFor(level):
            text = f"{message} [{task}, epoch {epoch}]"
            record = logger.makeRecord(name, level, "", 0, text, (), None, extra={"task": task, "epoch": epoch})
            record.created, record.msecs = created, created % 1 * 1000
            logger.handle(record)
