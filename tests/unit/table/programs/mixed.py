"""From a stream to a table and back."""

from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment
from flinkish.table.expressions import col

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)
stream = env.from_collection(
    [("Alice", 12), ("Bob", 10), ("Alice", 100)], Types.ROW_NAMED(["name", "score"], [Types.STRING(), Types.INT()])
)
table = t_env.from_data_stream(stream)
t_env.create_temporary_view("people", table)
rich = t_env.sql_query("SELECT UPPER(name) AS name, score FROM people").where(col("score") > 10)
t_env.to_data_stream(rich).map(lambda row: f"{row[0]} has {row[1]}", Types.STRING()).print()
env.execute("mixed")
