"""Processes that a test starts end with the test, by their own ids, even if the test process itself is killed.

A `ProcessGroup` is one command in a process group of its own with a log file. `kill` is kill -9 of all of it at once:
what a machine that goes dark does to a driver. A watcher with a pipe to the test process kills the group when that
pipe closes, which also happens when nobody is left to clean up.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil  # type: ignore[import-untyped]

REPOSITORY = Path(__file__).resolve().parents[2]
POLL_S = 0.05
LOG_TAIL_CHARS = 6_000
_WATCH = 'cat >/dev/null; kill -9 "-$0"'
T = TypeVar("T")


class ProcessFailed(AssertionError):
    """A process ended, or did not do in time, what the test waited for; the message ends with its output."""


def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """Returns the first truthy value of `condition`; raises TimeoutError that names `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for {what}; the last value was {value!r}")
        time.sleep(POLL_S)


def python_path() -> str:
    """Returns a PYTHONPATH under which child processes import this checkout's `flinkish` and `tests`."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(REPOSITORY), *(path for path in inherited if path and path != str(REPOSITORY))])


def free_ports(count: int) -> list[int]:
    """Returns different TCP ports of 127.0.0.1 on which nothing listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class ProcessGroup:
    """A command as a process group of its own, its output in `log_file` (appended).

    Example:
        with ProcessGroup([sys.executable, "job.py"], tmp_path / "job.log") as job:
            job.wait_for_line(r"epoch 3 committed", timeout_s=60)
            job.kill()
    """

    def __init__(
        self, command: Sequence[str], log_file: Path, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> None:
        self.log_file = log_file
        self.command = list(command)
        with log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                user=user,
            )
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCH, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command itself has not ended."""
        return self._process.poll() is None

    def output(self) -> str:
        """Returns all that the processes of the group have printed so far."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def descendants(self) -> list[psutil.Process]:
        """Returns the processes that the command has started, directly or not, in whatever group they are."""
        with suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def jvms(self, class_name: str = "") -> list[psutil.Process]:
        """Returns those of the descendants that run Java now, with a class of that name."""
        return [process for process in self.descendants() if runs_java(process, class_name)]

    def wait_for_line(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Returns the first match of `pattern` in the output."""
        expression = re.compile(pattern, re.MULTILINE)
        return self.wait_for(lambda: expression.search(self.output()), timeout_s, f"a line that matches {pattern!r}")

    def wait_for(self, condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
        """Returns the first truthy value of `condition`; raises ProcessFailed if the end or the time comes first."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = not self.running  # looked at first: what a process did just before its end counts
            value = condition()
            if value:
                return value
            if ended or time.monotonic() > deadline:
                ending = f"ended with {self._process.returncode}" if ended else f"went on for {timeout_s:g} s"
                raise ProcessFailed(self._with_output(f"it {ending} without {what}"))
            time.sleep(POLL_S)

    def wait(self, timeout_s: float) -> int:
        """Returns the exit status once the process has ended by itself (negative: the signal that ended it)."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(self._with_output(f"it has not ended after {timeout_s:g} s")) from None
        return status

    def succeed(self, timeout_s: float) -> str:
        """Waits for the end with status 0 and returns the output."""
        return self.end_with(0, timeout_s)

    def end_with(self, expected: int, timeout_s: float) -> str:
        """Waits for the end with that status and returns the output, which the error shows for any other status."""
        status = self.wait(timeout_s)
        if status != expected:
            raise ProcessFailed(self._with_output(f"it ended with {status}, not {expected}"))
        return self.output()

    def stop(self, timeout_s: float = 30, request: signal.Signals = signal.SIGTERM) -> None:
        """Asks the process to end, and kills what is left of the group when it has or when `timeout_s` are over."""
        with suppress(subprocess.TimeoutExpired):
            self._process.send_signal(request)
            self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kills -9 the group and all descendants (Spark's Python daemons have groups of their own) and waits for it.

        When the command has ended by itself, what it has left behind in its group (a JVM that takes its time) goes too.
        """
        if self._watcher.returncode is not None:
            return
        rest = self.descendants()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in rest:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(rest, timeout=10)
        self._dismiss_watcher()

    def pause(self) -> None:
        """SIGSTOP: the command and all its descendants stand still, as on a machine that is suspended."""
        for process in self._all():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        """SIGCONT: they go on as if no time had passed."""
        for process in reversed(self._all()):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _all(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [psutil.Process(self.pid), *self.descendants()]
        return []

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _dismiss_watcher(self) -> None:
        self._watcher.kill()
        self._watcher.wait()
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()

    def _with_output(self, problem: str) -> str:
        command, output = " ".join(self.command)[:300], self.output()[-LOG_TAIL_CHARS:]
        return f"{command} (pid {self.pid}): {problem}. Its output:\n{output}"


def runs_java(process: psutil.Process, class_name: str = "") -> bool:
    """Returns whether a process runs Java with a class of that name; one that has ended since it was found does not."""
    try:
        return process.name() == "java" and any(class_name in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def start_driver(script: Path, *arguments: str, log_file: Path, env: Mapping[str, str] | None = None) -> ProcessGroup:
    """Starts a Python script, e.g. a whole flinkish job with its Spark session, under this interpreter.

    The script imports `flinkish` and `tests` from this checkout; its lines reach the log as they are printed.
    """
    defaults = {"PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1", "PYSPARK_PYTHON": sys.executable}
    return ProcessGroup([sys.executable, str(script), *arguments], log_file, {**defaults, **(env or {})})
