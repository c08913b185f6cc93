"""Jobs on YARN, started by ``flinkish run`` with the settings that a platform has set up for Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from flinkish.examples.clicks import clicks_of
from tests.platforms.hadoop_cluster import HadoopCluster
from tests.platforms.s3_server import hadoop_aws_jars
from tests.support.clicks import expected_counts
from tests.support.ivy import pyspark_jars_folder
from tests.support.postgres import PostgresServer
from tests.support.processes import REPOSITORY, ProcessGroup

USERS, EVENTS = 50, 3_000
#: How long a job may take to begin, to go on or to end, on a machine that does much else.
PATIENCE_S = 600
_INHERITED = ("SPARK_HOME", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "FLINKISH_CONF", "FLINKISH_HOME", "PYSPARK_PYTHON")
# little code runs often enough to be worth the second compiler
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Platform:
    """What stands in ``spark-defaults.conf`` of a platform: YARN as master, and jars that lie on each node.

    Args:
        folder: of the test, for the configuration and the logs.
        hadoop: the cluster.
        settings: those for S3, whose jars then lie on each node as well.
    """

    def __init__(self, folder: Path, hadoop: HadoopCluster, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._hadoop = hadoop
        s3 = ",".join(f"local:{jar}" for jar in hadoop_aws_jars()) if settings else ""
        defaults = {
            "spark.master": "yarn",
            "spark.yarn.jars": f"local:{pyspark_jars_folder()}/*",
            # behind Spark's own: the SDK of AWS holds another slf4j, with which Spark logs nothing
            **({"spark.jars": s3} if s3 else {}),
            "spark.executor.instances": "1",
            "spark.executor.cores": "2",
            "spark.executor.memory": "600m",
            "spark.executor.memoryOverhead": "500m",
            "spark.driver.memory": "700m",
            "spark.yarn.am.memory": "384m",
            "spark.executor.extraJavaOptions": _JVM,
            "spark.yarn.am.extraJavaOptions": _JVM,
            "spark.yarn.report.loggingFrequency": "1000",
            # a machine that does much else takes its time to start a Python process
            "spark.python.authSocketTimeout": "300s",
            "spark.yarn.am.waitTime": "600s",
            **(settings or {}),
        }
        conf = folder / "spark-conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in defaults.items()))
        self._environment = {
            **hadoop.environment,
            "SPARK_CONF_DIR": str(conf),
            "PYSPARK_PYTHON": sys.executable,
            "FLINKISH_PROGRESS": "always",
        }

    def run(
        self, program: Path, *arguments: str, options: Mapping[str, str], spark: tuple[str, ...] = ()
    ) -> ProcessGroup:
        """Starts a program: ``options`` are ``-D`` of ``flinkish run``, ``arguments`` the program's, ``spark`` those of
        spark-submit."""
        settings = {"flinkish.epoch.target-duration": "0 ms", "flinkish.prepare": "off", **options}
        # on YARN each attempt is a new driver, on another machine than the one before
        settings = {"flinkish.job.takeover": "newest", **settings}
        words = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        return self.command("run", *words, str(program), *arguments, "--", *spark)

    def command(self, *words: str) -> ProcessGroup:
        """Starts a command of ``flinkish``."""
        number = len(list(self._folder.glob("command-*.log")))
        without = [part for name in _INHERITED if name in os.environ for part in ("-u", name)]
        # `env -u`: what the test process has and a user's shell has not
        command = ["env", *without, *(f"{name}={value}" for name, value in self._environment.items())]
        command += [sys.executable, "-m", "flinkish.cli", *words]
        return ProcessGroup(command, self._folder / f"command-{number}.log")

    def newest_application(self) -> str:
        """The id of the application that was submitted last."""
        return str(self._hadoop.applications()[-1]["id"])


class ClickCount:
    """The main job with its results in a database of PostgreSQL, a few hundred records an epoch.

    Args:
        postgres: a running server.
        events: how many clicks the job reads.
    """

    PROGRAM = REPOSITORY / "jobs" / "click_count.py"

    def __init__(self, postgres: PostgresServer, events: int = EVENTS) -> None:
        self._postgres = postgres
        self._events = events
        self._uri = postgres.create_database()
        self.options = {"flinkish.epoch.max-records-per-source": "500", "parallelism.default": "2"}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the program."""
        return ("--events", str(self._events), "--users", str(USERS), "--jdbc-url", self._uri)

    def counts(self) -> dict[Any, Any]:
        """Returns what the job has counted so far for each user."""
        try:
            return dict(self._postgres.query(self._uri, "SELECT user_id, clicks FROM click_counts"))
        except psycopg.errors.UndefinedTable:
            return {}

    def clicks(self) -> int:
        """Returns how many clicks the job has counted so far."""
        return sum(self.counts().values())

    def expected(self) -> dict[Any, Any]:
        """Returns what the job must have counted in the end."""
        clicks: list[Any] = clicks_of(range(self._events), USERS)
        return dict(expected_counts(clicks))
