"""The mean temperature of each sensor and minute, with the bounds of the window."""

from flinkish.common import Duration, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from flinkish.datastream.window import TumblingEventTimeWindows

READINGS = ["s1,1547718100,35.5", "s6,1547718101,15.25", "s1,1547718130,36.5", "s1,1547718180,30.0"]


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Mean(ProcessWindowFunction):
    def process(self, key, context, elements):
        temperatures = [element[2] for element in elements]
        window = context.window()
        yield key, window.start, window.end, sum(temperatures) / len(temperatures)


def parse(line):
    sensor, seconds, temperature = line.split(",")
    return sensor, int(seconds), float(temperature)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    readings = env.from_collection(READINGS).map(
        parse, output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    timed = readings.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ReadingTime()))
    result = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()])
    windows = timed.key_by(lambda reading: reading[0], Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.minutes(1))
    )
    windows.process(Mean(), result).print()
    env.execute("sensors")
