"""What a release has stored of a job on Spark is restored there: its directory, a checkpoint and a savepoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint.manifest import VERSION_WITH_CHANGES, Savepoint
from tests.golden.job import build, check_results
from tests.golden.write import records_before, unpack
from tests.integration.engine.collecting import collecting


def test_a_job_of_a_release_goes_on_in_its_directory_and_from_what_it_has_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    info = unpack("spark", tmp_path)
    if spark.version.split(".")[:2] < info["spark"].split(".")[:2]:
        pytest.skip("an older Spark does not read what a later one has written")
    checkpoints = [path.parent for path in (tmp_path / "job" / "checkpoints").glob("chk-*/manifest.json")]
    with_changes = max(
        path for path in checkpoints if Savepoint.open(str(path)).manifest.savepoint_version == VERSION_WITH_CHANGES
    )
    for path in (with_changes, tmp_path / "savepoint"):
        with collecting() as collected:
            build(collected, tmp_path / f"new-{path.name}", execution__state_recovery__path=path).execute("golden")
            check_results(collected, records_before(path))
    with collecting() as collected:
        build(collected, tmp_path / "job", flinkish__job__restart=True).execute("golden")
        check_results(collected, info["records"])
