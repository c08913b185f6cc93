"""The files of the job directory through which a driver and the ``foreachBatch`` function in a Spark Connect server
communicate.

The server checks before each epoch whether it may run (stop file, ownership) and leaves one report per epoch. What
belongs to sinks that commit in the driver (printed lines, collected records) travels in the report, and is committed
by the driver once Spark has committed the epoch; only then is the report deleted. So nothing is lost when a driver
dies, and printed lines appear where the program runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flinkish.core.sink import NO_FENCE, Fence
from flinkish.errors import FencedError, FlinkishError, OperationError
from flinkish.jobdir.connect_server import EpochsWait, ForDriver, ServerEnd, ServerReport, StopRequest
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Owner
from flinkish.jobmanager.epoch_gate import EpochGate, EpochListener, StopQuery
from flinkish.runtime.epoch.commit import CommitReport, EpochCommit
from flinkish.runtime.epoch.files import sink_of_identity
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.failure import decode_error, encode_error
from flinkish.spark.sink_stage import Target

_log = logging.getLogger("flinkish.JobMaster")

#: Seconds between two looks at whether the running epoch is to be given up, or a waiting one may begin.
LOOK_S = 1.0


class ServerListener(EpochListener):
    """The side of the process that runs ``foreachBatch``: checks whether epochs may run and leaves their reports. One
    instance serves all epochs of a query."""

    def __init__(self, job_dir: str, token: str, job_name: str, fence: Fence = NO_FENCE) -> None:
        self._directory = JobDirectory(job_dir, token)
        self._directory.fence = fence
        self._token = token
        self._job_name = job_name
        self._ended = False
        #: the identity of the sink, subtask and buffers of what the driver commits
        self._for_driver: list[ForDriver] = []
        self.gate = EpochGate()

    def before_epoch(self, epoch: int) -> None:
        """The last moment at which an epoch can be prevented.

        Raises:
            StopQuery: the driver asked for a stop, or the input has ended.
            FencedError: another driver owns the job.
            OperationError: this process does not see the driver's job directory.
        """
        self._check_owner()
        while self._has_to_wait(epoch) and self._directory.read(StopRequest) is None:
            time.sleep(LOOK_S)
            self._check_owner()
        if self._ended or self._directory.read(StopRequest) is not None:
            self._directory.write(ServerEnd(self._token))
            raise StopQuery
        self.gate.begin()
        self._for_driver = []

    def _has_to_wait(self, epoch: int) -> bool:
        wait = self._directory.read(EpochsWait)
        return wait is not None and wait.token == self._token and epoch > wait.last_epoch

    @contextmanager
    def can_be_given_up(self, interrupt: Callable[[], Any]) -> Iterator[None]:
        """Inside this context the driver can have the running epoch given up. ``interrupt`` ends what Spark does for
        it."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over, interrupt), name="flinkish-give-up", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _watch(self, over: threading.Event, interrupt: Callable[[], Any]) -> None:
        while not over.wait(LOOK_S):
            try:
                if not (self._directory.read(StopRequest) or StopRequest()).now:
                    continue
                if self.gate.close():
                    self._directory.write(ServerEnd(self._token))
                    interrupt()
                return
            except Exception as error:
                _log.warning("job '%s': it cannot be seen whether the epoch is given up: %s", self._job_name, error)

    def keep(self, commit: EpochCommit, targets: list[Target]) -> list[CommitReport]:
        """Keep the buffers of these targets for the report, instead of committing them here: the driver does that."""
        for sink, subtask, buffers in targets:
            whole = [commit.with_payload(buffer) for buffer in buffers]
            identity, uid = commit.job.sink(sink).identity, commit.uids.get(sink)
            self._for_driver.append(ForDriver(sink=identity, uid=uid, subtask=subtask, buffers=whole))
        return []

    def after_epoch(self, report: EpochReport) -> None:
        """Write the report of an epoch that is done but for Spark's own commit and what the driver commits. Raises
        StopQuery if it was given up."""
        self.gate.go_through()
        self._check_owner()
        self._directory.write(ServerReport(report.stored(), self._for_driver), report.epoch)
        self._ended = report.end_of_input

    def failed(self, error: FlinkishError) -> None:
        """Write down the error with which the query ends. Nothing is written if another driver owns the directory, or
        if this process does not see the driver's directory."""
        if not isinstance(error, FencedError) and self._directory.read(Owner) is not None:
            self._directory.write(ServerEnd(self._token, encode_error(error).decode()))

    def _check_owner(self) -> None:
        if self._directory.read(Owner) is None:
            raise OperationError(
                "the Spark server does not see the job directory of the driver",
                where=f"job '{self._job_name}', directory {self._directory.path}",
                expected="a directory on storage that both can reach",
                hint="set flinkish.job.dir to a path on shared storage",
            )
        self._directory.check_owner(self._job_name)


_listeners: dict[tuple[str, str], ServerListener] = {}


def server_listener(job_dir: str, token: str, job_name: str, fence: Fence = NO_FENCE) -> ServerListener:
    """The listener of a job in this process, kept from epoch to epoch."""
    found = _listeners.get((job_dir, token))
    if found is None:
        found = _listeners[job_dir, token] = ServerListener(job_dir, token, job_name, fence)
    return found


class ReportReader:
    """Takes, in the driver, the reports of the Connect server, and commits what they hold for sinks of the driver."""

    def __init__(self, directory: JobDirectory, job: JobDescriptor) -> None:
        self._directory = directory
        self._job = job
        #: the last epoch whose report was taken
        self._taken = -1

    def take(self, committed: int | None) -> Iterator[EpochReport]:
        """The reports up to an epoch (None: all), in order, each once the driver has committed its part of it, and each
        only once, although its file may stay for a while. To be called by one thread at a time."""
        for (number,) in self._directory.kept(ServerReport):
            epoch = int(number)
            if committed is not None and epoch > committed:
                return
            found = self._directory.read(ServerReport, epoch)
            if found is None:
                continue
            if epoch > self._taken:
                report = EpochReport.from_stored(found.report)
                committed_report = self._committed(report, self._commit(report, found.for_driver))
                self._taken = epoch
                yield committed_report
            self._directory.delete(ServerReport, epoch)

    def end(self) -> FlinkishError | bool:
        """How the query ended: True if on purpose, the error, or False if the server has left nothing."""
        found = self._directory.read(ServerEnd)
        if found is None or found.token != self._directory.token:
            return False
        if found.error is None:
            return True
        return decode_error(found.error.encode("utf-8", "replace"), ServerEnd.path_in(self._directory.path))

    def _commit(self, report: EpochReport, targets: list[ForDriver]) -> list[CommitReport]:
        commit = EpochCommit(self._job, report.epoch, report.time_ms, report.end_of_input, self._directory.fence)
        uids = {
            sink_of_identity(self._job, target.sink, report.epoch).id: target.uid
            for target in targets
            if target.uid is not None
        }
        commit = replace(commit, uids=uids)
        return [
            commit.commit(sink_of_identity(self._job, target.sink, report.epoch).id, target.subtask, target.buffers)
            for target in targets
        ]

    def _committed(self, report: EpochReport, commits: list[CommitReport]) -> EpochReport:
        sink_records = dict(report.sink_records)
        for commit in commits:
            sink_records[self._job.sink(commit.sink).uid] += commit.records
        return replace(report, sink_records=sink_records, records_out=sum(sink_records.values()))
