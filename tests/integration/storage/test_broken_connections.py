"""Connections to S3 that a proxy cuts: requests are repeated until they have succeeded, and whoever has created an
object knows it, though the answer was lost. Creation by Spark: ``tests/platforms/test_job_directories.py``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import uuid4

import pytest

from flinkish.spark.object_stores import create_by_boto3
from flinkish.storage.stores import S3_SETTINGS, set_exclusive_creator, storage_of
from tests.support.counting_proxy import CountingProxy, Where
from tests.support.s3_server import S3Server

CONTENT = random.Random(1).randbytes(300_000)


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProxy]:
    with CountingProxy(server.port) as running:
        monkeypatch.setenv(S3_SETTINGS, server.settings_at(running.endpoint))
        set_exclusive_creator(create_by_boto3)
        yield running
        set_exclusive_creator(None)


@pytest.fixture
def path() -> str:
    return f"s3://jobs/{uuid4().hex}/x"


@pytest.mark.parametrize(
    ("where", "times"), [pytest.param("in the request", 3, marks=pytest.mark.nightly), ("before the answer", 1)]
)
def test_a_file_whose_connection_is_cut_is_sent_again_and_whole(
    proxy: CountingProxy, path: str, where: Where, times: int
) -> None:
    storage_of(path).write(path, b"old")
    proxy.cut("PUT", where, times)
    storage_of(path).write(path, CONTENT)
    assert proxy.cuts_left() == 0
    assert storage_of(path).read(path) == CONTENT


@pytest.mark.parametrize(("where", "times"), [("in the answer", 3), ("before the answer", 1)])
def test_a_file_whose_connection_is_cut_is_read_again_and_whole(
    proxy: CountingProxy, path: str, where: Where, times: int
) -> None:
    storage_of(path).write(path, CONTENT)
    proxy.cut("GET", where, times)
    assert storage_of(path).read(path) == CONTENT
    assert proxy.cuts_left() == 0
    proxy.cut("GET", where)
    assert storage_of(path).read_slice(path, 1000, 200_000) == CONTENT[1000:201_000]
    assert proxy.cuts_left() == 0


@pytest.mark.parametrize(
    ("method", "times"), [("HEAD", 1), pytest.param("LIST", 3, marks=pytest.mark.nightly), ("DELETE", 1), ("COPY", 1)]
)
def test_looks_deletions_and_copies_are_repeated(proxy: CountingProxy, path: str, method: str, times: int) -> None:
    storage = storage_of(path)
    storage.write(path, CONTENT)
    proxy.cut(method, "before the answer", times)
    assert storage.exists(path)
    assert [entry.name for entry in storage.list(path.removesuffix("/x"))] == ["x"]
    storage.copy(path, f"{path}2")
    assert storage.read(f"{path}2") == CONTENT
    storage.delete(path)
    assert not storage.exists(path)
    assert proxy.cuts_left() == 0


@pytest.mark.parametrize("where", ["in the request", "before the answer"])
def test_who_has_created_an_object_knows_it_though_the_answer_is_lost(
    proxy: CountingProxy, path: str, where: Where
) -> None:
    proxy.cut("PUT", where)
    storage_of(path).create(path, b"the first")
    assert proxy.cuts_left() == 0
    proxy.cut("PUT", where)
    with pytest.raises(FileExistsError):
        storage_of(path).create(path, b"the second")
    assert storage_of(path).read(path) == b"the first"


def test_a_creation_that_meets_another_one_is_tried_again(proxy: CountingProxy, path: str) -> None:
    proxy.cut("PUT", "by a conflict", 2)
    storage_of(path).create(path, b"the first")
    assert proxy.cuts_left() == 0
    assert storage_of(path).read(path) == b"the first"
    proxy.cut("PUT", "by a conflict")
    with pytest.raises(FileExistsError):
        storage_of(path).create(path, b"the second")
    proxy.cut("PUT", "by a conflict", 100)
    with pytest.raises(OSError, match="other requests for it do not end"):
        storage_of(path).create(f"{path}2", b"the third")


def test_a_creation_whose_connections_are_always_cut_is_an_error_of_the_storage(
    proxy: CountingProxy, path: str
) -> None:
    proxy.cut("PUT", "in the request", 100)
    with pytest.raises(OSError, match="cannot be created") as caught:
        storage_of(path).create(path, b"the first")
    assert not isinstance(caught.value, FileExistsError)
