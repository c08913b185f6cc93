"""PySpark's daemon of Python workers, without a traceback on the console when a job ends as it should.

When Spark stops, it closes the sockets of its idle workers; a worker takes that for an error and reports it into the
closed socket. Over Unix domain sockets, which flinkish uses for speed, that raises BrokenPipeError at once, which
PySpark prints. Rule: only that case is made quiet; nobody is there to read what such a worker has to say.

Set as ``spark.python.daemon.module`` for local masters: only there is flinkish importable before a task has run. Spark
does not ask that setting for the workers that plan Python data sources; those quiet themselves (`quiet_this_worker`).
"""

from __future__ import annotations

import socket
import sys

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """PySpark's function of that name; anything but 0 makes the worker wait for the end of its socket and exit."""
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return 1


def quiet_this_worker() -> None:
    """To be called in a worker of PySpark's own daemon, where the function is looked up before each of its tasks."""
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", None) == daemon.__name__:
        main.worker = worker  # type: ignore[attr-defined]


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
