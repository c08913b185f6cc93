"""Python workers: keys that begin with ``python.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions

EXECUTABLE: ConfigOption[str | None] = (
    ConfigOptions.key("python.executable")
    .string_type()
    .no_default_value()
    .with_description("Interpreter of the workers; without it that of the driver.")
)

CLIENT_EXECUTABLE: ConfigOption[str] = (
    ConfigOptions.key("python.client.executable")
    .string_type()
    .default_value("python")
    .with_description("Interpreter of the submitting process.")
    .without_effect("the driver is the process that runs the program")
)

FILES: ConfigOption[str | None] = (
    ConfigOptions.key("python.files")
    .string_type()
    .no_default_value()
    .with_description("Files and directories put on the workers' Python path, separated by commas.")
)

ARCHIVES: ConfigOption[str | None] = (
    ConfigOptions.key("python.archives")
    .string_type()
    .no_default_value()
    .with_description("Archives unpacked in the workers' directory, separated by commas, each as path or path#target.")
)

REQUIREMENTS: ConfigOption[str | None] = (
    ConfigOptions.key("python.requirements")
    .string_type()
    .no_default_value()
    .with_description(
        "requirements.txt of the workers; after # a folder with the packages, so that none is downloaded."
    )
)

PYTHONPATH: ConfigOption[str | None] = (
    ConfigOptions.key("python.pythonpath")
    .string_type()
    .no_default_value()
    .with_description("Folders, separated by colons, that the workers find modules in, behind those of their own.")
)

SYSTEMENV_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("python.systemenv.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Pass the system's environment to the workers.")
    .without_effect("workers have the environment that Spark gives them")
)

EXECUTION_MODE: ConfigOption[str] = (
    ConfigOptions.key("python.execution-mode")
    .string_type()
    .default_value("process")
    .with_description("Accepted; Spark runs worker processes.")
    .with_choices("process", "thread")
    .without_effect("Spark runs the workers, as processes")
)

BUNDLE_SIZE: ConfigOption[int] = (
    ConfigOptions.key("python.fn-execution.bundle.size")
    .int_type()
    .default_value(1000)
    .with_description("Accepted; see flinkish.source.batch-size.")
    .without_effect("see flinkish.source.batch-size")
)

BUNDLE_TIME: ConfigOption[int] = (
    ConfigOptions.key("python.fn-execution.bundle.time")
    .long_type()
    .default_value(1000)
    .with_description("Accepted (ms).")
    .without_effect("an epoch bounds how long records wait")
)

ARROW_BATCH_SIZE: ConfigOption[int] = (
    ConfigOptions.key("python.fn-execution.arrow.batch.size")
    .int_type()
    .default_value(1000)
    .with_description("Accepted; see flinkish.source.batch-size.")
    .without_effect("see flinkish.source.batch-size")
)

MEMORY_MANAGED: ConfigOption[bool] = (
    ConfigOptions.key("python.fn-execution.memory.managed")
    .boolean_type()
    .default_value(True)
    .with_description("Accepted.")
    .without_effect("see taskmanager.memory.managed.size")
)

STATE_CACHE_SIZE: ConfigOption[int] = (
    ConfigOptions.key("python.state.cache-size")
    .int_type()
    .default_value(1000)
    .with_description("Accepted; state of a key group is in the worker's memory.")
    .without_effect("state is in the memory of its worker; see taskmanager.memory.managed.size")
)

MAP_STATE_READ_CACHE_SIZE: ConfigOption[int] = (
    ConfigOptions.key("python.map-state.read-cache-size")
    .int_type()
    .default_value(1000)
    .with_description("Accepted.")
    .without_effect("state is in the memory of its worker")
)

MAP_STATE_WRITE_CACHE_SIZE: ConfigOption[int] = (
    ConfigOptions.key("python.map-state.write-cache-size")
    .int_type()
    .default_value(1000)
    .with_description("Accepted.")
    .without_effect("state is in the memory of its worker")
)

MAP_STATE_ITERATE_RESPONSE_BATCH_SIZE: ConfigOption[int] = (
    ConfigOptions.key("python.map-state.iterate-response-batch-size")
    .int_type()
    .default_value(1000)
    .with_description("Accepted.")
    .without_effect("state is in the memory of its worker")
)

METRIC_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("python.metric.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Collect metrics of functions.")
    .without_effect("metrics are collected in any case")
)

PROFILE_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("python.profile.enabled")
    .boolean_type()
    .default_value(False)
    .with_description("Profile the workers.")
    .without_effect("use Spark's profiler of workers")
)

OPERATOR_CHAINING_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("python.operator-chaining.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Chain operators (together with pipeline.operator-chaining.enabled).")
)

LOGGING_DEFAULT_LEVEL: ConfigOption[str] = (
    ConfigOptions.key("python.logging.default.level")
    .string_type()
    .default_value("INFO")
    .with_description("Log level of the workers.")
    .without_effect("see rootLogger")
)

LOGGING_LEVEL_OVERRIDES: ConfigOption[dict[str, str]] = (
    ConfigOptions.key("python.logging.level.overrides")
    .map_type()
    .default_value({})
    .with_description("Log levels by logger.")
    .without_effect("see logger.NAME")
)
