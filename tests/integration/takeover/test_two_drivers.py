"""Of two drivers on one job directory one works; the other one ends, says who has won, and writes nothing more.

A hundred trials at random: ``python -m tests.integration.takeover.two_drivers --trials 100``, or ``--slow``.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.jobdir import fencing
from flinkish.jobdir.fencing import Claim, FencingLog, commit_claim
from flinkish.runtime.phases import Phase
from tests.integration.takeover.two_drivers import Pause, random_pause, refused, taken_over


@pytest.mark.parametrize(
    "pause",
    [
        pytest.param(Pause(Phase.COMMIT_BEGUN), marks=pytest.mark.nightly),
        pytest.param(Pause(Phase.COMMITTABLES_WRITTEN, epoch=3), marks=pytest.mark.slow),
        pytest.param(Pause(None), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_driver_that_was_taken_over_writes_nothing_more_and_ends_by_its_own_code(
    spark: SparkSession, tmp_path: Path, pause: Pause
) -> None:
    taken_over(tmp_path, pause)


@pytest.mark.slow
def test_a_second_driver_is_refused_and_does_no_harm_to_the_first(spark: SparkSession, tmp_path: Path) -> None:
    refused(tmp_path, Pause(Phase.PLANNED))


def test_claims_of_this_process_and_of_spark_are_rows_of_one_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "fencing")
    claims = [Claim(owner, "shop", "here", number, "today") for number, owner in enumerate("abcd")]
    assert commit_claim(FencingLog(table), claims[0]) == 0
    fencing.append_claim(spark, table, claims[1])
    assert commit_claim(FencingLog(table), claims[2]) == 2
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    assert commit_claim(FencingLog(table), claims[3]) == 4
    rows = spark.read.format("delta").load(table).collect()
    assert sorted(Claim(**row.asDict()).owner for row in rows) == list("abcd")
    told = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()
    assert [row.version for row in told] == [4, 3, 2, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_wherever_the_older_driver_was_paused(spark: SparkSession, tmp_path: Path, number: int) -> None:
    taken_over(tmp_path, random_pause(random.Random(number)))
