"""Which driver a job belongs to: the one whose claim is the newest commit of the Delta table ``<job dir>/fencing``.

Rule: each driver appends one row before it does anything; the version of that commit is its fencing token. Delta gives
two claims two versions, whatever clocks say, so of any two drivers exactly one is the newer one. A driver learns that
it has lost by looking for the next version's file in the table's log: no Spark, one look, in any process. Commits that
are no claims (OPTIMIZE, VACUUM) are passed over. The log is kept for ever, one small file per start of a driver; where
it was cleaned up all the same, the names of what is left tell how far the versions have got.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import socket
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from flinkish.errors import ConnectionFailedError, EnvironmentVersionError, FencedError, OperationError

#: Name of the table in the job directory.
TABLE = "fencing"

#: So many times a claim is tried that met others at the creation of the table.
_ATTEMPTS = 10

_VERSION = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet|checkpoint\.parquet)")
_OTHERS = re.compile(
    r"Concurrent|CONCURRENT|PROTOCOL_CHANGED|METADATA_CHANGED|ProtocolChanged|MetadataChanged|already exist"
)
_NO_DELTA = re.compile(r"DATA_SOURCE_NOT_FOUND|Failed to find.*data source: delta")


@dataclass(frozen=True)
class Claim:
    """One row of the table. ``owner`` tells drivers apart; ``claimed_at`` is for people, nothing is decided by it."""

    owner: str
    job: str
    host: str
    pid: int
    claimed_at: str

    @staticmethod
    def of_this_process(owner: str, job: str) -> Claim:
        """The claim of a driver that runs here."""
        now = datetime.now(timezone.utc).isoformat(" ", "seconds")
        return Claim(owner, job, socket.gethostname(), os.getpid(), now)


class FencingLog:
    """The log of a fencing table, read as files."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._place: tuple[Any, str] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return FencingLog, (self.table,)

    def _log(self) -> tuple[Any, str]:
        if self._place is None:
            from pyarrow import fs

            if "://" in self.table:
                system, root = fs.FileSystem.from_uri(self.table)
            else:
                system, root = fs.LocalFileSystem(), self.table
            self._place = system, posixpath.join(root, "_delta_log")
        return self._place

    def file(self, version: int) -> str:
        """Path of a version's file, inside its file system."""
        return posixpath.join(self._log()[1], f"{version:020d}.json")

    def has(self, *versions: int) -> list[bool]:
        """Whether the files of these versions are there."""
        infos = self._log()[0].get_file_info([self.file(version) for version in versions])
        return [bool(info.is_file) for info in infos]

    def versions(self) -> list[int]:
        """All versions that the log has files of, in order."""
        from pyarrow import fs

        system, log = self._log()
        names = (info.base_name for info in system.get_file_info(fs.FileSelector(log, allow_not_found=True)))
        return sorted({int(found.group(1)) for name in names if (found := _VERSION.fullmatch(name))})

    def claim(self, version: int) -> Claim | None:
        """The claim that was made by this version; None: it is no claim.

        Raises:
            FileNotFoundError: the version's file is gone.
        """
        with self._log()[0].open_input_stream(self.file(version)) as stream:
            lines = stream.read().decode().splitlines()
        for line in lines:
            said = json.loads(line).get("commitInfo", {}).get("userMetadata") if line.strip() else None
            if said and said.startswith('{"owner"'):
                return Claim(**json.loads(said))
        return None


class DeltaFence:
    """The claim of one driver, as its commits ask for it. Picklable."""

    def __init__(self, log: FencingLog, token: int, owner: str, job: str) -> None:
        self._log = log
        self._token = token
        self._owner = owner
        self._job = job
        #: no later claim up to this version
        self._seen = token

    @property
    def token(self) -> int:
        """Version of the claim."""
        return self._token

    def check(self) -> None:
        """
        Raises:
            FencedError: another driver has claimed the job since.
            OperationError: the table cannot be read.
        """
        try:
            there, newer = self._log.has(self._seen, self._seen + 1)
            if there and not newer:
                return
            self._look_further()
        except OSError as error:
            raise ConnectionFailedError(
                f"it cannot be told whether another driver has taken this job over: {error}",
                where=self._where(),
                expected=f"the Delta log of {self._log.table}",
                hint="make the storage of the job directory readable; nothing was committed",
            ) from error

    def _look_further(self) -> None:
        versions = self._log.versions()
        if not versions or versions[-1] < self._seen:
            raise OperationError(
                f"the fencing table {self._log.table} has lost this driver's claim (version {self._token})",
                where=self._where(),
                expected="a table that nobody deletes or puts back while a driver runs",
                hint="start the job again, it then makes a new claim",
            )
        for version in versions:
            if version <= self._seen:
                continue
            try:
                claim = self._log.claim(version)
            except FileNotFoundError:
                raise self._lost(versions[-1], None) from None
            if claim is not None:
                raise self._lost(*self._last_claim(versions))
        self._seen = versions[-1]

    def _last_claim(self, versions: list[int]) -> tuple[int, Claim | None]:
        for version in reversed(versions):
            claim = self._log.claim(version)
            if claim is not None:
                return version, claim
        raise AssertionError("unreachable: called when there is one")

    def _lost(self, token: int, winner: Claim | None) -> FencedError:
        who = "another driver"
        if winner is not None:
            who = f"the driver of process {winner.pid} on {winner.host} (since {winner.claimed_at})"
        return FencedError(
            f"{who} has taken over this job directory: its fencing token is {token}, that of this driver {self._token}",
            where=self._where(),
            hint="nothing to do if that was intended; this driver stops and commits nothing more",
        )

    def _where(self) -> str:
        return f"job '{self._job}', directory {posixpath.dirname(self._log.table)}"


def claim(spark: Any, job_dir: str, mine: Claim) -> DeltaFence:
    """Claim a job directory; from now on all earlier drivers are fenced off.

    Raises:
        FencedError: somebody claimed it right after this driver did.
        EnvironmentVersionError: the Spark session has no Delta.
    """
    table = posixpath.join(job_dir, TABLE)
    where = f"job '{mine.job}', directory {job_dir}"
    for attempt in range(_ATTEMPTS):
        try:
            _append(spark, table, mine)
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
                raise OperationError(
                    f"the job directory cannot be claimed: {str(error).splitlines()[0][:300]}",
                    where=where,
                    expected=f"a Delta table at {table} that can be written",
                    hint="check the path and its permissions",
                ) from error
    fence = DeltaFence(FencingLog(table), _version_of(FencingLog(table), mine, where), mine.owner, mine.job)
    fence.check()
    return fence


def _append(spark: Any, table: str, mine: Claim) -> None:
    from pyspark.sql import functions as F

    row = spark.range(0, 1, 1, 1).select(*(F.lit(value).alias(name) for name, value in asdict(mine).items()))
    writer = row.write.format("delta").mode("append").option("userMetadata", json.dumps(asdict(mine)))
    # a driver that was paused for long must still find the version that follows its own
    writer = writer.option("delta.logRetentionDuration", "interval 36500 days")
    writer.option("delta.enableExpiredLogCleanup", "false").save(table)


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
    """The newest claim of a job directory with its fencing token, if there is one."""
    log = FencingLog(posixpath.join(job_dir, TABLE))
    for version in reversed(log.versions()):
        found = log.claim(version)
        if found is not None:
            return version, found
    return None
