"""Checkpoints and savepoints: keys that begin with ``execution.checkpointing.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

INTERVAL: ConfigOption[Duration | None] = (
    ConfigOptions.key("execution.checkpointing.interval")
    .duration_type()
    .no_default_value()
    .with_description(
        "Time between checkpoints; 0: none are taken. Without it one minute for a job with a directory "
        "(flinkish.job.dir), and none for others."
    )
)

INTERVAL_DURING_BACKLOG: ConfigOption[Duration | None] = (
    ConfigOptions.key("execution.checkpointing.interval-during-backlog")
    .duration_type()
    .no_default_value()
    .with_description("Time between checkpoints while sources work off a backlog.")
    .without_effect("epochs are the same size with and without a backlog")
)

MODE: ConfigOption[str] = (
    ConfigOptions.key("execution.checkpointing.mode")
    .string_type()
    .default_value("EXACTLY_ONCE")
    .with_description("EXACTLY_ONCE or AT_LEAST_ONCE.")
    .with_choices("EXACTLY_ONCE", "AT_LEAST_ONCE")
    .without_effect("state is exactly-once in any case")
)

TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("execution.checkpointing.timeout")
    .duration_type()
    .default_value(Duration.of_minutes(10))
    .with_description("A checkpoint that takes longer is given up.")
)

MIN_PAUSE: ConfigOption[Duration] = (
    ConfigOptions.key("execution.checkpointing.min-pause")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Least time between the end of a checkpoint and the next one.")
)

MAX_CONCURRENT_CHECKPOINTS: ConfigOption[int] = (
    ConfigOptions.key("execution.checkpointing.max-concurrent-checkpoints")
    .int_type()
    .default_value(1)
    .with_description("How many checkpoints may run at once.")
    .without_effect("checkpoints are taken one at a time")
)

TOLERABLE_FAILED_CHECKPOINTS: ConfigOption[int] = (
    ConfigOptions.key("execution.checkpointing.tolerable-failed-checkpoints")
    .int_type()
    .default_value(0)
    .with_description("How many checkpoints in a row may fail before the job does.")
)

NUM_RETAINED: ConfigOption[int] = (
    ConfigOptions.key("execution.checkpointing.num-retained")
    .int_type()
    .default_value(1)
    .with_description("How many completed checkpoints are kept.")
    .with_deprecated_keys("state.checkpoints.num-retained")
)

DIRECTORY: ConfigOption[str | None] = (
    ConfigOptions.key("execution.checkpointing.dir")
    .string_type()
    .no_default_value()
    .with_description("Where checkpoints are written; without it, in the job directory.")
    .with_deprecated_keys("state.checkpoints.dir")
)

SAVEPOINT_DIRECTORY: ConfigOption[str | None] = (
    ConfigOptions.key("execution.checkpointing.savepoint-dir")
    .string_type()
    .no_default_value()
    .with_description("Where savepoints are written if a call names no directory.")
    .with_deprecated_keys("state.savepoints.dir")
)

STORAGE: ConfigOption[str | None] = (
    ConfigOptions.key("execution.checkpointing.storage")
    .string_type()
    .no_default_value()
    .with_description("jobmanager or filesystem; both are Delta tables here.")
    .with_deprecated_keys("state.checkpoint-storage")
    .without_effect("checkpoints are Delta tables; see execution.checkpointing.dir")
)

INCREMENTAL: ConfigOption[bool] = (
    ConfigOptions.key("execution.checkpointing.incremental")
    .boolean_type()
    .default_value(True)
    .with_description("Write only what changed since the last checkpoint. Flink's default is false.")
    .with_deprecated_keys("state.backend.incremental")
)

EXTERNALIZED_CHECKPOINT_RETENTION: ConfigOption[str] = (
    ConfigOptions.key("execution.checkpointing.externalized-checkpoint-retention")
    .string_type()
    .default_value("NO_EXTERNALIZED_CHECKPOINTS")
    .with_description("What happens to checkpoints when the job is cancelled.")
    .with_deprecated_keys("execution.checkpointing.externalized-checkpoint-retention-policy")
    .with_choices("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS")
)

UNALIGNED: ConfigOption[bool] = (
    ConfigOptions.key("execution.checkpointing.unaligned.enabled")
    .boolean_type()
    .default_value(False)
    .with_description("Accepted; all rows of an epoch share one barrier, so there is nothing to align.")
    .with_deprecated_keys("execution.checkpointing.unaligned")
    .without_effect("there is nothing to align: every epoch ends with a barrier")
)

UNALIGNED_FORCED: ConfigOption[bool] = (
    ConfigOptions.key("execution.checkpointing.unaligned.forced")
    .boolean_type()
    .default_value(False)
    .with_description("Accepted, as unaligned.enabled.")
    .without_effect("there is nothing to align: every epoch ends with a barrier")
)

UNALIGNED_MAX_SUBTASKS_PER_CHANNEL_STATE_FILE: ConfigOption[int] = (
    ConfigOptions.key("execution.checkpointing.unaligned.max-subtasks-per-channel-state-file")
    .int_type()
    .default_value(5)
    .with_description("Accepted, as unaligned.enabled.")
    .without_effect("there is nothing to align: every epoch ends with a barrier")
)

ALIGNED_CHECKPOINT_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("execution.checkpointing.aligned-checkpoint-timeout")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Accepted, as unaligned.enabled.")
    .without_effect("there is nothing to align: every epoch ends with a barrier")
)

CHECKPOINTS_AFTER_TASKS_FINISH: ConfigOption[bool] = (
    ConfigOptions.key("execution.checkpointing.checkpoints-after-tasks-finish")
    .boolean_type()
    .default_value(True)
    .with_description("Take checkpoints also after some sources have ended.")
    .without_effect("checkpoints are taken after some sources have ended, too")
)

SNAPSHOT_COMPRESSION: ConfigOption[bool] = (
    ConfigOptions.key("execution.checkpointing.snapshot-compression")
    .boolean_type()
    .default_value(False)
    .with_description("Compress state in checkpoints.")
    .with_deprecated_keys("execution.checkpointing.snapshot-compression.enabled")
    .without_effect("checkpoints are compressed in any case")
)
