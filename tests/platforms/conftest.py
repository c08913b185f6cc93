"""The servers of the platforms suite: each starts when the first test asks for it and ends with the run.

No test is skipped where a server cannot start: it fails with what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.platforms.hadoop_cluster import HadoopCluster
from tests.platforms.s3_server import S3Server
from tests.support.counting_proxy import CountingProxy
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def hadoop() -> Iterator[HadoopCluster]:
    """A running HDFS and YARN."""
    with HadoopCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A running S3 server with the bucket `jobs`."""
    with S3Server() as server:
        server.create_bucket("jobs")
        yield server


@pytest.fixture
def s3_proxy(s3: S3Server) -> Iterator[CountingProxy]:
    """A proxy before the S3 server that has counted no requests yet."""
    with CountingProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL, which the containers of YARN reach as well."""
    with PostgresServer() as server:
        yield server
