"""PySpark's daemon of Python workers, without a traceback on the console when a job ends as it should.

When Spark stops, it closes the sockets of its idle workers. A worker takes that for an error and tries to report it
through the closed socket. Over Unix domain sockets, which flinkish uses for speed, that raises BrokenPipeError at once,
and PySpark prints it. Rule: only this case is silenced, in which nobody is left to read what the worker reports.

This module is set as ``spark.python.daemon.module`` for local masters only, because on other masters flinkish cannot be
imported before a task has run. Spark ignores that setting for the workers that plan Python data sources; those call
`quiet_this_worker`.
"""

from __future__ import annotations

import os
import socket
import sys

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run PySpark's function of the same name. A result other than 0, as after a broken pipe, makes the worker wait for
    the end of its socket and exit."""
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return 1


def quiet_this_worker() -> None:
    """Silence this worker, if PySpark's own daemon has started it. The daemon's function `worker` is looked up before
    each task, so replacing it takes effect from the next task on."""
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", None) == daemon.__name__:
        main.worker = worker  # type: ignore[attr-defined]


if __name__ == "__main__":
    # set for this process only: programs that user functions start find the modules beside them
    safe = os.environ.pop("PYTHONSAFEPATH", "")
    if safe and not getattr(sys.flags, "safe_path", False) and sys.path[0] == os.getcwd():
        del sys.path[0]  # Python 3.10 does not know the variable
    daemon.worker = worker
    daemon.manager()
