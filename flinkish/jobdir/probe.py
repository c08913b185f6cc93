"""Tries out before the first epoch whether the driver, Spark's JVM and the executors reach the same directory, and
whether a file can be created there exclusively, on which it rests that one driver owns a job.

    <job dir>/probe-<seconds since 1970>-<token>/driver     written by the driver, read by all others
    <job dir>/probe-<seconds since 1970>-<token>/<token>    the answer of one task slot of the executors

Rule: what would otherwise appear in the first epoch or the first checkpoint, as some error of a store, is one error in
one line here. A local directory of a local master needs no probe.
"""

from __future__ import annotations

import os
import posixpath
import re
import socket
import time
import uuid
from contextlib import suppress
from typing import Any

from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.spark.executors import ask_executors
from flinkish.spark.session import is_remote, may_run_on_other_machines
from flinkish.storage.paths import for_spark, is_local
from flinkish.storage.stores import Storage, storage_errors, storage_of

_DIRECTORY = re.compile(r"probe-([0-9]{10,})-[0-9a-f]{32}")
#: No probe takes so long: the directory of an earlier one is that of a driver that was killed.
_ABANDONED_S = 3600.0

_DRIVERS_FILE = "driver"

#: How long answers are waited for: mounted network storage shows new files after a while.
_ANSWER_TIMEOUT_S = 60.0

_SHARED = "a directory that all machines of the cluster reach, as on NFS, HDFS or an object store"


def probe(spark: Any, job_dir: str, where: str) -> None:
    """Try out a job directory; leaves nothing in it. Under Spark Connect only the driver's part is tried: the server
    writes the first claim, which shows that it sees the directory.

    Args:
        where: names the job and its directory in errors.

    Raises:
        ConfigurationError: the driver and the executors do not see the same directory, or Spark does not read it.
        OperationError: the directory cannot be written or read.
        EnvironmentVersionError: the storage, or what Spark has for it, cannot create files exclusively.
    """
    if is_local(job_dir) and not may_run_on_other_machines(spark):
        return
    folder, storage = posixpath.join(job_dir, f"probe-{int(time.time())}-{uuid.uuid4().hex}"), storage_of(job_dir)
    try:
        _try_driver(storage, posixpath.join(folder, _DRIVERS_FILE), where)
        if not is_remote(spark):
            _try_jvm(spark, folder, where)
            _try_executors(spark, storage, folder, where)
    finally:
        with suppress(OSError, FlinkishError):
            storage.delete_directory(folder)


def is_abandoned(name: str) -> bool:
    """Whether a directory of this name in a job directory was left by the probe of a driver that was killed."""
    begun = _DIRECTORY.fullmatch(name)
    return begun is not None and time.time() - int(begun[1]) > _ABANDONED_S


def _try_driver(storage: Storage, path: str, where: str) -> None:
    content = f"{socket.gethostname()} {os.getpid()}".encode()
    with storage_errors("create", path):
        storage.create(path, content)
        # by Python's access, which may have other credentials than Spark's
        read = storage.read(path)
    if read != content:
        raise ConfigurationError(
            f"the driver reads something else than it has written to {path}",
            where=where,
            expected="storage that shows what was written",
            hint="check whether Spark and Python reach the same server (fs.s3a.endpoint)",
        )
    try:
        storage.create(path, b"another one")
    except FileExistsError:
        return
    raise ConfigurationError(
        f"the storage lets two processes create the same file ({path}): two drivers could own the job",
        where=where,
        expected="a store with conditional writes (PUT with If-None-Match), or a file system",
        hint="use another store for the job directory",
    )


def _try_jvm(spark: Any, folder: str, where: str) -> None:
    jvm, path = spark.sparkContext._jvm, for_spark(folder)
    try:
        target = jvm.org.apache.hadoop.fs.Path(path)
        system = target.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        names = [status.getPath().getName() for status in system.listStatus(target)]
    except Exception as error:
        raise ConfigurationError(
            f"Spark does not read the job directory, which the driver has written to: {_first_line(error)}",
            where=where,
            expected=f"a file system of Spark's for {path}",
            hint="check the credentials that Spark has for it, and whether the file system's jar is there",
        ) from error
    if _DRIVERS_FILE not in names:
        raise ConfigurationError(
            f"Spark and the driver see different directories: {path} lacks the driver's file",
            where=where,
            expected="one storage that both reach by this path",
            hint="name the storage with its host, as in hdfs://host:8020/...; check fs.s3a.endpoint",
        )


def _try_executors(spark: Any, storage: Storage, folder: str, where: str) -> None:
    path, name = posixpath.join(folder, _DRIVERS_FILE), _DRIVERS_FILE

    def answer() -> str:
        # pickled by value; the executors have this flinkish
        import socket
        import uuid

        from flinkish.storage.stores import storage_of

        host, answer = socket.gethostname(), uuid.uuid4().hex
        try:
            storage = storage_of(path)
            content = storage.read(path)
        except FileNotFoundError:
            return f"! {host} absent"
        except Exception as error:
            return f"! {host} cannot read {path}: {type(error).__name__}: {error}"
        try:
            storage.write(path[: -len(name)] + answer, content)
        except Exception as error:
            return f"! {host} cannot write to {path[: -len(name)]}: {type(error).__name__}: {error}"
        return f"{answer} {host}"

    answers = ask_executors(spark, answer, where)
    for refused in (one.split(" ", 2) for one in answers if one.startswith("! ")):
        host, problem = refused[1], refused[2]
        if problem == "absent":
            raise _not_shared(host, folder, where)
        raise ConfigurationError(
            f"an executor on {host} {problem}",
            where=where,
            expected="the same access to the job directory as the driver's",
            hint="check permissions, and credentials and network of that machine",
        )
    written = dict(one.split(" ", 1) for one in answers)
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while missing := written.keys() - {entry.name for entry in storage.list(folder)}:
        if time.monotonic() > deadline:
            raise _not_shared(written[min(missing)], folder, where)
        time.sleep(0.5)


def _not_shared(host: str, folder: str, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"the executors on {host} do not have the job directory of the driver on {socket.gethostname()}",
        where=where,
        expected=_SHARED,
        hint=f"set flinkish.job.dir to one; {posixpath.dirname(folder)} is another directory there",
    )


def _first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", None)
    text = str(error if cause is None else cause.toString())
    return text.strip().partition("\n")[0][:300]
