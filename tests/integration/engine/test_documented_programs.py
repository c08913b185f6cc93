"""The programs of docs/tutorial.md and docs/connectors.md that need Spark or a server print what the pages say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.documented import programs
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
