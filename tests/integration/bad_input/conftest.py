"""A job directory per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.bad_input.job import Job


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[Job]:
    """A job that has not run yet."""
    made = Job(tmp_path)
    yield made
    made.close()
