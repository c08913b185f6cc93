"""kill -9 of the driver and all its processes in the midst of the main job, from Kafka into PostgreSQL.

The ordinary run kills drivers of smaller jobs: in a commit between two topics (tests/integration/matrix), and in the
drain of a job that writes into a database (tests/integration/engine/test_faults_of_recoveries.py).
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from flinkish.examples.clicks import clicks_of
from tests.integration.jobs.test_click_count import COUNTS, fill
from tests.support.clicks import expected_counts
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres import PostgresServer
from tests.support.processes import ProcessGroup
from tests.support.submit import submit

#: clicks for each run of the job, which are five epochs: a kill comes after about three of them
EVENTS_PER_RUN, USERS, EPOCH_RECORDS = 10_000, 2_000, 2_000
SEED = 20_240_229


class Work:
    """What can be seen in the database of the job's progress."""

    def __init__(self, postgres: PostgresServer, uri: str) -> None:
        self._postgres = postgres
        self._uri = uri

    def epoch(self) -> int:
        """The last epoch that any subtask has committed; -1 at the start."""
        if self._postgres.query(self._uri, "SELECT to_regclass('flinkish_epochs')") == [(None,)]:
            return -1
        ((epoch,),) = self._postgres.query(self._uri, "SELECT COALESCE(MAX(epoch), -1) FROM flinkish_epochs")
        return int(epoch)

    def clicks(self) -> int:
        """Clicks counted so far."""
        ((clicks,),) = self._postgres.query(self._uri, "SELECT COALESCE(SUM(clicks), 0) FROM click_counts")
        return int(clicks)


def kill_at_work(job: ProcessGroup, work: Work, dice: random.Random) -> int:
    """Kills the job some epochs after it has begun, anywhere within an epoch; returns the clicks counted by then."""
    begin = work.epoch()
    first = begin + dice.randint(1, 2)
    job.wait_for(lambda: work.epoch() >= first, 200, f"epoch {first} in the database (it began behind {begin})")
    time.sleep(dice.uniform(0, 0.7))  # longer than an epoch takes: the kill may hit any phase of it
    assert job.running
    job.kill()
    assert work.epoch() > begin, "this run has done something"
    return work.clicks()


@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("kills", [1, 5])
def test_killed_at_random_points_the_job_counts_every_click_once(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer, kills: int
) -> None:
    clicks = clicks_of(range((kills + 1) * EVENTS_PER_RUN), USERS)
    expected = expected_counts(clicks)
    topic, uri = fill(kafka, clicks), postgres.create_database()
    arguments = (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic, "--bounded"),
        *("--jdbc-url", uri, "--job-dir", str(tmp_path / "job")),
    )
    settings = {"flinkish.epoch.max-records-per-source": str(EPOCH_RECORDS)}
    work, dice = Work(postgres, uri), random.Random(SEED)
    counted = 0
    for kill in range(kills):
        with submit("click_count", *arguments, log_file=tmp_path / f"{kill}.log", settings=settings) as job:
            before, counted = counted, kill_at_work(job, work, dice)
        assert before < counted < sum(expected.values()), f"kill {kill} fell into running work"
        assert not (tmp_path / "job" / "ended.json").exists()

    with submit("click_count", *arguments, log_file=tmp_path / "last.log", settings=settings) as job:
        output = job.succeed(200)
    assert dict(postgres.query(uri, COUNTS)) == expected
    assert f"{sum(expected.values()):,} clicks" in output
    assert "--bootstrap-servers" not in output, "whoever uses servers is not told how"
