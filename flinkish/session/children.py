"""The drivers that the session process has started: they outlive it, and it finds them again.

    <folder>/.flinkish/ (`StartedDrivers`)
    <folder>/.flinkish/NAME.lock         held by the driver of NAME, and by nobody else, for as long as it lives
    <folder>/.flinkish/NAME.exit         the exit code of its last driver
    <folder>/NAME/                       its job directory, with the program, driver.log and driver.log.1

Rule: whether a driver lives is known by the lock, which it inherits, so no id of a process is ever mistaken for another
one. How it has ended is written down by a shell that waits for it, whether the session process lives then or not. A
driver is started again by its exit code alone (`RestartPolicy`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from flinkish.common.configuration import Configuration
from flinkish.common.options import session
from flinkish.error_display import ExitCode
from flinkish.errors import OperationError, message_of
from flinkish.interpreter import FLINKISH, python_command
from flinkish.launch.home import SETTINGS, settings_variable
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.storage.paths import FileKind
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

#: Runs a command and writes its exit code down. What signals the whole group gets is for the command alone.
_SHELL = 'trap : HUP INT TERM; "$@"; code=$?; echo "$code" > "$0.new" && mv "$0.new" "$0"'


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
        status: RUNNING, WAITING (for its restart), ENDED, or CANCELED (while it was waiting).
        restarts: how many restarts there were in a row.
        restart_ms: when it is started again.
        code: the exit code of its last driver.
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

    @property
    def has_ended(self) -> bool:
        """Whether it is not started again."""
        return self.status in ("ENDED", "CANCELED")


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


class Children:
    """Starts drivers, and starts them again. Any thread may use it; one of its own looks after them.

    Args:
        folder: the folder of the job directories, on this machine.
        settings: the settings of all drivers, below their own.
        policy: decides on restarts.
        environment: the environment variables of the session process.
        clock: gives the times.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        policy: RestartPolicy,
        environment: Mapping[str, str],
        clock: Clock | None = None,
    ) -> None:
        self.folder = folder
        self._state = folder / STATE_FOLDER
        self._settings = settings
        self._policy = policy
        self._environment = {name: text for name, text in environment.items() if name not in _OWN_VARIABLES}
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        #: those that this process has started: whoever is their parent has to wait for them
        self._processes: list[subprocess.Popen[bytes]] = []
        started = StartedDrivers.read(str(self._state)) or StartedDrivers()
        self._children = {child.name: child for child in started.children}
        #: called when a driver has ended
        self.on_end: Callable[[], None] = lambda: None

    def _write(self) -> None:
        StartedDrivers(list(self._children.values())).write(str(self._state))

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
        if child is None:
            return None
        if child.status == "CANCELED":
            return child.status
        if child.has_ended:
            return "FAILED" if child.code not in (None, *_WANTED) else None
        return "RESTARTING"

    def submit(self, child: Child) -> Child:
        """Start a driver.

        Raises:
            OperationError: it cannot be started.
        """
        with self._lock:
            started = replace(child, started_ms=self._clock.now_ms())
            ended = [name for name, one in self._children.items() if one.has_ended]
            for name in ended[: max(0, len(ended) - MOST_ENDED)]:
                del self._children[name]
                for suffix in ("lock", "exit"):
                    (self._state / f"{name}.{suffix}").unlink(missing_ok=True)
            self._children[child.name] = started
            self._write()
            try:
                self._start(started)
            except (OSError, ValueError) as error:
                del self._children[child.name]
                self._write()
                raise OperationError(
                    f"the driver cannot be started: {message_of(error)}", where=str(self.folder / child.name)
                ) from error
            return started

    def give_up(self, directory: str) -> bool:
        """Do not start the driver of a directory again that waits for its restart; whether there was one."""
        path = Path(directory)
        with self._lock:
            child = self._children.get(path.name) if path.parent == self.folder else None
            if child is None or child.status != "WAITING":
                return False
            self._set(replace(child, status="CANCELED"))
            return True

    def look(self) -> None:
        """Look once whether drivers have ended or are to be started again."""
        ended = False
        with self._lock:
            self._processes = [process for process in self._processes if process.poll() is None]
            for child in list(self._children.values()):
                if not child.has_ended:
                    self._bound_log(child)
                if child.status == "RUNNING" and not self._is_alive(child):
                    self._decide(child)
                    ended = True
                elif child.status == "WAITING" and self._clock.now_ms() >= child.restart_ms:
                    self._restart(child)
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
        self._write()

    def _decide(self, child: Child) -> None:
        code = self._exit_code(child)
        lived_ms = self._clock.now_ms() - child.started_ms
        delay_ms = self._policy.delay_ms(code, child.restarts, lived_ms)
        if delay_ms is None:
            _LOG.info("the driver of %s has ended with the exit code %s", child.name, code)
            return self._set(replace(child, status="ENDED", code=code))
        row = self._policy.row(child.restarts, lived_ms)
        _LOG.warning(
            "the driver of %s has ended with the exit code %s; restart %s in %s s",
            child.name,
            code,
            row + 1,
            delay_ms / 1000,
        )
        restart_ms = self._clock.now_ms() + delay_ms
        self._set(replace(child, status="WAITING", code=code, restarts=row + 1, restart_ms=restart_ms))

    def _restart(self, child: Child) -> None:
        again = replace(child, status="RUNNING", started_ms=self._clock.now_ms())
        self._set(again)
        try:
            self._start(again)
        except OSError as error:
            _LOG.warning("the driver of %s cannot be started: %s", child.name, message_of(error))

    def _exit_code(self, child: Child) -> int | None:
        try:
            return int((self._state / f"{child.name}.exit").read_text().strip())
        except (OSError, ValueError):
            return None

    def _is_alive(self, child: Child) -> bool:
        try:
            with (self._state / f"{child.name}.lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False

    def _start(self, child: Child) -> None:
        directory, exit_file = self.folder / child.name, self._state / f"{child.name}.exit"
        own = {**child.settings, "flinkish.job.dir": str(directory)}
        variables = settings_variable({**self._settings, **own}, self._environment)
        environment = {**{name: text for name, text in self._environment.items() if name != SETTINGS}, **variables}
        command = python_command(FLINKISH, "run", child.program, *child.arguments)
        lock = os.open(self._state / f"{child.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # before it is begun: a process that is killed in between leaves a driver that is found
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                exit_file.unlink()
            log = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _SHELL, str(exit_file), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env=environment,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            finally:
                os.close(log)
        finally:
            os.close(lock)
        self._processes.append(process)
