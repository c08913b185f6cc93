"""The epochs of a running attempt: the function that Spark calls for each of them, and the thread that follows what the
tasks say of the one that runs (``runtime/task/progress.py``).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flinkish.common.memory import memory_of_machine, short_text
from flinkish.errors import FlinkishError, OperationError, RetryableError, SparkLostError
from flinkish.jobmanager.epoch_gate import EpochListener, StopQuery, listener_of
from flinkish.jobmanager.remote import ServerListener, server_listener
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.failure import uncommitted
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.task.open_functions import OTHER_MACHINES_S, AttemptFiles
from flinkish.runtime.task.progress import EpochProgress, ProgressFiles, interval_s
from flinkish.spark.driver_jvm import end_of_worker
from flinkish.spark.failures import SPARK_HAS_GONE, SPARK_HAS_GONE_HINT, translate
from flinkish.spark.session import is_stopped
from flinkish.spark.settings import SparkWork
from flinkish.spark.sink_stage import EpochRunner
from flinkish.spark.worker import Deployment, announce_batch, failures_marked


@dataclass(frozen=True)
class EpochFunction:
    """The ``foreachBatch`` function of a job: runs an epoch and reports it to the JobManager. ``token``: that of the
    driver which owns the job directory.

    Spark calls it in the driver's process, or under Spark Connect in a process of the server.
    """

    deployment: Deployment
    job_dir: str
    token: str

    def __call__(self, frame: Any, batch: int) -> None:
        """Run one epoch, which is one batch of the query."""
        epoch = batch + self.deployment.first_epoch
        listener = listener_of(self.deployment.job_id)
        try:
            if listener is not None:
                self._run_here(listener, frame, epoch)
            else:
                self._run_apart(frame, epoch)
        except StopQuery:
            # whoever refused the epoch remembers it: the text of the query's error may quote a record
            raise
        except Exception as error:
            if (listener or self._on_server()).given_up():
                # without the cause: its text is what Spark looks through, in vain, for the reason why a query that was
                # stopped has ended, by a regular expression that overflows the stack of the query's thread
                raise StopQuery from None
            # translated here, where the exception itself is at hand: Spark passes on only its text
            typed = translate(error, self._what_of(epoch), self.deployment.secret, epoch)
            if listener is None:
                self._on_server().failed(typed)
            with failures_marked(self.deployment.secret, epoch):
                raise typed from error

    def _run_here(self, listener: EpochListener, frame: Any, epoch: int) -> None:
        listener.before_epoch(epoch)
        passed(Phase.PLANNED, epoch=epoch)
        listener.after_epoch(EpochRunner(self.deployment).run(frame, epoch, listener.gate.go_through))

    def _run_apart(self, frame: Any, epoch: int) -> None:
        server = self._on_server()
        server.before_epoch(epoch)
        announce_batch(frame.sparkSession, self.deployment, epoch - self.deployment.first_epoch)
        passed(Phase.PLANNED, epoch=epoch)
        # the session is that of the driver, and of its other jobs
        with SparkWork(frame.sparkSession, "epoch") as work:

            def give_up() -> None:
                if self.deployment.files is not None:
                    # Spark kills workers that are in user code, so they close their functions first
                    AttemptFiles(self.deployment.files.query, self.deployment.version).end(OTHER_MACHINES_S)
                work.end()

            with server.can_be_given_up(give_up):
                server.after_epoch(EpochRunner(self.deployment).run(frame, epoch, server.gate.go_through, server.keep))

    def _what_of(self, epoch: int) -> str:
        """Describe a failed epoch, and say whether any of it can have been committed."""
        with suppress(Exception):
            if not EpochRunner(self.deployment).is_prepared(epoch):
                return uncommitted(epoch)
            return f"epoch {epoch}, which is prepared: sinks may have committed a part of it"
        return f"epoch {epoch}"

    def _on_server(self) -> ServerListener:
        return server_listener(self.job_dir, self.token, self.deployment.job().name, self.deployment.fence)


_log = logging.getLogger("flinkish.JobMaster")

#: How long the end of an attempt waits for the thread, in seconds: its storage may be away.
_LAST_S = 5.0


class ProgressWatch:
    """A thread that reads the progress files of a query, tells of the running epoch, and deletes files of epochs that
    are done. In a job of short epochs there are none, and on an object store it costs one request every ten seconds.

    Args:
        job: the job, whose attempt the files must be of.
        query: the directory of the query.
        reported: gives the last epoch that is done.
        tell: is given the progress of the epoch that runs, as long as it runs.
        every_s: time between two looks; None: what suits the storage.
    """

    def __init__(
        self,
        job: JobDescriptor,
        query: str,
        reported: Callable[[], int],
        tell: Callable[[EpochProgress], None],
        every_s: float | None = None,
    ) -> None:
        self._job = job
        self._files = ProgressFiles(query)
        self._reported = reported
        self._observe = tell
        self._every_s = interval_s(query) if every_s is None else every_s
        #: the epoch that runs, and when it has begun
        self._epoch, self._begun_s = -1, 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="flinkish-progress-watch", daemon=True)

    def start(self) -> None:
        """Delete what earlier attempts have left, and begin."""
        self._files.prepare()
        self._thread.start()

    def close(self) -> None:
        """End the thread and delete all files."""
        self._closed.set()
        self._thread.join(_LAST_S)
        self._files.clear()

    def _work(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self._look()
            except Exception as error:
                # storage that is away, or an observer: the epoch goes on without being watched
                _log.debug("job '%s': the progress of the epoch is not known: %s", self._job.name, error)

    def _look(self) -> None:
        found, reported = self._files.read(), self._reported()
        for name, worker in found.items():
            if worker.epoch <= reported:
                self._files.delete(name)
        workers = [one for one in found.values() if one.attempt == self._job.attempt and one.epoch > reported]
        if not workers or self._closed.is_set():
            return
        epoch = max(worker.epoch for worker in workers)
        if epoch != self._epoch:
            self._epoch, self._begun_s = epoch, time.monotonic()
        # the workers of this epoch know for how long it has been running when it is seen first
        progress = EpochProgress.of(self._job, [worker for worker in workers if worker.epoch == epoch])
        self._begun_s = min(self._begun_s, time.monotonic() - progress.running_ms / 1000)
        self._observe(progress.running_for(int((time.monotonic() - self._begun_s) * 1000)))


def explained(failure: FlinkishError, spark: Any, query: str) -> FlinkishError:
    """The failure of a query with what Spark does not say of it: that the session was stopped, which fails in many
    ways; which task a worker that was lost has run, and how it has ended, as far as that is known."""
    if type(failure) is OperationError and is_stopped(spark):
        return SparkLostError(SPARK_HAS_GONE, where=failure.where, hint=SPARK_HAS_GONE_HINT)
    if type(failure) is not RetryableError or "worker" not in failure.what:
        return failure
    with suppress(OSError):
        for pid, task in (files := ProgressFiles(query)).noted().items():
            end = end_of_worker(pid)
            if end is None and os.path.exists(f"/proc/{pid}"):
                continue
            failure.task = task
            how, more = _how_it_ended(end)
            failure.what = f"a Python worker (process {pid}) {how} in task '{task}'{more}"
            failure.hint = f"{_DIAGNOSES[end is not None and end[0] == -9]}; {failure.hint}"
            # it has died once
            files.note("", pid)
            break
    return failure


#: whether a worker was killed by SIGKILL -> what to look at
_DIAGNOSES = {
    False: "see what the functions of that task call",
    True: "if the machine has killed it for want of memory (dmesg says so), take smaller epochs or fewer subtasks at a "
    "time, keep less state in memory (taskmanager.memory.managed.size), or give it more",
}


def _how_it_ended(end: tuple[int, int] | None) -> tuple[str, str]:
    """How a worker has ended, and what may have been the reason."""
    if end is None:
        return "was lost", ""
    code, peak_bytes = end
    if code >= 0:
        return f"has ended with exit code {code}", ""
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    memory = f": perhaps memory, its peak was {short_text(peak_bytes)} of {short_text(memory_of_machine())}"
    return f"was killed by {name}", memory if -code == signal.SIGKILL else ""
