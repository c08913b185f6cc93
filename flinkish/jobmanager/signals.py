"""SIGTERM and SIGINT end the jobs of a program that waits for one, after their running epochs. The jobs that run in
this process are registered here.

Rule: what a program does with its jobs is its own business (exit code 0); a stop that was asked for from outside (by a
signal or a command) is reported to whoever started the process, by the exit code.

Rule: a signal asks the jobs to end, it does not tear them down. The epoch that runs is finished and committed, unless
it takes longer than half of ``flinkish.shutdown.timeout``: then it is given up, and only its work is lost. A last
checkpoint is taken if checkpoints are on. When all jobs have ended, the wait for the job raises SystemExit with 143
(`flinkish.error_display`), however the process was started: what stands behind ``execute`` in the program is meant for
a job that has finished, and does not run; ``finally`` blocks and exit handlers do. A second SIGINT raises
KeyboardInterrupt in the midst of the epoch, which is run again when the job is started again. The jobs are SUSPENDED,
not cancelled: when they are started again they go on, and their checkpoints are kept.

After SIGTERM the jobs have ``flinkish.shutdown.timeout`` to end; then the process ends itself and says what was not
finished, which nobody would learn from a supervisor that kills it.

Rule: a signal is a fact that outlives its moment. It is remembered from the entry of ``execute`` on, and a job that is
registered later obeys it; if no job is at work, SystemExit is raised at once. Until an exception has told the program,
no further job begins.

Signals are handled here while the main thread submits a job or waits for the result of one (``execute``, ``result()``);
at any other time they do what the program, or Python, has set up: SIGTERM ends the process like kill -9 does, which
costs no more than a replay of the epoch.

The JVM that a driver starts ignores both signals, and flinkish's launcher makes the Python driver the process that is
signalled. So a signal to the whole process group is as good as one to the driver. Under ``spark-submit`` the JVM comes
first: a SIGTERM to it ends the job like kill -9 does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

from flinkish.common.job_status import JobStatus
from flinkish.error_display import ExitCode, exit_code_of

if TYPE_CHECKING:
    from flinkish.jobmanager.job_run import JobRun


_lock = threading.RLock()
_running: list[JobRun] = []
_asked_to_stop: set[int] = set()
_stopped = False


def started(run: JobRun) -> None:
    """Add a job that starts. It is asked to stop at once if a signal has come before it."""
    if run not in running():
        _handler.waits = True
        with _lock:
            _running.append(run)
        if _handler.come:
            _handler.ask([run])
            _handler.news.put(None)


def handed_over(before: JobRun, after: JobRun) -> None:
    """The run of a job takes the place of its start: whoever has asked that to end has asked the run."""
    with _lock:
        if before in _running:
            _running[_running.index(before)] = after
        if id(before) in _asked_to_stop:
            _asked_to_stop.discard(id(before))
            _asked_to_stop.add(id(after))


def ended(run: JobRun, status: JobStatus) -> None:
    """Remove a job that has ended. A job that has failed does not count as stopped, even if a stop was asked for."""
    global _stopped
    with _lock:
        if run in _running:
            _running.remove(run)
        asked = id(run) in _asked_to_stop
        _asked_to_stop.discard(id(run))
        _stopped = _stopped or (asked and status is not JobStatus.FAILED)


def running() -> list[JobRun]:
    """The jobs that have not ended."""
    with _lock:
        return list(_running)


def asked_from_outside(run: JobRun) -> None:
    """Note that somebody outside of the program has asked this job to stop. Has no effect if it has ended."""
    with _lock:
        if run in _running:
            _asked_to_stop.add(id(run))


def is_asked_from_outside(run: JobRun) -> bool:
    """Whether somebody outside of the program has asked this job, which has not ended, to stop."""
    with _lock:
        return id(run) in _asked_to_stop


def stopped_from_outside() -> bool:
    """Whether a job of this process has ended, or not even begun, because somebody outside asked for it; or a signal
    has come of which the program was not told."""
    return _stopped or have_come()


def forget_stops() -> None:
    """Begin as a new process does, of which nobody has stopped a job yet."""
    global _stopped
    _stopped = False
    _handler.forget()


_STDERR = 2

_GOES_ON = "started again, the job goes on from its last committed epoch"


class JobsInterrupted(KeyboardInterrupt):
    """The wait for jobs was interrupted at a prompt or in a notebook, and they have ended in order."""

    def __init__(self, names: Iterable[str]) -> None:
        jobs = ", ".join(f"job '{name}'" for name in names)
        super().__init__(f"interrupted: {jobs or 'the job'} was stopped after its last epoch; {_GOES_ON}")

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython and notebooks show."""
        return [str(self)]


class stop_on_signals:
    """Within the block, SIGTERM and SIGINT ask ``jobs()`` to stop, and whichever begins later; afterwards the earlier
    handlers are back in place. A block within another one concerns the jobs of that. Python gives signals to the main
    thread only: in any other thread nothing is changed.

    Raises:
        SystemExit: a signal has come, and there was no job yet, or the block has ended without an exception and all
            jobs have ended.
        JobsInterrupted: in place of SystemExit after a SIGINT at a prompt or in a notebook, which go on.
        KeyboardInterrupt: at the second SIGINT.
    """

    def __init__(self, jobs: Callable[[], Sequence[JobRun]]) -> None:
        self._jobs = jobs
        self._handles = self._is_outermost = False

    def __enter__(self) -> None:
        self._handles = threading.current_thread() is threading.main_thread()
        self._is_outermost = self._handles and not _handler.handles
        if self._is_outermost:
            # what an earlier block has left, which a failure has ended
            _handler.obey()
            _handler.begin(self._jobs)
        handle_again()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            try:
                if self._is_outermost and kind is None:
                    _handler.obey()
            finally:
                if self._is_outermost:
                    _handler.give_back()
            if self._is_outermost and kind is None:
                # one that has come since
                _handler.obey()
        except BaseException as error:
            kind = type(error)
            raise
        finally:
            # the program has been told; and who sits at a prompt sees why the job has ended
            if self._is_outermost and kind is not None and (hasattr(sys, "ps1") or not issubclass(kind, Exception)):
                _handler.forget()


def have_come() -> bool:
    """Whether a signal has come of which the program was not told."""
    return bool(_handler.come)


def handle_again() -> None:
    """Within a block, take the signals back from a handler that somebody else has installed meanwhile, as PySpark does
    with each session. It is in place after the block."""
    if _handler.handles and threading.current_thread() is threading.main_thread():
        _handler.install()


class _Handler:
    """The handler of the signals of this process. A signal that has come is remembered until an exception has told the
    program of it, so that jobs which are registered later obey it as well."""

    def __init__(self) -> None:
        #: whether a block is entered, and whether there has been a job in it, for which it waits
        self.handles = self.waits = False
        self._jobs: Callable[[], Sequence[JobRun]] = running
        self.come: list[signal.Signals] = []
        #: the names of the jobs that were asked to stop
        self._announced: dict[str, object] = {}
        #: an entry for each moment at which there may be jobs to be asked, or to be watched
        self.news: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: signal -> the handler that was there before
        self._before: dict[int, Any] = {}

    def begin(self, jobs: Callable[[], Sequence[JobRun]]) -> None:
        """Begin to handle signals, which concern these jobs."""
        self._jobs, self.waits = jobs, bool(jobs())
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name="flinkish-signals", daemon=True)
            self._thread.start()
        self.install()
        self.handles = True

    def forget(self) -> None:
        """Begin anew."""
        self.come, self._announced = [], {}

    def install(self) -> None:
        """Handle the signals from now on, whoever has done it before."""
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, self)
            if before is not self:
                self._before[number] = before

    def give_back(self) -> None:
        """Install the earlier handlers again, unless somebody else has installed another one."""
        self.handles, before, self._before = False, self._before, {}
        for number, handler in before.items():
            if signal.getsignal(number) is self:
                # None: the handler was not installed from Python, and Python cannot restore it
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        global _stopped
        self.come.append(signal.Signals(number))
        # a thread of its own asks the jobs: this one may hold any lock
        self.news.put(None)
        if not _may_be_left(frame):
            return
        if self.come.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt
        if not (self.handles and self.waits):
            # nothing is to be ended in order
            _stopped = True
            _say(f"\nflinkish: {self.come[-1].name}: the program ends before its job has begun\n")
            raise self._end()

    def ask(self, jobs: Sequence[JobRun]) -> None:
        """Ask these jobs to end if a signal has come, whenever that was."""
        for name in (number.name for number in self.come[:1]):
            for job in jobs:
                if self._announced.setdefault(job.name, me := object()) is me:
                    _say(f"\nflinkish: {name}: job '{job.name}' ends after the running epoch (Ctrl-C again: at once)\n")
                job.stop_from_outside(name)

    def _serve(self) -> None:
        while True:
            self.news.get()
            self.ask(self._jobs())
            if signal.SIGTERM in self.come:
                end_in_time(self._jobs())

    def obey(self) -> None:
        """Tell the program by an exception that a signal has come, if one has, when its jobs have ended."""
        if self.come:
            jobs = self._jobs()
            self.ask(jobs)
            for job in jobs:
                job.wait()
            raise self._end()

    def _end(self) -> BaseException:
        if signal.SIGINT in self.come and hasattr(sys, "ps1"):
            return JobsInterrupted(self._announced)
        return SystemExit(exit_code_of(None, stopped=True))


_handler = _Handler()
_BETWEEN = (stop_on_signals.__enter__.__code__, stop_on_signals.__exit__.__code__)


def _may_be_left(frame: FrameType | None) -> bool:
    """Whether an exception may leave this frame: not while a block is entered or left, which looks by itself at what
    has come; but then, too, while it waits for jobs. Python's import system drops what is raised in its callbacks."""
    if frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
        return False
    while frame is not None and frame.f_code not in _BETWEEN:
        if frame.f_code is _Handler.obey.__code__:
            return True
        frame = frame.f_back
    return frame is None


def end_in_time(jobs: Sequence[JobRun]) -> None:
    """Wait until the jobs have ended; end the process when they have not within the longest of their timeouts."""
    timeout_s = max((job.shutdown_timeout_s for job in jobs), default=0.0)
    deadline = time.monotonic() + timeout_s
    for job in jobs:
        job.wait(max(deadline - time.monotonic(), 0))
    left = [(job, doing) for job in jobs if (doing := job.unfinished()) is not None]
    if not left:
        return
    over = True
    for job, doing in left:
        is_over = job.abandon()
        over = over and is_over
        _say(
            f"flinkish: job '{job.name}' has not ended within {timeout_s:g} s (flinkish.shutdown.timeout): {doing} was "
            f"not finished; {'the job is over' if is_over else _GOES_ON}\n"
        )
    os._exit(exit_code_of(None, stopped=True) if over else ExitCode.FAILED_FOR_NOW)


def _say(text: str) -> None:
    # not sys.stderr: the signal may have come in the midst of a write to it, and its buffer is not reentrant
    with suppress(OSError):
        os.write(_STDERR, text.encode())
