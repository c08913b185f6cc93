"""A result on the screen."""

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
table = t_env.from_elements([(1, "Hello", 1.5), (2, None, 2.5)], ["id", "text", "x"])
table.execute().print()
t_env.create_temporary_view("t", table)
t_env.execute_sql("SELECT id, CHAR_LENGTH(text) AS n FROM t WHERE x > 1").print()
t_env.execute_sql("DESCRIBE t").print()
t_env.execute_sql("SHOW VIEWS").print()
