"""How many requests to S3 an epoch makes, as a proxy counts them: one that is added fails here."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from tests.platforms.s3_server import S3Server, hadoop_aws_jars
from tests.support.counting_proxy import CountingProxy, Request
from tests.support.ivy import Coordinate, JarSet, resolve_jars
from tests.support.processes import ProcessGroup, python_path
from tests.support.spark_jars import shipped_modules, spark_jars

pytestmark = pytest.mark.platforms

#: The epochs that are counted: the caches are warm by then, and old files of 20 epochs are deleted once.
FIRST, LAST = 12, 32
PATIENCE_S = 900
#: Checks of the fence in an epoch: one of the driver before it prepares the epoch, and two of each worker. Besides
#: those, the driver checks it twice in ten seconds, and each process looks at the whole log once a minute.
_CHECKS, _CHECKS_A_SECOND = 5, 0.3
_SETTINGS = {
    "flinkish.epoch.interval": "1 s",
    "execution.checkpointing.interval": "0",
    "flinkish.history.enabled": "false",
    "flinkish.prepare": "off",
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
}
#: Made once in so many seconds, however many epochs there are meanwhile: looks for requests of the command line and for
#: the progress of tasks, the sign of life of the driver, and Spark's snapshots of state.
_BY_TIME = re.compile(r"|/|/owner\.json|/spark/progress.*|.*\.snapshot.*")
#: The parts of paths that differ from file to file.
_NAMES = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9]+")
#: What the jar with Spark's file manager for object stores needs, as its description says; S3's jars are there already.
_NOT_NEEDED = (
    "analyticsaccelerator-s3", "bundle", "gcs-connector", "hadoop-aws", "hadoop-azure", "hadoop-client-api",
    "hadoop-client-runtime", "hadoop-cloud-storage", "hadoop-huaweicloud", "httpclient", "httpcore", "jetty-util",
    "jetty-util-ajax", "joda-time", "okhttp", "okio", "wildfly-openssl",
)  # fmt: skip


def one_put_jars() -> list[Path]:
    """The jar of spark-hadoop-cloud; there is none for Spark 4.2.0, and that for 4.1 fits."""
    coordinate = Coordinate("org.apache.spark", "spark-hadoop-cloud_2.13", "4.1.1")
    return resolve_jars(JarSet("spark-hadoop-cloud", (coordinate,), (*_NOT_NEEDED, *shipped_modules())))


def commits(proxy: CountingProxy, job: str) -> dict[int, float]:
    """Epoch -> when Spark has committed it."""
    found: dict[int, float] = {}
    for request in proxy.requests(job):
        number = re.fullmatch(rf"{job}/spark/commits/(\d+)", request.path)
        if number is not None and request.method in ("PUT", "COPY"):
            found[int(number[1])] = request.time_s
    return found


def within(proxy: CountingProxy, job: str) -> tuple[list[Request], float]:
    """The requests of the counted epochs, and how long these have taken in seconds. A request for the deletion of many
    objects names the bucket only."""
    ends = commits(proxy, job)
    begin_s, end_s = ends[FIRST], ends[LAST]
    requests = [each for each in proxy.requests() if each.path.startswith(job) or each.method == "POST"]
    return [each for each in requests if begin_s < each.time_s <= end_s], end_s - begin_s


def table(requests: list[Request]) -> str:
    """The requests per epoch, by what they are for."""
    names = Counter(
        f"{request.caller:8} {request.method:6} {re.sub(r'[0-9a-f]{8,}|[0-9]+', 'N', request.path)}"
        for request in requests
    )
    return "\n".join(f"{count / (LAST - FIRST):6.2f} {name}" for name, count in names.most_common())


@pytest.mark.parametrize(
    ("job", "most", "one_put"),
    [("own-manager", 40.4, False), ("one-put-manager", 32.4, True)],
    ids=["with Spark's own file manager", "with that of spark-hadoop-cloud"],
)
def test_an_epoch_makes_no_more_requests_than_are_documented(
    s3: S3Server, s3_proxy: CountingProxy, tmp_path: Path, job: str, most: float, one_put: bool
) -> None:
    directory = f"jobs/{job}"
    jars = [*spark_jars(), *hadoop_aws_jars(), *(one_put_jars() if one_put else [])]
    settings = {**_SETTINGS, **s3.spark_settings(s3_proxy.endpoint), "flinkish.job.dir": f"s3a://{directory}"}
    command = [sys.executable, "-m", "tests.platforms.counted_job", *(f"{key}={settings[key]}" for key in settings)]
    class_path = ":".join(map(str, jars))
    environment = {
        "PYTHONPATH": python_path(),
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {class_path} pyspark-shell",
    }
    with ProcessGroup(command, tmp_path / "job.log", environment) as driver:
        driver.wait_for(lambda: LAST in commits(s3_proxy, directory), PATIENCE_S, f"the commit of epoch {LAST}")
    batches = {
        int(info.base_name) for info in s3.file_system().get_file_info(FileSelector(f"{directory}/spark/commits"))
    }
    assert LAST in batches and min(batches) > 0, "old files are deleted"
    requests, took_s = within(s3_proxy, directory)
    checks = [each for each in requests if each.path.startswith(f"{directory}/fencing/")]
    by_time = [each for each in requests if _BY_TIME.fullmatch(each.path.removeprefix(directory))]
    others = [each for each in requests if each not in checks and each not in by_time]
    print(f"{len(checks)} checks of the fence and {len(others)} other requests in {LAST - FIRST} epochs")
    print(table(requests))
    assert len(checks) <= _CHECKS * (LAST - FIRST) + _CHECKS_A_SECOND * took_s, table(checks)
    assert len(others) <= most * (LAST - FIRST), table(others)
