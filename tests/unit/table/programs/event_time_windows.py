"""Tumbling and sliding windows of the Table API over the event time of a stream."""

from flinkish.table.window import Slide, Tumble

from flinkish.common import Duration, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import DataTypes, Schema, StreamTableEnvironment
from flinkish.table.expressions import col, lit


class First(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(value[2])


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(stream_execution_environment=env)
t_env.get_config().set_local_timezone("UTC")
ds = env.from_collection(
    [("A", 1.0, 1000), ("B", 2.0, 11000), ("A", 3.5, 12000), ("A", 4.0, 26000), ("B", 8.0, 41000)],
    Types.ROW_NAMED(["name", "price", "ms"], [Types.STRING(), Types.DOUBLE(), Types.LONG()]),
).assign_timestamps_and_watermarks(
    WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).with_timestamp_assigner(First())
)
table = t_env.from_data_stream(
    ds,
    Schema.new_builder()
    .column("name", DataTypes.STRING())
    .column("price", DataTypes.DOUBLE())
    .column("ms", DataTypes.BIGINT())
    .column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
    .watermark("rowtime", "SOURCE_WATERMARK()")
    .build(),
)
tumbled = (
    table.window(Tumble.over(lit(10).seconds).on(col("rowtime")).alias("w"))
    .group_by(col("name"), col("w"))
    .select(col("name"), col("w").start, col("w").end, col("price").sum.alias("total"), col("price").count)
)
for row in tumbled.execute().collect():
    print("tumble", *row)
slid = (
    table.window(Slide.over(lit(20).seconds).every(lit(10).seconds).on(col("rowtime")).alias("w"))
    .group_by(col("w"))
    .select(col("w").start.alias("s"), col("price").avg.alias("a"), col("price").max, col("name").count.distinct)
)
for row in slid.execute().collect():
    print("slide", *row)
