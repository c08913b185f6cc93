"""The programs of docs/ that need Spark or a server print what the pages say."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.documented import DOCS, programs
from tests.support.kafka_broker import KafkaBroker


def test_the_last_step_of_the_tutorial_edits_a_savepoint_by_sql(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tutorial = programs("tutorial.md")
    with monkeypatch.context() as without_spark:
        without_spark.setenv("FLINKISH_SETTINGS", json.dumps({"execution.target": "minicluster"}))
        tutorial["files.py"].run()
    capfd.readouterr()
    tutorial["savepoint.py"].run()
    assert capfd.readouterr().out == tutorial["savepoint.py"].printed


def test_the_kafka_program_writes_the_total_after_each_order(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # the program has no end of its own: it is run up to the end of what is there
    monkeypatch.setenv("FLINKISH_SETTINGS", json.dumps({"execution.trigger": "available-now"}))
    kafka.create_topic("orders")
    kafka.create_topic("totals")
    kafka.produce("orders", [b'{"user": "ann", "price": 3}', b'{"user": "ann", "price": 80}'])
    programs("connectors.md")["kafka_totals.py"].run(kafka.bootstrap_servers)
    assert [json.loads(record.value) for record in kafka.consume("totals")] == [
        {"user": "ann", "total": 3},
        {"user": "ann", "total": 83},
    ]


def test_the_delta_program_keeps_one_row_for_each_user(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = programs("connectors.md")["delta_totals.py"]
    program.run(str(tmp_path))
    assert capfd.readouterr().out == program.printed


@pytest.mark.slow
def test_transform_with_state_sees_a_batch_before_its_timers(spark: SparkSession, tmp_path: Path) -> None:
    page = DOCS / "from-structured-streaming.md"
    text = page.read_text().split("```python\n")[1].split("```")[0]
    text = text.replace('"/shared/visits")', f'"{tmp_path}/visits").trigger(availableNow=True)')
    text = text.replace('.json("clicks")', f'.json("{tmp_path}/clicks")')
    (clicks,) = (line for line in programs(page.name)["visits.py"].text.splitlines() if line.startswith("CLICKS = "))
    clicks_ms = json.loads(clicks.partition(" = ")[2].translate(str.maketrans("()", "[]", "_")))
    settings = {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.shuffle.partitions": "2",
    }
    found: list[tuple[str, int]] = []

    def write(frame: DataFrame, number: int) -> None:
        found.extend((row.user, row.clicks) for row in frame.collect())

    before = {key: spark.conf.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        (tmp_path / "clicks").mkdir()
        # a click of the next day takes event time beyond all visits
        for name, part in (("visits", clicks_ms), ("later", [["eve", 86_400_000]])):
            times = [(user, datetime.fromtimestamp(ms / 1000, timezone.utc)) for user, ms in part]
            lines = (json.dumps({"user": user, "time": time.isoformat()}) for user, time in times)
            (tmp_path / "clicks" / f"{name}.json").write_text("\n".join(lines))
            exec(compile(text, str(page), "exec"), {"spark": spark, "write": write})
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
    assert sorted(found) == [("ann", 3), ("bob", 1), ("zoe", 1)]
