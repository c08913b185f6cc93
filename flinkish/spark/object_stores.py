"""Spark's own access to object stores, for flinkish's storage (`flinkish.common.stores`): the settings and keys of S3,
which are set once, in Spark, and the exclusive creation of objects, which pyarrow does not have.

Rule: keys travel in the environment of processes and nowhere else. Where Spark has none, none are handed over, and
every process finds those of its machine itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from flinkish.common.storage import S3_SCHEMES, for_spark, location_of, scheme_of
from flinkish.common.stores import S3_SETTINGS, s3_options, set_exclusive_creator
from flinkish.errors import EnvironmentVersionError
from flinkish.launch.home import S3_KEYS, s3_settings_of

_SECRETS = ("access.key", "secret.key", "session.token")

#: What tells S3A to make one request that fails if the object exists.
_CONDITIONAL = "fs.option.create.conditional.overwrite"

_EXISTS = ("FileAlreadyExistsException", "RemoteFileChangedException")

#: The answers of S3 to a conditional request: the object exists; another request for it is under way.
_REFUSED, _UNDER_WAY = "PreconditionFailed", "ConditionalRequestConflict"


def use_object_stores_of(spark: Any, remote: bool) -> None:
    """Let this process, and the Python workers of the session, reach object stores as Spark does.

    Args:
        remote: it is a session of Spark Connect, whose settings are the server's; processes find their own.
    """
    if remote:
        set_exclusive_creator(create_by_boto3)
        return
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    settings = s3_settings_of(dict(_s3_properties(configuration)))
    if settings:
        text = json.dumps(settings)
        os.environ[S3_SETTINGS] = text
        # a new dict: PySpark may be iterating over the present one in the thread of an epoch
        context = spark.sparkContext
        if context.environment.get(S3_SETTINGS) != text:
            context.environment = {**context.environment, S3_SETTINGS: text}
    set_exclusive_creator(lambda path, data: create_by_hadoop(spark, path, data))


def _s3_properties(configuration: Any) -> Iterator[tuple[str, str]]:
    """The properties of S3 in a configuration of Hadoop. Keys may be in its credential providers."""
    buckets = configuration.getPropsWithPrefix("fs.s3a.bucket.")
    names = {name[: -len(key) - 1] for name in buckets for key in S3_KEYS if name.endswith(f".{key}")}
    for prefix in ("fs.s3a.", *(f"fs.s3a.bucket.{name}." for name in names)):
        for key in S3_KEYS:
            if key in _SECRETS:
                password = configuration.getPassword(f"{prefix}{key}")
                value = None if password is None else "".join(password)
            else:
                value = configuration.getTrimmed(f"{prefix}{key}")
            if value:
                yield f"{prefix}{key}", value


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
    causes, cause = list[str](), error.java_exception
    while cause is not None and len(causes) < 20:
        causes.append(str(cause.toString()))
        cause = cause.getCause()
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
        from botocore.exceptions import ClientError
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
    for _ in range(5):
        try:
            client.put_object(Bucket=bucket, Key=location.rest.lstrip("/"), Body=data, IfNoneMatch="*")
            return
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == _REFUSED:
                raise FileExistsError(17, "there is a file of that name", path) from None
            if code != _UNDER_WAY:
                raise OSError(f"{path} cannot be created: {error}") from error
    raise OSError(f"{path} cannot be created: other requests for it do not end")
