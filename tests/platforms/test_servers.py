"""The servers of the platforms suite do what the other tests rely on."""

from __future__ import annotations

import pytest
from pyarrow.fs import S3FileSystem

from tests.platforms.hadoop_cluster import HadoopCluster
from tests.platforms.s3_server import S3Server
from tests.support.counting_proxy import CountingProxy
from tests.support.processes import wait_until

pytestmark = pytest.mark.platforms


def test_a_new_cluster_has_run_nothing(hadoop: HadoopCluster) -> None:
    assert hadoop.uri.startswith("hdfs://localhost:")
    assert hadoop.applications() == []


def test_the_proxy_counts_the_requests_of_a_client(s3: S3Server, s3_proxy: CountingProxy) -> None:
    files = S3FileSystem(access_key=s3.KEY, secret_key=s3.SECRET, region=s3.REGION, endpoint_override=s3_proxy.endpoint)
    with files.open_output_stream("jobs/counted/a.txt") as file:
        file.write(b"hello")
    with files.open_input_file("jobs/counted/a.txt") as file:
        assert file.read() == b"hello"
    # a request is counted when its answer has been passed on, which the client may see earlier
    wait_until(lambda: s3_proxy.by_method("jobs/counted")["GET"], 10, "the last request")
    methods = s3_proxy.by_method("jobs/counted")
    assert methods["HEAD"] == 1 and methods["GET"] == 1, s3_proxy.requests()
    assert {request.caller for request in s3_proxy.requests()} == {"pyarrow"}
    s3_proxy.clear()
    assert s3_proxy.requests() == []
