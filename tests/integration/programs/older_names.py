"""A program of Flink 1.x: time characteristics, jars of connectors, checkpoint settings, a lambda as the assigner of a
source, StreamingFileSink, JSON schemas from common.serialization."""

import os
import tempfile

from flinkish.common import Duration, Encoder, JsonRowSerializationSchema, RestartStrategies, Row, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.datastream import CheckpointingMode, StreamExecutionEnvironment, TimeCharacteristic
from flinkish.datastream.checkpoint_config import ExternalizedCheckpointCleanup
from flinkish.datastream.connectors import FileSource, StreamFormat, StreamingFileSink

if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "in.txt"), "w") as file:
        file.write("a,1\nb,2\na,3\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_jars("file:///opt/flink/lib/flink-sql-connector-kafka-1.17.1.jar")
    env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
    env.set_parallelism(1)
    env.enable_checkpointing(10_000, CheckpointingMode.EXACTLY_ONCE)
    env.get_checkpoint_config().set_externalized_checkpoint_cleanup(
        ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10_000))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder + "/in.txt").build()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    lines = env.from_source(source, strategy.with_timestamp_assigner(lambda line, time: 1_000), "lines")
    row = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.INT()])
    rows = lines.map(lambda line: Row(line.split(",")[0], int(line.split(",")[1])), output_type=row)
    JsonRowSerializationSchema.builder().with_type_info(row).build()
    sums = rows.key_by(lambda r: r[0]).reduce(lambda a, b: Row(a[0], a[1] + b[1]))
    counted = sums.map(lambda r: f"{r[0]}={r[1]}", Types.STRING())
    counted.add_sink(StreamingFileSink.for_row_format(folder + "/out", Encoder.simple_string_encoder()).build())
    env.execute("older names")
    for directory, _, names in os.walk(folder + "/out"):
        for name in names:
            with open(os.path.join(directory, name)) as file:
                print(file.read(), end="")
