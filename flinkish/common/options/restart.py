"""Restart strategies: keys that begin with ``restart-strategy.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

TYPE: ConfigOption[str | None] = (
    ConfigOptions.key("restart-strategy.type")
    .string_type()
    .no_default_value()
    .with_description(
        "How a job that has failed is restarted; none, off or disable: not at all. Without it exponential-delay if "
        "checkpoints are taken, which a job with a directory (flinkish.job.dir) does by default, else none."
    )
    .with_deprecated_keys("restart-strategy")
    .with_choices("none", "off", "disable", "fixed-delay", "failure-rate", "exponential-delay")
)

FIXED_DELAY_ATTEMPTS: ConfigOption[int] = (
    ConfigOptions.key("restart-strategy.fixed-delay.attempts")
    .int_type()
    .default_value(1)
    .with_description("How often the job is restarted.")
)

FIXED_DELAY_DELAY: ConfigOption[Duration] = (
    ConfigOptions.key("restart-strategy.fixed-delay.delay")
    .duration_type()
    .default_value(Duration.of_seconds(1))
    .with_description("Time before a restart.")
)

FAILURE_RATE_MAX_FAILURES_PER_INTERVAL: ConfigOption[int] = (
    ConfigOptions.key("restart-strategy.failure-rate.max-failures-per-interval")
    .int_type()
    .default_value(1)
    .with_description("How many failures an interval may see before the job fails.")
)

FAILURE_RATE_FAILURE_RATE_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("restart-strategy.failure-rate.failure-rate-interval")
    .duration_type()
    .default_value(Duration.of_minutes(1))
    .with_description("The interval over which failures are counted.")
)

FAILURE_RATE_DELAY: ConfigOption[Duration] = (
    ConfigOptions.key("restart-strategy.failure-rate.delay")
    .duration_type()
    .default_value(Duration.of_seconds(1))
    .with_description("Time before a restart.")
)

EXPONENTIAL_DELAY_INITIAL_BACKOFF: ConfigOption[Duration] = (
    ConfigOptions.key("restart-strategy.exponential-delay.initial-backoff")
    .duration_type()
    .default_value(Duration.of_seconds(1))
    .with_description("Time before the first restart.")
)

EXPONENTIAL_DELAY_MAX_BACKOFF: ConfigOption[Duration] = (
    ConfigOptions.key("restart-strategy.exponential-delay.max-backoff")
    .duration_type()
    .default_value(Duration.of_minutes(1))
    .with_description("Longest time before a restart.")
)

EXPONENTIAL_DELAY_BACKOFF_MULTIPLIER: ConfigOption[float] = (
    ConfigOptions.key("restart-strategy.exponential-delay.backoff-multiplier")
    .double_type()
    .default_value(1.5)
    .with_description("By what the time grows from restart to restart.")
)

EXPONENTIAL_DELAY_RESET_BACKOFF_THRESHOLD: ConfigOption[Duration] = (
    ConfigOptions.key("restart-strategy.exponential-delay.reset-backoff-threshold")
    .duration_type()
    .default_value(Duration.of_hours(1))
    .with_description("Time without failure after which the backoff starts afresh.")
)

EXPONENTIAL_DELAY_JITTER_FACTOR: ConfigOption[float] = (
    ConfigOptions.key("restart-strategy.exponential-delay.jitter-factor")
    .double_type()
    .default_value(0.1)
    .with_description("Random part of the time before a restart, as a fraction.")
)

EXPONENTIAL_DELAY_ATTEMPTS_BEFORE_RESET_BACKOFF: ConfigOption[int | None] = (
    ConfigOptions.key("restart-strategy.exponential-delay.attempts-before-reset-backoff")
    .int_type()
    .no_default_value()
    .with_description("How many restarts before the job fails; without it, no limit.")
)
