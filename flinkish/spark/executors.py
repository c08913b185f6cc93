"""What a job needs of the Python of Spark's executors, and what runs and fails there.

The driver plans the epochs in a Python process of its own (the planner of a Python data source), and the executors run
the tasks. Rule: the planner runs the driver's interpreter and imports what the driver ships; the executors run the
interpreter that the user has named for them (PYSPARK_PYTHON, ``spark.pyspark.python``), which the driver's machine need
not have. Spark itself knows one interpreter for both.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from flinkish.errors import EnvironmentVersionError, FlinkishError
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote, may_run_on_other_machines
from flinkish.spark.worker import PLANNING_FOLDER, typed_failure

#: The most tasks of a stage that are looked at.
_MOST_TASKS = 10_000

#: Spark's setting for the interpreter of the functions of a query, which the planner of a data source does not read.
_WORKERS_PYTHON = "spark.sql.execution.pyspark.python"

#: Where a Spark task has failed, in Spark's message: the host and the number of the executor.
_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\S+?)\)")

#: The most executors that an error names.
_MOST_NAMED = 3


def register_data_source(spark: Any, source: type) -> None:
    """Register a Python data source whose planner runs the driver's interpreter and finds what was shipped as Python
    files. Under Spark Connect both are the server's."""
    if is_remote(spark):
        spark.dataSource.register(source)
        return
    from pyspark.sql.datasource import DataSourceRegistration

    _show_shipped_files_to_planner()
    context: Any = _WithInterpreter(spark.sparkContext, _python_of_planner(spark) or spark.sparkContext.pythonExec)
    session: Any = SimpleNamespace(sparkContext=context, _jsparkSession=spark._jsparkSession)
    DataSourceRegistration(session).register(source)


def interpreter_settings(spark: Any) -> dict[str, str]:
    """The settings with which a query runs the functions of a data source (`register_data_source`) with the executors'
    interpreter; none if the session already names one."""
    if is_remote(spark) or spark.conf.get(_WORKERS_PYTHON, None):
        return {}
    return {_WORKERS_PYTHON: spark.sparkContext.pythonExec}


class _WithInterpreter:
    """A SparkContext whose functions run with another interpreter."""

    def __init__(self, context: Any, interpreter: str) -> None:
        self._context = context
        self.pythonExec = interpreter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _python_of_planner(spark: Any) -> str:
    """The driver's interpreter. Where Spark puts its zip of PySpark before the installed one (`home_without_zip` says
    why it should not), it is a script that puts the installed one before the zip again."""
    import py4j
    import pyspark
    from pyspark import SparkFiles

    packages = [os.path.dirname(str(package.__file__)) for package in (pyspark, py4j)]
    zipped = os.path.join(str(spark._jvm.System.getenv("SPARK_HOME")), "python", "lib", "pyspark.zip")
    folder = os.path.join(SparkFiles.getRootDirectory(), "python-of-planner")
    script, path, python = os.path.join(folder, "python"), shlex.quote(folder), shlex.quote(sys.executable)
    if sys.executable and os.path.isfile(zipped) and all(map(os.path.isdir, packages)):
        with suppress(FileExistsError):
            os.makedirs(folder)
            for package in packages:
                os.symlink(package, os.path.join(folder, os.path.basename(package)))
            with open(script, "w", encoding="utf-8") as written:
                written.write(f'#!/bin/sh\nexport PYTHONPATH={path}:"$PYTHONPATH"\nexec {python} "$@"\n')
            os.chmod(script, 0o700)
    # it may not be executed where nothing may, and before another thread has written it
    return script if os.access(script, os.X_OK) else sys.executable


def _show_shipped_files_to_planner() -> None:
    """Link the files that Spark has shipped into the folder in which it lets the planner look for Python files."""
    from pyspark import SparkFiles

    root = SparkFiles.getRootDirectory()
    folder = os.path.join(root, PLANNING_FOLDER)
    os.makedirs(folder, exist_ok=True)
    for entry in os.scandir(root):
        if entry.is_file():
            with suppress(FileExistsError):
                os.symlink(entry.path, os.path.join(folder, entry.name))


def check_executors(spark: Any, where: str) -> None:
    """Check before the first epoch that the Python of the executors can run the job: it is there, has the driver's
    version, and has pandas and pyarrow. Executors that are added later fail with their first task. Local masters, whose
    workers run on the driver's machine, and servers of Spark Connect are not checked.

    Args:
        where: names the job in the error.

    Raises:
        EnvironmentVersionError: an executor's Python lacks something; the error names its host and its path.
    """
    if is_remote(spark) or not may_run_on_other_machines(spark):
        return

    def lacking() -> str:
        # pickled by value, since nothing is known of what this Python can import
        import socket
        import sys

        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        lacks = []
        for require in (require_minimum_pandas_version, require_minimum_pyarrow_version):
            try:
                require()
            except Exception as error:
                lacks.append(str(error).partition("] ")[2] or f"{type(error).__name__}: {error}")
        return f"{sys.executable} on host {socket.gethostname()}: {' '.join(lacks)}" if lacks else ""

    lacks = [answer for answer in ask_executors(spark, lacking, where) if answer]
    if lacks:
        python = lacks[0].partition(" on host ")[0]
        more = f" (and {len(lacks) - _MOST_NAMED} more)" if len(lacks) > _MOST_NAMED else ""
        raise EnvironmentVersionError(
            f"the Python of an executor lacks packages: {'; '.join(lacks[:_MOST_NAMED])}{more}",
            where=where,
            expected="pandas and pyarrow in the Python of each executor",
            hint=f"run \"{python} -m pip install 'pandas>=2.2,<3' pyarrow\" there, or let the executors run a Python "
            "that has them (PYSPARK_PYTHON)",
        )


def ask_executors(spark: Any, question: Callable[[], str], where: str) -> list[str]:
    """Call a function once in each task slot of the executors that are there, and return the different answers.

    Args:
        question: a function that is pickled by value, as a function within a function is.

    Raises:
        FlinkishError: an executor's Python cannot run it; the error names the host.
    """
    context = spark.sparkContext
    slots = context.defaultParallelism
    try:
        return sorted(set(context.parallelize(range(slots), slots).map(lambda _: question()).collect()))
    except Exception as error:
        place = _LOST_TASK.search(str(error))
        raise translate(error, f"{where}, host {place[1]}, executor {place[2]}" if place else where) from error


class FailedTasks:
    """Finds the tasks of a session that fail from now on and that Spark runs again, however soon their jobs have ended:
    where it tries no task twice, and under Spark Connect, there are none."""

    def __init__(self, spark: Any) -> None:
        self._context = None
        master = "" if is_remote(spark) else str(spark.sparkContext.master)
        if master and (not master.startswith("local") or "," in master):
            self._context = spark.sparkContext._jsc.sc()
            self._next = int(self._context.dagScheduler().numTotalJobs())
        #: each job that had not ended at the last look
        self._open: list[int] = []
        #: (stage, its attempt) -> the number of its failed tasks that were looked at, of those jobs
        self._seen: dict[tuple[int, int], int] = {}

    def new(self, group: str) -> list[tuple[int, str]]:
        """The TID of each task that has failed since the last call, in jobs of this group of Spark's that have not
        failed themselves, and what Spark says of it."""
        if self._context is None:
            return []
        first, self._next = self._next, int(self._context.dagScheduler().numTotalJobs())
        jobs, self._open = [*self._open, *range(first, self._next)], []
        seen, self._seen = self._seen, {}
        found = list[tuple[int, str]]()
        for number in jobs:
            try:
                job = self._context.statusStore().job(number)
                status = str(job.status())
                if job.numFailedTasks() and status != "FAILED" and job.jobGroup().getOrElse(None) == group:
                    found += self._failed(job, seen)
                again = status == "RUNNING"
            except Exception:
                # Spark's store knows a new job a little later, and forgets old ones
                again = number >= first
            if again:
                self._open.append(number)
        return found

    def _failed(self, job: Any, seen: dict[tuple[int, int], int]) -> list[tuple[int, str]]:
        """What `new` finds of one job."""
        assert self._context is not None
        found, stages = list[tuple[int, str]](), job.stageIds().iterator()
        while stages.hasNext():
            stage = stages.next()
            info = self._context.statusTracker().getStageInfo(stage).getOrElse(None)
            if info is not None and (failed := info.numFailedTasks()):
                key = (stage, info.currentAttemptId())
                self._seen[key] = failed
                if failed > seen.get(key, 0):
                    found += self._messages(*key)[seen.get(key, 0) :]
        return found

    def _messages(self, stage: int, attempt: int) -> list[tuple[int, str]]:
        assert self._context is not None
        store = self._context.statusStore()
        failed, tasks = list[tuple[int, str]](), store.taskList(stage, attempt, _MOST_TASKS).iterator()
        while tasks.hasNext():
            task = tasks.next()
            if task.status() == "FAILED":
                failed.append((task.taskId(), str(task.errorMessage().getOrElse(None) or "")))
        return sorted(failed)


class Trouble:
    """Tells of the tasks of a session that Spark runs again.

    Args:
        spark: the session.
        job: the job's name, for messages.
        secret: by which errors of its workers are known.
        task_failed: is given the failure of each such task.
    """

    def __init__(self, spark: Any, job: str, secret: bytes, task_failed: Callable[[FlinkishError], None]) -> None:
        self._job, self._secret = job, secret
        self._task_failed = task_failed
        self._tasks = FailedTasks(spark)

    def look(self, group: str) -> None:
        """Tell of what has happened since the last call, in the jobs of this group of Spark's."""
        for task, message in self._tasks.new(group):
            typed = typed_failure(message, self._secret, task=task)
            self._task_failed(translate(typed or RuntimeError(message), f"job '{self._job}'"))


def running_tasks(spark: Any, group: str) -> int:
    """How many Spark tasks of a group of jobs run, with those that were told to end and have not ended yet: a Spark job
    that fails or is cancelled does not wait for its tasks. 0 under Spark Connect, where nobody can be asked."""
    if is_remote(spark):
        return 0
    # of Spark's scheduler itself, since its listeners hear of tasks later
    running, found = 0, [spark.sparkContext._jsc.sc().taskScheduler().rootPool()]
    while found:
        scheduled = found.pop()
        if scheduled.schedulableQueue() is not None:
            found.extend(scheduled.schedulableQueue().toArray())
        elif (properties := scheduled.taskSet().properties()) is not None:
            running += scheduled.runningTasks() if properties.getProperty("spark.jobGroup.id") == group else 0
    return running
