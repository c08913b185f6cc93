"""The observer that looks at what a job has to run on: its task slots, and the memory of its task managers.

Rule: fewer slots than the widest level needs are no fault: the level runs in waves, which the description says. No slot
at all, and memory that is about to run out, are warnings for as long as they hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.options import core, flinkish
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.job.description import JobObserver, SlotsDescription
from flinkish.jobmanager.job.settings import managed_memory_of_slot
from flinkish.jobmanager.job_run import JobRun
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.resources import (
    Slots,
    executors_of,
    memory_of,
    slots_for_parallelism,
    slots_of,
    slots_per_executor,
    unlike_configured,
)

_LOG = logging.getLogger("flinkish.JobMaster")

_SLOTS, _UNLIKE, _MEMORY = "slots", "slots of an executor", "sizes of memory"

#: So many looks at the number of executors come before one at each of them.
_LOOKS = 10


class ResourceWatch(JobObserver):
    """Keeps the slots and the memory of a run up to date, and warns.

    Args:
        spark: the session.
        run: the run, whose ``slots``, ``memory`` and ``warnings`` are kept.
        job: its job graph.
        configuration: that of the job.

    Raises:
        ConfigurationError: sizes of memory contradict each other.
    """

    def __init__(self, spark: Any, run: JobRun, job: JobDescriptor, configuration: Configuration) -> None:
        self._spark = spark
        self._run = run
        self._job = job
        self._configuration = configuration
        self._looks = 0
        run.memory, without_effect = memory_of(spark, configuration)
        self._warn(_MEMORY, without_effect)
        self._executors = -1
        self.cluster_looked_at()
        if run.slots is not None and run.slots.note:
            _LOG.info("job '%s': %s", run.name, run.slots.note)

    def cluster_looked_at(self) -> None:
        """Look at the slots, if executors have come or gone."""
        slots = self._changed_slots()
        if slots is None:
            self._run.slots = self._run.slots or describe_slots(self._job, None)
            return
        before, self._run.slots = self._run.slots, describe_slots(self._job, slots)
        if before is not None and before.present not in (None, slots.present):
            note = self._run.slots.note or f"{slots.present} slots, as many as it needs or more"
            _LOG.info("job '%s': there were %s slots: now %s", self._run.name, before.present, note)
        self._warn(_SLOTS, "" if slots.present else self._run.slots.note)
        self._warn(_UNLIKE, unlike_configured(self._configuration, slots))

    def _changed_slots(self) -> Slots | None:
        """The slots, if they may have changed since the last look."""
        count = executors_of(self._spark)
        if count is None:
            return None
        self._looks -= 1
        if count == self._executors and self._looks > 0:
            return None
        self._executors, self._looks = count, _LOOKS
        return slots_of(self._spark)

    def _warn(self, matter: str, text: str) -> None:
        if text and self._run.warnings.get(matter) != text:
            _LOG.warning("job '%s': %s", self._run.name, text)
            self._run.warnings[matter] = text
        elif not text:
            self._run.warnings.pop(matter, None)


def fit_to_cluster(
    generator: JobGraphGenerator,
    spark: Any,
    configuration: Configuration,
    slots: Slots | None,
    is_to_end: Callable[[], bool],
) -> None:
    """Fit a job to the slots of its cluster (None: nobody can be asked): they are its parallelism if nobody has set
    one, and share the managed memory of a TaskManager.

    Raises:
        ProgramError: the parallelism of an operator is above its max parallelism.
    """
    if generator.graph.follows_slots:
        generator.on_slots(slots_for_parallelism(spark, slots, is_to_end))
    generator.with_managed_memory(managed_memory_of_slot(configuration, slots_per_executor(spark, slots)))


def describe_slots(job: JobDescriptor, slots: Slots | None) -> SlotsDescription:
    """The slots that a job needs and those that there are (None: nobody can be asked), with what follows in words."""
    required = job.required_slots
    if slots is None:
        return SlotsDescription(required)
    waves = -(-required // slots.present) if slots.present else None
    note = ""
    if waves is None:
        note = f"waits for slots: needs {required}, has 0"
    elif waves > 1:
        note = (
            f"{slots.present} slots, and the widest level has {required} Spark tasks: they run in {waves} waves; add "
            f"executors, or set {core.PARALLELISM.key} or {flinkish.SPARK_PARTITIONS.key} to less"
        )
    return SlotsDescription(
        required,
        slots.present,
        sum(slots.executors.values()),
        slots.per_executor if slots.executors else None,
        waves,
        note,
    )
