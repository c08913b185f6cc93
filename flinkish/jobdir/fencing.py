"""Decides which driver owns a job: the one whose claim is the newest commit of the Delta table ``<job dir>/fencing``;
and whether the driver that `Owner` names is alive.

Rule: each driver appends one row before it does anything; the version of that commit is its fencing token. Two claims
have two versions, whatever clocks say, so of any two drivers exactly one is the newer one. The log is kept for ever:
one small file per start of a driver. The driver's process writes the commit itself (`commit_claim`);
Spark's Delta does for Spark Connect servers, and where there are no hard links.
`flinkish.delta.fence` tells a driver that it has lost.

Rule: clocks of different machines are never compared. A process of this machine is alive if the operating system knows
it; one of another machine is alive if it renews its claim while it is watched, for as long as it has not been silent
already by the clock of the storage. The earlier attempts of an application master of YARN have ended when it starts. A
wrong guess is a nuisance, never harmful: what keeps a driver from writing is the fencing table.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from flinkish.delta.actions import append_info, new_table
from flinkish.delta.fence import Claim, DeltaFence, FencingLog
from flinkish.errors import EnvironmentVersionError, OperationError
from flinkish.jobdir.layout import Owner
from flinkish.runtime.process import status_of
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote
from flinkish.storage.paths import for_spark
from flinkish.storage.stores import job_directory_error

__all__ = ["TABLE", "Claim", "DeltaFence", "FencingLog", "claim", "last_claim"]

#: The log is never cleaned up: a driver that was paused for long must still find the version after its own.
KEPT_FOR_EVER = {"delta.logRetentionDuration": "interval 36500 days", "delta.enableExpiredLogCleanup": "false"}

_TYPES = {str: "string", int: "integer"}


def commit_claim(log: FencingLog, mine: Claim) -> int | None:
    """Append the claim to the table; returns the version of the commit, or None if Spark has to write it.

    This is done without Spark's Delta, which does not exclude a second writer on S3, and whose first use in a driver
    takes five seconds of processor time, which a job need not spend before its first epoch. Of two drivers that write
    the same version, the storage refuses one (`flinkish.delta.log`).

    Rule: tables that require more of a writer than to add files, and file systems without hard links, are left to
    Spark.

    Raises:
        OSError: the storage fails.
    """
    while True:
        versions = log.versions()
        if versions and not _takes_appends(log):
            return None
        version = versions[-1] + 1 if versions else 0
        try:
            return version if _commit(log, version, mine) else None
        except FileExistsError:
            # another driver has committed this version in the same moment; or a file stands where a directory must be
            if not any(log.has(version)):
                raise


def _takes_appends(log: FencingLog) -> bool:
    try:
        return log.takes_appends()
    except OperationError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        return False


def _commit(log: FencingLog, version: int, mine: Claim) -> bool:
    import pyarrow as pa

    now_ms, row = int(time.time() * 1000), asdict(mine)
    types = {"string": pa.string(), "integer": pa.int32()}
    schema = pa.schema([(name, types[_type(value)]) for name, value in row.items()])
    columns = {name: _type(value) for name, value in row.items()}
    made = () if version else new_table(columns, now_ms, KEPT_FOR_EVER)
    actions = [append_info(now_ms, userMetadata=json.dumps(row)), *made]
    return log.append(version, pa.Table.from_pylist([row], schema=schema), actions, {})


def _type(value: Any) -> str:
    return _TYPES[type(value)]


#: Name of the table in the job directory.
TABLE = "fencing"

#: How often a claim is tried that conflicts with others at the creation of the table.
_ATTEMPTS = 10

_OTHERS = re.compile(
    r"Concurrent|CONCURRENT|PROTOCOL_CHANGED|METADATA_CHANGED|ProtocolChanged|MetadataChanged|already exist"
)
_NO_DELTA = re.compile(r"DATA_SOURCE_NOT_FOUND|Failed to find.{0,20}data source: delta")


def claim(spark: Any, job_dir: str, mine: Claim) -> DeltaFence:
    """Claim a job directory, which fences off all earlier drivers; returns the fence of this driver. ``spark``: None in
    the minicluster.

    Raises:
        FencedError: another driver claimed the directory right after this one did.
        EnvironmentVersionError: the Spark session has no Delta.
        OperationError: the claim cannot be written, or the Spark server does not see the directory.
    """
    log = FencingLog(posixpath.join(job_dir, TABLE))
    where = f"job '{mine.job}', directory {job_dir}"
    # a Spark server has to write the claim itself, which shows that it sees the directory
    version = None if is_remote(spark) else _commit_here(log, mine, where)
    if version is None:
        version = _append_by_spark(spark, log, mine, where)
    fence = DeltaFence(log, version, mine.owner, mine.job)
    fence.check()
    return fence


def _commit_here(log: FencingLog, mine: Claim, where: str) -> int | None:
    try:
        return commit_claim(log, mine)
    except OSError as error:
        failed = job_directory_error(error, "write", log.table)
        raise _cannot_claim(failed.what, where, log, type(failed)) from error


def _cannot_claim(why: str, where: str, log: FencingLog, kind: type[OperationError] = OperationError) -> OperationError:
    return kind(
        f"the job directory cannot be claimed: {why}",
        where=where,
        expected=f"a Delta table at {log.table} that can be written",
        hint="check the path and its permissions",
    )


def _append_by_spark(spark: Any, log: FencingLog, mine: Claim, where: str) -> int:
    for attempt in range(_ATTEMPTS):
        try:
            append_claim(spark, log.table, mine)
            break
        except Exception as error:
            if _NO_DELTA.search(str(error)):
                raise EnvironmentVersionError(
                    "the Spark session has no Delta Lake, in which a job directory keeps who owns it",
                    where=where,
                    expected="a session with Delta's jar",
                    hint="let flinkish make the session, or add Delta's package to yours (spark.jars.packages)",
                ) from error
            if attempt == _ATTEMPTS - 1 or not _OTHERS.search(f"{type(error).__name__} {error}"):
                raise _cannot_claim(translate(error, where).what, where, log) from error
    return _version_of(log, mine, where)


def append_claim(spark: Any, table: str, mine: Claim) -> None:
    """Add a claim to the table by Spark, for storage on which `commit_claim` cannot."""
    if spark is None:
        raise OperationError("only Spark can write it, as it has no hard links, or asks more of writers")
    from pyspark.sql import functions as F

    row = spark.range(0, 1, 1, 1).select(*(F.lit(value).alias(name) for name, value in asdict(mine).items()))
    writer = row.write.format("delta").mode("append").option("userMetadata", json.dumps(asdict(mine)))
    writer.options(**KEPT_FOR_EVER).save(for_spark(table))


def _version_of(log: FencingLog, mine: Claim, where: str) -> int:
    for version in reversed(log.versions()):
        claim = log.claim(version)
        if claim is not None and claim.owner == mine.owner:
            return version
    raise OperationError(
        "the Spark server does not see the job directory of the driver",
        where=where,
        expected="a directory on storage that both can reach",
        hint="set flinkish.job.dir to a path on shared storage",
    )


def last_claim(job_dir: str) -> tuple[int, Claim] | None:
    """The fencing token and the content of the newest claim of a job directory; None if there is none."""
    log = FencingLog(posixpath.join(job_dir, TABLE))
    for version in reversed(log.versions()):
        found = log.claim(version)
        if found is not None:
            return version, found
    return None


#: Seconds between two renewals of a driver's claim.
RENEW_S = 10.0

#: An owner on another machine that does not renew its claim while it is watched for so many seconds is taken for dead.
SILENCE_S = 35.0

POLL_S = 0.25

#: The environment variable with the id of the container of YARN in which a process runs, and its form: the application,
#: the number of the attempt, the container of the attempt.
_CONTAINER = "CONTAINER_ID"
_CONTAINER_FORM = re.compile(r"(container_(?:e\d+_)?\d+_\d+)_(\d+)_\d+")


class Liveness(Enum):
    """What can be known of whether an owner is alive."""

    GONE = "gave the directory back, or its process has ended"
    ALIVE = "is alive"
    SILENT = "is on another machine"


#: where the REST API of this process is reached
_rest_url: str | None = None


def announce_rest(url: str | None) -> None:
    """Let what this process writes of itself from now on say where its REST API is reached."""
    global _rest_url
    _rest_url = url


def rest_url() -> str | None:
    """Where the REST API of this process is reached; None: it has none."""
    return _rest_url


def this_process(token: str, fencing_token: int, renewals: int, remote: bool = False) -> Owner:
    """What this process writes of itself. ``remote``: its queries run in a Spark server, and outlive it."""
    return Owner(
        token=token,
        fencing_token=fencing_token,
        host=socket.gethostname(),
        machine=machine(),
        pid=os.getpid(),
        started=process_start(os.getpid()),
        renewals=renewals,
        remote=remote,
        container=os.environ.get(_CONTAINER, ""),
        renewed_s=time.time(),
        rest=_rest_url,
    )


#: Tokens of owners in this process that gave their directory back, whether that could be written there or not.
_given_back: set[str] = set()


def given_back(token: str) -> None:
    """Remember that the owner with this token, in this process, has given its directory back."""
    _given_back.add(token)


def was_here(token: str) -> bool:
    """Whether the owner with this token was in this process, and has given its directory back."""
    return token in _given_back


def liveness_of(owner: Owner | None) -> Liveness:
    """What is known of an owner without waiting; None: there is none."""
    if owner is None or owner.released or owner.token in _given_back:
        return Liveness.GONE
    if owner.host != socket.gethostname() or owner.machine not in (None, machine()):
        return Liveness.SILENT
    there = process_start(owner.pid) == owner.started is not None
    return Liveness.ALIVE if there else Liveness.GONE


def is_of_this_process(owner: Owner | None) -> bool:
    """Whether an owner is a driver in this process."""
    return owner is not None and liveness_of(owner) is Liveness.ALIVE and owner.pid == os.getpid()


def is_earlier_attempt(owner: Owner | None) -> bool:
    """Whether an owner was an earlier attempt of the application of YARN that this process is an attempt of: YARN
    starts the next one when the earlier one has ended."""
    theirs = _CONTAINER_FORM.fullmatch("" if owner is None else owner.container)
    ours = _CONTAINER_FORM.fullmatch(os.environ.get(_CONTAINER, ""))
    return theirs is not None and ours is not None and theirs[1] == ours[1] and int(theirs[2]) < int(ours[2])


def leaves_nothing_behind(owner: Owner | None) -> bool:
    """Whether no query of an owner that is GONE can still run: one in a Spark server outlives its driver."""
    return owner is None or owner.released or not owner.remote


def watch(
    read: Callable[[], Owner | None],
    silence_s: float = SILENCE_S,
    waiting: Callable[[], None] = lambda: None,
) -> Liveness:
    """Watch an owner on another machine until it renews its claim (ALIVE) or gives the directory back (GONE); SILENT if
    it does neither for ``silence_s`` seconds.

    Args:
        read: returns what is known of the owner.
        waiting: called before each look; what it raises ends the watch.
    """
    first = read()
    deadline = time.monotonic() + silence_s
    while True:
        waiting()
        now = read()
        liveness = liveness_of(now)
        if liveness is not Liveness.SILENT:
            return liveness
        if _mark(now) != _mark(first):
            return Liveness.ALIVE
        if time.monotonic() >= deadline:
            return Liveness.SILENT
        time.sleep(min(POLL_S, silence_s))


def _mark(owner: Owner | None) -> Any:
    return None if owner is None else (owner.token, owner.renewals, owner.renewed_s)


def machine() -> str:
    """Names the scope in which process ids are unique: a boot of a host, and a container (pid namespace); "" if that is
    not known. Host names are not enough, as a container that is started anew has the old one's."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """When a process of this machine was started, in clock ticks since the boot, so that a reused pid is not mistaken
    for it; None if there is no such process, or it has ended and is a zombie."""
    fields = status_of(pid)
    if fields is None:
        return _process_exists(pid)
    return None if fields[0] == "Z" else fields[19]


def _process_exists(pid: int) -> str | None:
    """All that can be told without /proc: "unknown" if the pid is in use, otherwise None."""
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "unknown"
    return "unknown"
