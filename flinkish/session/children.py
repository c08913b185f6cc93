"""The drivers that the session process has started: they outlive it, and it finds them again.

    <folder>/.flinkish/ (`StartedDrivers`)
    <folder>/.flinkish/NAME.lock         held by the shell that waits for the driver of NAME; it has the shell's pid
    <folder>/.flinkish/NAME.exit         the exit code of its last driver
    <folder>/NAME/                       its job directory, with the program, driver.log and driver.log.1

Rule: a driver lives as long as the shell that waits for it, which holds the lock and hands it on to nobody: a process
that the driver leaves behind is no driver. How it has ended the shell says by its own exit code, and to a later session
process by a file that is there, in its full size, before the driver is. A driver is started again by its exit code
alone (`RestartPolicy`), and not once somebody has cancelled it. All waits are by a clock that nobody sets.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from flinkish.common.configuration import Configuration
from flinkish.common.options import session
from flinkish.error_display import ExitCode
from flinkish.errors import FlinkishError, OperationError, message_of
from flinkish.interpreter import FLINKISH, python_command
from flinkish.jobdir.fencing import Liveness, liveness_of
from flinkish.jobdir.layout import Owner
from flinkish.launch.home import JOB_ID, SETTINGS, settings_variable
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import optional
from flinkish.storage.stored_file import StoredFile

_LOG = logging.getLogger("flinkish.Session")

#: What the session process keeps in its folder.
STATE_FOLDER = ".flinkish"
#: What a driver prints, in its job directory; and the name of what it has printed before that.
LOG_FILE, EARLIER_LOG_FILE = "driver.log", "driver.log.1"
#: A log of more bytes becomes the earlier one, in the place of that which was.
LOG_BYTES_MAX = 32 << 20
#: Seconds between two looks at the drivers.
POLL_S = 0.25
#: By what the delay grows from restart to restart.
_MULTIPLIER = 2
#: Environment variables that are for the session process alone.
_OWN_VARIABLES = ("FLINK_REST_CLIENT_HEADERS", "PYTEST_CURRENT_TEST")
#: How many drivers that have ended are remembered.
MOST_ENDED = 1_000
#: The exit code of a driver that a second Ctrl-C has ended (`flinkish.launch.driver`).
_INTERRUPTED = 130
#: The exit codes after which a job has not failed: it has come to its end, was asked to end, or runs elsewhere.
_WANTED = (ExitCode.FINISHED, ExitCode.STOPPED, ExitCode.FENCED, _INTERRUPTED)

#: Seconds that a driver which was asked to end by SIGTERM has for it.
KILL_S = 30.0
#: Runs a command without the lock, which is the standard input, and writes its own id and the exit code over what is in
#: their files, for which a full disk has room. What signals the whole group gets is for the command alone.
_SHELL = 'trap : HUP INT TERM; printf "%-8s" $$ >&0; "$@" </dev/null; code=$?; printf "%-8s" $code 1<>"$0"; exit $code'
_BLANK = b" " * 8


@dataclass(frozen=True)
class RestartPolicy:
    """Decides whether a driver that has ended is started again.

    Args:
        attempts: how many times in a row.
        initial_ms: the delay before the first restart; each further one is twice as long.
        max_ms: the longest delay.
        reset_ms: a driver that has lived for so long begins a new row.
    """

    attempts: int = 10
    initial_ms: int = 1_000
    max_ms: int = 60_000
    reset_ms: int = 600_000

    @classmethod
    def of(cls, configuration: Configuration) -> RestartPolicy:
        """The policy that a configuration asks for."""
        return cls(
            configuration.get(session.RESTART_ATTEMPTS),
            configuration.get(session.RESTART_INITIAL_BACKOFF).to_millis(),
            configuration.get(session.RESTART_MAX_BACKOFF).to_millis(),
            configuration.get(session.RESTART_RESET_THRESHOLD).to_millis(),
        )

    def delay_ms(self, code: int | None, restarts: int, lived_ms: int) -> int | None:
        """After which time it is started again; None: it is not.

        Args:
            code: its exit code; None: nobody knows it, since the machine or all its processes were ended.
            restarts: how many restarts there were in a row.
            lived_ms: how long it has lived.
        """
        # a shell reports signals above 128; those that ask for an end have codes of their own
        killed = code is None or (code > 128 and code not in (_INTERRUPTED, ExitCode.STOPPED))
        if not killed and code != ExitCode.FAILED_FOR_NOW:
            return None
        row = self.row(restarts, lived_ms)
        return None if row >= self.attempts else min(self.initial_ms * _MULTIPLIER ** min(row, 30), self.max_ms)

    def row(self, restarts: int, lived_ms: int) -> int:
        """How many restarts there were in the row to which the next one belongs."""
        return 0 if lived_ms >= self.reset_ms else restarts


@dataclass(frozen=True)
class Child:
    """A driver that was started here, and what it is started with again.

    Attributes:
        name: of its job directory.
        program: the path of the program.
        settings: its settings, above those of the session process.
        upload: what was uploaded.
        status: RUNNING, WAITING (for its restart), ENDED, CANCELED, or DELETED (its directory was, while it ran).
        restarts: how many restarts there were in a row.
        restart_ms: when it is started again.
        code: the exit code of its last driver.
        job_id: the id of its first job, which the driver gives it.
        canceling: whether somebody has cancelled it, which holds for a driver that is being started, too.
    """

    name: str
    program: str
    arguments: list[str] = field(repr=False)
    settings: dict[str, str] = field(repr=False)
    upload: str
    submitted_ms: int
    status: str = "RUNNING"
    started_ms: int = 0
    restarts: int = 0
    restart_ms: int = 0
    code: int | None = None
    job_id: str = optional("")
    canceling: bool = optional(False)

    @property
    def has_ended(self) -> bool:
        """Whether it is not started again."""
        return self.status in ("ENDED", "CANCELED", "DELETED")


@dataclass(frozen=True)
class StartedDrivers(StoredFile):
    """The drivers that a session process has started: with what, and how often."""

    NAME = "session.json"
    FOLDER = ".flinkish"
    VERSION = OLDEST = 0
    PRIVATE, DURABLE = False, True
    WHEN = "once a program was submitted"
    READER = "the session process"
    REMEDY = "move it away: drivers that run go on and are found, but none of them is started again"
    KIND = FileKind.MANIFEST

    children: list[Child] = field(default_factory=list)


def _is_below(path: str, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


class Children:
    """Starts drivers, and starts them again. Any thread may use it; one of its own looks after them.

    Args:
        folder: the folder of the job directories, on this machine.
        settings: the settings of all drivers, below their own.
        policy: decides on restarts.
        environment: the environment variables of the session process.
        clock: gives the times that are written down.
        clock_s: gives a time in seconds that never goes back, for waits.
        forced: the settings of all drivers that nobody else sets.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        policy: RestartPolicy,
        environment: Mapping[str, str],
        clock: Clock | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        forced: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._state = folder / STATE_FOLDER
        self._settings, self._forced = settings, forced or {}
        self._policy = policy
        self._environment = {name: text for name, text in environment.items() if name not in _OWN_VARIABLES}
        self._clock, self._clock_s = clock or SystemClock(), clock_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        #: name -> the shell that this process has started last for it: whoever is its parent has to wait for it
        self._shells: dict[str, subprocess.Popen[bytes]] = {}
        started = StartedDrivers.read(str(self._state)) or StartedDrivers()
        own = [one for one in started.children if _is_below(one.program, folder)]
        if len(own) < len(started.children):
            _LOG.warning(
                "%s is a copy, or was moved: jobs that were submitted where it was are not started here", folder
            )
        self._children = {child.name: child for child in own}
        self._is_written = True
        #: name -> since when its driver runs, or when it is started again, by the clock that nobody sets
        self._at_s = {child.name: self._clock_s() + self._until_ms(child) / 1000 for child in started.children}
        #: name -> when its driver, which was asked to end, is killed; never if it has accepted that
        self._kill_s: dict[str, float] = {}
        #: called when a driver has ended
        self.on_end: Callable[[], None] = lambda: None

    def _until_ms(self, child: Child) -> int:
        """How long ago the driver of an earlier session process began, or in which time it is started again. However
        the machine's clock was set since, it has not begun in the future, and waits no longer than ever."""
        if child.status == "WAITING":
            return min(max(0, child.restart_ms - self._clock.now_ms()), self._policy.max_ms)
        return min(0, child.started_ms - self._clock.now_ms())

    def _write(self) -> None:
        self._is_written = False
        StartedDrivers(list(self._children.values())).write(str(self._state))
        self._is_written = True

    def watch(self) -> None:
        """Look after the drivers from now on, those of an earlier session process, too."""
        self.look()
        threading.Thread(target=self._watch, name="flinkish-session-children", daemon=True).start()

    def close(self) -> int:
        """Look after them no more; returns how many run on."""
        self._closed.set()
        with self._lock:
            return sum(self._is_alive(child) for child in self._children.values() if not child.has_ended)

    def all(self) -> tuple[Child, ...]:
        """All drivers that were started here, and have not been forgotten."""
        with self._lock:
            return tuple(self._children.values())

    def get(self, name: str) -> Child | None:
        """The driver of a job directory; None: it was not started here."""
        with self._lock:
            return self._children.get(name)

    def status(self, directory: str) -> str | None:
        """The status of a job that has begun and has no driver, as far as that was started here; None: it was not."""
        path = Path(directory)
        child = self.get(path.name) if path.parent == self.folder else None
        return None if child is None else self._status_of(child)

    def _status_of(self, child: Child) -> str | None:
        if child.has_ended:
            failed = child.status == "DELETED" or child.code not in (None, *_WANTED)
            return child.status if child.status == "CANCELED" else "FAILED" if failed else None
        return "CANCELLING" if child.canceling else "RESTARTING"

    def without_job(self, directories: Collection[str]) -> list[tuple[Child, str]]:
        """The programs without a job in one of these directories, not yet or not any more, and the status of each."""
        found = []
        for child in self.all():
            path = self.folder / child.name
            status = self._status_of(child) if child.job_id and str(path) not in directories else None
            if status == "RESTARTING" and child.status == "RUNNING":
                status = "INITIALIZING"
            # who deletes the directory of a program that has ended wants to see no more of it
            if status is not None and (not child.has_ended or child.status == "DELETED" or path.is_dir()):
                found.append((child, status))
        return found

    def submit(self, child: Child) -> Child:
        """Start a driver.

        Raises:
            OperationError: it cannot be started.
        """
        with self._lock:
            started = replace(child, started_ms=self._clock.now_ms())
            ended = [name for name, one in self._children.items() if one.has_ended]
            for name in ended[: max(0, len(ended) - MOST_ENDED)]:
                for kind in ("lock", "exit"):
                    self._file(self._children[name], kind).unlink(missing_ok=True)
                del self._children[name], self._at_s[name]
            self._children[child.name] = started
            try:
                self._write()
                self._start(started)
            except (OSError, ValueError, FlinkishError) as error:
                del self._children[child.name]
                self._try_to_write()
                raise OperationError(
                    f"the driver cannot be started: {message_of(error)}", where=str(self.folder / child.name)
                ) from error
            return started

    def cancel(self, directory: str, asked: bool = False) -> bool:
        """Cancel the job of a directory: it is not started again, and its driver ends, of itself if it was ``asked``
        and has accepted that. Whether there is anything to cancel."""
        path = Path(directory)
        with self._lock:
            child = self._children.get(path.name) if path.parent == self.folder else None
            if child is None or child.has_ended:
                return False
            if child.status == "WAITING":
                self._set(replace(child, status="CANCELED"))
            elif not child.canceling:
                self._kill_s.update({child.name: math.inf} if asked else {})
                self._set(replace(child, canceling=True))
            return True

    def look(self) -> None:
        """Look once whether drivers have ended or are to be started again."""
        ended = False
        with self._lock:
            for child in list(self._children.values()):
                if not child.has_ended:
                    self._bound_log(child)
                if child.status == "RUNNING" and not self._is_alive(child):
                    self._decide(child)
                    ended = True
                elif child.status == "RUNNING" and child.canceling:
                    self._end(child)
                elif child.status == "WAITING" and self._clock_s() >= self._at_s[child.name]:
                    self._restart(child)
            if not self._is_written:
                self._try_to_write()
        if ended:
            self.on_end()

    def _bound_log(self, child: Child) -> None:
        """Keep the log of a driver from growing for as long as it runs. The driver appends to the file, so it goes on
        at its new end; what it prints between the two steps is lost."""
        log = self.folder / child.name / LOG_FILE
        try:
            if log.stat().st_size > LOG_BYTES_MAX:
                shutil.copy(log, log.with_name(EARLIER_LOG_FILE))
                os.truncate(log, 0)
        except FileNotFoundError:
            pass
        except OSError as error:
            _LOG.debug("the log of %s is not bounded: %s", child.name, message_of(error))

    def _watch(self) -> None:
        while not self._closed.wait(POLL_S):
            try:
                self.look()
            except Exception:
                _LOG.exception("the drivers cannot be looked after:")

    def _set(self, child: Child) -> None:
        self._children[child.name] = child
        self._try_to_write()

    def _try_to_write(self) -> None:
        """Write down what is known. Where that fails, as on a full disk, it holds all the same, and is tried again."""
        was_written = self._is_written
        try:
            self._write()
        except FlinkishError as error:
            if was_written:
                _LOG.warning("what became of drivers cannot be written down yet: %s", message_of(error))

    def _decide(self, child: Child) -> None:
        code = self._exit_code(child)
        if code is None and self._owner_lives(child):
            # somebody has killed the shell alone
            return
        lived_ms = int((self._clock_s() - self._at_s[child.name]) * 1000)
        self._kill_s.pop(child.name, None)
        is_there = (self.folder / child.name).is_dir() or not self._state.is_dir()
        delay_ms = self._policy.delay_ms(code, child.restarts, lived_ms)
        if delay_ms is None or child.canceling or not is_there:
            _LOG.info("the driver of %s has ended with the exit code %s", child.name, code)
            status = "CANCELED" if child.canceling else "ENDED" if is_there else "DELETED"
            return self._set(replace(child, status=status, code=code))
        row = self._policy.row(child.restarts, lived_ms)
        said = "the driver of %s has ended with the exit code %s; restart %s in %s s"
        _LOG.warning(said, child.name, code, row + 1, delay_ms / 1000)
        self._at_s[child.name] = self._clock_s() + delay_ms / 1000
        restart_ms = self._clock.now_ms() + delay_ms
        self._set(replace(child, status="WAITING", code=code, restarts=row + 1, restart_ms=restart_ms))

    def _restart(self, child: Child) -> None:
        again = replace(child, status="RUNNING", started_ms=self._clock.now_ms())
        self._set(again)
        try:
            self._start(again)
        except OSError as error:
            _LOG.warning("the driver of %s cannot be started: %s", child.name, message_of(error))

    def _end(self, child: Child) -> None:
        """Have a driver end that was cancelled and cannot be asked: by SIGTERM, and after a while by force."""
        kill_s = self._kill_s.get(child.name)
        if kill_s is None or self._clock_s() >= kill_s:
            with suppress(OSError, ValueError):
                # that of the shell, which leads its group and is there: nobody else holds the lock
                os.killpg(int(self._file(child, "lock").read_text()), signal.SIGKILL if kill_s else signal.SIGTERM)
                self._kill_s[child.name] = self._clock_s() + KILL_S

    def _file(self, child: Child, kind: str) -> Path:
        return self._state / f"{child.name}.{kind}"

    def _owner_lives(self, child: Child) -> bool:
        with suppress(FlinkishError):
            return liveness_of(Owner.read(str(self.folder / child.name))) is Liveness.ALIVE
        return False

    def _exit_code(self, child: Child) -> int | None:
        shell = self._shells.pop(child.name, None)
        if shell is not None and shell.returncode >= 0:
            return shell.returncode
        try:
            return int(self._file(child, "exit").read_text())
        except (OSError, ValueError):
            return None

    def _is_alive(self, child: Child) -> bool:
        shell = self._shells.get(child.name)
        if shell is not None:
            return shell.poll() is None
        try:
            with self._file(child, "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False

    def _start(self, child: Child) -> None:
        directory, exit_file = self.folder / child.name, self._file(child, "exit")
        self._at_s[child.name] = self._clock_s()
        self._shells.pop(child.name, None)
        above = {**child.settings, **self._forced, "flinkish.job.dir": str(directory)}
        variables = settings_variable({**self._settings, **above}, self._environment)
        environment = {**{name: text for name, text in self._environment.items() if name != SETTINGS}, **variables}
        if child.job_id:
            environment[JOB_ID] = child.job_id
        command = python_command(FLINKISH, "run", child.program, *child.arguments)
        lock = os.open(self._file(child, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # before it is begun: a process that is killed in between leaves a driver that is found
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            exit_file.write_bytes(_BLANK)
            os.pwrite(lock, _BLANK, 0)
            log = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._shells[child.name] = subprocess.Popen(
                    ["/bin/sh", "-c", _SHELL, str(exit_file), *command],
                    stdin=lock,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env=environment,
                    start_new_session=True,
                )
            finally:
                os.close(log)
        finally:
            os.close(lock)
