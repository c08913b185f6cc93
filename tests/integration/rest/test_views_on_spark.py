"""The views of a job on Spark say where its tasks run, what passes between them, and with what it has begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support.described_jobs import ask
from tests.support.processes import wait_until

TIMEOUT_S = 120


def start(folder: Path, collected: Collected, **more: Any) -> Any:
    env = environment(folder, **more)
    source = DataGeneratorSource(lambda i: (i % 5, 1), records_per_epoch=10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("src")
    events.key_by(lambda e: e[0]).sum(1).uid("count").sink_to(collected.sink())
    client = env.execute_async("watched")
    wait_until(lambda: len(client.describe().epochs) >= 2, TIMEOUT_S, "two epochs")
    return client


def test_views_show_executors_bytes_epochs_and_the_savepoint_that_a_job_has_begun_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        client = start(tmp_path / "first", collected)
        job = client.describe()
        source, sums = ask((job,), f"/jobs/{job.id}")["vertices"]
        assert source["metrics"]["write-records"] == sums["metrics"]["read-records"] >= 20
        assert source["metrics"]["write-bytes"] == sums["metrics"]["read-bytes"] > 100
        assert sums["metrics"]["accumulated-busy-time"] > 0
        (manager,) = ask((job,), "/taskmanagers")["taskmanagers"]
        # the session's cores, and the heap of its JVM, in which the one executor is
        assert (manager["slotsNumber"], manager["hardware"]["cpuCores"]) == (2, 2)
        figures = ask((job,), f"/taskmanagers/{manager['id']}")["metrics"]
        assert 1 << 20 < figures["heapUsed"] <= figures["heapCommitted"] <= figures["heapMax"]
        subtasks = ask((job,), f"/jobs/{job.id}/vertices/{sums['id']}")["subtasks"]
        assert {one["taskmanager-id"] for one in subtasks} == {manager["id"]}
        first = job.epochs[0]
        assert 0 < first.run_ms <= first.duration_ms and first.bytes > 0
        threads = {one["threadName"] for one in ask((job,), "/jobmanager/thread-dump")["threadInfos"]}
        assert {"MainThread", "JVM: main"} <= threads
        described = json.dumps(ask((job,), f"/jobs/{job.id}/vertices/{sums['id']}/metrics"))
        assert "numBytesIn" in described
        savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    with collecting() as collected:
        client = start(tmp_path / "second", collected, execution__state_recovery__path=savepoint)
        job = client.describe()
        restored = ask((job,), f"/jobs/{job.id}/checkpoints")["latest"]["restored"]
        assert (restored["external_path"], restored["is_savepoint"]) == (savepoint, True)
        assert restored["restore_timestamp"] >= job.start_time_ms
        client.cancel().result(TIMEOUT_S)
        client.run.wait(TIMEOUT_S)
