"""Finds out where a Spark task runs, from inside its Python worker: the executor, and Spark's numbers of the task.

Spark does not tell a Python worker which executor it belongs to. On Kubernetes the environment says so; elsewhere the
executor is the JVM among the ancestors of the worker process that was started with ``--executor-id``. If there is none,
the driver is the executor.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from pathlib import Path
from typing import Any

from flinkish.runtime.job.report import TaskPlace

#: Spark's id of the executor inside of the driver.
DRIVER = "driver"

_FLAG = b"--executor-id"
#: How many ancestors of a worker are looked at: daemon, JVM, and what a cluster manager may put in between.
_MAX_ANCESTORS = 8


def task_context() -> Any:
    """Spark's context of the running task; None outside of tasks."""
    # a task has imported PySpark; a program in the minicluster need not have it
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.TaskContext.get()


def current_place() -> TaskPlace | None:
    """The place of the running Spark task; None outside of tasks."""
    context = task_context()
    if context is None:
        return None
    return _place(
        os.getpid(), context.taskAttemptId(), context.stageId(), context.partitionId(), context.attemptNumber()
    )


# (pid, Spark task) -> its place, kept for the last one alone: a task asks for its place once per channel
_last: dict[tuple[int, int], TaskPlace] = {}


def _place(pid: int, task: int, stage: int, partition: int, attempt: int) -> TaskPlace:
    found = _last.get((pid, task))
    if found is None:
        _last.clear()
        found = _last[pid, task] = TaskPlace(
            host=socket.gethostname(),
            executor=executor_id(pid),
            stage=stage,
            partition=partition,
            attempt=attempt,
            task=task,
            pid=pid,
        )
    return found


@cache
def executor_id(pid: int) -> str:
    """Spark's id of the executor that a worker process belongs to; "driver" if none is found."""
    told = os.environ.get("SPARK_EXECUTOR_ID")
    if told:
        return told
    for _ in range(_MAX_ANCESTORS):
        parent = _parent(pid)
        if parent is None or parent <= 1:
            break
        found = _id_in(_command_line(parent))
        if found is not None:
            return found
        pid = parent
    return DRIVER


def _id_in(command: list[bytes]) -> str | None:
    if _FLAG not in command[:-1]:
        return None
    return command[command.index(_FLAG) + 1].decode(errors="replace")


def _parent(pid: int) -> int | None:
    try:
        # the name of the command, in parentheses, may contain any characters
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
