"""Tables: the keys that begin with ``table.`` and have a meaning here. All others of them have no effect."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

LOCAL_TIME_ZONE: ConfigOption[str] = (
    ConfigOptions.key("table.local-time-zone")
    .string_type()
    .default_value("default")
    .with_description(
        "Time zone of the session, such as Europe/Berlin or UTC, in which TIMESTAMP_LTZ is converted to other types; "
        "default: that of the machine where the program is started."
    )
)

STATE_TTL: ConfigOption[Duration] = (
    ConfigOptions.key("table.exec.state.ttl")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Time after which the state of a group that did not change is removed; 0 ms: never.")
)

SOURCE_IDLE_TIMEOUT: ConfigOption[Duration] = (
    ConfigOptions.key("table.exec.source.idle-timeout")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Time without rows after which a source of a table does not hold back watermarks; 0 ms: never.")
)

_MINI_BATCH = "results are always updated in batches, which end with their 65,536 rows or with the epoch"

MINI_BATCH: ConfigOption[bool] = (
    ConfigOptions.key("table.exec.mini-batch.enabled")
    .boolean_type()
    .default_value(True)
    .with_description("Whether the results of GROUP BY are updated in batches, which they always are.")
    .without_effect(_MINI_BATCH)
)

MINI_BATCH_LATENCY: ConfigOption[Duration] = (
    ConfigOptions.key("table.exec.mini-batch.allow-latency")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("Time that rows may wait for their batch.")
    .without_effect(_MINI_BATCH)
)

MINI_BATCH_SIZE: ConfigOption[int] = (
    ConfigOptions.key("table.exec.mini-batch.size")
    .int_type()
    .default_value(-1)
    .with_description("Greatest number of rows of a batch.")
    .without_effect(_MINI_BATCH)
)
