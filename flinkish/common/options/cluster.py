"""JobManager and TaskManager: keys that begin with ``jobmanager.`` and ``taskmanager.``; and the keys of
Flink that nothing in flinkish reads (`UNREAD`), with the reason for each.
"""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

NUMBER_OF_TASK_SLOTS: ConfigOption[int] = (
    ConfigOptions.key("taskmanager.numberOfTaskSlots")
    .int_type()
    .default_value(1)
    .with_lowest(1)
    .with_description(
        "Slots of a TaskManager. If it is set, flinkish starts executors with so many (spark.executor.cores, unless "
        "that is set, is this times spark.task.cpus), and warns of executors that have another number. Otherwise they "
        "have what Spark gives them."
    )
)

SLOT_REQUEST_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("slot.request.timeout")
    .duration_type()
    .default_value(Duration.of_minutes(5))
    .with_description(
        "How long a job waits for its first slot, as CREATED, while no executor is there. Then its start fails with a "
        "NoResourceAvailableError."
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

ARCHIVE_DIRECTORY: ConfigOption[str | None] = (
    ConfigOptions.key("jobmanager.archive.fs.dir")
    .string_type()
    .no_default_value()
    .with_description(
        "Directory for the archives of jobs that have ended, in Flink's format, as its history server reads them: for "
        "each a file named by the job's id."
    )
)

LATENCY_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("metrics.latency.interval")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Time between latency markers; 0 ms: none.")
    .without_effect("there are no latency markers")
)

_SPARK = "Spark takes the place of Flink's cluster"
_STATE = (
    "keyed state lies in the memory of the Python workers and in files of the job directory; see "
    "taskmanager.memory.managed.size and flinkish.state.inline-size"
)
_CHECKPOINTS = "checkpoints are Delta tables; see execution.checkpointing.dir"
_FILE_SYSTEMS = "file systems are Hadoop's, with the settings spark.hadoop.fs.*"

#: Flink's keys that nothing here reads, and the beginnings (up to a dot) of such keys -> why they have no effect, or
#: what to set instead. Declared options and exact keys win over beginnings, and long beginnings over short ones.
UNREAD: dict[str, str] = {
    **dict.fromkeys(
        (
            *("$internal.", "akka.", "blob.", "classloader.", "cleanup-strategy.", "client.", "cluster.", "compiler."),
            *("containerized.", "external-resource.", "external-resources", "heartbeat.", "high-availability"),
            *("high-availability.", "historyserver.", "io.tmp.dirs", "jmx.", "job-event.", "job-result-store."),
            *("jobmanager.", "jobstore.", "kubernetes.", "library-cache-manager.", "local.number-taskmanager"),
            *("mesos.", "minicluster.", "pekko.", "plugin.", "process.", "queryable-state.", "query.", "recovery."),
            *("resourcemanager.", "rest.", "security.", "shuffle-service-factory.", "slot.", "slotmanager."),
            *("slow-task-detector.", "task.cancellation-interval", "task.cancellation.timers.timeout"),
            *("taskmanager.", "web.", "yarn.", "zookeeper.", "execution.allow-client-job-configurations"),
            *("execution.batch.", "execution.batch-shuffle-mode", "execution.program-config."),
            *("execution.shutdown-on-application-finish", "execution.submit-failed-job-on-application-error"),
            *("execution.sort-keyed-partition.memory", "execution.sort-partition.memory"),
            *("execution.sorted-inputs.memory", "pipeline.jobvertex-parallelism-overrides"),
        ),
        _SPARK,
    ),
    "env.": "set spark.driver.* and spark.executor.* instead, such as spark.executor.extraJavaOptions",
    **dict.fromkeys(("events.", "metrics.", "traces."), "metrics are in the description of the job; Spark has its own"),
    **dict.fromkeys(("fs.", "gs.", "oss.", "presto.", "s3.", "s3a."), _FILE_SYSTEMS),
    **dict.fromkeys(
        ("lookup.", "materialized-table.", "sql-client.", "sql-gateway.", "table."),
        "queries have no such setting here; docs/tables.md lists those that there are",
    ),
    "user.artifacts.": "see python.files, python.archives and pipeline.jars",
    **dict.fromkeys(
        ("execution.job-listeners", "execution.job-status-changed-listeners"),
        "classes of Java are not called; flinkish describe and the history tell the same",
    ),
    **dict.fromkeys(
        ("execution.async-state.", "state.backend.async", "state.backend.forst.", "state.backend.rocksdb."), _STATE
    ),
    **dict.fromkeys(
        ("dstl.", "state.backend.changelog.", "state.changelog."),
        "changes of state are written at each epoch in any case",
    ),
    **dict.fromkeys(
        (
            *("execution.checkpointing.cleaner.", "execution.checkpointing.create-subdir"),
            *("execution.checkpointing.data-inline-threshold", "execution.checkpointing.file-merging."),
            *("execution.checkpointing.write-buffer-size", "savepoints.state.backend.fs.dir", "state.backend.fs."),
            *("state.checkpoint.cleaner.", "state.checkpoints.create-subdir", "state.storage."),
        ),
        _CHECKPOINTS,
    ),
    **dict.fromkeys(
        (
            "execution.checkpointing.alignment-timeout",
            "execution.checkpointing.force-unaligned",
            "execution.checkpointing.recover-without-channel-state.checkpoint-id",
            "execution.checkpointing.unaligned.interruptible-timers.enabled",
            "execution.checkpointing.unaligned.recover-output-on-downstream.enabled",
            "execution.checkpointing.during-recovery.enabled",
            "execution.state-recovery.without-channel-state.checkpoint-id",
        ),
        "there is nothing to align: every epoch ends with a barrier",
    ),
    "execution.checkpointing.checkpoints-after-tasks-finish.enabled": (
        "checkpoints are taken after some sources have ended, too"
    ),
    **dict.fromkeys(
        (
            "execution.checkpointing.approximate-local-recovery",
            "execution.checkpointing.local-backup.",
            "execution.state-recovery.approximate-local-recovery",
        ),
        "see execution.state-recovery.from-local",
    ),
    **dict.fromkeys(
        ("state.backend.latency-track.", "state.backend.size-track.", "state.latency-track.", "state.size-track."),
        "accesses to state are not timed",
    ),
    **dict.fromkeys(
        (
            *("pipeline.default-kryo-serializers", "pipeline.force-kryo-avro", "pipeline.registered-kryo-types"),
            *("pipeline.registered-pojo-types", "pipeline.serialization-config"),
        ),
        "there are no Java serializers",
    ),
    **dict.fromkeys(
        ("pipeline.vertex-description-mode", "pipeline.vertex-name-include-index-prefix"),
        "flinkish describes vertices in its own way",
    ),
    **dict.fromkeys(
        ("python.internal.", "python.job-options", "python.loopback-server.address"), "Spark starts the workers"
    ),
}
