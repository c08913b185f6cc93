"""CheckpointConfig: typed getters and setters of the configuration keys ``execution.checkpointing.*``.

Rule upheld here: as in ExecutionConfig, all settings are kept in the configuration only. Intervals are in milliseconds.
"""

from __future__ import annotations

from flinkish.common.arguments import check_at_least, check_instance
from flinkish.common.configuration import Configuration
from flinkish.common.options import checkpointing
from flinkish.common.time import Duration
from flinkish.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from flinkish.datastream.checkpointing_mode import CheckpointingMode
from flinkish.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from flinkish.jobmanager.job.settings import checkpoint_interval_ms

__all__ = ["CheckpointConfig", "ExternalizedCheckpointCleanup"]

#: The name in PyFlink 1.x.
ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention

_WHERE = "CheckpointConfig"
#: The least interval and the least timeout that Flink accepts.
_MIN_INTERVAL_MS = 10

#: Flink's number for any number of tolerable failures: the largest int of Java.
_ANY_NUMBER = 2**31 - 1


class CheckpointConfig:
    """The checkpoint settings of an environment, as ``env.get_checkpoint_config()`` gives them. Each setter writes to
    the configuration of the environment and returns this object.

    Example::

        env.get_checkpoint_config().set_checkpoint_interval(60_000).set_min_pause_between_checkpoints(10_000)
    """

    #: the defaults, as PyFlink 1.x names them
    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT = 10 * 60 * 1_000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Whether checkpoints are taken, because an interval is set or the job has a directory."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return CheckpointingMode[self._configuration.get(checkpointing.MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        check_instance(
            checkpointing_mode,
            CheckpointingMode,
            "the checkpointing mode is",
            "CheckpointConfig.set_checkpointing_mode()",
            "CheckpointingMode.EXACTLY_ONCE is the default",
        )
        self._configuration.set(checkpointing.MODE, checkpointing_mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """The time between checkpoints in ms; -1 if no checkpoints are taken. One minute if it is not set and the job
        has a directory (``flinkish.job.dir``)."""
        return checkpoint_interval_ms(self._configuration) or -1

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the time between checkpoints in ms, at least 10 (ArgumentValueError)."""
        check_at_least(
            checkpoint_interval,
            _MIN_INTERVAL_MS,
            "the checkpoint interval",
            _WHERE,
            "it is a number of milliseconds",
            "ms",
        )
        self._configuration.set(checkpointing.INTERVAL, Duration.of_millis(checkpoint_interval))
        return self

    def get_checkpoint_timeout(self) -> int:
        return self._configuration.get(checkpointing.TIMEOUT).to_millis()

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the time in ms after which a checkpoint is aborted, at least 10 (ArgumentValueError)."""
        check_at_least(
            checkpoint_timeout,
            _MIN_INTERVAL_MS,
            "the checkpoint timeout",
            _WHERE,
            "it is a number of milliseconds",
            "ms",
        )
        self._configuration.set(checkpointing.TIMEOUT, Duration.of_millis(checkpoint_timeout))
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        return self._configuration.get(checkpointing.MIN_PAUSE).to_millis()

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the least time in ms from the end of a checkpoint to the start of the next one, at least 0."""
        check_at_least(
            min_pause_between_checkpoints,
            0,
            "the pause between checkpoints",
            _WHERE,
            "it is a number of milliseconds",
            "ms",
        )
        self._configuration.set(checkpointing.MIN_PAUSE, Duration.of_millis(min_pause_between_checkpoints))
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        return self._configuration.get(checkpointing.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        check_at_least(
            max_concurrent_checkpoints,
            1,
            "the number of concurrent checkpoints",
            _WHERE,
            "leave it out for the default",
        )
        self._configuration.set(checkpointing.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self._configuration.get(checkpointing.TOLERABLE_FAILED_CHECKPOINTS)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail, at least 0. One more fails the job, which the restart strategy
        may restart."""
        check_at_least(
            tolerable_checkpoint_failure_number,
            0,
            "the number of tolerable checkpoint failures",
            _WHERE,
            "leave it out for the default",
        )
        self._configuration.set(checkpointing.TOLERABLE_FAILED_CHECKPOINTS, tolerable_checkpoint_failure_number)
        return self

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether the first checkpoint that fails also fails the job. Deprecated since Flink 1.9."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Set whether the first checkpoint that fails also fails the job; False tolerates any number of failures.
        Deprecated since Flink 1.9."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else _ANY_NUMBER)

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Set the storage of checkpoints, as in PyFlink 1.x: sets or removes ``execution.checkpointing.dir``."""
        check_instance(
            storage,
            CheckpointStorage,
            "the checkpoint storage is",
            "CheckpointConfig.set_checkpoint_storage()",
            "for a directory call set_checkpoint_storage_dir(path)",
        )
        directory = storage._directory()
        if directory is None:
            self._configuration.remove_config(checkpointing.DIRECTORY.key)
            return self
        return self.set_checkpoint_storage_dir(directory)

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory to which checkpoints are written, as in PyFlink 1.x."""
        self._configuration.set(checkpointing.DIRECTORY, checkpoint_path)
        return self

    def get_checkpoint_storage(self) -> CheckpointStorage:
        """The storage of checkpoints, as in PyFlink 1.x: a FileSystemCheckpointStorage of the configured directory, or
        a JobManagerCheckpointStorage if checkpoints are written to the job directory."""
        directory = self._configuration.get(checkpointing.DIRECTORY)
        return JobManagerCheckpointStorage() if directory is None else FileSystemCheckpointStorage(directory)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are kept when the job is cancelled."""
        check_instance(
            retention_mode,
            ExternalizedCheckpointRetention,
            "the retention is",
            "CheckpointConfig.set_externalized_checkpoint_retention()",
            "ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION keeps the checkpoints of a cancelled job",
        )
        self._configuration.set(checkpointing.EXTERNALIZED_CHECKPOINT_RETENTION, retention_mode.name)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return ExternalizedCheckpointRetention[self._configuration.get(checkpointing.EXTERNALIZED_CHECKPOINT_RETENTION)]

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointCleanup) -> CheckpointConfig:
        """The name of `set_externalized_checkpoint_retention` before 1.15."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_cleanup(self, cleanup_mode: ExternalizedCheckpointCleanup) -> CheckpointConfig:
        """The name of `set_externalized_checkpoint_retention` in PyFlink 1.x."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointCleanup:
        """The name of `get_externalized_checkpoint_retention` in PyFlink 1.x."""
        return self.get_externalized_checkpoint_retention()

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether checkpoints can outlive the run of the job: the retention is not NO_EXTERNALIZED_CHECKPOINTS."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    # --- alignment: all rows of an epoch share one barrier, so there is nothing to align; settings are only kept ----

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._configuration.get(checkpointing.UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        self._configuration.set(checkpointing.UNALIGNED, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        return self.enable_unaligned_checkpoints(False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        return self._configuration.get(checkpointing.ALIGNED_CHECKPOINT_TIMEOUT)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        self._configuration.set(checkpointing.ALIGNED_CHECKPOINT_TIMEOUT, alignment_timeout)
        return self

    def get_alignment_timeout(self) -> Duration:
        """The older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """The older name of `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._configuration.get(checkpointing.UNALIGNED_FORCED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        self._configuration.set(checkpointing.UNALIGNED_FORCED, force_unaligned_checkpoints)
        return self
