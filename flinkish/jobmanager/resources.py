"""What a job has to run on: at its start it is fitted to the slots of the cluster, and an observer watches the slots
and the memory of its task managers.

Rule: fewer slots than the widest level needs are no fault: the level runs in waves, which the description says. No slot
at all, and memory that is about to run out, are warnings for as long as they hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.memory import MemoryConfiguration
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.resources import describe_slots, near_limits, unlike_configured
from flinkish.jobmanager.job.settings import managed_memory_of_slot
from flinkish.jobmanager.job.task_managers import TaskManagerEvent
from flinkish.jobmanager.job_run import JobRun
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.spark.resources import Slots, slots_for_parallelism, slots_per_executor

_LOG = logging.getLogger("flinkish.JobMaster")

_SLOTS, _UNLIKE, _SIZES, _NEAR = "slots", "slots of an executor", "sizes of memory", "memory of "

#: Least time between two looks at the memory, in ms.
_LOOK_MS = 1_000


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
        parallelism = slots_for_parallelism(spark, slots, is_to_end)
        if parallelism is not None:
            generator.on_slots(parallelism)
    generator.with_managed_memory(managed_memory_of_slot(configuration, slots_per_executor(spark, slots)))


class ResourceWatch(JobObserver):
    """Warns of what a run lacks to run on. It comes behind the registry of the run's task managers.

    Args:
        run: the run.
        job: its job graph.
        configuration: that of the job.
        memory: what a task manager has of each area (None: nobody can be asked); and, in words, that sizes in the
            configuration have no effect.
        clock: the clock of the looks.
    """

    def __init__(
        self,
        run: JobRun,
        job: JobDescriptor,
        configuration: Configuration,
        memory: tuple[MemoryConfiguration | None, str],
        clock: Clock | None = None,
    ) -> None:
        self._run = run
        self._job = job
        self._configuration = configuration
        self._clock = clock or SystemClock()
        self._looked_ms = -_LOOK_MS
        run.memory, without_effect = memory
        self._warn(_SIZES, without_effect)

    def query_started(self) -> None:
        """Say how the slots suffice."""
        self._look_at_slots()

    def task_manager_changed(self, event: TaskManagerEvent) -> None:
        """Look whether the slots suffice still, or again."""
        self._look_at_slots()

    def _look_at_slots(self) -> None:
        managers = () if self._run.task_managers is None else self._run.task_managers.describe()
        slots = describe_slots(self._job.required_slots, managers)
        if slots.present and slots.note:
            _LOG.info("job '%s': %s", self._run.name, slots.note)
        self._warn(_SLOTS, slots.note if slots.present == 0 else "")
        self._warn(_UNLIKE, unlike_configured(self._configuration, managers))

    def epoch_done(self, report: EpochReport) -> None:
        """Look whether memory is about to run out."""
        now_ms = self._clock.now_ms()
        if self._run.task_managers is None or 0 <= now_ms - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now_ms
        near = {
            _NEAR + name: text
            for name, text in near_limits(self._run.task_managers.describe(), self._run.memory).items()
        }
        for matter in [one for one in self._run.warnings if one.startswith(_NEAR) and one not in near]:
            self._run.warnings.pop(matter, None)
        for matter, text in near.items():
            if matter not in self._run.warnings:
                self._warn(matter, text)

    def _warn(self, matter: str, text: str) -> None:
        if not text:
            self._run.warnings.pop(matter, None)
        elif self._run.warnings.get(matter) != text:
            _LOG.warning("job '%s': %s", self._run.name, text)
            self._run.warnings[matter] = text
