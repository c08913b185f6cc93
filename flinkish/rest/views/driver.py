"""What is known of this process, the driver: its log, its threads, and those of its JVM if there is one."""

from __future__ import annotations

import logging
import platform
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

from flinkish.errors import redact
from flinkish.rest.views.shapes import Json

#: How much of the log is kept.
MAX_LOG_BYTES = 1024 * 1024

#: The longest line of the log that is kept whole, in characters.
_LONGEST_LINE = 64 * 1024


def _handlers_of(name: str) -> Iterator[logging.Handler]:
    """The handlers that get what is logged by this name."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


class DriverLog(logging.Handler):
    """The last lines that flinkish has logged in this process, in a ring in memory."""

    _installed: ClassVar[DriverLog | None] = None
    _installing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, max_bytes: int = MAX_LOG_BYTES) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._size = 0
        #: when something was logged last, in ms since 1970
        self.modified_ms = 0
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-5s %(name)s - %(message)s"))

    @classmethod
    def installed(cls) -> DriverLog:
        """The log of this process, which begins with the first call."""
        with cls._installing:
            if cls._installed is None:
                cls._installed = cls()
                logging.getLogger("flinkish").addHandler(cls._installed)
            return cls._installed

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record as text, and forget the oldest ones for which there is no room."""
        try:
            line = redact(self.format(record))[:_LONGEST_LINE].encode("utf-8", "replace") + b"\n"
        except Exception:
            self.handleError(record)
            return
        # the lock of the handler is held
        self._lines.append(line)
        self._size += len(line)
        self.modified_ms = int(record.created * 1000)
        while self._size > self._max_bytes:
            self._size -= len(self._lines.popleft())
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and list(_handlers_of(record.name)) == [self]:
            # as Python does where there is no handler
            last.handle(record)

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        return self._size

    def text(self) -> str:
        """All that is kept."""
        assert self.lock is not None
        with self.lock:
            return b"".join(self._lines).decode("utf-8", "replace")


def process_metrics() -> dict[str, Any]:
    """Name -> value of the metrics of this process, under Flink's names as far as there are any."""
    return {
        "Status.Process.Threads.Count": threading.active_count(),
        "Status.Process.CPU.Time": time.process_time_ns(),
    }


def environment() -> Json:
    """The interpreter and its path, in the places of Flink's JVM and class path."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    return {"jvm": {"version": version, "arch": platform.machine(), "options": []}, "classpath": list(sys.path)}


# ---------------------------------------------------------------------- threads


def threads() -> list[Json]:
    """The threads of this process, and those of its JVM if there is one."""
    named = {thread.ident: thread for thread in threading.enumerate()}
    found = []
    for identity, frame in sys._current_frames().items():
        thread = named.get(identity)
        name = f"thread {identity}" if thread is None else thread.name
        kind = "" if thread is None or not thread.daemon else " daemon"
        stack = "".join(traceback.format_stack(frame))
        found.append(_thread(name, f'"{name}"{kind} Id={identity}\n{stack}'))
    return sorted(found, key=lambda one: str(one["threadName"])) + _threads_of_jvm()


def _thread(name: str, text: str) -> Json:
    return {"threadName": name, "stringifiedThreadInfo": redact(text)}


def _threads_of_jvm() -> list[Json]:
    """The threads of the JVM that PySpark has started; none under Spark Connect, and none if it does not answer."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    jvm = getattr(context, "_jvm", None)
    if jvm is None:
        return []
    try:
        infos = jvm.java.lang.management.ManagementFactory.getThreadMXBean().dumpAllThreads(False, False)
        return [_thread(f"JVM: {info.getThreadName()}", str(info.toString())) for info in infos]
    except Exception as error:
        return [_thread("JVM", f"the threads of the JVM are not known: {type(error).__name__}")]
