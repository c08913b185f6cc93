"""Every kind of storage that needs no Java of its own keeps the same promises: the local file system, and S3 by a
server in this process. HDFS: ``tests/platforms/test_hdfs_storage.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from flinkish.errors import EnvironmentVersionError
from flinkish.spark.object_stores import create_by_boto3
from flinkish.storage.stores import S3_SETTINGS, set_exclusive_creator, storage_of
from tests.support import delta_contract
from tests.support.s3_server import S3Server
from tests.support.storage_contract import CONTRACT, Check


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv(S3_SETTINGS, server.settings)
    set_exclusive_creator(create_by_boto3)
    server.requests.clear()
    yield server
    set_exclusive_creator(None)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_on_the_local_file_system(check: Check, tmp_path: Path) -> None:
    check(str(tmp_path))


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_on_s3(check: Check, s3: S3Server) -> None:
    check(f"s3a://jobs/{uuid4().hex}")


@pytest.mark.parametrize("check", delta_contract.CONTRACT, ids=lambda check: check.__name__)
def test_a_delta_log_on_s3(check: Check, s3: S3Server) -> None:
    check(f"s3a://jobs/{uuid4().hex}")


def test_a_look_is_one_request_and_a_whole_file_is_one(s3: S3Server) -> None:
    path, storage = "s3://jobs/one/x", storage_of("s3://jobs/one")
    storage.list("s3://jobs/one")
    s3.requests.clear()
    for act, expected in (
        (lambda: storage.exists(path), ["HEAD"]),
        (lambda: storage.make_directory("s3://jobs/one"), []),
        (lambda: storage.write(path, b"1"), ["PUT"]),
        (lambda: storage.replace(path, b"2", durable=True), ["PUT"]),
        (lambda: storage.exists(path), ["HEAD"]),
        (lambda: storage.read(path), ["HEAD", "GET"]),
        (lambda: storage.create("s3://jobs/one/y", b"3"), ["PUT"]),
        (lambda: storage.list("s3://jobs/one"), ["GET"]),
    ):
        act()
        assert [request.split()[0] for request in s3.requests] == expected
        s3.requests.clear()
    # no markers of directories
    assert sorted(entry.name for entry in storage.list("s3://jobs/one")) == ["x", "y"]


def test_a_file_system_is_opened_once_for_a_bucket(s3: S3Server) -> None:
    assert storage_of("s3://jobs/a") is storage_of("s3a://jobs/b/c")


def test_a_process_that_cannot_create_exclusively_refuses_it(s3: S3Server) -> None:
    set_exclusive_creator(None)
    with pytest.raises(EnvironmentVersionError, match="cannot be created exclusively in this process"):
        storage_of("s3://jobs/x").create("s3://jobs/x", b"")
