"""A job that is being submitted: it is there from the first line on, says what it does, and can be asked to end while
it waits for its directory or restores a savepoint.

Rule: whatever was asked of a start holds for the run that takes its place. What a start cannot do (a savepoint, a stop)
waits for that run. A start that is asked to end breaks off at its next step, and the Spark jobs of a restore with it;
the directory is given back as it would be after a failure, so that the next start begins anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from flinkish.checkpoint.claim import delete_checkpoints
from flinkish.checkpoint.manifest import CheckpointDirectory
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import FinalOperationError, OperationError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.decision import End
from flinkish.jobmanager.job.description import SlotsDescription
from flinkish.jobmanager.job.settings import DriverSettings, checkpoints_path
from flinkish.jobmanager.job_record import JobRecord, this_driver
from flinkish.jobmanager.job_run import JobRun, in_background
from flinkish.jobmanager.observed_job import describe
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.spark.resources import Slots, await_slots
from flinkish.spark.settings import SparkWork

T = TypeVar("T")

#: Seconds between two looks at whether the start is to end.
_LOOK_S = 0.1


class JobStart(JobRun):
    """Stands for a job until it has a run.

    Args:
        job_id: the id that the job will have, as far as that is known.
        name: its name.
        plan: Flink's plan JSON.
        settings: of the tasks.
        of_driver: of the driver.
    """

    def __init__(
        self, job_id: JobID, name: str, plan: dict[str, Any], settings: JobSettings, of_driver: DriverSettings
    ) -> None:
        super().__init__(job_id, name)
        self.shutdown_timeout_s = of_driver.shutdown_timeout_s
        self._of_driver = of_driver
        self.doing = "being submitted"
        #: how many parts of the step are done, and how many there are; None: that is not known
        self.parts: Callable[[], tuple[int, int] | None] = lambda: None
        self._plan = plan
        self._settings = settings
        #: what Spark does for it; None: nothing
        self._on_spark: SparkWork | None = None
        #: reentrant: a signal may come while the main thread holds it
        self._handing_over = threading.RLock()
        self._run_of_job: JobRun | None = None
        self.identify(job_id)
        live_jobs.started(self)

    def _created(self) -> None:
        """It stays INITIALIZING."""

    def identify(self, job_id: JobID) -> None:
        """Give the job the id that it has in its directory."""
        self.job_id = job_id
        job = JobDescriptor(job_id.to_hex_string(), self.name, (), (), self._settings)
        known = None if self._temporary else self.directory
        place, token = (None, "") if known is None else (known.path, known.token)
        earlier, self.record = self.record, JobRecord(self, job, self._plan, place, this_driver(token))
        self.observers = [self.record, *(one for one in self.observers if one is not earlier)]

    def owns(self, directory: JobDirectory, temporary: bool) -> None:
        """The directory is this start's: it is given back, or handed over to the run."""
        self.directory, self._temporary = directory, temporary
        self.identify(self.job_id)

    # ------------------------------------------------------------------ its steps

    def step(self, doing: str) -> None:
        """Say what is done next. Raises OperationError if the job is to end."""
        self.doing, self.parts = doing, lambda: None
        self.check()

    def wait_for_slots(self, spark: Any, generator: JobGraphGenerator) -> Slots | None:
        """Wait until there is a task slot, as CREATED; returns the slots, None where nobody can be asked.

        Raises:
            NoResourceAvailableError: none has come within ``slot.request.timeout``.
            OperationError: the job is to end.
        """

        def say(doing: str) -> None:
            self.machine.try_to(JobStatus.CREATED, doing)
            self.doing, self.slots = doing, SlotsDescription(generator.required_slots, 0, note=doing)

        needed = generator.required_slots
        slots = await_slots(spark, needed, self._of_driver.slot_timeout_s, say, lambda: self.is_to_end)
        self.check()
        return slots

    def check(self) -> None:
        """Raise OperationError if the job is to end."""
        if self.is_to_end:
            raise OperationError("the start was broken off, as somebody has asked for", where=f"job '{self.name}'")

    def read(self, parts: int, of: int) -> None:
        """So many parts of a savepoint are read. Raises as `check` does."""
        self.parts = lambda: (parts, of)
        self.check()

    @contextmanager
    def on_spark(self, spark: Any) -> Iterator[None]:
        """Within the block, what Spark does for this thread is ended when the start is to end, and its tasks are the
        parts of the step."""
        with SparkWork(spark, "start") as self._on_spark:
            self.parts = self._on_spark.tasks
            try:
                self.check()
                yield
            finally:
                self._on_spark, self.parts = None, lambda: None
        self.check()

    def apart(self, work: Callable[[], T]) -> T:
        """Do what cannot be interrupted in a thread of its own, to which it is left when the start is to end.

        Raises:
            OperationError: the job is to end.
        """
        done = in_background(work, "flinkish-start")
        while not done.done():
            self.check()
            wait([done], _LOOK_S)
        return done.result()

    def doing_now(self) -> str:
        """What the start does, in words."""
        parts = None
        with suppress(Exception):
            parts = self.parts()
        return self.doing if parts is None else f"{self.doing}, {parts[0]} of {parts[1]} parts"

    # ------------------------------------------------------------------ what is asked of it

    def request_stop(self, end: JobStatus = JobStatus.CANCELED, cause: str = "asked for") -> None:
        """End the job before it runs. Returns at once."""
        with self._handing_over:
            run = self._run_of_job
            if run is None:
                super().request_stop(end, cause)
        if run is not None:
            run.request_stop(end, cause)
        elif (work := self._on_spark) is not None:
            work.end()

    def run_of_job(self) -> JobRun:
        """The run that takes the place of this start; waits for it.

        Raises:
            FinalOperationError: the job has ended before it ran.
        """
        self._begun.wait()
        if self._run_of_job is None:
            self.over.wait()
            raise FinalOperationError(
                f"the job has ended ({self.status.name}) before it ran",
                where=f"job '{self.name}'",
                expected="a running job",
            )
        return self._run_of_job

    def unfinished(self) -> str | None:
        if self._run_of_job is not None:
            return self._run_of_job.unfinished()
        return f"its start ({self.doing_now()})" if super().unfinished() else None

    def abandon(self) -> bool:
        """The process ends before the job has. Returns whether the job is over all the same."""
        return super().abandon() if self._run_of_job is None else self._run_of_job.abandon()

    # ------------------------------------------------------------------ its end

    def hand_over(self, run: JobRun) -> None:
        """Let this run take the place of the start, before it begins."""
        with self._handing_over:
            # who waits for the start waits for the run
            run.over, run.result, run._begun, self._thread = self.over, self.result, self._begun, run._thread
            live_jobs.handed_over(self, run)
            asked, self._run_of_job = self.is_to_end, run
        if asked:
            run.request_stop(self.wishes.end, "asked for during the start")

    @property
    def is_to_end(self) -> bool:
        """Whether somebody has asked the job to end."""
        return self.wishes.to_end

    def end(self) -> None:
        """End the job as somebody has asked for; the directory is given back."""
        self._thread.start()
        self._begun.set()
        self._thread.join()

    def _conclude(self, end: End) -> None:
        directory, settings = self.directory, self._of_driver
        if end.status is JobStatus.CANCELED and directory is not None and directory.end() is None:
            self._write_end(JobStatus.CANCELED, done=False)
            if not settings.checkpoints.retain_on_cancellation:
                # as those of a job that is cancelled while it runs
                path = checkpoints_path(settings, directory.path, self.job_id.to_hex_string())
                delete_checkpoints(CheckpointDirectory(path), directory, self.name)

    def fail(self, error: BaseException) -> None:
        """End a job whose start has failed; the directory is given back."""
        failure = self._typed(error)
        if not isinstance(error, Exception):
            # nothing has failed: the program was interrupted
            self._notified_failure = failure
            self.machine.try_to(JobStatus.SUSPENDED, describe(failure))
        self._thread = threading.Thread(target=self._run, args=(failure,), name=self._thread.name, daemon=True)
        self.end()
