"""Parallelism and the pipeline: keys that begin with ``parallelism.``, ``pipeline.`` and ``task.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

PARALLELISM: ConfigOption[int | None] = (
    ConfigOptions.key("parallelism.default")
    .int_type()
    .no_default_value()
    .with_description(
        "Parallelism of operators that set none. Default: as many as the cluster has task slots when the job starts; "
        "in the minicluster, the number of cores."
    )
)

MAX_PARALLELISM: ConfigOption[int | None] = (
    ConfigOptions.key("pipeline.max-parallelism")
    .int_type()
    .no_default_value()
    .with_description("Number of key groups; without it the engine chooses a small multiple of the parallelism.")
)

NAME: ConfigOption[str | None] = (
    ConfigOptions.key("pipeline.name").string_type().no_default_value().with_description("Name of the job.")
)

OPERATOR_CHAINING: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.operator-chaining.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Run operators that are joined by forward edges in one task.")
    .with_deprecated_keys("pipeline.operator-chaining")
)

CHAIN_OPERATORS_WITH_DIFFERENT_MAX_PARALLELISM: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.operator-chaining.chain-operators-with-different-max-parallelism")
    .boolean_type()
    .default_value(True)
    .with_description("Chain also operators whose max parallelism differs.")
)

AUTO_WATERMARK_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("pipeline.auto-watermark-interval")
    .duration_type()
    .default_value(Duration.of_millis(200))
    .with_description("How often watermarks are taken from the generators; 0 ms: never.")
)

GLOBAL_JOB_PARAMETERS: ConfigOption[dict[str, str]] = (
    ConfigOptions.key("pipeline.global-job-parameters")
    .map_type()
    .default_value({})
    .with_description("Parameters that every function can read from its runtime context.")
)

OBJECT_REUSE: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.object-reuse")
    .boolean_type()
    .default_value(False)
    .with_description("Allow passing the same object to several functions.")
    .without_effect("records are copied only where something in them could be changed")
)

JARS: ConfigOption[list[str]] = (
    ConfigOptions.key("pipeline.jars")
    .list_type()
    .default_value([])
    .with_description("Jars that are shipped with the job to Spark.")
)

CLASSPATHS: ConfigOption[list[str]] = (
    ConfigOptions.key("pipeline.classpaths")
    .list_type()
    .default_value([])
    .with_description("Class path entries that every node has already.")
)

CLOSURE_CLEANER_LEVEL: ConfigOption[str] = (
    ConfigOptions.key("pipeline.closure-cleaner-level")
    .string_type()
    .default_value("RECURSIVE")
    .with_description("Java only; kept for programs that set it.")
    .with_choices("NONE", "TOP_LEVEL", "RECURSIVE")
    .without_effect("there are no Java closures")
)

AUTO_GENERATE_UIDS: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.auto-generate-uids")
    .boolean_type()
    .default_value(True)
    .with_description(
        "Give operators without a uid one that follows from the topology; if false, every operator needs a uid."
    )
)

CACHED_FILES: ConfigOption[list[str]] = (
    ConfigOptions.key("pipeline.cached-files")
    .list_type()
    .default_value([])
    .with_description(
        "Files that functions find in the workers by name: name:NAME,path:PATH,executable:true;name:..., see "
        "register_cached_file."
    )
)

FORCE_KRYO: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.force-kryo")
    .boolean_type()
    .default_value(False)
    .with_description("Java only; kept for programs that set it.")
    .without_effect("there is no Kryo")
)

FORCE_AVRO: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.force-avro")
    .boolean_type()
    .default_value(False)
    .with_description("Java only; kept for programs that set it.")
    .without_effect("there are no Java serializers")
)

GENERIC_TYPES: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.generic-types")
    .boolean_type()
    .default_value(True)
    .with_description("Allow values without a declared type (pickled).")
    .without_effect("there is no Kryo; values without a declared type are pickled, as in PyFlink")
)

WATERMARK_ALIGNMENT_ALLOW_UNALIGNED_SOURCE_SPLITS: ConfigOption[bool] = (
    ConfigOptions.key("pipeline.watermark-alignment.allow-unaligned-source-splits")
    .boolean_type()
    .default_value(False)
    .with_description("Accepted; alignment is inherent within an epoch.")
    .without_effect("sources cannot run apart by more than an epoch")
)

TASK_CANCELLATION_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("task.cancellation.interval")
    .duration_type()
    .default_value(Duration.of_millis(30000))
    .with_description("Time between two interruptions of a call of user code whose job is cancelled or given up.")
)

TASK_CANCELLATION_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("task.cancellation.timeout")
    .duration_type()
    .default_value(Duration.of_millis(180000))
    .with_description(
        "How long a commit that has begun is waited for when a job is cancelled, and the end of Spark's query and of "
        "its tasks when an epoch fails or is given up; and how long the functions may take to close when an attempt is "
        "over: then their worker process is killed. 0: for ever."
    )
)
