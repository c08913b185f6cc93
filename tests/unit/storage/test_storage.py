"""The rule for paths: which file system a path is on, and how Spark names it. The checksum files of Hadoop's own."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.errors import ConfigurationError
from flinkish.storage.paths import absolute, for_spark, is_local, joined, local_path, location_of, scheme_of
from flinkish.storage.sealed import checksum_path, write_checksums
from flinkish.storage.stores import s3_options, storage_of


@pytest.mark.parametrize(
    ("path", "scheme", "spark"),
    [
        ("/data/in", "", "file:///data/in"),
        ("/data/a b%20c#d?e", "", "file:///data/a b%20c#d?e"),
        ("/data/../x/", "", "file:///x"),
        ("file:/data/in", "file", "file:///data/in"),
        ("file:///data/in", "file", "file:///data/in"),
        ("file://localhost/data", "file", "file:///data"),
        ("FILE:///data", "file", "file:///data"),
        ("s3://bucket/in", "s3", "s3a://bucket/in"),
        ("s3n://bucket/in", "s3n", "s3a://bucket/in"),
        ("s3a://bucket/in", "s3a", "s3a://bucket/in"),
        ("S3A://bucket", "s3a", "s3a://bucket"),
        ("gs://bucket/in", "gs", "gs://bucket/in"),
        ("abfss://box@account.dfs.core.windows.net/in", "abfss", "abfss://box@account.dfs.core.windows.net/in"),
        ("hdfs://node:8020/in", "hdfs", "hdfs://node:8020/in"),
    ],
)
def test_spark_gets_a_path_that_names_its_file_system(path: str, scheme: str, spark: str) -> None:
    assert scheme_of(path) == scheme
    assert for_spark(path) == spark
    assert is_local(path) == (local_path(path) is not None) == spark.startswith("file:")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("hdfs:/x", "the path 'hdfs:/x' names no host"),
        ("hdfs:///x", "the path 'hdfs:///x' names no host"),
        ("s3:/x", "the path 's3:/x' names no bucket"),
        ("s3a:x", "the path 's3a:x' names no bucket"),
        ("dbfs:/x", "the scheme 'dbfs:' of the path 'dbfs:/x' is unknown.*write /Volumes/... or /dbfs/..."),
        ("viewfs://cluster/x", "the scheme 'viewfs:'.*hdfs://host/"),
        ("foo://x", "the scheme 'foo:'.*begins with ./"),
        ("file:x", "is not absolute"),
        ("file://host/x", "is not absolute"),
    ],
)
def test_a_path_that_no_storage_has_is_refused_in_one_line(path: str, says: str) -> None:
    for look in (scheme_of, is_local, local_path, absolute, for_spark, location_of, storage_of):
        with pytest.raises(ConfigurationError, match=says) as caught:
            look(path)
        assert "s3://bucket/" in str(caught.value)
        assert "\n" not in str(caught.value)


@given(st.text(st.characters(exclude_characters="\0:", exclude_categories=["Cs"]), min_size=1))
def test_a_path_without_a_colon_is_local_whatever_it_contains(path: str) -> None:
    assert local_path(path) == path
    assert for_spark(path) == f"file://{absolute(path)}"


@pytest.mark.parametrize("path", ["C:/data", "./a:b/c", "/data/s3://x", "a/b:c", "2024:x"])
def test_a_colon_alone_makes_no_scheme(path: str) -> None:
    assert local_path(path) == path
    assert [local_path(one) for one in ("file:/a", "file:///a", "s3://bucket/a")] == ["/a", "/a", None]


@pytest.mark.parametrize(
    ("path", "spark"),
    [
        ("/Volumes/main/default/jobs", "dbfs:/Volumes/main/default/jobs"),
        ("/dbfs/jobs", "dbfs:/jobs"),
        ("/Workspace/Users/me", "file:///Workspace/Users/me"),
        ("/tmp/x", "file:///tmp/x"),
    ],
)
def test_the_spark_of_databricks_gets_its_own_names(path: str, spark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert for_spark(path) == f"file://{path}"
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert for_spark(path) == spark


def test_paths_with_and_without_a_scheme_are_the_same_local_storage_and_relative_ones_keep_it(tmp_path: Path) -> None:
    assert storage_of(f"file://{tmp_path}") is storage_of(str(tmp_path))
    storage_of(f"file:{tmp_path}/x").write(f"file:{tmp_path}/a b%20", b"1")
    assert storage_of(str(tmp_path)).read(f"{tmp_path}/a b%20") == b"1"
    assert joined("s3a://bucket/job/chk-3", "../state") == "s3a://bucket/job/state"
    assert joined("/job/chk-3", "../state") == "/job/state"


@pytest.mark.parametrize(
    ("bucket", "expected"),
    [
        ("own", {"access_key": "k2", "secret_key": "s2", "session_token": "t", "region": "eu-west-1"}),
        ("other", {"access_key": "k", "secret_key": "s", "region": "us-east-1"}),
    ],
)
def test_the_settings_of_a_bucket_win_over_those_of_all(bucket: str, expected: dict[str, str]) -> None:
    settings = {
        "": {"endpoint": "minio:9000", "endpoint.region": "us-east-1", "access.key": "k", "secret.key": "s"},
        "own": {"access.key": "k2", "secret.key": "s2", "session.token": "t", "endpoint.region": "eu-west-1"},
    }
    options = s3_options(bucket, settings)
    assert {name: options[name] for name in expected} == expected
    assert ("session_token" in options) == ("session_token" in expected)
    assert (options["endpoint_override"], options["scheme"]) == ("minio:9000", "https")
    assert options["force_virtual_addressing"]


def test_without_keys_none_are_given_to_pyarrow() -> None:
    options = s3_options("bucket", {"": {"endpoint.region": "eu-west-1", "access.key": "half of a pair"}})
    assert options["region"] == "eu-west-1"
    assert not options.keys() & {"access_key", "secret_key", "session_token", "anonymous"}


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 1), (512, 1), (513, 2), (5_000, 10)])
def test_there_is_a_checksum_for_each_block_of_512_bytes(tmp_path: Path, length: int, blocks: int) -> None:
    data = bytes(number % 251 for number in range(length))
    file = tmp_path / "part-0.parquet"
    file.write_bytes(data)
    write_checksums(str(file))
    written = (tmp_path / ".part-0.parquet.crc").read_bytes()
    assert checksum_path(str(file)) == str(tmp_path / ".part-0.parquet.crc")
    assert written[:8] == b"crc\0" + struct.pack(">i", 512)
    assert struct.unpack(f">{blocks}I", written[8:]) == tuple(
        zlib.crc32(data[begin : begin + 512]) for begin in range(0, length, 512)
    )
