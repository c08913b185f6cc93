"""Spark's own access to object stores, for flinkish's storage (`flinkish.storage.stores`): the settings and keys of S3,
which are set once, in Spark, and the exclusive creation and the deletion of many objects, which pyarrow does not have;
and the settings with which Spark's own files need few requests.

Rule: keys travel in the environment of processes and nowhere else. Where Spark has none, none are handed over, and
every process finds those of its machine itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from flinkish.errors import ConfigurationError, EnvironmentVersionError
from flinkish.launch.home import S3_KEYS, s3_settings_of
from flinkish.launch.spark_version import local_file_manager
from flinkish.runtime.task.task import RETAINED_EPOCHS
from flinkish.storage.paths import S3_SCHEMES, for_spark, is_local, location_of, scheme_of
from flinkish.storage.stores import S3_SETTINGS, s3_options, set_exclusive_creator, storage_of

_SECRETS = ("access.key", "secret.key", "session.token")

#: The property with the credential providers, of ``hadoop``, ``fs.s3a`` or ``fs.s3a.bucket.NAME``.
_PROVIDERS = "security.credential.provider.path"

#: A property of one bucket. Group 1 is its prefix.
_OF_BUCKET = re.compile(rf"(fs\.s3a\.bucket\..+?)\.(?:{'|'.join(map(re.escape, (*S3_KEYS, _PROVIDERS)))})")

#: What tells S3A to make one request that fails if the object exists.
_CONDITIONAL = "fs.option.create.conditional.overwrite"

#: How S3A says that an object exists, or that S3 has refused a request since another one is under way.
_EXISTS = ("FileAlreadyExistsException", "RemoteFileChangedException", "Status Code: 409")

#: The answers of S3 to a conditional request: the object exists; another request for it is under way.
_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict")

#: A manager of checkpoint files that writes each by one PUT; a jar of its own has it (spark-hadoop-cloud).
_ONE_PUT = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"

#: So many batches no query has: Spark deletes nothing of its logs and its state.
_NEVER = 1_000_000_000


def is_s3(path: str) -> bool:
    """Whether a path is on S3, or on what speaks its protocol."""
    return scheme_of(path) in S3_SCHEMES


def deletes_old_files_itself(query: str, state_backend: str) -> bool:
    """Whether flinkish deletes the old files of a query, and Spark does not: on S3, where Spark needs two or three
    requests for each file. Which files of RocksDB are old only Spark knows."""
    return is_s3(query) and state_backend != "rocksdb"


def file_settings(spark: Any, query: str, state_backend: str) -> dict[str, str]:
    """Spark's settings for how a query writes and deletes its own files, by the storage that they are on.

    On S3, Spark's default writes each file by about twenty requests. Its manager for local file systems needs half of
    them; unlike the default it never replaces a file, which `delete_state_of_failed_try` makes up for.

    Args:
        query: the directory of the query.
        state_backend: as for `query_settings`.
    """
    manager = local_file_manager(spark) if is_local(query) or is_s3(query) else None
    jvm = getattr(spark, "_jvm", None)
    if is_s3(query) and jvm is not None and jvm.org.apache.spark.util.Utils.classIsLoadable(_ONE_PUT):
        manager = _ONE_PUT
    retained = _NEVER if deletes_old_files_itself(query, state_backend) else RETAINED_EPOCHS
    settings = {"spark.sql.streaming.minBatchesToRetain": str(retained)}
    if manager is not None:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = manager
    return settings


def use_object_stores_of(spark: Any, remote: bool) -> None:
    """Let this process, and the Python workers of the session, reach object stores as Spark does.

    Args:
        remote: it is a session of Spark Connect, whose settings are the server's; processes find their own.
    """
    if remote:
        set_exclusive_creator(create_by_boto3)
        return
    settings = s3_settings_of(_s3_properties(spark))
    if settings:
        text = json.dumps(settings)
        os.environ[S3_SETTINGS] = text
        # a new dict: PySpark may be iterating over the present one in the thread of an epoch
        context = spark.sparkContext
        if context.environment.get(S3_SETTINGS) != text:
            context.environment = {**context.environment, S3_SETTINGS: text}
    set_exclusive_creator(lambda path, data: create_by_hadoop(spark, path, data))


def _s3_properties(spark: Any) -> dict[str, str]:
    """The properties of S3 in Spark's configuration of Hadoop, found where S3A finds them.

    Raises:
        ConfigurationError: a credential provider cannot be read.
    """
    from py4j.protocol import Py4JJavaError

    try:
        return {name: value for name, value in _all_s3_properties(spark) if value}
    except Py4JJavaError as error:
        raise ConfigurationError(
            f"Hadoop's credential providers cannot be read: {_causes(error)[-1][:500]}",
            where=f"the settings {_PROVIDERS} of hadoop, fs.s3a or fs.s3a.bucket.NAME",
            expected="providers that this Spark can read, such as localjceks://file/path",
        ) from error


def _all_s3_properties(spark: Any) -> Iterator[tuple[str, str | None]]:
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    providers = configuration.getTrimmed(f"fs.s3a.{_PROVIDERS}")
    of_all = _with_providers(spark, configuration, providers)
    names = [f"fs.s3a.bucket.{name}" for name in configuration.getPropsWithPrefix("fs.s3a.bucket.")]
    for provider in spark._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(of_all):
        names.extend(provider.getAliases())
    for key in S3_KEYS:
        yield f"fs.s3a.{key}", _value(of_all, "fs.s3a", key)
    for bucket in {match[1] for match in map(_OF_BUCKET.fullmatch, names) if match}:
        own = _with_providers(spark, configuration, configuration.getTrimmed(f"{bucket}.{_PROVIDERS}") or providers)
        for key in S3_KEYS:
            # the providers of a bucket may have its keys under the names of those of all buckets
            otherwise = _value(own, "fs.s3a", key) if key in _SECRETS else None
            yield f"{bucket}.{key}", _value(own, bucket, key) or otherwise


def _with_providers(spark: Any, configuration: Any, providers: str | None) -> Any:
    """A configuration of Hadoop in which these credential providers come before its own."""
    if not providers:
        return configuration
    changed, name = spark._jvm.org.apache.hadoop.conf.Configuration(configuration), f"hadoop.{_PROVIDERS}"
    changed.set(name, ",".join(filter(None, (providers, configuration.getTrimmed(name)))))
    return changed


def _value(configuration: Any, prefix: str, key: str) -> str | None:
    if key not in _SECRETS:
        value: str | None = configuration.getTrimmed(f"{prefix}.{key}")
        return value
    password = configuration.getPassword(f"{prefix}.{key}")
    return None if password is None else "".join(password).strip()


def create_by_hadoop(spark: Any, path: str, data: bytes) -> None:
    from py4j.protocol import Py4JJavaError

    jvm, is_s3 = spark.sparkContext._jvm, scheme_of(path) in S3_SCHEMES
    target = jvm.org.apache.hadoop.fs.Path(for_spark(path))
    try:
        system = target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        builder = system.createFile(target).overwrite(False).recursive()
        stream = (builder.must(_CONDITIONAL, True) if is_s3 else builder).build()
        try:
            stream.write(bytearray(data))
        except BaseException:
            stream.abort()
            raise
        stream.close()
    except Py4JJavaError as error:
        raise _translated(error, path, jvm.org.apache.hadoop.util.VersionInfo.getVersion()) from error


def _translated(error: Any, path: str, hadoop: str) -> Exception:
    causes = _causes(error)
    text = "; ".join(causes)
    if any(name in text for name in _EXISTS):
        return FileExistsError(17, "there is a file of that name", path)
    if "UnsupportedFileSystemException" in text or "ClassNotFoundException" in text:
        return EnvironmentVersionError(
            f"Spark cannot write {path}: the Hadoop module of that store is missing ({causes[-1][:200]})",
            expected=f"for s3://, the jar hadoop-aws of version {hadoop} with its dependencies",
            hint=f"start the job with spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop}",
        )
    if _CONDITIONAL in text:
        return EnvironmentVersionError(
            f"Hadoop {hadoop} cannot create {path} exclusively ({causes[-1][:200]})",
            expected="Hadoop 3.4.2 or newer, with fs.s3a.create.conditional.enabled=true",
            hint="use a Spark with such a Hadoop, or a job directory that is not on S3",
        )
    return OSError(f"{path} cannot be created: {causes[-1][:500]}")


def _causes(error: Any) -> list[str]:
    """The texts of an exception of Java and of its causes, the first cause last."""
    causes, cause = list[str](), error.java_exception
    while cause is not None and len(causes) < 20:
        causes.append(str(cause.toString()))
        cause = cause.getCause()
    return causes


def delete_objects(spark: Any, directory: str, paths: list[str]) -> None:
    """Delete files below a directory in their order, as far as they exist, with as few requests as its store allows.

    Raises:
        OSError: some of them cannot be deleted.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        # the client of a Spark Connect server has no Hadoop
        storage_of(directory).delete_many(paths)
        return
    from py4j.protocol import Py4JJavaError

    base = jvm.org.apache.hadoop.fs.Path(for_spark(directory))
    try:
        deletion = base.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).createBulkDelete(base)
        try:
            size = deletion.pageSize()
            for begin in range(0, len(paths), size):
                page = jvm.java.util.ArrayList()
                for path in paths[begin : begin + size]:
                    page.add(jvm.org.apache.hadoop.fs.Path(for_spark(path)))
                failed = deletion.bulkDelete(page)
                if failed.size():
                    raise OSError(f"{failed.get(0).getKey().toString()} cannot be deleted: {failed.get(0).getValue()}")
        finally:
            deletion.close()
    except Py4JJavaError as error:
        raise OSError(f"files cannot be deleted: {error.java_exception.toString()[:500]}") from error


def create_by_boto3(path: str, data: bytes) -> None:
    location = location_of(path)
    if location.scheme != "s3":
        raise EnvironmentVersionError(
            f"{path} cannot be created exclusively by a client of Spark Connect",
            expected="a job directory on s3://, hdfs:// or shared storage that is mounted",
            hint="choose one of these, or run the driver with a session of its own",
        )
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise EnvironmentVersionError(
            f"{path} cannot be created exclusively by a client of Spark Connect without the package boto3",
            expected="boto3 in the environment of the program",
            hint="pip install boto3, or run the driver with a session of its own",
        ) from None
    bucket = location.authority
    options = s3_options(bucket, json.loads(os.environ.get(S3_SETTINGS, "{}")))
    endpoint = options.get("endpoint_override")
    if endpoint and "//" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=options.get("region"),
        aws_access_key_id=options.get("access_key"),
        aws_secret_access_key=options.get("secret_key"),
        aws_session_token=options.get("session_token"),
    )
    try:
        client.put_object(Bucket=bucket, Key=location.rest.lstrip("/"), Body=data, IfNoneMatch="*")
    except ClientError as error:
        if error.response["Error"]["Code"] in _REFUSED:
            raise FileExistsError(17, "there is a file of that name", path) from None
        raise OSError(f"{path} cannot be created: {error}") from error
    except BotoCoreError as error:
        raise OSError(f"{path} cannot be created: {error}") from error
