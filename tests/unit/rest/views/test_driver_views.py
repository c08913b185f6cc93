"""The driver's log is kept as far as there is room for it, and its threads are shown."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from flinkish.rest.route import Text
from flinkish.rest.views.driver import DriverLog
from tests.support.described_jobs import ask, running_job


def logged(log: DriverLog, *messages: str) -> None:
    for message in messages:
        log.handle(logging.LogRecord("flinkish.Test", logging.WARNING, "", 0, message, None, None))


def test_the_log_has_what_flinkish_logs() -> None:
    DriverLog.installed()
    logging.getLogger("flinkish.JobManager").warning("the %s is away, password=hunter2", "disk")
    answer = ask((), "/jobmanager/log")
    assert isinstance(answer, Text)
    assert "WARNING flinkish.JobManager - the disk is away" in answer.text and "hunter2" not in answer.text
    assert DriverLog.installed() is DriverLog.installed()
    (file,) = ask((), "/jobmanager/logs")["logs"]
    assert file["size"] == len(answer.text.encode()) and file["mtime"] > 0
    assert ask((), f"/jobmanager/logs/{file['name']}") == answer


def test_who_has_set_up_no_logging_still_sees_warnings_on_the_standard_error() -> None:
    """In a process of its own: pytest sets up logging."""
    told = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import logging; from flinkish.rest.views.driver import DriverLog\n"
            "log, logger = DriverLog.installed(), logging.getLogger('flinkish.JobManager')\n"
            "logger.info('not this'); logger.warning('an executor was lost')\n"
            "logging.basicConfig(format='once: %(message)s'); logger.warning('another one')\n"
            "assert log.text().count('WARNING') == 2",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stderr == "an executor was lost\nonce: another one\n"


def test_the_oldest_lines_give_way() -> None:
    log = DriverLog(max_bytes=1_000)
    logged(log, *(f"line {number:03}" for number in range(100)))
    lines = log.text().splitlines()
    assert lines[-1].endswith("line 099") and 5 < len(lines) < 30
    assert log.size == len(log.text().encode()) <= 1_000


@pytest.mark.parametrize("message", ["x" * 5_000_000, "%s %s", "\ud800"])
def test_no_line_does_harm(message: str) -> None:
    log = DriverLog()
    logged(log, message, "the next one")
    assert log.text().endswith("the next one\n")
    assert log.size < 1_100_000


def test_the_thread_dump_has_each_thread_with_its_stack() -> None:
    held, here = threading.Event(), threading.Event()

    def hold() -> None:
        here.set()
        held.wait(30)

    thread = threading.Thread(target=hold, name="a thread of the test", daemon=True)
    thread.start()
    assert here.wait(30)
    found = {
        one["threadName"]: one["stringifiedThreadInfo"] for one in ask((), "/jobmanager/thread-dump")["threadInfos"]
    }
    held.set()
    assert "MainThread" in found
    assert found["a thread of the test"].startswith('"a thread of the test" daemon Id=')
    assert "in hold" in found["a thread of the test"]


def test_a_task_manager_that_is_the_driver_has_its_log_and_threads() -> None:
    job = running_job()
    name = ask((job,), "/taskmanagers")["taskmanagers"][0]["id"]
    assert ask((job,), f"/taskmanagers/{name}/log") == ask((), "/jobmanager/log")
    assert ask((job,), f"/taskmanagers/{name}/thread-dump")["threadInfos"]
