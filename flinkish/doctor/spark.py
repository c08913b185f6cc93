"""The driver that ``flinkish doctor`` starts, as it would start a program: looks at the Spark session, its executors
and the job directory as they see it, and writes what it found into a file.

    python -m flinkish.launch.driver spark.py FINDINGS_FILE [JOB_DIR]
"""

from __future__ import annotations

import json
import os
import posixpath
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flinkish import __version__
from flinkish.common.options import core
from flinkish.doctor.directory import trial_folder, tried
from flinkish.doctor.findings import (
    Executor,
    Finding,
    Level,
    Trial,
    looked_at,
    of_executors,
    of_slots,
    of_trials,
    ok,
)
from flinkish.doctor.machine import configuration_of_programs
from flinkish.error_display import ExitCode
from flinkish.errors import FlinkishError
from flinkish.jobdir.probe import probe
from flinkish.launch.home import Home
from flinkish.spark.executors import ask_executors, check_executors
from flinkish.spark.failures import translate
from flinkish.spark.session import get_session, is_remote, missing_delta, slots_of
from flinkish.storage.paths import for_spark

_WHERE = "flinkish doctor"
#: So much is shown of an exception of Spark's, which may be a page long.
_MAX_TEXT = 250


def main(arguments: list[str]) -> int:
    """Write the findings into the file that the arguments name. Returns the exit code."""
    if not arguments:
        print("usage: spark.py FINDINGS_FILE [JOB_DIR]", file=sys.stderr)
        return ExitCode.BAD_COMMAND_LINE
    file, *directory = arguments
    try:
        configuration = configuration_of_programs()
        session = get_session(configuration, "flinkish doctor", short_lived=True)
        findings = of_session(session, configuration.get(core.PARALLELISM), directory[0] if directory else None)
    except FlinkishError as error:
        findings = [Finding("Spark", Level.FAIL, error.what, error.hint or error.expected)]
    except Exception as error:
        hint = f"look at {Home(os.environ).spark_log}, and whether the master answers"
        findings = [Finding("Spark", Level.FAIL, translate(error, _WHERE).what[:_MAX_TEXT], hint)]
    Path(file).write_text(json.dumps([one.to_json() for one in findings]))
    return 0


def of_session(spark: Any, parallelism: int | None, job_dir: str | None) -> list[Finding]:
    """What is found of a session, and of a job directory if one is given."""
    remote = is_remote(spark)
    kind = "Spark Connect" if remote else f"classic, master {spark.sparkContext.master}"
    findings = [ok("Spark", f"{spark.version}, {kind}")]
    if remote:
        text = "a server of Spark Connect cannot be asked: its executors and its access to storage are not looked at"
        return [*findings, ok("Executors", text), of_slots(None, parallelism)]
    missing = missing_delta(spark)
    findings.append(
        Finding("Delta Lake of Spark", Level.WARN, missing) if missing else ok("Delta Lake of Spark", "there")
    )
    findings.append(of_slots(slots_of(spark), parallelism))
    findings += _executors(spark)
    if job_dir is not None:
        findings += _directory(spark, job_dir)
    return findings


def _executors(spark: Any) -> list[Finding]:
    def ask() -> str:
        # pickled by value
        import json
        import platform
        import socket
        import time

        try:
            from flinkish import __version__ as version
        except ImportError as error:
            version = f"none ({error})"
        return json.dumps([socket.gethostname(), platform.python_version(), version, time.time()])

    before = time.time()
    try:
        check_executors(spark, _WHERE)
        answers = [Executor(*json.loads(answer)) for answer in ask_executors(spark, ask, _WHERE)]
    except FlinkishError as error:
        return [Finding("Executors", Level.FAIL, error.what, error.hint or error.expected)]
    python = ".".join(map(str, sys.version_info[:3]))
    return of_executors(answers, python, __version__, before, time.time())


def _directory(spark: Any, job_dir: str) -> list[Finding]:
    """The job directory from the driver with Spark's access, from Spark's JVM and from the executors."""

    def ask() -> str:
        # pickled by value; the executors have this flinkish
        import json
        import socket

        from flinkish.doctor.directory import trial_folder, tried

        trials = tried(trial_folder(job_dir), exclusively=False)
        return json.dumps([socket.gethostname(), [[one.operation, one.seconds, one.error] for one in trials]])

    findings = [
        of_trials("Directory from the driver", tried(trial_folder(job_dir), exclusively=True)),
        of_trials("Directory from Spark's JVM", _tried_by_jvm(spark, trial_folder(job_dir))),
    ]
    try:
        answers = [json.loads(answer) for answer in ask_executors(spark, ask, _WHERE)]
    except FlinkishError as error:
        return [*findings, Finding("Directory from executors", Level.FAIL, error.what, error.hint or error.expected)]
    found = [of_trials(f"Directory from {host}", [Trial(*trial) for trial in trials]) for host, trials in answers]
    findings.append(max(found, key=lambda one: list(Level).index(one.level)))

    def same() -> str:
        probe(spark, job_dir, _WHERE)
        return "the driver, Spark's JVM and the executors see the same directory"

    return [*findings, looked_at("One directory", same)]


def _tried_by_jvm(spark: Any, folder: str) -> list[Trial]:
    jvm = spark.sparkContext._jvm
    make = jvm.org.apache.hadoop.fs.Path
    trials: list[Trial] = []
    target, one, other = (make(for_spark(path)) for path in (folder, *(posixpath.join(folder, n) for n in "ab")))
    system: list[Any] = []

    def reach() -> None:
        system.append(target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()))

    def listed() -> None:
        if [status.getPath().getName() for status in system[0].listStatus(target)] != ["a"]:
            raise ValueError("the file that was written is not in the list")

    steps: dict[str, Callable[[], object]] = {
        "reach the storage": reach,
        "write": lambda: system[0].create(one, True).close(),
        "list": listed,
        "rename": lambda: system[0].rename(one, other),
        "delete": lambda: system[0].delete(target, True),
    }
    for operation, step in steps.items():
        began = time.perf_counter()
        try:
            step()
        except Exception as error:
            cause = getattr(error, "java_exception", None)
            message = str(error if cause is None else cause.toString()).strip().partition("\n")[0]
            return [*trials, Trial(operation, time.perf_counter() - began, message)]
        trials.append(Trial(operation, time.perf_counter() - began))
    return trials[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
