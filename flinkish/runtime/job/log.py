"""Carries the lines that user functions log from the workers to the driver's log.

What is logged may quote records: a message is one line, and only the traceback behind it, indented, has more.

Rule: each line appears once in the driver's log, with the task and the epoch that it belongs to. It travels with the
report of its task, or with the error that ends the task. A task that logs without end sends its first lines, and the
number of lines left out. If executors run apart from the driver, lines also go to the executor's standard error, at
once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextvars import ContextVar

from flinkish.errors import escaped, indented, redact

#: (seconds since 1970, level, logger, message). These are plain data, since they are stored in files of the job.
LogLine = tuple[float, int, str, str]

#: Limits of the lines that one task sends for one epoch.
MAX_LINES = 1_000
MAX_CHARACTERS = 256 * 1024

#: The root of the engine's own loggers, whose lines stay in the process that logs them.
_OWN = "flinkish"

#: The logger of `warn_of_program`.
OF_PROGRAM = "flinkish.Program"


class TaskLog:
    """Collects the lines that the functions of one task log, until they are taken."""

    def __init__(self) -> None:
        self._lines: list[LogLine] = []
        self._characters = 0
        self._left_out = 0

    def add(self, line: LogLine) -> None:
        """Add a line; beyond the limits it is only counted."""
        if len(self._lines) >= MAX_LINES or self._characters + len(line[3]) > MAX_CHARACTERS:
            self._left_out += 1
            return
        self._lines.append(line)
        self._characters += len(line[3])

    def take(self) -> tuple[LogLine, ...]:
        """The lines since the last call, with a line at the end that says how many were left out, if any."""
        lines = tuple(self._lines)
        if self._left_out:
            text = f"{self._left_out} more lines of this task and epoch are left out"
            lines = (*lines, (time.time(), logging.WARNING, f"{_OWN}.Task", text))
        self._lines, self._characters, self._left_out = [], 0, 0
        return lines


#: The log of the task whose user code runs in this thread, or in calls that this code has started on an event loop.
_current: ContextVar[TaskLog | None] = ContextVar("flinkish_task_log", default=None)


def enter(log: TaskLog | None) -> None:
    """Attribute the lines that are logged from now on to the task of this log; None means to no task."""
    _current.set(log)


def warn_of_program(text: str, said: set[str]) -> None:
    """Warn the author of the program of something that the running operator has found, unless it is among what was
    ``said`` already. From a worker the line travels to the driver, which logs it once, whichever workers find the
    same."""
    if text in said:
        return
    said.add(text)
    log = _current.get()
    if log is not None and _is_forwarded():
        log.add((time.time(), logging.WARNING, OF_PROGRAM, redact(escaped(text))))
    else:
        logging.getLogger(OF_PROGRAM).warning("%s", text)


def take_current() -> tuple[LogLine, ...]:
    """The lines of the running task, which count as taken."""
    log = _current.get()
    return () if log is None else log.take()


class TaskLogHandler(logging.Handler):
    """The handler of a worker's root logger that collects lines by task. ``also_here`` says whether lines also go to
    standard error, which is not that of the driver."""

    #: this handler only collects lines, so code that configures loggers still adds a handler that shows them
    collects_only = True

    def __init__(self, also_here: bool) -> None:
        super().__init__()
        self._also_here = also_here

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record. If it cannot be formatted, `logging` reports the error, and the job goes on."""
        log = _current.get()
        travels = log is not None and record.name.partition(".")[0] != _OWN
        try:
            if log is not None and travels:
                log.add((record.created, record.levelno, record.name, _text(record)))
                record.travels = not self._also_here
            alone = all(isinstance(handler, TaskLogHandler) for handler in logging.getLogger().handlers)
            if alone and logging.lastResort is not None and (self._also_here or not travels):
                # what Python does if there is no handler
                if record.levelno >= logging.lastResort.level:
                    plain = {"msg": indented(_text(record)), "args": (), "exc_info": None, "exc_text": None}
                    logging.lastResort.handle(logging.makeLogRecord({**vars(record), **plain}))
        except Exception:
            self.handleError(record)


def _text(record: logging.LogRecord) -> str:
    text = escaped(record.getMessage())
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    return redact(text)


def forward_to_driver(also_here: bool) -> None:
    """Collect by task what functions log in this worker. Repeated calls have no effect."""
    if not _is_forwarded():
        logging.getLogger().addHandler(TaskLogHandler(also_here))


def _is_forwarded() -> bool:
    return any(isinstance(handler, TaskLogHandler) for handler in logging.getLogger().handlers)


def log_in_driver(lines: Iterable[LogLine], task: str, epoch: int | None) -> None:
    """Log the lines of a task in the driver, with their own times and loggers. Formatters find ``task`` and ``epoch``
    as attributes of the record."""
    for created, level, name, message in lines:
        logger = logging.getLogger(name)
        if logger.isEnabledFor(level):
            text = f"{indented(message)} [{task}, epoch {epoch}]"
            record = logger.makeRecord(name, level, "", 0, text, (), None, extra={"task": task, "epoch": epoch})
            record.created, record.msecs = created, created % 1 * 1000
            logger.handle(record)
