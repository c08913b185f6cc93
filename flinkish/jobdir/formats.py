"""All kinds of files in a job directory, of which ``docs/formats.md`` is made. No driver needs the list."""

from __future__ import annotations

from flinkish.jobdir.checks import OF_DIRECTORY
from flinkish.minicluster.stored_epochs import Committed, StoredEpoch
from flinkish.runtime.epoch.changelog_files import ChangelogParts
from flinkish.runtime.epoch.files import PreparedEpoch
from flinkish.runtime.epoch.planner import EpochRequested, GivenUpPlan, StoredEpochTimes, StoredReached, StoredTimers
from flinkish.runtime.job.accumulators import StoredTotals, TotalsBefore
from flinkish.runtime.sources.split_list import Segment
from flinkish.runtime.task.open_functions import LifecycleTrace, OpenAttempt, OpenWorker
from flinkish.runtime.task.progress import WorkerProgress
from flinkish.runtime.task.stack_samples import SampleRequest, StackSamples
from flinkish.storage.stored_file import StoredFile

#: All kinds of files in a job directory that flinkish writes and reads as a whole, but for those of checkpoints.
LAYOUT: tuple[type[StoredFile], ...] = (
    *OF_DIRECTORY,
    *(PreparedEpoch, StoredEpoch, Committed, StoredTotals, TotalsBefore, Segment, ChangelogParts, GivenUpPlan),
    *(EpochRequested, StoredEpochTimes, StoredTimers, StoredReached, WorkerProgress, SampleRequest, StackSamples),
    *(OpenAttempt, OpenWorker, LifecycleTrace),
)
