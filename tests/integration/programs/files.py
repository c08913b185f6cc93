"""Reads lines of a file and writes counts as rows of text, which it then shows."""

import os
import tempfile

from flinkish.common import Encoder, Types, WatermarkStrategy
from flinkish.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from flinkish.datastream.connectors import FileSink, FileSource, OutputFileConfig, RollingPolicy, StreamFormat

if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    source_path, sink_path = os.path.join(folder, "in.txt"), os.path.join(folder, "out")
    with open(source_path, "w") as file:
        file.write("a b\nb c b\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "file://" + source_path)
    lines = env.from_source(
        source.process_static_file_set().build(), WatermarkStrategy.for_monotonous_timestamps(), "file_source"
    )
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    counts = (
        lines.flat_map(lambda line: line.split(), Types.STRING())
        .map(lambda word: (word, 1), pair)
        .key_by(lambda one: one[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    naming = OutputFileConfig.builder().with_part_prefix("counts").with_part_suffix(".txt").build()
    sink = FileSink.for_row_format(sink_path, Encoder.simple_string_encoder())
    sink = sink.with_output_file_config(naming).with_rolling_policy(RollingPolicy.default_rolling_policy()).build()
    counts.sink_to(sink)
    env.execute("files")
    for directory, _, names in os.walk(sink_path):
        for name in names:
            assert name.startswith("counts") and name.endswith(".txt"), name
            with open(os.path.join(directory, name)) as file:
                print(file.read(), end="")
