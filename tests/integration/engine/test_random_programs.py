"""Random programs on Spark give what the model gives; see `tests.random_programs`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.random_programs.program import random_program
from tests.random_programs.running import OnSpark, differences, expected


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_a_random_program_on_spark_gives_what_the_model_gives(number: int, spark: SparkSession, tmp_path: Path) -> None:
    source = random_program(f"spark/{number}", spark=True).source
    assert differences(source, OnSpark(tmp_path)(source), expected(source)) == [], source
