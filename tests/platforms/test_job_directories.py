"""Job directories on S3, and where the default file system is HDFS: what is wrong with one is said in one line before
the first epoch, and of many that create the same object at once one succeeds."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from flinkish.error_display import ExitCode
from tests.platforms.hadoop_cluster import HadoopCluster
from tests.platforms.s3_server import S3Server, hadoop_aws_jars
from tests.support.counting_proxy import CountingProxy, Where
from tests.support.hadoop_credentials import credential_store
from tests.support.processes import ProcessGroup, python_path
from tests.support.spark_jars import spark_jars

pytestmark = pytest.mark.platforms

PATIENCE_S = 300
_SETTINGS = {
    "execution.checkpointing.interval": "0",
    "flinkish.history.enabled": "false",
    "flinkish.prepare": "off",
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
}


def start(tmp_path: Path, module: str, settings: Mapping[str, str], jars: list[Path], **variables: str) -> ProcessGroup:
    """Starts a module of this package with these settings, and with these jars beside Delta's."""
    command = [sys.executable, "-m", module, *(f"{key}={value}" for key, value in {**_SETTINGS, **settings}.items())]
    class_path = ":".join(map(str, [*spark_jars(), *jars]))
    environment = {
        "PYTHONPATH": python_path(),
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {class_path} pyspark-shell",
        **variables,
    }
    return ProcessGroup(command, tmp_path / "job.log", environment)


@pytest.mark.parametrize(
    ("bucket", "changed", "with_jar", "code", "expected"),
    [
        ("jobs", {}, False, ExitCode.FAILED, "EnvironmentVersionError: .*the Hadoop module of that store is missing"),
        (
            "jobs",
            {"secret.key": "another"},
            True,
            ExitCode.FAILED_FOR_NOW,
            "OperationError: cannot read s3a://jobs/job",
        ),
        ("none", {}, True, ExitCode.FAILED_FOR_NOW, "OperationError: cannot (read|create) .*s3a://none/job"),
    ],
    ids=["without hadoop-aws", "with a wrong key", "in a bucket that does not exist"],
)
def test_what_is_wrong_with_a_directory_on_s3_is_one_line_before_the_first_epoch(
    bucket: str, changed: Mapping[str, str], with_jar: bool, code: int, expected: str, s3: S3Server, tmp_path: Path
) -> None:
    settings = {**s3.spark_settings(), **{f"spark.hadoop.fs.s3a.{key}": value for key, value in changed.items()}}
    settings |= {"spark.hadoop.fs.s3a.attempts.maximum": "1", "spark.hadoop.fs.s3a.retry.limit": "1"}
    settings["flinkish.job.dir"] = f"s3a://{bucket}/job"
    with start(tmp_path, "tests.platforms.counted_job", settings, hadoop_aws_jars() if with_jar else []) as job:
        said = job.end_with(code, PATIENCE_S)
    lines = [line for line in said.splitlines() if re.search(r"\w+Error: ", line)]
    assert len(lines) == 1 and re.search(expected, lines[0]), said


@pytest.mark.parametrize(
    ("where", "times"), [("before the answer", 0), ("before the answer", 30), ("by a conflict", 30)]
)
def test_of_many_that_create_the_same_object_at_once_one_succeeds(
    s3: S3Server, s3_proxy: CountingProxy, tmp_path: Path, where: Where, times: int
) -> None:
    s3_proxy.cut("PUT", where, times, "jobs/created/")
    with start(tmp_path, "tests.platforms.creators", s3.spark_settings(s3_proxy.endpoint), hadoop_aws_jars()) as job:
        said = job.succeed(PATIENCE_S)
    # the names of those that created each of the objects
    assert re.findall(r"^created by (\d+)$", said, re.MULTILINE) == ["1"] * 10, said
    assert s3_proxy.cuts_left() == 0


@pytest.mark.parametrize("prefix", ["hadoop", "fs.s3a", "fs.s3a.bucket.jobs"])
def test_keys_in_a_credential_provider_are_found_by_spark_and_by_python(
    prefix: str, s3: S3Server, tmp_path: Path
) -> None:
    keys = {"access.key": s3.KEY, "secret.key": s3.SECRET}
    # in the providers of all of Hadoop and of S3A the keys are those of one bucket
    names = "fs.s3a" if prefix == "fs.s3a.bucket.jobs" else "fs.s3a.bucket.jobs"
    store = credential_store(tmp_path / "keys.jceks", {f"{names}.{key}": value for key, value in keys.items()})
    settings = {**s3.spark_settings(), **{f"spark.hadoop.fs.s3a.{key}": "of no use" for key in keys}}
    settings[f"spark.hadoop.{prefix}.security.credential.provider.path"] = store
    with start(tmp_path, "tests.platforms.creators", settings, hadoop_aws_jars()) as job:
        said = job.succeed(PATIENCE_S)
    assert re.findall(r"^created by (\d+)$", said, re.MULTILINE) == ["1"] * 10, said


@pytest.mark.parametrize(("where", "default"), [("local", "hdfs"), ("hdfs", "hdfs"), ("local", "viewfs")])
def test_beside_a_default_file_system_that_is_hdfs_or_viewfs_a_job_runs(
    where: str, default: str, hadoop: HadoopCluster, tmp_path: Path
) -> None:
    directory = str(tmp_path / "job") if where == "local" else f"{hadoop.uri}/jobs/beside"
    settings = {"flinkish.job.dir": directory, "execution.checkpointing.interval": "1 s"}
    if default == "viewfs":
        settings["spark.hadoop.fs.defaultFS"] = "viewfs://view"
        for folder in ("/user", "/tmp"):
            settings[f"spark.hadoop.fs.viewfs.mounttable.view.link.{folder}"] = f"{hadoop.uri}{folder}"
    with start(tmp_path, "tests.platforms.counted_job", settings, [], **hadoop.environment) as job:
        # each epoch adds four to it
        job.wait_for_line(r"^[12]> \(key 9,[0-9]{2,}\)$", PATIENCE_S)
        job.wait_for_line(r"\| checkpoint \d+, ", PATIENCE_S)
        assert job.running and "Error" not in job.output(), job.output()
    if where == "local":
        assert list((tmp_path / "job" / "spark" / "commits").glob("[0-9]*"))
        assert list((tmp_path / "job" / "checkpoints").rglob("manifest.json"))
