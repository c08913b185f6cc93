"""Closes the functions that an attempt has open in worker processes, when it is over at the latest.

    <query>/open/attempt-<version>.json    an attempt that may have functions open
    <query>/open/<token>.json              one worker process that has, with the trace of their lifecycle

Spark tells a Python worker nothing: not that its job has ended, nor that its epoch is cancelled; no task may come any
more, and a worker in user code is killed seconds later. So the driver deletes the file of its attempt, which a thread
of each worker looks for, and waits until the files of the workers are gone.

Rule: functions are opened, called and closed by one thread, the main thread of the worker, since clients may belong to
the thread that has made them. So the other thread only sends it a signal (SIGURG, which does nothing to a process that
does not expect it). Its handler closes what is over if the worker is idle. If it works for the attempt that is over,
`TaskCancelled` is raised in the call, as Flink interrupts a task, and what is open is closed on the way out.

Rule: what is not known is not over. Storage that cannot be read ends nothing.
"""

from __future__ import annotations

import atexit
import logging
import os
import posixpath
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from flinkish.errors import failures_of_user_code
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.process import status_of
from flinkish.runtime.task.task import TaskId
from flinkish.storage.paths import FileKind, is_local, local_path, make_private
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_of

_LOG = logging.getLogger("flinkish.TaskManager")

#: Seconds between two looks of a worker at whether an attempt is over, and of the driver at whether all is closed.
LOOK_S, REMOTE_LOOK_S = 0.1, 2.0
#: Seconds for which the driver waits for workers of other machines, which may be gone without its knowing.
OTHER_MACHINES_S = 30.0
#: Seconds after which a worker ends itself that has not closed its functions in time; the driver waits for it.
_GRACE_S = 2.0


class TaskCancelled(BaseException):
    """Raised in a call of user code whose attempt is over. It is no Exception, so that user code does not take it for a
    failed record."""


@dataclass(frozen=True)
class OpenAttempt(StoredFile):
    """Says that an attempt may have functions open in worker processes."""

    NAME = "attempt-{}.json"
    PART = "[0-9]+-[0-9a-f]{8}"
    VERSION = OLDEST = 0
    FOLDER = "<query>/open"
    WHEN = "while an attempt runs"
    READER = "the workers"
    LENIENT = True
    KIND = FileKind.PROGRESS
    REMEDY = "nothing need be done: the functions are closed"

    attempt: str


@dataclass(frozen=True)
class OpenWorker(StoredFile):
    """A worker process that has functions of an attempt open."""

    NAME = "{}.json"
    PART = "[0-9a-f]{32}"
    VERSION = OLDEST = 0
    FOLDER = "<query>/open"
    WHEN = "while a worker has functions open"
    LENIENT = True
    KIND = FileKind.PROGRESS
    REMEDY = "nothing need be done: it is written anew"

    #: the version of the attempt's deployment
    attempt: str
    host: str
    pid: int


@dataclass(frozen=True)
class LifecycleTrace(StoredFile):
    """The last calls of the lifecycle of the operators in a worker process."""

    NAME = "trace-{}.json"
    PART = "[0-9a-f]{32}"
    VERSION = OLDEST = 0
    FOLDER = "<query>/open"
    WHEN = "with flinkish.trace.lifecycle"
    LENIENT = True
    KIND = FileKind.PROGRESS
    REMEDY = "nothing need be done: it is written anew"

    calls: list[LifecycleCall]


@dataclass(frozen=True)
class AttemptFiles:
    """The files of one attempt in the directory of its query. ``version`` is that of its deployment."""

    query: str
    version: str

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return posixpath.join(self.query, "open")

    @property
    def look_s(self) -> float:
        """The time between two looks: elsewhere than on local file systems each is a request."""
        return LOOK_S if is_local(self.query) else REMOTE_LOOK_S

    def begin(self) -> None:
        """Say that the attempt runs, and delete what earlier ones have left. Does nothing if it is said."""
        if not self.is_over():
            return
        with suppress(OSError):
            storage_of(self.directory).delete_directory(self.directory)
        local = local_path(self.directory)
        if local is not None:
            make_private(local)
        OpenAttempt(self.version).write(self.directory, self.version)

    def is_over(self) -> bool:
        """Whether the attempt is over, as far as storage says."""
        path = OpenAttempt.path_in(self.directory, self.version)
        try:
            local = local_path(path)
            if local is None:
                return not storage_of(path).exists(path)
            os.stat(local)
            return False
        except (FileNotFoundError, NotADirectoryError):
            return True
        except Exception:
            return False

    def end(self, timeout_s: float) -> list[OpenWorker]:
        """Have the workers close what the attempt has open, and wait until they have, for ``timeout_s`` at most (0: for
        ever). Returns the workers that have not."""
        with suppress(Exception):
            OpenAttempt.delete(self.directory, self.version)
        begun_s = time.monotonic()
        while open_workers := self._workers():
            waited_s = time.monotonic() - begun_s
            here = [one for one in open_workers if one.host == socket.gethostname()]
            if timeout_s and waited_s > timeout_s + _GRACE_S or not here and waited_s > OTHER_MACHINES_S:
                return open_workers
            time.sleep(min(0.02, self.look_s) if is_local(self.query) else LOOK_S * 5)
        return []

    @contextmanager
    def running(self, timeout_s: float) -> Iterator[None]:
        """`begin` before a block and `end` behind it."""
        self.begin()
        try:
            yield
        finally:
            self.end(timeout_s)

    def trace(self) -> list[LifecycleCall]:
        """The calls of the lifecycle of operators that workers have written down, in the order of their times."""
        found: list[LifecycleCall] = []
        with suppress(Exception):
            for entry in storage_of(self.directory).list(self.directory):
                parts = LifecycleTrace.parts_of(entry.name)
                trace = None if parts is None else LifecycleTrace.read(self.directory, *parts)
                found += [] if trace is None else trace.calls
        return sorted(found, key=lambda call: call.time_ms)

    def _workers(self) -> list[OpenWorker]:
        """The workers that have functions open; those of this machine that have ended are left out."""
        found = []
        with suppress(Exception):
            for entry in storage_of(self.directory).list(self.directory):
                parts = OpenWorker.parts_of(entry.name)
                worker = None if parts is None else OpenWorker.read(self.directory, *parts)
                if worker is not None and worker.attempt == self.version and not _has_ended(worker):
                    found.append(worker)
        return found


def _has_ended(worker: OpenWorker) -> bool:
    if worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    # a zombie
    return (status_of(worker.pid) or [""])[0] == "Z"


class TaskOwners:
    """Knows which worker process of an executor has a task open, by files ``<vertex>-<subtask>`` on the executor's disk
    with the number of the process. Spark gives the tasks of an epoch to the worker processes of an executor as they are
    free, so a subtask may come to another one in each epoch."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._seen: int | None = None
        self._seen_s = 0.0
        with suppress(OSError):
            make_private(directory)

    def take(self, task: TaskId) -> None:
        """Say that this process opens a task."""
        path = os.path.join(self._directory, "{}-{}".format(*task))
        with suppress(OSError):
            with open(f"{path}.{os.getpid()}", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
            os.replace(file.name, path)

    def lost(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        """Those of the tasks that another process has opened since."""
        found = []
        for task in tasks:
            with suppress(OSError, ValueError):
                path = os.path.join(self._directory, "{}-{}".format(*task))
                with open(path, encoding="ascii") as file:
                    found += [task] if int(file.read()) != os.getpid() else []
        return sorted(found)

    def have_changed(self) -> bool:
        """Whether a process has opened a task lately. Changes within a moment have one time, so the answer stays yes
        for a while."""
        with suppress(OSError):
            seen = os.stat(self._directory).st_mtime_ns
            if seen != self._seen:
                self._seen, self._seen_s = seen, time.monotonic()
        return time.monotonic() - self._seen_s < 1.0


# ---------------------------------------------------------------------- in a worker


@dataclass
class _Held:
    """What this process has open of one attempt."""

    files: AttemptFiles
    close: Callable[[], None]
    timeout_s: float
    interval_s: float
    token: str
    owners: TaskOwners | None
    close_lost: Callable[[], None]
    trace: Sequence[LifecycleCall] | None
    next_look_s: float = 0.0
    #: whether another process may have opened a task of this one
    moved: bool = False
    #: since when the attempt is known to be over, and when the main thread was told last
    over_since_s: float | None = None
    told_s: float = 0.0


class WorkerProcess:
    """What one worker process has open, by the key of its attempt. All methods are called by its main thread."""

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}
        self._working: Hashable = None
        self._closing = False
        #: the process whose ends are watched; a process that user code forks inherits all of this
        self._pid = 0
        self._some = threading.Event()

    def hold(
        self,
        key: Hashable,
        files: AttemptFiles,
        close: Callable[[], None],
        timeout_s: float = 180.0,
        interval_s: float = 30.0,
        owners: TaskOwners | None = None,
        close_lost: Callable[[], None] = lambda: None,
        trace: Sequence[LifecycleCall] | None = None,
    ) -> None:
        """Watch an attempt that opens functions in this process from now on.

        Args:
            close: closes them and calls `release`.
            timeout_s: the process ends itself if they are not closed so long after the attempt is over; 0: never.
            interval_s: time between two interruptions of a call that goes on.
            owners: know which tasks other processes of this executor have opened since; ``close_lost`` closes them.
            trace: the calls of the lifecycle of operators, which are written to a file; None: there is none.
        """
        if not self._watches():
            return
        token = uuid.uuid4().hex
        with suppress(Exception):
            OpenWorker(files.version, socket.gethostname(), os.getpid()).write(files.directory, token)
        self._held[key] = _Held(files, close, timeout_s, interval_s, token, owners, close_lost, trace)
        self._some.set()

    def release(self, key: Hashable) -> None:
        """Say that nothing of an attempt is open any more."""
        held = self._held.pop(key, None)
        if held is not None:
            self._write_trace(held)
            with suppress(Exception):
                OpenWorker.delete(held.files.directory, held.token)

    @contextmanager
    def at_work(self, key: Hashable) -> Iterator[None]:
        """While the block runs, the process works for this attempt; what is over is closed at its end. After an error
        PySpark's workers end, which closes everything once the error is reported."""
        before, self._working = self._working, key
        if self._pid == os.getpid():
            # PySpark resets it before each task
            signal.signal(signal.SIGHUP, self._hung_up)
        try:
            yield
        finally:
            self._working = before
            if key in self._held:
                self._write_trace(self._held[key])
        self._close_over()

    def _write_trace(self, held: _Held) -> None:
        if held.trace:
            with suppress(Exception):
                LifecycleTrace(list(held.trace)).write(held.files.directory, held.token)

    def close_all(self) -> None:
        """Close everything, because the process ends."""
        if self._pid == os.getpid():
            for held in self._held.values():
                held.over_since_s = held.over_since_s or time.monotonic()
            self._close(list(self._held))

    def _close_over(self) -> None:
        """Close what is over, and tasks that other processes have opened since."""
        self._close([key for key, held in list(self._held.items()) if held.over_since_s is not None])
        for held in list(self._held.values()):
            if held.moved:
                held.moved = False
                self._call(held.close_lost)

    def _close(self, keys: list[Hashable]) -> None:
        for key in keys:
            held = self._held.get(key)
            if held is not None:
                self._call(held.close)
                self.release(key)

    def _call(self, close: Callable[[], None]) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            close()
        except failures_of_user_code() as error:
            _LOG.warning("a function could not be closed: %s: %s", type(error).__name__, error)
        finally:
            self._closing = False

    # ------------------------------------------------------------------ the process

    def _watches(self) -> bool:
        """Whether this process can be told that an attempt is over; at the first call, have it be."""
        if self._pid == os.getpid():
            return True
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGURG"):
            return False
        self._pid, self._held, self._working, self._closing = os.getpid(), {}, None, False
        signal.signal(signal.SIGURG, self._told)
        self._end_process, os._exit = os._exit, self._close_and_exit  # type: ignore[assignment]
        atexit.register(self.close_all)
        self._some = threading.Event()
        threading.Thread(target=self._watch, name="flinkish-open-functions", daemon=True).start()
        return True

    def _close_and_exit(self, code: int) -> None:
        """`os._exit`, by which PySpark's workers end in order: no other hook of Python is run there."""
        self.close_all()
        self._end_process(code)

    def _told(self, *_: Any) -> None:
        """Handle the signal that an attempt is over."""
        if self._pid != os.getpid() or self._closing:
            return
        if self._working is None:
            self._close_over()
            return
        held = self._held.get(self._working)
        if held is not None and held.over_since_s is not None:
            raise TaskCancelled("the attempt is over: the job is cancelled or stopped, or the epoch is given up")

    def _hung_up(self, *_: Any) -> None:
        """Handle what PySpark's daemon sends to its workers when the session ends."""
        if self._pid == os.getpid() and self._closing:
            return
        if self._pid == os.getpid() and self._working is not None:
            for held in self._held.values():
                held.over_since_s = held.over_since_s or time.monotonic()
            raise TaskCancelled("the Spark session has ended")
        os._exit(1)

    def _watch(self) -> None:
        """Look, in a thread of its own, whether attempts are over."""
        main = threading.main_thread().ident
        assert main is not None
        while True:
            self._some.wait()
            time.sleep(LOOK_S)
            if not self._held:
                self._some.clear()
                if self._held:
                    self._some.set()
                continue
            now_s = time.monotonic()
            for key, held in list(self._held.items()):
                self._look(key, held, now_s, main)

    def _look(self, key: Hashable, held: _Held, now_s: float, main: int) -> None:
        if held.over_since_s is None and now_s >= held.next_look_s:
            held.next_look_s = now_s + held.files.look_s - LOOK_S / 2
            if held.files.is_over():
                held.over_since_s = now_s
        if held.over_since_s is None:
            if held.owners is not None and held.owners.have_changed():
                held.moved = True
                if self._working is None:
                    signal.pthread_kill(main, signal.SIGURG)
            return
        if 0 < held.timeout_s < now_s - held.over_since_s and (self._closing or self._working == key):
            _LOG.error(
                "worker process %d has not closed its functions within %g s (task.cancellation.timeout): it is killed",
                os.getpid(),
                held.timeout_s,
            )
            with suppress(Exception):
                OpenWorker.delete(held.files.directory, held.token)
            os.kill(os.getpid(), signal.SIGKILL)
        if not held.told_s or now_s - held.told_s >= (LOOK_S if self._working is None else held.interval_s):
            held.told_s = now_s
            signal.pthread_kill(main, signal.SIGURG)


#: This process, if it is a worker.
WORKER = WorkerProcess()
