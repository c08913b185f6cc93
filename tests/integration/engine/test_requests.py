"""What an operator asks of a running job from another process, by the commands of ``flinkish``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint.manifest import Savepoint
from flinkish.common import WatermarkStrategy
from flinkish.common.job_status import JobStatus
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.errors import OperationError
from flinkish.jobmanager.requests import ask
from flinkish.runtime.phases import Phase
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support import faults
from tests.support.processes import python_path, wait_until

TIMEOUT_S = 120


def flinkish(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from flinkish.cli import main; sys.exit(main())", *arguments]
    return subprocess.run(
        command, env={"PYTHONPATH": python_path()}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def start(folder: Path, collected: Collected, **more: Any) -> Any:
    # whoever asks is another Python, which takes its time to start
    env = environment(folder / "job", flinkish__epoch__interval="1 s", **more)
    source = DataGeneratorSource(lambda i: (i % 5, 1), records_per_epoch=10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    events.key_by(lambda e: e[0]).sum(1).uid("sums").sink_to(collected.sink())
    client = env.execute_async("asked")
    wait_until(lambda: len(collected.rows["out"]) >= 20, TIMEOUT_S, "results")
    return client


def test_a_job_is_described_saved_and_stopped_from_another_process(spark: SparkSession, tmp_path: Path) -> None:
    job_dir = str(tmp_path / "job")
    with collecting() as collected:
        client = start(tmp_path, collected)
        described = flinkish("describe", job_dir, "--json")
        assert json.loads(described.stdout)["name"] == "asked", described.stderr
        saved = flinkish("savepoint", job_dir, str(tmp_path / "saved"))
        assert client.get_job_status().result() is JobStatus.RUNNING
        number = ask(job_dir, "checkpoint", TIMEOUT_S, full=True)
        taken = client.describe().checkpoints.latest_completed
        stopped = flinkish("stop", job_dir, "--savepointPath", str(tmp_path / "stopped"))
        client.get_job_execution_result().result(TIMEOUT_S)
    assert number == 2, "the savepoint was the first; and the job has no checkpoint interval"
    assert (taken.id, taken.incremental, taken.rows_written > 0, taken.bytes_written > 0) == (2, False, True, True)
    assert Savepoint.open(taken.path).manifest.epoch == taken.epoch
    for result, parent in ((saved, "saved"), (stopped, "stopped")):
        path = Path(result.stdout.strip())
        assert (result.returncode, path.parent) == (0, tmp_path / parent), result.stderr
        table = spark.read.format("delta").load(f"{path}/state")
        assert table.where("uid = 'sums' AND kind <> '__watermark__'").count() == 5
    assert not list((tmp_path / "job").glob("request-*")) + list((tmp_path / "job").glob("answer-*"))


@pytest.mark.nightly
def test_a_job_is_cancelled_from_another_process_and_what_it_cannot_do_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with collecting() as collected:
        client = start(tmp_path, collected)
        with pytest.raises(OperationError, match="the driver could not savepoint"):
            ask(str(tmp_path / "job"), "savepoint", TIMEOUT_S, directory=str(tmp_path / "file"))
        assert flinkish("cancel", str(tmp_path / "job")).returncode == 0
        assert client.get_job_status().result() is JobStatus.CANCELED


@pytest.mark.slow
def test_a_stop_that_fails_leaves_the_job_running_with_its_checkpoints(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    job_dir = str(tmp_path / "job")
    (tmp_path / "file").touch()

    def checkpoints() -> list[Path]:
        return list((tmp_path / "job" / "checkpoints").glob("chk-*/manifest.json"))

    with collecting() as collected:
        client = start(tmp_path, collected, execution__checkpointing__interval="100 ms")
        wait_until(checkpoints, TIMEOUT_S, "a checkpoint")
        for options in ((), ("--drain",)):
            refused = flinkish("stop", job_dir, "-p", str(tmp_path / "file"), *options)
            assert (refused.returncode, refused.stdout) == (2, "")
            assert f"the driver could not stop: cannot write a savepoint to {tmp_path / 'file'}" in refused.stderr
        assert (client.get_job_status().result(), client.run.attempts) == (JobStatus.RUNNING, 0)
        faults.plan_fault(fault_plan, Phase.SAVEPOINT_WRITTEN, "raise")
        with pytest.raises(OperationError, match="the driver could not stop: .*injected at"):
            ask(job_dir, "stop", TIMEOUT_S, directory=str(tmp_path / "savepoints"))
        faults.no_fault(fault_plan)
        assert client.get_job_status().result() is JobStatus.RUNNING
        assert checkpoints() and list((tmp_path / "savepoints").iterdir()) == []
        before = len(collected.rows["out"])
        wait_until(lambda: len(collected.rows["out"]) >= before + 20, TIMEOUT_S, "results after the failed stop")
        assert ask(job_dir, "stop", TIMEOUT_S, directory=str(tmp_path / "savepoints"))
        client.get_job_execution_result().result(TIMEOUT_S)
    assert (client.get_job_status().result(), client.run.attempts) == (JobStatus.FINISHED, 1)
    counts = sorted(collected.rows["out"])
    assert counts == [(key, n + 1) for key in range(5) for n in range(len(counts) // 5)], "nothing lost, nothing twice"


class OpensSlowly(KeyedProcessFunction):
    """Its ``open`` takes longer than the test as long as there is a file; a restore calls it in a worker."""

    def __init__(self, slow: Path) -> None:
        self._slow = slow

    def open(self, runtime_context: RuntimeContext) -> None:
        while self._slow.exists():
            (self._slow.parent / "opens").touch()
            time.sleep(0.05)
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._sum.update((self._sum.value() or 0) + value[1])
        yield value[0], self._sum.value()


def test_a_restore_that_hangs_in_spark_is_described_and_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    def sums(env: StreamExecutionEnvironment, collected: Collected) -> StreamExecutionEnvironment:
        source = DataGeneratorSource(lambda i: (i % 5, 1), records_per_epoch=10)
        events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
        events.key_by(lambda e: e[0]).process(OpensSlowly(slow)).uid("sums").sink_to(collected.sink())
        return env

    slow, ended = tmp_path / "slow", []
    with collecting() as collected:
        client = sums(environment(tmp_path / "first"), collected).execute_async("first")
        wait_until(lambda: len(collected.rows["out"]) >= 20, TIMEOUT_S, "results")
        path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
        slow.touch()
        again = sums(environment(tmp_path / "job", execution__state_recovery__path=path), collected)
        submitter = threading.Thread(target=lambda: ended.append(again.execute_async("second")))
        submitter.start()
        wait_until((tmp_path / "opens").exists, TIMEOUT_S, "the restore")
        described = ask(str(tmp_path / "job"), "describe", TIMEOUT_S)
        assert described["status"] == "INITIALIZING"
        assert re.fullmatch(f"restoring {re.escape(path)}, 0 of 1 parts", described["doing"])
        ask(str(tmp_path / "job"), "cancel", TIMEOUT_S)
        submitter.join(TIMEOUT_S)
        assert slow.exists() and ended[0].get_job_status().result() is JobStatus.CANCELED
        slow.unlink()
        before = len(collected.rows["out"])
        restarted = environment(tmp_path / "job", execution__state_recovery__path=path, flinkish__job__restart="true")
        client = sums(restarted, collected).execute_async("second")
        wait_until(lambda: len(collected.rows["out"]) > before, TIMEOUT_S, "results")
        client.cancel().result(TIMEOUT_S)


def test_where_no_driver_runs_the_command_says_so(tmp_path: Path) -> None:
    result = flinkish("savepoint", str(tmp_path))
    assert result.returncode == 2
    assert "no driver runs a job in this directory" in result.stderr


def test_a_driver_that_does_not_answer_is_told_within_the_time(tmp_path: Path) -> None:
    from flinkish.jobdir.directory import JobDirectory

    directory = JobDirectory(str(tmp_path))
    directory.claim("silent")
    with pytest.raises(OperationError, match="has not answered within 0.5 s"):
        ask(str(tmp_path), "cancel", 0.5)
    assert not list(tmp_path.glob("request-*"))


def test_a_driver_that_ends_without_an_answer_is_not_waited_for(tmp_path: Path) -> None:
    from flinkish.jobdir.directory import JobDirectory

    directory = JobDirectory(str(tmp_path))
    directory.claim("mortal")
    threading.Timer(1, directory.release).start()
    with pytest.raises(OperationError, match="has ended without an answer"):
        ask(str(tmp_path), "cancel", TIMEOUT_S)
