"""A Python for Spark's workers whose processes are forked from one that has imported what they import.

The process that plans the epochs of a query starts anew with each query, and its imports take a second of processor
time: as much as all the rest of a job of one epoch. All else is as it is with the Python itself: the process has a
memory of its own, and arguments, environment, files and folder are those of the process that Spark has started. What a
program says of its imports is to be tested with the Python itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import types
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from flinkish.spark import executors
from tests.support import ask_for_fork
from tests.support.processes import python_path

#: What runs as a program of its own, and so is not imported itself.
_FORKED = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner")
_IMPORTED = (
    "pyspark.worker", "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.create_data_source", "pandas",
    "pyarrow.compute", "pyarrow.dataset", "flinkish.datastream", "flinkish.spark.split_source", "flinkish.spark.worker",
    "flinkish.runtime.task.task_manager", "flinkish.jobmanager.spark_run", "flinkish.state", "pytest", "unittest.mock",
)  # fmt: skip


class ForkingPython:
    """While it is entered, `executable` is such a Python, and what plans the epochs of queries runs it."""

    def __init__(self) -> None:
        # of a short path, as that of a socket must be
        self._folder = Path(tempfile.mkdtemp(prefix="flinkish-python-"))
        self.executable = self._folder / "python"
        self._socket = self._folder / "socket"
        # queries take that of the driver (`flinkish.spark.executors`)
        own = SimpleNamespace(**{**vars(sys), "executable": str(self.executable)})
        self._of_driver = patch.object(executors, "sys", own)

    def __enter__(self) -> ForkingPython:
        listener = socket.socket(socket.AF_UNIX)
        with listener:
            listener.bind(str(self._socket))
            listener.listen(64)
            # Spark gives its workers this seed; whoever asks before all is imported waits
            more = {"PYTHONPATH": python_path(), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
            self._server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                env={**os.environ, **more},
                pass_fds=(listener.fileno(),),
            )
        python, client = shlex.quote(sys.executable), shlex.quote(ask_for_fork.__file__)
        asks = f'exec {python} -IS {client} {shlex.quote(str(self._socket))} "$@"'
        text = f'#!/bin/sh\ncase "$1 $2" in {"|".join(f"-m?{name}" for name in _FORKED)}) {asks};; esac\n'
        self.executable.write_text(f'{text}exec {python} "$@"\n')
        self.executable.chmod(0o755)
        self._of_driver.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._of_driver.stop()
        self._server.communicate(timeout=60)
        shutil.rmtree(self._folder)


def _serve(listener: socket.socket) -> None:
    """Fork for whoever asks, until the standard input ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        if 0 in select.select([0, listener.fileno()], [], [])[0]:
            return
        connection, _ = listener.accept()
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
        if os.fork() == 0:
            listener.close()
            _become(connection, descriptors)
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(connection: socket.socket, descriptors: list[int]) -> None:
    """Be the process that is asked for, up to its end; the connection ends with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    connection.sendall(str(os.getpid()).encode())
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    name, *arguments = asked["arguments"]
    code = 1
    try:
        code = _run(name, arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # a negative code is that of a program, too
        os._exit(code & 0xFF)


def _run(name: str, arguments: list[str]) -> int:
    """As ``python -m NAME ARGUMENTS`` does."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = dict.fromkeys([os.getcwd(), *known, *sys.path[1:]])
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None and spec.loader is not None
    main = types.ModuleType("__main__")
    main.__spec__, main.__file__, main.__loader__ = spec, spec.origin, spec.loader
    sys.modules["__main__"], sys.argv = main, [spec.origin, *arguments]
    exec(spec.loader.get_code(name), main.__dict__)  # type: ignore[attr-defined]
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
