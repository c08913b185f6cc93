"""JobManager and TaskManager: keys that begin with ``jobmanager.``, ``taskmanager.`` and ``rest.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

NUMBER_OF_TASK_SLOTS: ConfigOption[int] = (
    ConfigOptions.key("taskmanager.numberOfTaskSlots")
    .int_type()
    .default_value(1)
    .with_description("Slots of a TaskManager; here spark.executor.cores.")
    .without_effect("see spark.executor.cores")
)

MANAGED_MEMORY_SIZE: ConfigOption[int] = (
    ConfigOptions.key("taskmanager.memory.managed.size")
    .memory_type()
    .default_value(512 * 1024 * 1024)
    .with_description(
        "About what the state that a Python worker keeps in memory may take; the rest is read from files when it is "
        "used."
    )
)

LOCAL_STATE_ROOT_DIRS: ConfigOption[str | None] = (
    ConfigOptions.key("taskmanager.state.local.root-dirs")
    .string_type()
    .no_default_value()
    .with_description(
        "Folder on the disk of each executor for copies of files of state (of several the first one); copies of "
        "different executors lie apart. By default files are copied only if the job directory is not local, or with "
        "execution.state-recovery.from-local, into Spark's scratch directory."
    )
)

SCHEDULER: ConfigOption[str] = (
    ConfigOptions.key("jobmanager.scheduler")
    .string_type()
    .default_value("Default")
    .with_description("Accepted; Spark schedules.")
    .with_choices("Default", "Adaptive", "AdaptiveBatch")
    .without_effect("Spark schedules")
)

FAILOVER_STRATEGY: ConfigOption[str] = (
    ConfigOptions.key("jobmanager.execution.failover-strategy")
    .string_type()
    .default_value("region")
    .with_description("What is restarted together: full or region; here an epoch is one region.")
    .with_choices("full", "region")
    .without_effect("an epoch is one region")
)

REST_ADDRESS: ConfigOption[str | None] = (
    ConfigOptions.key("rest.address")
    .string_type()
    .no_default_value()
    .with_description("Address of the REST endpoint for clients.")
    .without_effect("there is no REST endpoint")
)

REST_PORT: ConfigOption[int] = (
    ConfigOptions.key("rest.port")
    .int_type()
    .default_value(8081)
    .with_description("Port of the REST endpoint.")
    .without_effect("there is no REST endpoint")
)

LATENCY_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("metrics.latency.interval")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Time between latency markers; 0 ms: none.")
    .without_effect("there are no latency markers")
)
