"""The changes of a table, as a stream."""

from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)
for key, value in (("enabled", "true"), ("allow-latency", "60 s"), ("size", "5000")):
    t_env.get_config().set(f"table.exec.mini-batch.{key}", value)
stream = env.from_collection([("Alice", 12), ("Bob", 10), ("Alice", 100)], Types.ROW([Types.STRING(), Types.INT()]))
t_env.create_temporary_view("people", t_env.from_data_stream(stream))
totals = t_env.sql_query("SELECT f0 AS name, SUM(f1) AS total, MAX(f1) AS best FROM people GROUP BY f0")
t_env.to_changelog_stream(totals).print()
env.execute("changelog")
