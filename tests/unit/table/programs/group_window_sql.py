"""The older windows of SQL over a stream with timestamps of its own."""

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import Schema, StreamTableEnvironment


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0] * 1000


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)
t_env.get_config().set("table.local-time-zone", "UTC")
stream = env.from_collection(
    [(1, "a"), (3, "b"), (4, "a"), (11, "a"), (29, "b")], Types.TUPLE([Types.LONG(), Types.STRING()])
)
stream = stream.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
)
table = t_env.from_data_stream(
    stream,
    Schema.new_builder()
    .column("f0", "BIGINT")
    .column("f1", "STRING")
    .column_by_metadata("rt", "TIMESTAMP_LTZ(3)", "rowtime")
    .watermark("rt", "SOURCE_WATERMARK()")
    .build(),
)
t_env.create_temporary_view("clicks", table)
result = t_env.sql_query("""
    SELECT f1, TUMBLE_START(rt, INTERVAL '10' SECOND) AS s, TUMBLE_END(rt, INTERVAL '10' SECOND) AS e, COUNT(*) AS n
    FROM clicks GROUP BY f1, TUMBLE(rt, INTERVAL '10' SECOND)
""")
for row in result.execute().collect():
    print(row)
