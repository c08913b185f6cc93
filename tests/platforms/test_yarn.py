"""The main job on YARN, with HDFS as the default file system: it counts each click once, whatever is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.platforms.hadoop_cluster import HadoopCluster
from tests.platforms.s3_server import S3Server
from tests.platforms.yarn_jobs import PATIENCE_S, ClickCount, Platform
from tests.support.postgres import PostgresServer
from tests.support.processes import ProcessGroup, wait_until

pytestmark = [pytest.mark.platforms, pytest.mark.timeout(4 * PATIENCE_S)]

CLUSTER = ("--deploy-mode", "cluster")


def wait_for_more_clicks(job: ClickCount, process: ProcessGroup, what: str) -> None:
    """Waits until the job has committed another epoch."""
    before = job.clicks()
    process.wait_for(lambda: job.clicks() > before, PATIENCE_S, f"clicks {what}")


def kill_executor(hadoop: HadoopCluster, application: str) -> None:
    """Kills -9 the executor of an application."""
    wait_until(lambda: hadoop.executors(application), PATIENCE_S, "an executor")[0].kill()


def test_in_client_mode_it_outlives_its_executor_and_its_driver(
    tmp_path: Path, hadoop: HadoopCluster, postgres: PostgresServer
) -> None:
    platform, job = Platform(tmp_path, hadoop), ClickCount(postgres)
    options = {**job.options, "flinkish.job.dir": f"{hadoop.uri}/jobs/client"}
    with platform.run(job.PROGRAM, *job.arguments, options=options) as driver:
        wait_for_more_clicks(job, driver, "of the first epoch")
        application = platform.newest_application()
        kill_executor(hadoop, application)
        wait_for_more_clicks(job, driver, "after the end of the executor")
        os.kill(driver.pid, signal.SIGKILL)
        # Spark's JVM ends by itself, and with it what the cluster had lent to it
        hadoop.wait_for_end(application, PATIENCE_S)
    assert 0 < job.clicks() < sum(job.expected().values()), "it was in the midst of its work"
    with platform.run(job.PROGRAM, *job.arguments, options=options) as driver:
        driver.succeed(PATIENCE_S)
    assert job.counts() == job.expected()


def test_in_cluster_mode_it_goes_on_when_its_application_master_is_killed(
    tmp_path: Path, hadoop: HadoopCluster, postgres: PostgresServer
) -> None:
    platform, job = Platform(tmp_path, hadoop), ClickCount(postgres)
    options = {**job.options, "flinkish.job.dir": f"{hadoop.uri}/jobs/cluster"}
    with platform.run(job.PROGRAM, *job.arguments, options=options, spark=CLUSTER) as client:
        wait_for_more_clicks(job, client, "of the first epoch")
        application = platform.newest_application()
        master = hadoop.application_master(application)
        assert master is not None
        master.kill()
        client.succeed(PATIENCE_S)
    assert job.counts() == job.expected(), hadoop.logs(application)
    assert len(hadoop.attempts(application)) == 2
    assert hadoop.application(application)["finalStatus"] == "SUCCEEDED"


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_with_its_directory_on_s3_it_outlives_its_driver(
    tmp_path: Path, hadoop: HadoopCluster, postgres: PostgresServer, s3: S3Server, deploy_mode: str
) -> None:
    """The settings of S3 and its jars stand in Spark's configuration alone."""
    platform, job = Platform(tmp_path, hadoop, s3.spark_settings()), ClickCount(postgres)
    options = {**job.options, "flinkish.job.dir": f"s3://jobs/{deploy_mode}"}
    spark = ("--deploy-mode", deploy_mode, "--driver-class-path", str(tmp_path))
    with platform.run(job.PROGRAM, *job.arguments, options=options, spark=spark) as client:
        wait_for_more_clicks(job, client, "of the first epoch")
        if deploy_mode == "client":
            client.kill()
            client = platform.run(job.PROGRAM, *job.arguments, options=options, spark=spark)
        else:
            master = hadoop.application_master(platform.newest_application())
            assert master is not None
            master.kill()
        with client:
            client.succeed(PATIENCE_S)
    assert job.counts() == job.expected(), hadoop.logs(platform.newest_application())


def test_in_cluster_mode_a_job_that_was_stopped_is_not_started_again(
    tmp_path: Path, hadoop: HadoopCluster, postgres: PostgresServer
) -> None:
    directory = f"{hadoop.uri}/jobs/stopped"
    platform, job = Platform(tmp_path, hadoop), ClickCount(postgres, events=10_000_000)
    options = {**job.options, "flinkish.job.dir": directory}
    with platform.run(job.PROGRAM, *job.arguments, options=options, spark=CLUSTER) as client:
        wait_for_more_clicks(job, client, "of the first epoch")
        with platform.command("stop", "-p", f"{hadoop.uri}/savepoints", directory) as stop:
            stop.succeed(PATIENCE_S)
        client.succeed(PATIENCE_S)
    application = platform.newest_application()
    assert hadoop.application(application)["finalStatus"] == "SUCCEEDED", hadoop.logs(application)
    assert len(hadoop.attempts(application)) == 1


def test_in_cluster_mode_a_failure_that_would_come_again_is_the_end_and_yarn_says_what_it_was(
    tmp_path: Path, hadoop: HadoopCluster
) -> None:
    platform, program = Platform(tmp_path, hadoop), tmp_path / "restores.py"
    program.write_text(
        "from flinkish.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute('restores')\n"
    )
    options = {
        "flinkish.job.dir": f"{hadoop.uri}/jobs/restores",
        "execution.state-recovery.path": f"{hadoop.uri}/nothing",
    }
    with platform.run(program, options=options, spark=CLUSTER) as client:
        client.end_with(1, PATIENCE_S)
    application = platform.newest_application()
    found = hadoop.application(application)
    assert found["finalStatus"] == "FAILED", hadoop.logs(application)
    assert "SavepointError" in found["diagnostics"] and f"{hadoop.uri}/nothing" in found["diagnostics"]
    assert len(hadoop.attempts(application)) == 1
