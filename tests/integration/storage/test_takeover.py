"""Who owns a job directory on an object store, where directories cannot be renamed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from flinkish.errors import FencedError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.ownership import move_query_away
from flinkish.spark.object_stores import create_by_boto3
from flinkish.storage.stores import S3_SETTINGS, set_exclusive_creator, storage_of
from tests.support.job_files import put
from tests.support.s3_server import S3Server


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv(S3_SETTINGS, server.settings)
    set_exclusive_creator(create_by_boto3)
    yield server
    set_exclusive_creator(None)


@pytest.fixture
def directory(s3: S3Server) -> JobDirectory:
    """The directory of a driver on another machine that shows no sign of life any more."""
    directory = JobDirectory(f"s3://jobs/{uuid4().hex}")
    put(directory, "owner.json", {"token": "theirs", "host": "elsewhere", "pid": 1, "renewals": 1})
    return directory


def reads_of_owner(s3: S3Server) -> int:
    return sum(request.startswith("GET ") and request.endswith("/owner.json") for request in s3.requests)


def test_an_owner_that_has_been_silent_by_the_clock_of_the_store_is_not_watched_again(
    s3: S3Server, directory: JobDirectory
) -> None:
    time.sleep(2.1)
    s3.requests.clear()
    directory.refuse_if_owned("clicks", silence_s=1.0)
    # the first look, and two that see no renewal between them
    assert reads_of_owner(s3) == 3
    assert [entry.name for entry in storage_of(directory.path).list(directory.path)] == ["owner.json"]


def test_an_owner_that_was_silent_for_less_is_watched_for_the_rest(s3: S3Server, directory: JobDirectory) -> None:
    s3.requests.clear()
    directory.refuse_if_owned("clicks", silence_s=3.0)
    assert reads_of_owner(s3) > 3


def test_an_owner_that_renews_its_claim_while_it_is_watched_keeps_it(directory: JobDirectory) -> None:
    path, renewals = f"{directory.path}/owner.json", iter(range(2, 100))
    read = directory.read

    def renew_and_read(name: str) -> object:
        owner = {"token": "theirs", "host": "elsewhere", "pid": 1, "renewals": next(renewals)}
        storage_of(path).write(path, json.dumps(owner).encode())
        return read(name)

    directory.read = renew_and_read  # type: ignore[method-assign,assignment]
    with pytest.raises(FencedError, match="on elsewhere"):
        directory.refuse_if_owned("clicks", silence_s=20.0)


def test_a_copy_of_the_query_has_all_of_its_files(directory: JobDirectory) -> None:
    files = [f"{folder}/{number}" for folder in ("offsets", "commits", "state/0/1", "prepared") for number in range(10)]
    storage = storage_of(directory.path)
    for name in files:
        storage.write(f"{directory.path}/spark/{name}", name.encode())
    move_query_away(directory)
    moved = directory.query_location().path
    copied = {entry.name: storage.read(entry.path) for entry in storage.list(moved, recursive=True) if entry.is_file}
    assert {name: copied.get(name) for name in files} == {name: name.encode() for name in files}
