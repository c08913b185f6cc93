"""An epoch is prepared, then committed: nothing of it is visible before the barrier, and it never runs again behind."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.cli import main
from flinkish.common import Types
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.errors import FinalOperationError, FlinkishError, ProgramError, UserCodeError
from flinkish.runtime.phases import Phase
from tests.integration.engine import random_job
from tests.integration.engine.collecting import environment
from tests.integration.engine.random_job import PER_EPOCH, RECORDS, assert_chained, build, links, runs
from tests.support import faults
from tests.support.connect_server import start_connect_server
from tests.support.processes import ProcessGroup, start_driver

TIMEOUT_S = 180

#: Those that the process with ``foreachBatch`` passes in each epoch; the others are passed by Spark's workers.
IN_DRIVER = [Phase.PLANNED, Phase.EPOCH_PREPARED, Phase.METADATA_COMMITTED, Phase.CLEANED_UP]
IN_WORKERS = [
    Phase.SOURCES_READ,
    Phase.LEVEL_PROCESSED,
    Phase.STATE_WRITTEN,
    Phase.COMMITTABLES_WRITTEN,
    Phase.COMMIT_BEGUN,
    Phase.SINK_COMMITTED,
]
BACKENDS = ["hashmap", pytest.param("rocksdb", marks=pytest.mark.slow)]

RESTARTING = {
    "restart_strategy__type": "fixed-delay",
    "restart_strategy__fixed_delay__attempts": "9",
    "restart_strategy__fixed_delay__delay": "10 ms",
}


def in_table(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """What is in the Delta table."""
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(folder / "table")).collect())


@pytest.mark.parametrize(
    "backend",
    [pytest.param("hashmap", marks=pytest.mark.nightly), pytest.param("rocksdb", marks=pytest.mark.slow)],
)
def test_after_an_exception_in_one_subtask_nothing_of_the_epoch_is_visible_and_nothing_of_its_state_stays(
    spark: SparkSession, tmp_path: Path, fault_plan: Path, backend: str
) -> None:
    with pytest.raises(UserCodeError) as caught:
        build(tmp_path, broken_key=3, state__backend__type=backend).execute("random")
    assert "nothing of this epoch was committed" in str(caught.value)
    assert str(caught.value).count("epoch 1") == 1
    assert runs(tmp_path) > PER_EPOCH, "the other subtask has processed its keys"
    assert len(links(tmp_path)) == PER_EPOCH, "the rows of the epoch before"
    # the program is mended: what it gives now is what is committed, and what a later start goes on from
    faults.plan_fault(fault_plan, Phase.SOURCES_READ, "raise", epoch=2)
    with pytest.raises(FlinkishError, match="injected at sources read"):
        build(tmp_path, state__backend__type=backend).execute("random")
    build(tmp_path, state__backend__type=backend).execute("random")
    assert_chained(links(tmp_path))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_prepared_epoch_is_committed_without_being_run_again(
    spark: SparkSession, tmp_path: Path, fault_plan: Path, backend: str
) -> None:
    faults.plan_fault(fault_plan, Phase.SINK_COMMITTED, "raise", epoch=2)
    with pytest.raises(FlinkishError, match="epoch 2, which is prepared: sinks may have committed a part of it"):
        build(tmp_path, state__backend__type=backend).execute("random")
    assert faults.happened(fault_plan)
    already = runs(tmp_path)
    build(tmp_path, state__backend__type=backend).execute("random")
    assert_chained(links(tmp_path))
    assert runs(tmp_path) == RECORDS, f"{already} records had been processed before"
    left = [path.name for path in (tmp_path / "job").glob("spark*/prepared/*")]
    assert left == [], "the job has ended: nothing will be delivered again"


@pytest.mark.nightly
def test_a_sink_of_dataframes_gets_the_very_records_that_others_have_committed(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    # in the driver: the database has committed before
    faults.plan_fault(fault_plan, Phase.COMMIT_BEGUN, "raise", epoch=1, pid=os.getpid())
    with pytest.raises(FlinkishError, match="injected at commit begun"):
        build(tmp_path, delta=True).execute("random")
    build(tmp_path, delta=True).execute("random")
    assert_chained(links(tmp_path))
    assert in_table(spark, tmp_path) == links(tmp_path)
    assert runs(tmp_path) == RECORDS


@pytest.mark.slow
def test_a_damaged_prepared_epoch_is_named_and_nothing_is_made_up_for_it(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    faults.plan_fault(fault_plan, Phase.EPOCH_PREPARED, "raise", epoch=2)
    with pytest.raises(FlinkishError, match="injected at epoch prepared"):
        build(tmp_path).execute("random")
    (file,) = (tmp_path / "job").glob("spark/prepared/2.json")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"epoch": 2', b'"epoch": 3'))
    before = links(tmp_path), runs(tmp_path)
    with pytest.raises(FinalOperationError) as caught:
        build(tmp_path).execute("random")
    assert str(file) in str(caught.value) and "The job does not go back by itself" in str(caught.value)
    assert (links(tmp_path), runs(tmp_path)) == before
    file.write_bytes(whole)
    build(tmp_path).execute("random")
    assert_chained(links(tmp_path))


@pytest.mark.slow
def test_state_that_is_lost_behind_a_prepared_epoch_is_told_when_its_output_is_committed(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    faults.plan_fault(fault_plan, Phase.EPOCH_PREPARED, "raise", epoch=2)
    with pytest.raises(FlinkishError, match="injected at epoch prepared"):
        build(tmp_path).execute("random")
    committed = len(links(tmp_path))
    lost = [folder / "3.delta" for folder in (tmp_path / "job/spark/state/0").glob("[01]")]
    whole = {path: path.read_bytes() for path in lost}
    for path in lost:
        path.unlink()
    with pytest.raises(FlinkishError, match=r"3\.delta"):
        build(tmp_path).execute("random")
    assert len(links(tmp_path)) > committed
    for path, data in whole.items():
        path.write_bytes(data)
    build(tmp_path).execute("random")
    assert_chained(links(tmp_path))


def start(folder: Path, **options: Any) -> ProcessGroup:
    """A driver of its own; with ``remote`` a client of Spark Connect."""
    described = {"folder": str(folder), **options}
    return start_driver(Path(random_job.__file__), json.dumps(described), log_file=folder / "driver.log")


@pytest.mark.slow
def test_under_spark_connect_a_prepared_epoch_is_committed_without_being_run_again(
    tmp_path: Path, fault_plan: Path
) -> None:
    server, url = start_connect_server(tmp_path / "server")
    faults.plan_fault(fault_plan, Phase.SINK_COMMITTED, "raise", epoch=2)
    with server, start(tmp_path, remote=url, settings=RESTARTING) as driver:
        driver.succeed(TIMEOUT_S)
    assert faults.happened(fault_plan)
    assert_chained(links(tmp_path))
    assert runs(tmp_path) == RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("phase", IN_WORKERS, ids=lambda phase: phase.value)
def test_whatever_fails_in_a_worker_output_and_state_agree(
    spark: SparkSession, tmp_path: Path, fault_plan: Path, phase: Phase, how: str
) -> None:
    for epoch in (1, 2):
        faults.plan_fault(fault_plan, phase, how, epoch=epoch)
        with pytest.raises(FlinkishError):
            build(tmp_path, delta=True).execute("random")
        assert faults.happened(fault_plan)
    faults.no_fault(fault_plan)
    build(tmp_path, delta=True).execute("random")
    assert_chained(links(tmp_path))
    assert in_table(spark, tmp_path) == links(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("connect", [False, True], ids=["driver", "spark connect"])
def test_whatever_is_killed_at_each_phase_in_turn_output_and_state_agree(
    tmp_path: Path, fault_plan: Path, connect: bool
) -> None:
    server, url = start_connect_server(tmp_path / "server") if connect else (nullcontext(), "")
    with server:
        kill_at_each_phase(tmp_path, fault_plan, {"remote": url} if connect else {})
    assert_chained(links(tmp_path))


def kill_at_each_phase(folder: Path, fault_plan: Path, remote: dict[str, str]) -> None:
    """One driver after the other, until the job has come to its end."""
    for number, phase in enumerate((*IN_DRIVER, *IN_WORKERS)):
        faults.plan_fault(fault_plan, phase, "kill", epoch=number % 5)
        with start(folder, settings=RESTARTING, **remote) as driver:
            # a process of the server, or a worker: the driver starts the job again, or another driver does
            driver.wait_for(lambda: faults.happened(fault_plan) or not driver.running, TIMEOUT_S, phase.value)
            driver.kill()
    faults.no_fault(fault_plan)
    with start(folder, settings=RESTARTING, **remote) as driver:
        driver.succeed(TIMEOUT_S)


def test_a_job_goes_on_when_the_records_that_its_sink_refuses_are_skipped(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.execute("CREATE TABLE counts (page TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0))")
    connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"sqlite:///{tmp_path}/shop.db").build()
    kind = Types.ROW_NAMED(["page", "n"], [Types.STRING(), Types.LONG()])

    def run() -> None:
        env = environment(tmp_path / "job")
        env.set_parallelism(1)
        rows = env.from_collection([("a", 1), ("b", -1), ("c", 3), ("d", -4)], kind)
        rows.sink_to(JdbcSink.upsert("counts", ["page"], kind, connection)).uid("counts")
        env.execute("counts")

    for _ in range(2):
        with pytest.raises(ProgramError, match=r"refused the row \('b', -1\) \(and 1 more\).*--skip 2,4 --into FILE"):
            run()
    assert database.execute("SELECT * FROM counts").fetchall() == []

    def prepared(*options: str) -> list[Any]:
        assert main(["prepared", str(tmp_path / "job"), *options]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    capsys.readouterr()
    (part,) = prepared()
    assert part["records"] == 4
    prepared("--sink", part["sink"], "--skip", "2,4", "--into", str(tmp_path / "refused"))
    run()
    assert database.execute("SELECT * FROM counts ORDER BY page").fetchall() == [("a", 1), ("c", 3)]
    refused = (json.loads(line)["record"] for line in (tmp_path / "refused").read_text().splitlines())
    assert list(refused) == [["b", -1], ["d", -4]]
