"""How a job is run: keys that begin with ``execution.``, except those of checkpointing."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

RUNTIME_MODE: ConfigOption[str] = (
    ConfigOptions.key("execution.runtime-mode")
    .string_type()
    .default_value("STREAMING")
    .with_description("STREAMING, BATCH, or AUTOMATIC (BATCH if all sources are bounded).")
    .with_choices("STREAMING", "BATCH", "AUTOMATIC")
)

TRIGGER: ConfigOption[str] = (
    ConfigOptions.key("execution.trigger")
    .string_type()
    .default_value("continuous")
    .with_description(
        "continuous: go on until cancelled; available-now: process what is there when the job starts, then finish."
    )
    .with_choices("continuous", "available-now")
)

BUFFER_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("execution.buffer-timeout.interval")
    .duration_type()
    .default_value(Duration.of_millis(100))
    .with_description("How long a buffer may wait to be filled; an epoch ends all buffers anyway.")
    .with_deprecated_keys("execution.buffer-timeout")
    .without_effect("the end of an epoch flushes all buffers")
)

BUFFER_TIMEOUT_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("execution.buffer-timeout.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Whether the buffer timeout applies.")
    .without_effect("the end of an epoch flushes all buffers")
)

STATE_RECOVERY_PATH: ConfigOption[str | None] = (
    ConfigOptions.key("execution.state-recovery.path")
    .string_type()
    .no_default_value()
    .with_description("Savepoint or checkpoint to start from.")
    .with_deprecated_keys("execution.savepoint.path")
)

STATE_RECOVERY_CLAIM_MODE: ConfigOption[str] = (
    ConfigOptions.key("execution.state-recovery.claim-mode")
    .string_type()
    .default_value("NO_CLAIM")
    .with_description("Who owns the savepoint after the restore.")
    .with_deprecated_keys("execution.savepoint-restore-mode")
    .with_choices("NO_CLAIM", "CLAIM", "LEGACY")
)

STATE_RECOVERY_IGNORE_UNCLAIMED_STATE: ConfigOption[bool] = (
    ConfigOptions.key("execution.state-recovery.ignore-unclaimed-state")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Allow a savepoint or the job directory to hold state of operators that the program no longer has; that state "
        "is dropped."
    )
    .with_deprecated_keys("execution.savepoint.ignore-unclaimed-state")
)

STATE_RECOVERY_DRY_RUN: ConfigOption[bool] = (
    ConfigOptions.key("execution.state-recovery.dry-run")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Print what a start would do with each state of the savepoint, or of the job in its directory, and end: with "
        "exit code 0 if it is possible, else 1. "
        "Not in Flink."
    )
)

STATE_RECOVERY_FROM_LOCAL: ConfigOption[bool] = (
    ConfigOptions.key("execution.state-recovery.from-local")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Copy files of state to the executors' disks, and read them there, also if the job directory is local."
        " Copies from job directories elsewhere are made in any case."
    )
    .with_deprecated_keys("state.backend.local-recovery")
)

ATTACHED: ConfigOption[bool] = (
    ConfigOptions.key("execution.attached")
    .boolean_type()
    .default_value(False)
    .with_description("Wait for the job to end when it is submitted.")
    .without_effect("who starts the job decides whether to wait for it: execute() or execute_async()")
)

SHUTDOWN_ON_ATTACHED_EXIT: ConfigOption[bool] = (
    ConfigOptions.key("execution.shutdown-on-attached-exit")
    .boolean_type()
    .default_value(False)
    .with_description("Cancel the job when the submitting process ends.")
    .without_effect("a job ends with its driver")
)

TARGET: ConfigOption[str | None] = (
    ConfigOptions.key("execution.target")
    .string_type()
    .no_default_value()
    .with_description(
        "minicluster: run the job in the program's own process, without Spark. Any other value: on Spark, whose master "
        "says where."
    )
)

SORTED_INPUTS: ConfigOption[bool] = (
    ConfigOptions.key("execution.sorted-inputs.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("BATCH: feed keyed operators sorted by key.")
    .without_effect("inputs are read in the order of time in every mode")
)

BATCH_STATE_BACKEND: ConfigOption[bool] = (
    ConfigOptions.key("execution.batch-state-backend.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("BATCH: keep state of one key at a time.")
    .without_effect("state is the same in every mode")
)
