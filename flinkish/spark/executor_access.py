"""Asks one certain executor for what it does not report: the threads of its JVM, and the end of the files into which
it prints.

Spark chooses the executor of a task, but a task may prefer one, as those do that read cached partitions: it runs there
at once if a slot is free, and elsewhere if that one has stayed busy for ``spark.locality.wait``. So each task says
where it has run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from flinkish.errors import FinalOperationError, OperationError, redact
from flinkish.spark.settings import SparkWork, workers_beside_epochs

#: The most that is read of a file, in bytes.
MAX_BYTES = 1 << 20
#: How long an executor is waited for, in seconds.
PATIENCE_S = 10.0

#: The files of an executor that are looked for.
_FILES = ("stderr", "stdout")


class ExecutorAccess:
    """One executor of a session that is not one of Spark Connect.

    Args:
        spark: the session.
        executor: Spark's id of the executor.
        host: its host, as Spark names it.
    """

    def __init__(self, spark: Any, executor: str, host: str) -> None:
        self._spark = spark
        self._executor, self._host = executor, host
        self._where = f"executor {executor} on {host}"

    def threads(self) -> list[tuple[str, str]]:
        """The threads of its JVM: name, and state and stack as text.

        Raises:
            OperationError: it does not answer.
        """
        jvm, context = self._spark.sparkContext._jvm, self._spark.sparkContext._jsc.sc()

        def dump() -> str:
            found = context.getExecutorThreadDump(self._executor)
            mapper = jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
            return "" if found.isEmpty() else str(mapper.writeValueAsString(found.get()))

        text = self._within_patience(dump)
        if not text:
            raise OperationError("the executor does not answer", where=self._where, hint=_GONE)
        return [_thread(one) for one in json.loads(text)]

    def files(self) -> list[tuple[str, int, int]]:
        """The files into which it prints: name, size, and time of the last change by the clock of its host.

        Raises:
            OperationError: it does not answer.
        """
        return [(name, size, modified_ms) for name, size, modified_ms in json.loads(self._ask(_listed))]

    def tail(self, name: str) -> str:
        """The end of such a file.

        Raises:
            OperationError: it does not answer.
            FinalOperationError: it has no such file.
        """
        found = json.loads(self._ask(lambda: _tail_of(name))) if name in _FILES else None
        if found is None:
            raise FinalOperationError(
                f"the executor has no file '{name}' that can be read",
                where=self._where,
                expected="stdout and stderr in its working directory, or below LOG_DIRS, as YARN and the standalone "
                "cluster make them",
                hint="on Kubernetes its pod has what it prints: kubectl logs",
            )
        return redact(str(found))

    def _ask(self, question: Callable[[], str]) -> str:
        """Call a function in a Python process of the executor."""
        context = self._spark.sparkContext
        executor = self._executor

        def answer(_: Any) -> Any:
            import os

            from flinkish.spark.place import executor_id

            here = executor_id(os.getpid())
            yield (question() if here == executor else "", here)

        def collect(work: SparkWork) -> tuple[str, str]:
            with work:
                context.setJobDescription(f"flinkish asks {self._where}")
                with workers_beside_epochs(self._spark):
                    there = _preferring(context, self._host, executor).mapPartitions(answer)
                    # by which Spark learns of the function, and of the environment of its workers
                    _ = there._jrdd
                found: tuple[str, str] = there.collect()[0]
                return found

        until_s = time.monotonic() + PATIENCE_S
        text, here = "", ""
        while here != executor and time.monotonic() < until_s:
            wait_s = until_s - time.monotonic()
            work = SparkWork(self._spark, "ask")
            text, here = self._within_patience(partial(collect, work), work.end, wait_s)
        if here != executor:
            raise OperationError(
                f"the executor is busy or gone: Spark has run the question on executor {here}",
                where=self._where,
                hint=f"ask again; {_GONE}",
            )
        return text

    def _within_patience(
        self, work: Callable[[], Any], give_up: Callable[[], Any] = lambda: None, wait_s: float = PATIENCE_S
    ) -> Any:
        """What this returns, in a thread of its own: Spark waits for an executor as long as that is not lost."""
        found: list[Any] = []
        raised: list[BaseException] = []

        def carry_out() -> None:
            try:
                found.append(work())
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=carry_out, name="flinkish-ask-executor", daemon=True)
        thread.start()
        thread.join(wait_s)
        if found:
            return found[0]
        if thread.is_alive():
            with suppress(Exception):
                give_up()
            raise OperationError(
                f"the executor has not answered for {PATIENCE_S:.0f} s: all its slots are busy, or it hangs",
                where=self._where,
                hint="ask again when the running epoch is over",
            )
        error = raised[0]
        raise OperationError(
            f"the executor cannot be asked: {type(error).__name__}: {redact(str(error)).splitlines()[0][:300]}",
            where=self._where,
            hint=_GONE,
        ) from error


_GONE = "if it is gone, it is not listed any more"


def _preferring(context: Any, host: str, executor: str) -> Any:
    """An RDD of one partition, whose task is to run on this executor."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    jvm = context._jvm
    as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala

    def one(value: Any) -> Any:
        return as_scala(jvm.java.util.Collections.singletonList(value)).toSeq()

    # the form in which Spark writes the place of a cached partition
    located = jvm.scala.Tuple2(bytearray(b"0"), one(f"executor_{host}_{executor}"))
    bytes_of_java = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    return RDD(context._jsc.sc().makeRDD(one(located), bytes_of_java).toJavaRDD(), context, NoOpSerializer())


def _thread(one: dict[str, Any]) -> tuple[str, str]:
    """A thread of Spark's API as Java writes it."""
    name, state = str(one.get("threadName")), str(one.get("threadState"))
    lines = [str(line).rstrip() for line in (one.get("stackTrace") or {}).get("elems", [])]
    blocked = one.get("blockedByLock")
    waits = f" on {blocked}" if blocked else ""
    stack = "".join(f"\tat {line}\n" for line in lines)
    return name, redact(f'"{name}" Id={one.get("threadId")} {state}{waits}\n{stack}')


# ---------------------------------------------------------------------- in the executor


def _places() -> list[str]:
    """The folders in which an executor may keep what it prints."""
    import os

    from flinkish.runtime.process import executor_of

    executor = executor_of(os.getpid())
    found = [folder for folder in os.environ.get("LOG_DIRS", "").split(",") if folder]
    if executor is not None:
        with suppress(OSError):
            found.append(os.readlink(f"/proc/{executor.pid}/cwd"))
    return found or [os.getcwd()]


def _path_of(name: str) -> str | None:
    import os

    paths = (os.path.join(folder, name) for folder in _places())
    return next((path for path in paths if os.path.isfile(path)), None)


def _listed() -> str:
    import os

    found = []
    for name in _FILES:
        path = _path_of(name)
        if path is not None:
            status = os.stat(path)
            found.append((name, status.st_size, int(status.st_mtime * 1000)))
    return json.dumps(found)


def _tail_of(name: str) -> str:
    path = _path_of(name)
    if path is None:
        return "null"
    with open(path, "rb") as file:
        file.seek(0, 2)
        begin = max(file.tell() - MAX_BYTES, 0)
        file.seek(begin)
        data = file.read(MAX_BYTES)
    # not from the middle of a line
    return json.dumps(data[data.find(b"\n") + 1 if begin else 0 :].decode("utf-8", "replace"))
