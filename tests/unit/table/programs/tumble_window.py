"""A window of the Table API over a stream with event time."""

from flinkish.table.window import Tumble

from flinkish.common import Row, Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import DataTypes, Schema, StreamTableEnvironment
from flinkish.table.expressions import col, lit

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(stream_execution_environment=env)
stream = env.from_collection(
    [
        Row("2024-01-01 00:00:01", "a", 1.5),
        Row("2024-01-01 00:00:02", "b", 2.5),
        Row("2024-01-01 00:00:04", "a", 3.0),
        Row("2024-01-01 00:00:11", "a", 4.0),
        Row("2024-01-01 00:00:13", "b", 5.0),
        Row("2024-01-01 00:00:25", "b", 6.0),
    ],
    Types.ROW([Types.STRING(), Types.STRING(), Types.DOUBLE()]),
)
table = t_env.from_data_stream(
    stream,
    Schema.new_builder()
    .column_by_expression("ts", "CAST(f0 AS TIMESTAMP(3))")
    .column("f1", DataTypes.STRING())
    .column("f2", DataTypes.DOUBLE())
    .watermark("ts", "ts - INTERVAL '3' SECOND")
    .build(),
).alias("ts", "name", "price")
windowed = (
    table.window(Tumble.over(lit(5).seconds).on(col("ts")).alias("w"))
    .group_by(col("name"), col("w"))
    .select(col("name"), col("price").sum, col("w").start, col("w").end)
)
for row in windowed.execute().collect():
    print(row)
