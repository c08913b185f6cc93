"""Says what a start of a program would do, state by state (``flinkish run --dry-run``): whether the job begins, begins
with a savepoint, goes on in its directory, or goes on there with a changed program. Nothing is run and nothing written,
but a worker opens and closes the program's operators once, to find out which states they declare.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from flinkish.checkpoint.compatibility import CompatibilityReport
from flinkish.checkpoint.manifest import Savepoint
from flinkish.common.configuration import Configuration
from flinkish.common.job_id import JobID
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph
from flinkish.jobdir.directory import JobDirectory, ends_at_once
from flinkish.jobdir.layout import Attempts, DrainMarker, Job
from flinkish.jobdir.waiting_epoch import existing_directory
from flinkish.jobmanager.job.settings import DriverSettings, directory_of_job, driver_settings, job_settings
from flinkish.launch.driver import DRY_RUN_FORMAT
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.storage.files import child_names

if TYPE_CHECKING:
    from flinkish.checkpoint.restore import RestoredProgram


class StartKind(Enum):
    """What a start would do."""

    BEGINS = "a new job"
    RESTORES = "a new job that begins with a savepoint"
    GOES_ON = "the job goes on"
    UPGRADES = "the job goes on with a changed program"
    DRAINS = "the drain of the job is completed"
    ENDED = "nothing would run"


@dataclass(frozen=True)
class StartReport:
    """What a start of a program would do. ``report``: what becomes of each state; None: no state is looked at."""

    kind: StartKind
    #: the job directory; None: a temporary one
    directory: str | None
    report: CompatibilityReport | None
    #: what differs in the program, in words
    differences: tuple[str, ...] = ()
    #: the epoch that is prepared and would be committed first; None: there is none
    to_commit: int | None = None
    #: how the job has ended, if it has
    end: str = ""

    @property
    def possible(self) -> bool:
        """Whether the program can be started."""
        return self.report is None or self.report.compatible

    def text(self) -> str:
        """The report as text for people."""
        more = f": the job was {self.end}" if self.end else ""
        lines = [f"directory {self.directory or '(temporary)'}: {self.kind.value}{more}"]
        lines += [f"changed: {difference}" for difference in self.differences]
        if self.to_commit is not None:
            lines.append(f"first: epoch {self.to_commit}, which is prepared, is committed")
        if self.report is not None:
            lines.append(self.report.text())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as a dict of plain values."""
        found = self.report
        return {
            "outcome": self.kind.name.lower(),
            "possible": self.possible,
            "directory": self.directory,
            "from": None if found is None or self.kind is StartKind.BEGINS else found.savepoint,
            "differences": list(self.differences),
            "prepared_epoch": self.to_commit,
            "end": self.end,
            "states": [] if found is None else [{**vars(one), "status": one.status.value} for one in found.states],
            "problems": [] if found is None else list(found.problems),
            "hints": [] if found is None else list(found.hints),
        }

    def shown(self) -> str:
        """As JSON if the environment asks for it, else as text."""
        as_json = os.environ.get(DRY_RUN_FORMAT) == "json"
        return json.dumps(self.to_json(), indent=1) if as_json else self.text()


def start_report(
    graph: StreamGraph, configuration: Configuration, chaining: bool, session: Any, job_name: str
) -> StartReport:
    """Say what a start of the program would do on Spark.

    Raises:
        FlinkishError: as the start would, but for states that cannot be taken over.
    """
    from flinkish.checkpoint.restore import RestoredProgram, declared_by, take_over
    from flinkish.jobmanager.resources import fit_to_cluster
    from flinkish.spark.dependencies import ship
    from flinkish.spark.resources import await_slots
    from flinkish.spark.session import get_session

    settings = driver_settings(configuration)
    generator = JobGraphGenerator(graph, job_settings(configuration), chaining)
    spark = session if session is not None else get_session(configuration, job_name)
    slots = await_slots(spark, generator.required_slots, settings.slot_timeout_s, lambda doing: None, lambda: False)
    fit_to_cluster(generator, spark, configuration, slots, lambda: False)
    generator.with_shipped_files(ship(spark, configuration))
    path = None if settings.job_dir is None else directory_of_job(settings.job_dir, job_name)
    directory = existing_directory(path) if path is not None and Job.NAME in child_names(path) else None
    job_id = (None if directory is None else directory.job_id()) or JobID().to_hex_string()
    job = generator.generate(job_id, job_name)
    program = RestoredProgram(job, generator.sources(), generator.migrations())
    if directory is not None:
        return _in_directory(spark, settings, directory, program)
    if settings.savepoint is not None:
        report, _ = take_over(spark, program, settings, Savepoint.open(settings.savepoint), None)
        return StartReport(StartKind.RESTORES, path, report)
    return StartReport(StartKind.BEGINS, path, declared_by(spark, program))


def _in_directory(
    spark: Any, settings: DriverSettings, directory: JobDirectory, program: RestoredProgram
) -> StartReport:
    """What a start would do in a directory in which a job has begun."""
    from flinkish.jobmanager.upgrade import Upgrade
    from flinkish.spark.place import partitions_of

    job: JobDescriptor = program.job
    end = directory.check_finished_by(job)
    if end is not None and ends_at_once(end, settings.restart):
        return StartReport(StartKind.ENDED, directory.path, None, end=end.described())
    differences = tuple(directory.differences(job, partitions_of(job)) or ())
    if not differences and directory.read(DrainMarker) is not None:
        return StartReport(StartKind.DRAINS, directory.path, None)
    attempts = (directory.read(Attempts) or Attempts(0)).attempts
    program = replace(program, job=replace(job, attempt=attempts))
    step, report = Upgrade(spark, settings, directory, program, differences).report()
    if differences:
        return StartReport(StartKind.UPGRADES, directory.path, report, differences, step.to_commit)
    # a job that goes on finds its state by generated uids, too
    return StartReport(StartKind.GOES_ON, directory.path, replace(report, without_uid=()), (), step.to_commit)
