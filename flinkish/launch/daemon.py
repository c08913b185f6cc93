"""PySpark's daemon of Python workers, whose output a user can read.

What user functions print goes to the standard output of the driver, through a named pipe; Spark would write it to the
standard error of its JVM.

No traceback is printed when a job ends as it should. When Spark stops, it closes the sockets of its idle workers. A
worker takes that for an error and tries to report it through the closed socket. Over Unix domain sockets, which
flinkish uses for speed, that raises BrokenPipeError at once, and PySpark prints it. Rule: only this case is silenced,
in which nobody is left to read what the worker reports.

How a worker has ended is written into a file beside that pipe, from which the driver says it: Spark knows only that a
worker has gone.

This module is set as ``spark.python.daemon.module`` for local masters only, because on other masters flinkish cannot be
imported before a task has run. Spark ignores that setting for the workers that plan Python data sources; those call
`quiet_this_worker`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from pyspark import daemon

#: The environment variable with the path of the named pipe that the driver reads.
DRIVERS_OUTPUT = "FLINKISH_DRIVERS_OUTPUT"

#: The file beside that pipe with a line for each worker that has ended by itself: its process, its exit code (below 0:
#: the signal), and the most memory that it has held, in KiB.
ENDED_WORKERS = "ended-workers"

_worker = daemon.worker
_prints_to_driver = False


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run PySpark's function of the same name. A result other than 0, as after a broken pipe, makes the worker wait for
    the end of its socket and exit."""
    _print_to_driver()
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return 1
    finally:
        with suppress(OSError):
            sys.stdout.flush()


def _print_to_driver() -> None:
    """Make the driver's pipe the standard output of this process, for programs that it starts as well. Where nobody
    reads the pipe, nothing changes."""
    global _prints_to_driver
    path = os.environ.get(DRIVERS_OUTPUT)
    if path is None or _prints_to_driver:
        return
    _prints_to_driver = True
    with suppress(OSError):
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        os.dup2(pipe, 1)
        os.close(pipe)
        # a line that is written at once is not mixed with those of other workers
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _remember_ends(folder: str) -> None:
    """Write down how the workers of this daemon end, which ignores that otherwise."""
    own, set_handler = os.getpid(), signal.signal

    def write_down(*_: object) -> None:
        # workers begin with the handlers of the daemon
        while os.getpid() == own:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if code:
                with suppress(OSError), open(os.path.join(folder, ENDED_WORKERS), "a", encoding="ascii") as file:
                    file.write(f"{pid} {code} {used.ru_maxrss}\n")

    def set_own(number: int, handler: Any) -> Any:
        watched = number == signal.SIGCHLD and os.getpid() == own
        return set_handler(number, write_down if watched else handler)

    # PySpark's module looks all of them up in its own name of the module, in the daemon and in its workers
    vars(daemon)["signal"] = SimpleNamespace(**{**vars(signal), "signal": set_own})


def quiet_this_worker() -> None:
    """Make a worker that PySpark's own daemon has started one of this module. The daemon's function `worker` is looked
    up before each task, so replacing it takes effect from the next task on."""
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", None) == daemon.__name__:
        main.worker = worker  # type: ignore[attr-defined]


if __name__ == "__main__":
    # set for this process only: programs that user functions start find the modules beside them
    safe = os.environ.pop("PYTHONSAFEPATH", "")
    if safe and not getattr(sys.flags, "safe_path", False) and sys.path[0] == os.getcwd():
        del sys.path[0]  # Python 3.10 does not know the variable
    daemon.worker = worker
    if DRIVERS_OUTPUT in os.environ and hasattr(os, "wait4"):
        _remember_ends(os.path.dirname(os.environ[DRIVERS_OUTPUT]))
    daemon.manager()
