"""The keys of S3 are found where Spark's S3A finds them, by the driver and by the workers. With S3A itself:
``tests/platforms/test_job_directories.py``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.errors import ConfigurationError
from flinkish.spark.object_stores import use_object_stores_of
from flinkish.storage.stores import S3_SETTINGS, s3_options, set_exclusive_creator
from tests.support.hadoop_credentials import credential_store

_SECRETS = {"fs.s3a.secret.key": "a secret"}
_PROVIDERS = "security.credential.provider.path"


@pytest.fixture(scope="module")
def stores(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Stores of credentials, by what their one key is for."""
    folder = tmp_path_factory.mktemp("credentials")
    return {
        "all": credential_store(folder / "all.jceks", {"fs.s3a.access.key": "of all"}, spark),
        "jobs": credential_store(folder / "jobs.jceks", {"fs.s3a.bucket.jobs.access.key": "of jobs"}, spark),
    }


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The session of the run, whose settings of S3 are forgotten afterwards."""
    monkeypatch.delenv(S3_SETTINGS, raising=False)
    before, environment = dict(spark.conf.getAll), spark.sparkContext.environment
    yield spark
    for name in spark.conf.getAll.keys() - before.keys():
        spark.conf.unset(name)
    spark.sparkContext.environment = environment
    set_exclusive_creator(None)


def _key(bucket: str) -> Any:
    return s3_options(bucket, json.loads(os.environ[S3_SETTINGS])).get("access_key")


def keys_found(session: SparkSession, settings: Mapping[str, str]) -> dict[str, Any]:
    """The keys that processes use for each of two buckets. The driver and a worker must use the same."""
    for name, value in {**_SECRETS, "fs.s3a.endpoint": "localhost:1", **settings}.items():
        session.conf.set(name, value)
    use_object_stores_of(session, remote=False)
    in_driver = {bucket: _key(bucket) for bucket in ("jobs", "others")}
    in_worker = session.sparkContext.parallelize(list(in_driver), 1).map(lambda bucket: (bucket, _key(bucket)))
    assert dict(in_worker.collect()) == in_driver
    return in_driver


def test_a_key_of_one_bucket_wins_over_that_of_all(session: SparkSession) -> None:
    settings = {"fs.s3a.access.key": "of all", "fs.s3a.bucket.jobs.access.key": "of jobs"}
    assert keys_found(session, settings) == {"jobs": "of jobs", "others": "of all"}


@pytest.mark.parametrize(
    ("setting", "store", "expected"),
    [
        (f"hadoop.{_PROVIDERS}", "all", {"jobs": "of all", "others": "of all"}),
        (f"hadoop.{_PROVIDERS}", "jobs", {"jobs": "of jobs", "others": "in clear"}),
        (f"fs.s3a.{_PROVIDERS}", "all", {"jobs": "of all", "others": "of all"}),
        (f"fs.s3a.{_PROVIDERS}", "jobs", {"jobs": "of jobs", "others": "in clear"}),
        (f"fs.s3a.bucket.jobs.{_PROVIDERS}", "all", {"jobs": "of all", "others": "in clear"}),
        (f"fs.s3a.bucket.jobs.{_PROVIDERS}", "jobs", {"jobs": "of jobs", "others": "in clear"}),
    ],
)
def test_a_key_in_a_credential_provider_wins_over_one_in_clear_text(
    session: SparkSession, stores: dict[str, str], setting: str, store: str, expected: dict[str, str]
) -> None:
    settings = {"fs.s3a.access.key": "in clear", setting: stores[store]}
    assert keys_found(session, settings) == expected


def test_a_credential_provider_that_cannot_be_read_is_named(session: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"credential providers .*unknown://x"):
        keys_found(session, {f"hadoop.{_PROVIDERS}": "unknown://x"})
