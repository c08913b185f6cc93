"""What comes before an attempt of a job on Spark: its directory, which the driver claims, and the plan of the attempt,
which begins where the directory says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flinkish.checkpoint.claim import read_restored, with_restored_times
from flinkish.checkpoint.fallback import QueryFallback
from flinkish.checkpoint.manifest import CheckpointDirectory
from flinkish.checkpoint.restore import RestoredProgram, prepare_restore
from flinkish.common.job_id import JobID
from flinkish.core.source import Source
from flinkish.errors import (
    ConfigurationError,
    CorruptStateError,
)
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.checks import check_nothing_missing
from flinkish.jobdir.directory import JobDirectory, ends_at_once
from flinkish.jobdir.ownership import take_ownership
from flinkish.jobdir.probe import probe
from flinkish.jobmanager.attempt import AttemptPlan
from flinkish.jobmanager.job.settings import DriverSettings, checkpoints_path, directory_of_job, temporary_directory
from flinkish.jobmanager.upgrade import Upgrade
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.place import partitions_of
from flinkish.spark.session import may_run_on_other_machines


class Preparation:
    """Makes the plans of the attempts of one job in one driver: each is numbered, so that its functions are opened
    anew, and begins where the job directory says.
    """

    def __init__(
        self,
        spark: Any,
        generator: JobGraphGenerator,
        name: str,
        settings: DriverSettings,
        directory: JobDirectory,
        job_id: JobID | None = None,
    ) -> None:
        """``job_id``: the id of a job that begins; None: a new one."""
        self._spark = spark
        self._generator = generator
        self._name = name
        self._settings = settings
        self._directory = directory
        self._job_id = directory.job_id() or (job_id or JobID()).to_hex_string()

    def next_plan(self) -> AttemptPlan:
        """Make the plan of the next attempt, which is counted.

        Raises:
            FinalOperationError: a file of the job directory is missing, the program does not fit the directory, or the
                savepoint cannot be restored.
        """
        directory, sources = self._directory, self._generator.sources()
        check_nothing_missing(directory.path)
        job = self._generator.generate(self._job_id, self._name)
        end = directory.check_finished_by(job)
        differences = directory.differences(job, partitions_of(job))
        job = replace(job, attempt=directory.count_start())
        program = self._program(job, sources)
        # where the job has ended, nothing runs, and nothing is taken over (`KeptRun`)
        changes = differences is None or end is None or not ends_at_once(end, self._settings.restart)
        if differences and changes:
            Upgrade(self._spark, self._settings, directory, program, tuple(differences)).carry_out()
        base = prepare_restore(self._spark, program, self._settings, directory, differences is None)
        if changes:
            # only now, so that a start which fails during its restore is a first run again when it is repeated
            directory.remember_structure(job, partitions_of(job))
        job = replace(job, settings=replace(job.settings, given_up=directory.given_up()))
        remembered = read_restored(directory)
        restored = remembered is not None and remembered.state
        return AttemptPlan(replace(with_restored_times(job, remembered), restored=restored), sources, base)

    def _program(self, job: JobDescriptor, sources: dict[int, Source]) -> RestoredProgram:
        return RestoredProgram(job, sources, self._generator.migrations())

    def fall_back(self, error: CorruptStateError) -> str:
        """Let the next attempt begin with the last usable checkpoint in Delta, because Spark's own checkpoint of the
        query is damaged; returns a text that says what was done.

        Raises:
            FinalOperationError: that is not possible, or not allowed.
        """
        job = self._generator.generate(self._job_id, self._name)
        checkpoints = CheckpointDirectory(checkpoints_path(self._settings, self._directory.path, self._job_id))
        recovery = QueryFallback(self._spark, self._settings, self._directory, checkpoints)
        return recovery.recover(self._program(job, self._generator.sources()), error)


def prepare_directory(
    spark: Any, settings: DriverSettings, name: str, waiting: Callable[[], None] = lambda: None
) -> tuple[JobDirectory, bool]:
    """The job's directory, claimed by this driver; and whether it is temporary, so that no other driver can know it.
    ``waiting`` is called while the driver waits for a sign of life of the owner; what it raises ends the wait.

    Raises:
        ConfigurationError: no directory is configured, and the executors may run on other machines, which do not have
            the driver's temporary one; or the driver, Spark and its executors do not see the same directory.
    """
    temporary = settings.job_dir is None
    if temporary and may_run_on_other_machines(spark):
        raise ConfigurationError(
            "the job has no directory: its state would lie in a temporary one of the driver's machine, which the "
            "executors on other machines do not have",
            where=f"job '{name}', Spark's master {spark.conf.get('spark.master')}",
            expected="flinkish.job.dir, a directory that all machines reach",
            hint="set it in the program or with -D flinkish.job.dir=DIRECTORY; the programs in jobs/ have --job-dir",
        )
    given = settings.job_dir
    directory = JobDirectory(temporary_directory() if given is None else directory_of_job(given, name))
    directory.check_private()
    if temporary:
        directory.claim(name)
    else:
        probe(spark, directory.path, f"job '{name}', directory {directory.path}")
        take_ownership(spark, directory, name, settings.takeover, waiting=waiting)
    return directory, temporary
