"""flinkish's own keys, which Flink does not have."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

JOB_DIR: ConfigOption[str | None] = (
    ConfigOptions.key("flinkish.job.dir")
    .string_type()
    .no_default_value()
    .with_description(
        "Where the job keeps its state and history; with it the job takes checkpoints and restarts after failures by "
        "default. Without it a temporary directory, and the job cannot be resumed."
    )
)

JOB_TAKEOVER: ConfigOption[str] = (
    ConfigOptions.key("flinkish.job.takeover")
    .string_type()
    .default_value("refuse")
    .with_description(
        "What a driver does that finds a living one on its job directory: refuse (end, naming it) or newest (take the "
        "job over; the other one stops)."
    )
    .with_choices("refuse", "newest")
)

JOB_RESTART: ConfigOption[bool] = (
    ConfigOptions.key("flinkish.job.restart")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether a job that was stopped with a savepoint, or cancelled, goes on when it is started again in its job "
        "directory. Otherwise it ends at once, as it did."
    )
)

EPOCH_TARGET_DURATION: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.epoch.target-duration")
    .duration_type()
    .default_value(Duration.of_seconds(2))
    .with_description(
        "How long an epoch with a backlog is to take, never longer than the checkpoint interval: it reads as many "
        "records as fit, going by what the last epochs have taken, within the limits per source. 0 ms: as many as "
        "these allow."
    )
)

EPOCH_MAX_RECORDS_PER_SOURCE: ConfigOption[int | None] = (
    ConfigOptions.key("flinkish.epoch.max-records-per-source")
    .long_type()
    .no_default_value()
    .with_description(
        "Most records that an epoch takes from one source. Default: 2,000,000 for each of its subtasks, at least "
        "4,000,000."
    )
)

EPOCH_MAX_BYTES_PER_SOURCE: ConfigOption[int | None] = (
    ConfigOptions.key("flinkish.epoch.max-bytes-per-source")
    .memory_type()
    .no_default_value()
    .with_description(
        "Most bytes that an epoch takes from one source. Default: 128 MiB for each of its subtasks, at least 256 MiB."
    )
)

STATE_INLINE_SIZE: ConfigOption[int] = (
    ConfigOptions.key("flinkish.state.inline-size")
    .memory_type()
    .default_value(256 * 1024)
    .with_description(
        "Keyed state of a subtask of about this size lies in Spark's state store and is read and written in each "
        "epoch; more of it lies in files of the job directory, which are read by key, and changes of a quarter of this "
        "size go to a file of their own. So does operator state, each state that is too large in a file."
    )
)

EPOCH_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.epoch.interval")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Least time between the starts of two epochs; 0 ms: one after the other.")
)

EPOCH_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.epoch.timeout")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description(
        "How long an epoch may take. Then it is given up, which fails the job: a restart, if the strategy allows one, "
        "plans the epoch anew. 0 ms: as long as it takes."
    )
)

HEARTBEAT_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.heartbeat.interval")
    .duration_type()
    .default_value(Duration.of_millis(200))
    .with_description("Time between epochs without data, in jobs that need them (timers, idle sources).")
)

SOURCE_BATCH_SIZE: ConfigOption[int] = (
    ConfigOptions.key("flinkish.source.batch-size")
    .int_type()
    .default_value(1_000)
    .with_description("Records that pass through a chain of operators at a time.")
)

SOURCE_MAX_RECORD_BYTES: ConfigOption[int] = (
    ConfigOptions.key("flinkish.source.max-record-bytes")
    .memory_type()
    .default_value(64 * 1024 * 1024)
    .with_description(
        "The longest line, or block of an Avro file (packed and unpacked), that a source of files reads; a longer one "
        "fails the job before it fills the memory."
    )
)

BUFFER_MAX_RECORDS: ConfigOption[int] = (
    ConfigOptions.key("flinkish.buffer.max-records")
    .int_type()
    .default_value(20_000)
    .with_description(
        "Most records that a task holds back in its buffers for an edge, and never more than 1,250 per receiver."
    )
)

BUFFER_MAX_BYTES: ConfigOption[int] = (
    ConfigOptions.key("flinkish.buffer.max-bytes")
    .memory_type()
    .default_value(16 * 1024 * 1024)
    .with_description("About how many bytes of records a task holds back in its buffers for an edge.")
)

SHUTDOWN_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.shutdown.timeout")
    .duration_type()
    .default_value(Duration.of_seconds(60))
    .with_description(
        "How long the job has to end after SIGTERM. The running epoch is given up after half of it, and planned anew "
        "by the next start; the rest is for the last checkpoint. When it is over, the process ends with exit code 75."
    )
)

PROGRESS: ConfigOption[str] = (
    ConfigOptions.key("flinkish.progress")
    .string_type()
    .default_value("auto")
    .with_description("Show a line of progress: auto (if the job runs in the foreground), always, never.")
    .with_choices("auto", "always", "never")
)

TASK_SLOW_CALL_WARNING: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.task.slow-call-warning")
    .duration_type()
    .default_value(Duration.of_seconds(30))
    .with_description(
        "Time after which a call of a function that has not returned is named in the driver's log and in `describe`, "
        "with its operator, key, record and stack; then again each time it has taken twice as long. 0 ms: never."
    )
)

TRACE_LIFECYCLE: ConfigOption[bool] = (
    ConfigOptions.key("flinkish.trace.lifecycle")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether `describe` and the page show the last calls of the lifecycle of each operator (setup, open, "
        "snapshot_state, close and so on), with subtask, epoch and worker process."
    )
)

ERRORS_RECORDS: ConfigOption[str] = (
    ConfigOptions.key("flinkish.errors.records")
    .string_type()
    .default_value("on")
    .with_description(
        "Whether errors and warnings name the record and the key that a function was called with, and quote values "
        "that do not fit their types. What an exception of the program says itself is not changed."
    )
    .with_choices("on", "off")
)

HISTORY_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("flinkish.history.enabled")
    .boolean_type()
    .default_value(True)
    .with_description(
        "Keep the history of the job in Delta tables below its directory: history/jobs, executions, exceptions, "
        "checkpoints and task_managers."
    )
)

HISTORY_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.history.interval")
    .duration_type()
    .default_value(Duration.of_seconds(60))
    .with_description("How often the history is written, if there is news; besides 5 s after the start and at the end.")
)

HISTORY_RETENTION: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.history.retention")
    .duration_type()
    .default_value(Duration.of_days(30))
    .with_description("Age at which days of the history (UTC) are deleted from its tables; 0 ms: never.")
)

STATE_PACKAGES: ConfigOption[str | None] = (
    ConfigOptions.key("flinkish.state.packages")
    .string_type()
    .no_default_value()
    .with_description(
        "Packages (names, separated by commas) whose classes may be in state although they are libraries: installed "
        "ones, and those in other folders than that of the main script which are not shipped. Whoever can write state "
        "can have instances of these classes made."
    )
)

PREPARE: ConfigOption[str] = (
    ConfigOptions.key("flinkish.prepare")
    .string_type()
    .default_value("auto")
    .with_choices("auto", "off")
    .with_description(
        "auto: after the first program on a local master, what makes later starts faster (flinkish prepare) is made in "
        "the background, with low priority. off: only flinkish prepare makes it."
    )
)

SPARK_PARTITIONS: ConfigOption[int | None] = (
    ConfigOptions.key("flinkish.spark.partitions")
    .int_type()
    .no_default_value()
    .with_description(
        "Most Spark tasks per level and per source: subtask n runs in task n modulo this number, one subtask after the "
        "other. Default: as many as there are subtasks; more make no difference. Like the parallelism, it can change "
        "at a restore from a savepoint only."
    )
    .with_lowest(1)
)

NUM_STANDBY_REPLICAS: ConfigOption[int] = (
    ConfigOptions.key("num.standby.replicas")
    .int_type()
    .default_value(0)
    .with_description(
        "Kafka Streams' key: so many other executors keep copies of the files of each subtask's state, as far as Spark "
        "places tasks so; where files of state are copied to the executors' disks."
    )
)

RECOVERY_FALLBACK: ConfigOption[str] = (
    ConfigOptions.key("flinkish.recovery.fallback")
    .string_type()
    .default_value("exact")
    .with_description(
        "What to do when Spark's own checkpoint of the query is damaged. exact: go back to the last completed "
        "checkpoint if no epoch has begun behind it, or if all sinks are idempotent (upserts, Delta merges), else "
        "refuse. replay: go back in any case; sinks that are not "
        "idempotent see the records of the repeated epochs again. never: refuse."
    )
    .with_choices("exact", "replay", "never")
)

MINICLUSTER_SHARE_FUNCTIONS: ConfigOption[bool] = (
    ConfigOptions.key("flinkish.minicluster.share-functions")
    .boolean_type()
    .default_value(False)
    .with_description(
        "true: in the minicluster, operators and subtasks call the very functions of the program, and share what these "
        "capture with it, for tests and debuggers that look into them; instances of classes are copied for each all "
        "the same. false: each has a copy of everything, as on Spark, and what Spark would refuse is refused."
    )
)
