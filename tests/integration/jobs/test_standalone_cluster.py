"""The main job on a standalone master with two workers, started with spark-submit.sh from a virtual environment that
nobody has activated, as the README shows it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.error_display import ExitCode
from flinkish.examples.clicks import clicks_of
from tests.integration.jobs.test_click_count import COUNTS, fill
from tests.support.clicks import expected_counts
from tests.support.kafka_broker import KafkaBroker
from tests.support.local_cluster import StandaloneCluster
from tests.support.postgres import PostgresServer
from tests.support.processes import REPOSITORY, ProcessGroup, wait_until
from tests.support.submit import INHERITED

pytestmark = pytest.mark.slow

EVENTS, USERS = 12_000, 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def submit_as_printed(command: list[str], log_file: Path, **variables: str) -> ProcessGroup:
    """Starts a command line of the README in the checkout. The PATH does not lead to the tests' environment."""
    own = os.path.dirname(sys.executable)
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != own)
    environment = {"PATH": path, "FLINKISH_PYTHON": sys.executable, "FLINKISH_PROGRESS": "always", **variables}
    without = [part for name in (*INHERITED, "PYSPARK_PYTHON") if name in os.environ for part in ("-u", name)]
    script = str(REPOSITORY / "spark-submit.sh")
    program = str(REPOSITORY / command[1])
    return ProcessGroup(["env", *without, script, program, *command[2:]], log_file, environment)


def from_readme(kafka: KafkaBroker, topic: str, uri: str, job_dir: Path, master: str) -> list[str]:
    """The README's command line for Kafka and PostgreSQL, with the tests' servers."""
    (block,) = re.findall(
        r"```sh\n(\./spark-submit\.sh [^`]*--jdbc-url[^`]*)```", (REPOSITORY / "README.md").read_text()
    )
    servers = {
        "broker:9092": kafka.bootstrap_servers,
        "clicks": topic,
        "postgresql://user@host/db": uri,
        "/shared/click-count": str(job_dir),
        "spark://host:7077": master,
    }
    words = shlex.split(block.replace("\\\n", " "))
    assert servers.keys() <= set(words)
    return [servers.get(word, word) for word in words]


def test_a_job_without_a_directory_of_its_own_is_refused_and_with_one_it_runs(
    tmp_path: Path, cluster: StandaloneCluster
) -> None:
    job = ["./spark-submit.sh", "jobs/click_count.py", "--events", "20000", "--users", "100"]
    on_the_cluster = ["--", "--master", cluster.url]
    with submit_as_printed([*job, *on_the_cluster], tmp_path / "refused.log") as refused:
        said = refused.end_with(ExitCode.FAILED, 100)
    assert "ConfigurationError: the job has no directory: its state would lie in a temporary one" in said
    assert "expected flinkish.job.dir, a directory that all machines reach" in said

    with submit_as_printed(
        [*job, "--job-dir", str(tmp_path / "job"), *on_the_cluster], tmp_path / "job.log"
    ) as accepted:
        said = accepted.succeed(200)
    assert "100 users, " in said


def test_the_readmes_command_for_kafka_and_postgresql_counts_each_click_though_executors_are_lost(
    tmp_path: Path, cluster: StandaloneCluster, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    clicks = clicks_of(range(EVENTS), USERS)
    topic, uri = fill(kafka, clicks[: EVENTS // 3]), postgres.create_database()
    command = from_readme(kafka, topic, uri, tmp_path / "job", cluster.url)

    def counted() -> dict[str, int]:
        there = postgres.query(uri, "SELECT to_regclass('click_counts')") != [(None,)]
        return dict(postgres.query(uri, COUNTS)) if there else {}

    with submit_as_printed(command, tmp_path / "job.log") as job:
        for part in (1, 2, 3):
            expected = expected_counts(clicks[: part * EVENTS // 3])
            wait_until(lambda expected=expected: counted() == expected or not job.running, 200, "all counts")
            assert counted() == expected, job.output()
            if part < 3:
                assert len(cluster.executors()) == 2
                fill(kafka, clicks[part * EVENTS // 3 : (part + 1) * EVENTS // 3], topic)
                os.kill(cluster.executors()[0].pid, signal.SIGKILL)
        os.kill(job.pid, signal.SIGTERM)
        said = job.end_with(ExitCode.STOPPED, 100)
    assert len(re.findall("executor [0-9]+ .*lost", said)) >= 2
