"""What the driver says of settings that work, but not as one would wish."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.common import Configuration
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.spark.settings import note_on_results


def note(job_dir: str, interval: str, **settings: str) -> str | None:
    given = {"flinkish.job.dir": job_dir, "flinkish.epoch.interval": interval, **settings}
    return driver_settings(Configuration.from_dict(given)).note_on_requests


@pytest.fixture(autouse=True)
def _no_look_for_the_region_of_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("interval", "often"), [("0 ms", "without a pause"), ("1 s", "every 1 s"), ("4999 ms", "every 4.999 s")]
)
def test_frequent_epochs_on_an_object_store_are_noted_with_their_cost(interval: str, often: str) -> None:
    text = note("s3a://bucket/jobs/a", interval)
    assert text is not None and text.startswith(f"epochs begin {often} (flinkish.epoch.interval)")
    assert "s3a://bucket/jobs/a" in text and "\n" not in text


def test_there_is_nothing_to_say_of_long_intervals_of_disks_and_of_runs_that_end_with_what_is_there(
    tmp_path: Path,
) -> None:
    assert note("s3://bucket/jobs/a", "5 s") is note("s3://bucket/jobs/a", "10 s") is None
    assert note(str(tmp_path), "0 ms") is None
    assert note("s3://bucket/jobs/a", "0 ms", **{"execution.trigger": "available-now"}) is None


@pytest.mark.parametrize(
    ("partitions", "limit", "said"),
    [
        (1_499, None, None),
        (1_500, None, "about 393 MB of results of 1,500 tasks"),
        (4_000, "1g", "about 2,748 MB of results of 4,000 tasks"),
        (4_000, "0", None),
    ],
)
def test_results_of_many_subtasks_are_noted_where_spark_limits_them(
    partitions: int, limit: str | None, said: str | None
) -> None:
    text = note_on_results(partitions, limit)
    assert text is None if said is None else text is not None and said in text and "spark.driver.maxResultSize" in text
