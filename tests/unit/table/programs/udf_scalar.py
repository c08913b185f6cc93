"""Functions of the program in SQL and in the Table API."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import call, col
from flinkish.table.udf import udf

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")


@udf(result_type=DataTypes.BIGINT())
def add(i, j):
    return i + j


shout = udf(lambda text: text.upper() + "!" if text is not None else "nothing", result_type=DataTypes.STRING())
t_env.create_temporary_function("add", add)
t_env.create_temporary_system_function("shout", shout)
t_env.create_temporary_view("t", t_env.from_elements([(1, 2, "a"), (3, 4, "b"), (5, 6, None)], ["a", "b", "s"]))
for row in t_env.sql_query("SELECT add(a, b) AS s, shout(s) AS t FROM t").execute().collect():
    print(row)
for row in t_env.from_path("t").select(add(col("a"), 10), call("shout", col("s"))).execute().collect():
    print(row)
