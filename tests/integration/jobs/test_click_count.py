"""The main job as users start it: without servers, and from Kafka into PostgreSQL."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flinkish.error_display import ExitCode
from flinkish.examples.clicks import CLICK, clicks_of
from flinkish.formats.json import JsonRowSerializationSchema
from tests.support.clicks import expected_counts, sqlite_rows
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until
from tests.support.submit import submit

COUNTS = "SELECT user_id, clicks FROM click_counts"
#: for 12,000 clicks; a slow machine would make a dozen, the first ones of a few clicks
THREE_EPOCHS = {"flinkish.epoch.target-duration": "0 ms", "flinkish.epoch.max-records-per-source": "4000"}


def fill(kafka: KafkaBroker, clicks: Sequence[Any], topic: str | None = None) -> str:
    """Appends the clicks to a topic (a new one of three partitions) and returns its name."""
    if topic is None:
        topic = f"clicks-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(topic, partitions=3)
    serializer = JsonRowSerializationSchema.builder().with_type_info(CLICK).build()
    # with a key: a client without one would put thousands of records in a row into one partition
    kafka.produce(topic, serializer.serialize_batch(list(clicks)), keys=[str(n) for n in range(len(clicks))])
    return topic


def test_without_servers_the_job_counts_generated_clicks_into_a_file(tmp_path: Path) -> None:
    database = tmp_path / "job" / "click-count.db"
    arguments = ("--events", "12000", "--users", "300", "--job-dir", str(tmp_path / "job"))
    with submit("click_count", *arguments, log_file=tmp_path / "job.log", settings=THREE_EPOCHS) as job:
        output = job.succeed(300)
    counts = expected_counts(clicks_of(range(12_000), 300))
    assert dict(sqlite_rows(database, COUNTS)) == counts
    directory = re.escape(str(tmp_path / "job"))
    look = rf"^click-count: Spark's UI is off \(spark\.ui\.enabled\), log \S+, job directory {directory}$"
    assert re.search(look, output, re.M)
    line = r"^click-count: epoch \d+ at [\d:]{8}Z took [\d.]+ s \| in [\d,]+ \| out [\d,]+ \| [\d,]+/s \| (water|end)"
    assert re.search(line, output, re.M)
    assert re.search(
        r"^click-count: finished after \d+ epochs and [\d.]+ s, records in 12,000, out [\d,]+$", output, re.M
    )
    best, most = max(counts.items(), key=lambda item: item[1])
    assert re.search(rf"^{best} +{most:,}$", output, re.M)
    assert f"{len(counts)} users, {sum(counts.values()):,} clicks" in output
    assert "--bootstrap-servers" in output.splitlines()[-1]


@pytest.mark.slow
def test_started_again_without_servers_the_job_is_still_finished_and_counts_nothing_twice(tmp_path: Path) -> None:
    database = tmp_path / "job" / "click-count.db"
    arguments = ("--events", "6000", "--users", "300", "--job-dir", str(tmp_path / "job"))
    counts = expected_counts(clicks_of(range(6_000), 300))
    with submit("click_count", *arguments, log_file=tmp_path / "job.log") as job:
        job.succeed(300)
    assert dict(sqlite_rows(database, COUNTS)) == counts
    with submit("click_count", *arguments, log_file=tmp_path / "again.log") as again:
        assert f"{sum(counts.values()):,} clicks" in again.succeed(300)
    assert dict(sqlite_rows(database, COUNTS)) == counts


@pytest.mark.slow
def test_from_kafka_to_postgresql_it_counts_what_is_in_the_topic(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    clicks = clicks_of(range(30_000), 1_000)
    topic, uri = fill(kafka, clicks), postgres.create_database()
    arguments = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic, "--bounded", "--jdbc-url", uri)
    settings = {"flinkish.epoch.max-records-per-source": "12000"}
    with submit("click_count", *arguments, log_file=tmp_path / "job.log", settings=settings) as job:
        output = job.succeed(300)
    assert dict(postgres.query(uri, COUNTS)) == expected_counts(clicks)
    assert "records in 30,000" in output
    assert "--bootstrap-servers" not in output, "whoever uses servers is not told how"


@pytest.mark.slow
def test_sigterm_ends_an_unbounded_job_after_the_running_epoch_and_it_goes_on_where_it_was(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    clicks = clicks_of(range(40_000), 1_000)
    topic, uri = fill(kafka, clicks[:30_000]), postgres.create_database()
    servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic, "--jdbc-url", uri)
    arguments = (*servers, "--job-dir", str(tmp_path / "job"))
    settings = {"flinkish.epoch.max-records-per-source": "2000"}
    with submit("click_count", *arguments, log_file=tmp_path / "first.log", settings=settings) as job:
        # the first epoch is a small one, from which the job learns what a record costs
        job.wait_for_line(r"^click-count: epoch \d+ .* took .* in [\d,]+,\d{3} ", 200)
        os.kill(job.pid, signal.SIGTERM)
        job.end_with(ExitCode.STOPPED, 100)
    output = job.output()
    assert "SIGTERM: job 'click-count' ends after the running epoch" in output
    read = int(re.search(r"suspended after .* records in ([\d,]+)", output)[1].replace(",", ""))  # type: ignore[index]
    assert 1_000 < read < 30_000, "it was in the midst of its work, and ended there"
    # what the last epoch has read is in the database: the epoch was finished, and the next one had not begun
    rows = postgres.query(uri, "SELECT SUM(clicks) FROM click_counts")
    assert abs(int(rows[0][0]) - 0.7 * read) < 0.05 * read
    assert "users, " not in output, "what stands behind execute() is for a job that has finished"

    fill(kafka, clicks[30_000:], topic)
    expected = expected_counts(clicks)
    with submit("click_count", *arguments, log_file=tmp_path / "second.log") as job:
        wait_until(lambda: dict(postgres.query(uri, COUNTS)) == expected or not job.running, 200, "all counts")
        assert dict(postgres.query(uri, COUNTS)) == expected, job.output()
        # now it waits for data, and Ctrl-C (a signal to the whole process group) ends it at once
        os.killpg(job.pid, signal.SIGINT)
        job.end_with(ExitCode.STOPPED, 60)
        output = job.output()
    assert f"records in {40_000 - read:,}" in output


@pytest.mark.slow
def test_runs_with_available_now_take_what_there_is_and_end_with_0(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    clicks = clicks_of(range(6_000), 100)
    topic, uri = None, postgres.create_database()
    settings = {"execution.trigger": "available-now", "flinkish.epoch.max-records-per-source": "1500"}
    for run, (begin, end) in enumerate([(0, 4_000), (4_000, 6_000)]):
        topic = fill(kafka, clicks[begin:end], topic)
        servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic, "--jdbc-url", uri)
        arguments = (*servers, "--job-dir", str(tmp_path / "job"))
        with submit("click_count", *arguments, log_file=tmp_path / f"{run}.log", settings=settings) as job:
            output = job.succeed(200)
        assert f"records in {end - begin:,}" in output
        assert dict(postgres.query(uri, COUNTS)) == expected_counts(clicks[:end])
