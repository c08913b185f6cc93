"""Counts words in a streaming environment with the Table API, in mini-batches."""

from flinkish.table import EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col, lit

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.get_config().set("table.exec.mini-batch.enabled", "true")
t_env.get_config().set("table.exec.mini-batch.allow-latency", "60 s")
t_env.get_config().set("table.exec.mini-batch.size", "5000")
table = t_env.from_elements([("hello", 1), ("flink", 2), ("hello", 3)], ["word", "n"])
counts = table.group_by(col("word")).select(col("word"), lit(1).count.alias("times"), col("n").sum.alias("total"))
for row in counts.execute().collect():
    print(row.get_row_kind(), row[0], row[1], row[2])
