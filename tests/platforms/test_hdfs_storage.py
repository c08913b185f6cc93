"""HDFS keeps the promises that every kind of storage keeps."""

from __future__ import annotations

from uuid import uuid4

import pytest

from flinkish.storage.stores import storage_of
from tests.platforms.hadoop_cluster import HadoopCluster
from tests.support import delta_contract
from tests.support.storage_contract import CONTRACT, Check

pytestmark = pytest.mark.platforms


@pytest.fixture
def directory(hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.conf))
    return f"{hadoop.uri}/{uuid4().hex}"


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_on_hdfs(check: Check, directory: str) -> None:
    check(directory)


@pytest.mark.parametrize("check", delta_contract.CONTRACT, ids=lambda check: check.__name__)
def test_a_delta_log_on_hdfs(check: Check, directory: str) -> None:
    check(directory)


def test_a_directory_is_renamed_in_one_step(directory: str) -> None:
    assert storage_of(directory).renames_directories
