"""Session mode (``flinkish jobmanager``): Flink's keys of uploads and of its history server, and flinkish's own."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

SUBMIT_ENABLE: ConfigOption[bool] = (
    ConfigOptions.key("web.submit.enable")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether programs can be uploaded to the session process and run by it, in the Web UI and by the REST API. Who "
        "knows its token may then run code as its user. A driver runs its own program alone."
    )
)

UPLOAD_DIRECTORY: ConfigOption[str | None] = (
    ConfigOptions.key("web.upload.dir")
    .string_type()
    .no_default_value()
    .with_description(
        "Directory for uploaded programs, to which this user alone may write. Default: `.flinkish/uploads` in the "
        "folder of the jobs."
    )
)

MAX_CONTENT_LENGTH: ConfigOption[int] = (
    ConfigOptions.key("rest.server.max-content-length")
    .int_type()
    .default_value(104_857_600)
    .with_description("The most bytes of an upload. All other requests have at most 1 MiB.")
)

HISTORY_DIRECTORIES: ConfigOption[str | None] = (
    ConfigOptions.key("historyserver.archive.fs.dir")
    .string_type()
    .no_default_value()
    .with_description(
        "Further directories with archives of jobs that have ended (jobmanager.archive.fs.dir), separated by commas, "
        "whose jobs the session process shows."
    )
)

RESTART_ATTEMPTS: ConfigOption[int] = (
    ConfigOptions.key("flinkish.jobmanager.restart.attempts")
    .int_type()
    .default_value(10)
    .with_description(
        "How many times in a row the session process starts a driver again that has ended with the exit code 75 or was "
        "killed. Other exit codes are final."
    )
)

RESTART_INITIAL_BACKOFF: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.jobmanager.restart.initial-backoff")
    .duration_type()
    .default_value(Duration.of_seconds(1))
    .with_description("Time before the first restart of a driver; before each further one it is twice as long.")
)

RESTART_MAX_BACKOFF: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.jobmanager.restart.max-backoff")
    .duration_type()
    .default_value(Duration.of_minutes(1))
    .with_description("Longest time before a restart of a driver.")
)

RESTART_RESET_THRESHOLD: ConfigOption[Duration] = (
    ConfigOptions.key("flinkish.jobmanager.restart.reset-backoff-threshold")
    .duration_type()
    .default_value(Duration.of_minutes(10))
    .with_description("A driver that has lived for so long has its restarts counted anew.")
)
