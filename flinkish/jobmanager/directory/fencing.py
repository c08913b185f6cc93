"""Decides which driver owns a job: the one whose claim is the newest commit of the Delta table ``<job dir>/fencing``.

Rule: each driver appends one row before it does anything; the version of that commit is its fencing token. Two claims
have two versions, whatever clocks say, so of any two drivers exactly one is the newer one. The log is kept for ever:
one small file per start of a driver. The driver's process writes the commit itself (`claim_commit.py`);
Spark's Delta does for Spark Connect servers, and where there are no hard links.
`flinkish.delta.fence` tells a driver that it has lost.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import asdict
from typing import Any

from flinkish.delta.fence import Claim, DeltaFence, FencingLog
from flinkish.errors import EnvironmentVersionError, OperationError
from flinkish.jobmanager.directory.claim_commit import KEPT_FOR_EVER, commit_claim
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote
from flinkish.storage.paths import for_spark
from flinkish.storage.stores import job_directory_error

__all__ = ["TABLE", "Claim", "DeltaFence", "FencingLog", "claim", "last_claim"]

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
            _append(spark, log.table, mine)
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


def _append(spark: Any, table: str, mine: Claim) -> None:
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
