"""Checks before each commit, in the driver and in executors, that this driver still has the newest claim in the fencing
table of its job.

Rule: a driver has lost the job as soon as the Delta log of the table has a later version that is a claim. The usual
check only looks whether the file of the next version exists: it reads nothing and needs no Spark. That the driver's own
claim is still there, so that the log was not deleted or put back, is looked at by each check on local file systems;
elsewhere, where each look is a request, by the first check in a process and once a minute. It is known by what is in
it: in a directory that was deleted and is used again, another driver has the same number. Versions that are no claims
(OPTIMIZE, VACUUM) are passed over. Where the log was cleaned up, the names of the remaining files tell which version is
the latest.
"""

from __future__ import annotations

import os
import posixpath
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from flinkish.delta.log import AS_WRITTEN, DeltaLog
from flinkish.errors import (
    ConnectionFailedError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    JobDirectoryError,
    OperationError,
)
from flinkish.storage.paths import is_local, looks_of
from flinkish.storage.sealed import json_as

#: How long a process on storage that is not local checks only for the next version, in seconds.
WHOLE_LOOK_S = 60.0

#: (table, fencing token) -> until when that suffices in this process, in seconds of the monotonic clock. A fence is
#: unpickled for each Spark task, so it cannot remember this.
_suffices_until_s: dict[tuple[str, int], float] = {}


@dataclass(frozen=True)
class Claim:
    """One row of the fencing table: a driver has taken the job. ``owner`` tells drivers apart; ``claimed_at`` is for
    people, nothing is decided by it."""

    owner: str
    job: str
    host: str
    pid: int
    claimed_at: str

    @staticmethod
    def of_this_process(owner: str, job: str) -> Claim:
        """The claim of a driver that runs in this process, made now."""
        now = datetime.now(timezone.utc).isoformat(" ", "seconds")
        return Claim(owner, job, socket.gethostname(), os.getpid(), now)


class FencingLog(DeltaLog):
    """The log of a fencing table."""

    def damaged(self, path: str, problem: str, expected: str = AS_WRITTEN) -> FlinkishError:
        return OperationError(
            f"the log of the fencing table is damaged: {path} is {problem}",
            where=self.table,
            expected="a table that nobody but the drivers of the job writes to",
            hint="restore the file from a copy; if no driver runs this job, delete the table and start the job again",
        )

    def claim(self, version: int) -> Claim | None:
        """The claim that this version has made; None if the version is no claim.

        Raises:
            FileNotFoundError: the version's file is gone.
            OperationError: the file is damaged.
        """
        for action in self.actions(version):
            said = (action.get("commitInfo") or {}).get("userMetadata")
            if said and said.startswith('{"owner"'):
                try:
                    return json_as(Claim, said)
                except ValueError as error:
                    raise self.damaged(self.file(version), f"not what Delta writes ({error})") from error
        return None


class DeltaFence:
    """The `Fence` of one driver: its commits ask whether its claim is still the newest one. Picklable.

    Args:
        log: of the fencing table.
        token: the version of the table that is this driver's claim.
        owner: tells this driver apart from others.
        job: name of the job, for errors.
    """

    def __init__(self, log: FencingLog, token: int, owner: str, job: str) -> None:
        self._log = log
        self._token = token
        self._owner = owner
        self._job = job
        #: the machine of the driver, which makes the fence
        self._host = socket.gethostname()
        #: up to this version there is no later claim
        self._seen = token
        #: how the file of the claim looks from outside, where it has changed it is read; None: it is not local
        self._file = looks_of(log.file(token))

    @property
    def token(self) -> int:
        """The fencing token: the version of the table that is this driver's claim."""
        return self._token

    def check(self) -> None:
        """Refuse to go on if this driver has lost the job.

        Raises:
            FencedError: another driver has claimed the job since.
            FinalOperationError: this machine, which is not the driver's, does not have the job directory.
            JobDirectoryError: the table has lost this driver's claim: the directory was deleted or put back.
            OperationError: the table cannot be read (a ConnectionFailedError), or is damaged.
        """
        try:
            if self._is_newest():
                return
            self._look_further()
            _suffices_until_s[self._log.table, self._token] = time.monotonic() + WHOLE_LOOK_S
        except OSError as error:
            raise ConnectionFailedError(
                f"it cannot be told whether another driver has taken this job over: {error}",
                where=self._where(),
                expected=f"the Delta log of {self._log.table}",
                hint="make the storage of the job directory readable; nothing was committed",
            ) from error

    def _is_newest(self) -> bool:
        """Whether the cheap look is enough to say that there is no later version."""
        if is_local(self._log.table):
            there, newer = self._log.has(self._seen, self._seen + 1)
            return there and not newer and looks_of(self._log.file(self._token)) == self._file
        if time.monotonic() >= _suffices_until_s.get((self._log.table, self._token), 0.0):
            return False
        return not self._log.has(self._seen + 1)[0]

    def _look_further(self) -> None:
        versions = self._log.versions()
        if not versions and socket.gethostname() != self._host:
            raise FinalOperationError(
                f"the machine {socket.gethostname()} does not have the job directory of the driver on {self._host}",
                where=self._where(),
                expected="a directory that all machines of the cluster reach, as on NFS, HDFS or an object store",
                hint="set flinkish.job.dir to one; an existing directory may be moved there while no driver runs",
            )
        looks = looks_of(self._log.file(self._token))
        if not versions or versions[-1] < self._seen or not self._is_own(versions):
            raise JobDirectoryError(
                f"the fencing table {self._log.table} has lost this driver's claim (version {self._token})",
                where=self._where(),
                expected="a job directory that nobody deletes or puts back while a driver runs",
                hint="this driver can write nothing any more, and started again in an empty directory the job would "
                "begin anew: put the directory back from a copy, or start in a new one from a savepoint",
            )
        for version in versions:
            if version <= self._seen:
                continue
            try:
                last = self._last_claim(versions) if self._log.claim(version) is not None else None
            except FileNotFoundError:
                # somebody cleans the log, so this driver has been away for long
                last = versions[-1], None
            if last is not None:
                raise self._lost(*last)
        self._seen, self._file = versions[-1], looks

    def _is_own(self, versions: list[int]) -> bool:
        """Whether the claim of this number, if the log still has it, is that of this driver."""
        with suppress(FileNotFoundError):
            claim = self._log.claim(self._token) if self._token in versions else None
            return claim is None or claim.owner == self._owner
        return True

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
