"""What goes wrong around a program is told in one line that names it, within a screen: tables of (what happens, the
line that its user sees). A session that is stopped: ``test_started_processes.py``."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import FlinkishError
from tests.integration.bad_input.job import Job, pair
from tests.support.processes import python_path

#: The most lines that are told of one mistake.
SCREEN = 24


def at_record_eleven(call: Callable[[], Any]) -> Callable[[Any], Any]:
    def to_pair(record: dict[str, Any]) -> Any:
        return call() if record["index"] == 11 else pair(record)

    return to_pair


RECORD = r"record \{'user': 'user-2', 'index': 11\}, read from 'Source: events', split 0, position 11, epoch \d"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        pytest.param(
            lambda: 1 // 0,
            rf"ZeroDivisionError in user code: .*{RECORD}.* to see the epoch again: flinkish replay \S+/job --epoch \d",
            id="a function that raises names its record and how to run the epoch again",
        ),
        pytest.param(
            lambda: os._exit(3),
            # what it ends with is known only where flinkish has started Spark
            r"a Python worker \(process \d+\) was lost in task 'Source: events -> Map \(1/1\)' \[",
            id="a worker that ends itself",
        ),
    ],
)
def test_a_function_that_ends_the_epoch_is_told_with_its_task(
    job: Job, call: Callable[[], Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the tests' processes may have been started without a file
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "shop.py", raising=False)
    settings = {"parallelism.default": "1"}
    with pytest.raises(FlinkishError) as caught:
        job.run(to_pair=at_record_eleven(call), settings=settings)
    assert re.search(line, caught.value.message), caught.value.message
    job.run(settings=settings)
    job.check_complete()


@pytest.mark.nightly
def test_a_stop_before_the_first_epoch_waits_for_it_and_starts_no_query_twice(job: Job, tmp_path: Path) -> None:
    settings = {"flinkish.epoch.interval": "100 ms", "flinkish.epoch.max-records-per-source": "1"}
    client = job.build(settings=settings).execute_async("shop")
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(120)
    client.get_job_execution_result().result(120)
    described = client.describe()
    assert Path(path).is_dir() and described.metrics["restarts"] == 0
    assert [one.state for one in described.attempts] == ["FINISHED"]


PROGRAM = """
import os, signal, sys
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment

what, *texts = sys.argv[1:]
settings = Configuration()
for text in texts:
    settings.set_string(*text.split("=", 1))

def same(number):
    if what == "kill" and number == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return number

env = StreamExecutionEnvironment.get_execution_environment(settings)
source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), records_per_second=20.0)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(same, Types.LONG()).filter(lambda number: False).print()
env.execute("endless")
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("what", "settings", "line"),
    [
        pytest.param(
            "",
            ["spark.ui.enabled=true", "spark.ui.port={port}", "spark.port.maxRetries=0"],
            r"OperationError: port {port} of this machine is in use \[Spark's setting spark.ui.port\]; expected a port",
            id="the port of the UI is in use",
        ),
        pytest.param(
            "kill",
            [],
            r"RetryableError: a Python worker \(process \d+\) was killed by SIGKILL in task 'Source: numbers -> .*: "
            r"perhaps memory, its peak was [\d.]+ [MG]iB of [\d.]+ [MG]iB \[",
            id="a worker is killed",
        ),
    ],
)
def test_what_spark_says_in_a_hundred_lines_is_one(what: str, settings: list[str], line: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [one.format(port=port) for one in ["spark.master=local[1]", "flinkish.progress=never", *settings]]
        environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, str(program), what, *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 75, done.stderr[-3000:]
    wanted = "flinkish.errors." + line.replace("{port}", port)
    assert [one for one in lines if re.match(wanted, one)], done.stderr[-3000:]
    assert len(lines) <= SCREEN and "\tat " not in done.stderr, done.stderr
