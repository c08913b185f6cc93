"""Checkpoints as Delta tables: what SQL reads of them, what is kept of them and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.connectors.data_generator import DataGeneratorSource
from flinkish.jobmanager.savepoints.manifest import read_manifest
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support.processes import wait_until

TIMEOUT_S = 120
KEYS = 50


def start(collected: Collected, folder: Path, **more: Any) -> Any:
    """A job without end that counts records per key."""
    env = environment(
        folder / "job",
        execution__checkpointing__interval="300 ms",
        flinkish__epoch__interval="100 ms",
        **more,
    )
    source = DataGeneratorSource(lambda i: (f"u{i * 7 % KEYS}", 1), records_per_epoch=10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    events.key_by(lambda e: e[0]).sum(1).uid("counts").sink_to(collected.sink())
    return env.execute_async("counting")


def completed(client: Any) -> list[Any]:
    return [c for c in client.run.checkpoints.describe() if c.status == "COMPLETED"]


def failures(client: Any) -> list[str]:
    return [c.failure_reason for c in client.run.checkpoints.describe() if c.status == "FAILED"]


def wait_for_checkpoints(client: Any, count: int) -> list[Any]:
    def enough() -> bool:
        assert not client.get_job_execution_result().done(), client.get_job_execution_result().result()
        return len(completed(client)) >= count

    wait_until(enough, TIMEOUT_S, f"{count} checkpoints")
    return completed(client)


def counts_at(epoch: int) -> dict[str, int]:
    """Key -> records of it in the epochs up to this one."""
    counts: dict[str, int] = {}
    for index in range((epoch + 1) * 10):
        key = f"u{index * 7 % KEYS}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def test_a_checkpoint_is_the_state_of_an_epoch_as_rows_that_sql_reads(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        client = start(
            collected, tmp_path, execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION"
        )
        try:
            wait_for_checkpoints(client, 3)
        finally:
            client.cancel().result(TIMEOUT_S)
    assert failures(client) in ([], ["the job has ended"])
    last = completed(client)[-1]
    manifest = read_manifest(last.path)
    assert manifest.epoch == last.epoch
    assert manifest.sources == last.offsets and set(manifest.sources) == {"events"}
    table = tmp_path / "job" / "checkpoints" / "state"
    rows = spark.sql(
        f"SELECT key, value FROM delta.`{table}` VERSION AS OF {manifest.state.version} "
        "WHERE uid = 'counts' AND key = '\"u21\"'"
    ).collect()
    count = counts_at(last.epoch)["u21"]
    assert [tuple(row) for row in rows] == [('"u21"', f'{{"$tuple": ["u21", {count}]}}')]
