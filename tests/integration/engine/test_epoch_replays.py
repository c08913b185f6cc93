"""``flinkish replay``: an epoch runs again in one process and gives what it gave on Spark; a failed one fails again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.errors import FinalOperationError, IncompatibleJobError, ProgramError, UserCodeError
from flinkish.jobmanager.replay.replay import EpochReplay, place_of_failure
from flinkish.jobmanager.submitted_program import SubmittedProgram, captured
from flinkish.launch.driver import ReplayRequest
from tests.integration.engine.collecting import environment
from tests.integration.engine.replayed_epochs import CommitFiles, program
from tests.support.processes import wait_until


class Later(KeyedProcessFunction):
    """A timer in 30 ms of processing time; counts per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 30)
        self.count.update((self.count.value() or 0) + 1)
        yield value[0], self.count.value(), timers.current_processing_time()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "fired", ctx.get_current_key(), self.count.value(), timestamp


FAILED = 2
MIDDLE = 1


@pytest.fixture(scope="module")
def failed_job(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has failed in its epoch 2: ``job`` and ``commits``."""
    folder = tmp_path_factory.mktemp("replayed")
    (folder / "commits").mkdir()
    with pytest.raises(UserCodeError, match="poison for k3"):
        program(str(folder / "job"), str(folder / "commits")).execute("replayed")
    (folder / "commits" / "written").unlink()
    return folder


def submitted(folder: Path, parallelism: int = 2) -> SubmittedProgram:
    env = program(str(folder / "job"), str(folder / "commits"))
    found = captured(lambda: env.execute("replayed"))
    if parallelism != 2:
        for node in found.graph.sinks():
            node.parallelism = parallelism
    return found


def replayed(folder: Path, spark: SparkSession, epoch: int, **more: Any) -> EpochReplay:
    request = ReplayRequest(str(folder / "job"), epoch, limit=1000, **more)
    replay = EpochReplay(submitted(folder), request, lambda: spark)
    replay.run()
    return replay


def of_sink(described: dict[str, Any]) -> dict[int, list[str]]:
    """Subtask -> what the sink has received, as texts."""
    return {
        operator["subtask"]: [record["value"] for given in operator["received"] for record in given["records"]]
        for operator in described["operators"]
        if operator["uid"] == "out"
    }


def committed(folder: Path, epoch: int) -> dict[int, list[str]]:
    files = (folder / "commits").glob(f"{epoch}-*.json")
    return {int(file.stem.partition("-")[2]): json.loads(file.read_text()) for file in files}


def files_of(folder: Path) -> list[tuple[str, int]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path), path.stat().st_mtime_ns) for path in paths]


def test_an_epoch_gives_in_one_process_what_it_gave_on_spark(failed_job: Path, spark: SparkSession) -> None:
    before = files_of(failed_job)
    for epoch in (0, MIDDLE):
        replay = replayed(failed_job, spark, epoch)
        assert replay.failure is None and replay.retained.committed
        assert of_sink(replay.describe()) == committed(failed_job, epoch)
        assert "it has run to its end" in replay.text() and "watermarks" in replay.text()
    shown = str(committed(failed_job, MIDDLE))
    assert "EVENT_TIME" in shown and "PROCESSING_TIME" in shown, "timers fire in this epoch"
    assert any(operator["uid"] == "sums" and operator["emitted"] for operator in replay.describe()["operators"])
    # nothing was written, and no sink was told anything: not even its writer
    assert files_of(failed_job) == before


def test_a_failed_epoch_fails_again_with_what_the_function_has_raised(failed_job: Path, spark: SparkSession) -> None:
    replay = replayed(failed_job, spark, FAILED)
    assert not replay.retained.committed and isinstance(replay.failure, UserCodeError)
    assert isinstance(replay.failure.__cause__, ValueError) and "poison for k3" in replay.failure.user_traceback
    assert "it has failed" in replay.text() and "('k3', -1)" in replay.text()
    # the debugger opens in the function
    place = place_of_failure(replay.failure)
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    assert place is not None and place.tb_frame.f_locals["number"] == -1


def test_one_task_can_be_shown_alone_and_few_records_of_each(failed_job: Path, spark: SparkSession) -> None:
    replay = replayed(failed_job, spark, MIDDLE, subtask="totals/1")
    assert {(one["uid"], one["subtask"]) for one in replay.describe()["operators"]} == {("totals", 1)}
    request = ReplayRequest(str(failed_job / "job"), 0, limit=1)
    few = EpochReplay(submitted(failed_job), request, lambda: None)
    few.run()
    records = [given for one in few.describe()["operators"] for given in one["received"]]
    assert max(given["count"] for given in records) > 1 and max(len(given["records"]) for given in records) == 1
    assert "more" in few.text()
    with pytest.raises(ProgramError, match="no subtask 'totals/2'"):
        replayed(failed_job, spark, MIDDLE, subtask="totals/2")


def test_what_cannot_be_replayed_is_told(failed_job: Path, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FinalOperationError, match=r"epochs 0, 1, 2 \(not committed: 2\)"):
        replayed(failed_job, spark, 7)
    with pytest.raises(FinalOperationError, match="not the directory of a job"):
        EpochReplay(submitted(failed_job), ReplayRequest(str(tmp_path / "none"), 0), lambda: spark)
    assert not (tmp_path / "none").exists()
    with pytest.raises(IncompatibleJobError, match="parallelism of"):
        EpochReplay(submitted(failed_job, parallelism=1), ReplayRequest(str(failed_job / "job"), 0), lambda: spark)


def endless(folder: Path, backend: str) -> StreamExecutionEnvironment:
    """A job that goes on by the clock: its timers of processing time fire in epochs whose records are of other keys."""
    env = environment(folder / "job", state__backend__type=backend, flinkish__epoch__interval="20 ms")
    env.configure(Configuration().set_string("flinkish.heartbeat.interval", "20 ms"))
    source = DataGeneratorSource(lambda i: (f"k{i // 3 % 7}", 1), records_per_epoch=3, splits=2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").uid("s")
    stream.key_by(lambda value: value[0]).process(Later()).uid("later").sink_to(
        CommitFiles(str(folder / "commits"))
    ).uid("out")
    return env


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_epochs_of_a_job_that_goes_on_by_the_clock_give_what_they_gave(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    (tmp_path / "commits").mkdir()
    client = endless(tmp_path, backend).execute_async("endless")
    try:
        wait_until(lambda: len(list((tmp_path / "commits").glob("11-*.json"))) > 0, 120, "epochs")
    finally:
        client.cancel().result(120)
    checked = 0
    for epoch in range(5, 12):
        request = ReplayRequest(str(tmp_path / "job"), epoch, limit=1000)
        replay = EpochReplay(captured(lambda: endless(tmp_path, backend).execute("endless")), request, lambda: spark)
        replay.run()
        given = {subtask: values for subtask, values in of_sink(replay.describe()).items() if values}
        assert given == {subtask: values for subtask, values in committed(tmp_path, epoch).items() if values}
        checked += any("fired" in value for values in given.values() for value in values)
    assert checked > 0, "timers have fired"


@pytest.mark.slow
def test_the_command_shows_an_epoch_and_opens_the_debugger_where_it_fails(failed_job: Path) -> None:
    script = Path(__file__).parent / "replayed_epochs.py"
    arguments = [str(script), str(failed_job / "job"), str(failed_job / "commits")]

    def run(*options: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import sys; from flinkish.cli import main; sys.exit(main())", "replay"]
        command += [str(failed_job / "job"), *options, *arguments]
        return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=300, env=os.environ)

    shown = run("--epoch", str(MIDDLE), "--json")
    assert shown.returncode == 0, shown.stderr
    described = json.loads(shown.stdout[shown.stdout.index("{") :])
    assert of_sink(described) == committed(failed_job, MIDDLE)
    assert described["epoch"] == MIDDLE and described["committed"] and described["failure"] is None
    failed = run("--epoch", str(FAILED), "--pdb", "--subtask", "totals/0", typed="p number\nq\n")
    assert failed.returncode != 0
    assert "-1" in failed.stdout and "poison for k3" in failed.stderr
    wrong = run("--epoch", "99")
    assert wrong.returncode != 0 and "epochs 0, 1, 2" in wrong.stderr
