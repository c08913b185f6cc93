"""The REST API of a driver: Flink's keys that begin with ``rest.``, ``web.`` and ``security.ssl.rest.``, and flinkish's
own.
"""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.time import Duration

ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("flinkish.rest.enabled")
    .boolean_type()
    .default_value(True)
    .with_description(
        "Whether a driver answers Flink's REST API, from which Flink's command line, its Web UI and other tools learn "
        "of its jobs and steer them. By default it does not in tests that pytest runs."
    )
)

TOKEN: ConfigOption[str] = (
    ConfigOptions.key("flinkish.rest.token")
    .string_type()
    .default_value("auto")
    .with_choices("auto", "none")
    .with_description(
        "auto: who asks must know the driver's token. none: whoever can reach it may ask and steer, which is allowed "
        "on a loopback address (rest.bind-address) only."
    )
)

TOKEN_FILE: ConfigOption[str | None] = (
    ConfigOptions.key("flinkish.rest.token-file")
    .string_type()
    .no_default_value()
    .with_description(
        "File of the token, which this user alone may read. If it exists its token is taken, otherwise it is made. "
        "Default: `~/.flinkish/rest/HOST-PORT.token`, a new one for each driver, which deletes it at its end."
    )
)

WEB_UI_JAR: ConfigOption[str | None] = (
    ConfigOptions.key("flinkish.rest.web-ui-jar")
    .string_type()
    .no_default_value()
    .with_description(
        "A jar with Flink's Web UI: flink-runtime-web, or flink-dist of a Flink. Default: the former is got from "
        "Maven, once, when the Web UI is opened first."
    )
)

BIND_ADDRESS: ConfigOption[str] = (
    ConfigOptions.key("rest.bind-address")
    .string_type()
    .default_value("127.0.0.1")
    .with_description(
        "Address on which a driver listens. 0.0.0.0: on all of the machine; then set security.ssl.rest.enabled, too."
    )
)

BIND_PORT: ConfigOption[str] = (
    ConfigOptions.key("rest.bind-port")
    .string_type()
    .default_value("8081-8099")
    .with_description(
        "Port on which a driver listens, or ranges of them (8081-8099,9000), of which it takes the first free one. 0: "
        "any free one."
    )
)

PORT: ConfigOption[int] = (
    ConfigOptions.key("rest.port")
    .int_type()
    .default_value(8081)
    .with_description("Port for clients; without rest.bind-port, the one on which a driver listens.")
)

ADDRESS: ConfigOption[str | None] = (
    ConfigOptions.key("rest.address")
    .string_type()
    .no_default_value()
    .with_description(
        "Name by which others reach the driver, such as that of a proxy: it is part of the address that is shown, and "
        "requests may name it as their host."
    )
)

LINGER: ConfigOption[Duration] = (
    ConfigOptions.key("rest.linger")
    .duration_type()
    .default_value(Duration.of_seconds(10))
    .with_description(
        "How long a program that has ended waits at most until the results of what was asked by REST (savepoints, "
        "stops) are fetched. 0 ms: not at all."
    )
)

CANCEL_ENABLE: ConfigOption[bool] = (
    ConfigOptions.key("web.cancel.enable")
    .boolean_type()
    .default_value(True)
    .with_description("Whether jobs can be cancelled in the Web UI.")
)

FLAMEGRAPH_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("rest.flamegraph.enabled")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether flame graphs can be asked for, in Flink's Web UI too: the Python stacks of tasks are sampled while "
        "somebody looks at one. They name functions and lines of the program."
    )
)

FLAMEGRAPH_NUM_SAMPLES: ConfigOption[int] = (
    ConfigOptions.key("rest.flamegraph.num-samples")
    .int_type()
    .default_value(100)
    .with_lowest(1)
    .with_description("The number of stacks that each Python worker takes for a flame graph.")
)

FLAMEGRAPH_DELAY: ConfigOption[Duration] = (
    ConfigOptions.key("rest.flamegraph.delay-between-samples")
    .duration_type()
    .default_value(Duration.of_millis(50))
    .with_description("The time between two of these stacks.")
)

FLAMEGRAPH_REFRESH_INTERVAL: ConfigOption[Duration] = (
    ConfigOptions.key("rest.flamegraph.refresh-interval")
    .duration_type()
    .default_value(Duration.of_minutes(1))
    .with_description(
        "The least time between two samplings of a job for flame graphs (at least a second). Workers whose tasks run "
        "seldom have as long to take their stacks."
    )
)

FLAMEGRAPH_STACK_DEPTH: ConfigOption[int] = (
    ConfigOptions.key("rest.flamegraph.stack-depth")
    .int_type()
    .default_value(100)
    .with_lowest(1)
    .with_description("The most frames of a stack, counted from the innermost.")
)

SSL_ENABLED: ConfigOption[bool] = (
    ConfigOptions.key("security.ssl.rest.enabled")
    .boolean_type()
    .default_value(False)
    .with_description("Whether the REST API speaks HTTPS alone.")
)

SSL_KEYSTORE: ConfigOption[str | None] = (
    ConfigOptions.key("security.ssl.rest.keystore")
    .string_type()
    .no_default_value()
    .with_description("File with the private key and the certificates of the REST API, in PEM; not a keystore of Java.")
)

SSL_KEY_PASSWORD: ConfigOption[str | None] = (
    ConfigOptions.key("security.ssl.rest.key-password")
    .string_type()
    .no_default_value()
    .with_description("Password of that key, if it has one.")
)
