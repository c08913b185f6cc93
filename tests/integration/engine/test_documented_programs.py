"""The programs of docs/tutorial.md and docs/connectors.md that need Spark or a server print what the pages say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.documented import programs


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
