"""A word count whose lines are split by a stream."""

from flinkish.common import Row, Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)
for key, value in (("enabled", "true"), ("allow-latency", "60 s"), ("size", "5000")):
    t_env.get_config().set(f"table.exec.mini-batch.{key}", value)
lines = env.from_collection(["a b a", "b c"], Types.STRING())
words = lines.flat_map(lambda line: [Row(word) for word in line.split()], Types.ROW_NAMED(["word"], [Types.STRING()]))
t_env.create_temporary_view("words", t_env.from_data_stream(words))
for row in t_env.sql_query("SELECT word, COUNT(*) AS n FROM words GROUP BY word").execute().collect():
    print(row.get_row_kind(), row[0], row[1])
