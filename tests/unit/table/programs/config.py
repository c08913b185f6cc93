"""Options, and results that are no rows."""

from flinkish.table import EnvironmentSettings, ResultKind, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
config = t_env.get_config()
config.set("parallelism.default", "2")
config.set_local_timezone("Europe/Berlin")
print(config.get("parallelism.default", ""), config.get_local_timezone())
result = t_env.execute_sql("CREATE TABLE t (a INT, b STRING) WITH ('connector' = 'blackhole')")
print(result.get_result_kind() == ResultKind.SUCCESS)
print(t_env.list_tables(), t_env.list_temporary_tables())
print(t_env.from_path("t").get_schema().get_field_names())
t_env.execute_sql("DROP TABLE t")
print(t_env.list_tables())
