"""Spellings of PyFlink 1.15 to 1.18: the configuration of the configuration, settings, an environment of both."""

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import DataTypes, EnvironmentSettings, StreamTableEnvironment
from flinkish.table.expressions import col, lit

config = Configuration()
config.set_string("parallelism.default", "1")
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(1)
settings = EnvironmentSettings.new_instance().in_streaming_mode().build()
t_env = StreamTableEnvironment.create(env, environment_settings=settings)
t_env.get_config().get_configuration().set_string("table.exec.mini-batch.enabled", "true")
t_env.get_config().get_configuration().set_string("table.exec.mini-batch.allow-latency", "1 s")
t_env.get_config().get_configuration().set_string("table.exec.mini-batch.size", "5000")
t_env.get_config().get_configuration().set_string("python.fn-execution.bundle.size", "1000")
tab = t_env.from_elements(
    [(1, "Hi", 1.5), (2, "Hello", None), (3, None, 2.25)],
    DataTypes.ROW(
        [
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("data", DataTypes.STRING()),
            DataTypes.FIELD("price", DataTypes.DOUBLE()),
        ]
    ),
)
result = tab.select(
    tab.id.cast(DataTypes.INT()),
    tab.data + lit("!"),
    col("price").is_null,
    col("price") * lit(2).cast(DataTypes.DOUBLE()),
)
with result.execute().collect() as rows:
    for row in rows:
        print(row)
