"""However a job ends on Spark, each function that was opened is closed before the job has its final status."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus, Types, WatermarkStrategy
from flinkish.common.job_client import JobClient
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream.functions import KeyedProcessFunction, MapFunction
from flinkish.errors import FlinkishError
from tests.integration.engine.collecting import environment
from tests.support.processes import wait_until

TIMEOUT_S = 120
RECORDS = 60


class Noted:
    """Writes down when it is opened and closed: ``<what> <name> <subtask> <process>``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def note(self, what: str) -> None:
        file = os.open(self.folder / "noted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{what} {self.name} {self.subtask} {os.getpid()}\n".encode())
        os.close(file)

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.note("open")

    def close(self) -> None:
        self.note("close")


class Passed(Noted, MapFunction):
    """Passes numbers on; does what it is told to with the last ones."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(folder, "source")
        self.what = what

    def map(self, value: int) -> int:
        if self.what == "hangs" and value >= RECORDS - 2:
            (self.folder / f"hangs-{value}").touch()
            time.sleep(600)
        if self.what == "fails" and value == RECORDS - 1:
            raise ValueError("it has to fail")
        return value


class Keyed(Noted, KeyedProcessFunction):
    """Passes numbers on."""

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value


def _end(client: JobClient, folder: Path) -> None:
    client.get_job_execution_result().result(TIMEOUT_S)


def _cancel(client: JobClient, folder: Path) -> None:
    wait_until(lambda: any(folder.glob("hangs-*")), TIMEOUT_S, "the call that hangs")
    client.cancel().result(TIMEOUT_S)


@pytest.mark.parametrize(
    ("what", "end", "status"),
    [
        ("ends", _end, JobStatus.FINISHED),
        ("fails", _end, JobStatus.FAILED),
        ("hangs", _cancel, JobStatus.CANCELED),
    ],
)
def test_what_was_opened_is_closed_before_the_job_has_ended(
    spark: SparkSession,
    tmp_path: Path,
    what: str,
    end: Callable[[JobClient, Path], None],
    status: JobStatus,
) -> None:
    more = {"flinkish__epoch__max_records_per_source": RECORDS // 3, "restart_strategy__type": "none"}
    env = environment(tmp_path / "job", flinkish__trace__lifecycle="true", **more)
    source = DataGeneratorSource(lambda index: index, RECORDS, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    passed = numbers.map(Passed(tmp_path, what), Types.LONG())
    passed.key_by(lambda number: number % 4).process(Keyed(tmp_path, "keyed"), Types.LONG()).print()
    client = env.execute_async("noted")
    try:
        end(client, tmp_path)
    except FlinkishError:
        assert what == "fails"
    assert client.get_job_status().result() is status
    noted = [line.split() for line in (tmp_path / "noted").read_text().splitlines()]
    opened, closed = ([line[1:] for line in noted if line[0] == kind] for kind in ("open", "close"))
    assert len(opened) >= 4
    assert sorted(opened) == sorted(closed)
    traced = [call for call in client.describe().lifecycle if call.operator == "KEYED PROCESS"]
    assert {call.call for call in traced} >= {"setup", "open", "dispose"}
    assert {call.pid for call in traced} == {int(process) for name, _, process in opened if name == "keyed"}
