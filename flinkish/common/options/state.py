"""State backends: keys that begin with ``state.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions

BACKEND: ConfigOption[str] = (
    ConfigOptions.key("state.backend.type")
    .string_type()
    .default_value("hashmap")
    .with_description(
        "Where Spark keeps the state of subtasks that is smaller than flinkish.state.inline-size. hashmap: on the heap "
        "of the executors; rocksdb: in RocksDB on their disks. What is larger lies in files of the job directory with "
        "both, and in the memory of the Python workers as far as it fits (taskmanager.memory.managed.size)."
    )
    .with_deprecated_keys("state.backend")
    .with_choices("hashmap", "rocksdb")
)

CHANGELOG_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("state.changelog.enabled")
    .boolean_type()
    .default_value(False)
    .with_description("Write changes of state instead of whole key groups, with a backend that can.")
    .with_deprecated_keys("state.backend.changelog.enabled")
    .without_effect("changes of state are written at each epoch in any case")
)

CHANGELOG_STORAGE: ConfigOption[str] = (
    ConfigOptions.key("state.changelog.storage")
    .string_type()
    .default_value("memory")
    .with_description("Where the changelog goes.")
    .with_deprecated_keys("state.backend.changelog.storage")
    .without_effect("changes of state lie in the job directory")
)

LATENCY_TRACK_KEYED_STATE: ConfigOption[bool] = (
    ConfigOptions.key("state.latency-track.keyed-state-enabled")
    .boolean_type()
    .default_value(False)
    .with_description("Measure the time of accesses to keyed state.")
    .with_deprecated_keys("state.backend.latency-track.keyed-state-enabled")
    .without_effect("accesses to state are not timed")
)
