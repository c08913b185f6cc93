"""The settings of checkpoints, read from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.common.configuration import Configuration
from flinkish.common.options import checkpointing, flinkish

#: The time between checkpoints of a job with a directory that sets none, in ms.
DEFAULT_INTERVAL_MS = 60_000


@dataclass(frozen=True)
class CheckpointSettings:
    """The settings of a job's checkpoints. ``interval_ms`` None: no checkpoints are taken."""

    interval_ms: int | None = None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    #: accepted, but 1 in effect: a checkpoint is written by one Delta commit, and commits follow each other
    max_concurrent: int = 1
    #: how many checkpoints in a row may fail before the job does
    tolerable_failures: int = 0
    num_retained: int = 1
    directory: str | None = None
    incremental: bool = True
    #: whether checkpoints are kept when the job is cancelled
    retain_on_cancellation: bool = False

    @property
    def enabled(self) -> bool:
        """Whether checkpoints are taken."""
        return self.interval_ms is not None

    @property
    def changelog(self) -> bool:
        """Whether tasks must write down what each epoch has changed in their state."""
        return self.enabled and self.incremental


def checkpoint_interval_ms(configuration: Configuration) -> int | None:
    """The time between checkpoints in ms: ``execution.checkpointing.interval`` if it is set, where 0 means that none
    are taken; otherwise one minute for a job with a directory (``flinkish.job.dir``). None: none are taken."""
    interval = configuration.get(checkpointing.INTERVAL)
    if interval is None:
        return None if configuration.get(flinkish.JOB_DIR) is None else DEFAULT_INTERVAL_MS
    return interval.to_millis() if interval.to_millis() > 0 else None


def checkpoint_settings(configuration: Configuration) -> CheckpointSettings:
    """Read ``execution.checkpointing.*``."""
    retention = configuration.get(checkpointing.EXTERNALIZED_CHECKPOINT_RETENTION)
    return CheckpointSettings(
        interval_ms=checkpoint_interval_ms(configuration),
        timeout_ms=configuration.get(checkpointing.TIMEOUT).to_millis(),
        min_pause_ms=configuration.get(checkpointing.MIN_PAUSE).to_millis(),
        max_concurrent=configuration.get(checkpointing.MAX_CONCURRENT_CHECKPOINTS),
        tolerable_failures=configuration.get(checkpointing.TOLERABLE_FAILED_CHECKPOINTS),
        num_retained=max(1, configuration.get(checkpointing.NUM_RETAINED)),
        directory=configuration.get(checkpointing.DIRECTORY),
        incremental=configuration.get(checkpointing.INCREMENTAL),
        retain_on_cancellation=retention == "RETAIN_ON_CANCELLATION",
    )
