"""Records are sent to other streams by tags: alarms, and lines that cannot be read."""

from flinkish.common import Types
from flinkish.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

HOT = OutputTag("hot", Types.STRING())
BROKEN = OutputTag("broken", Types.TUPLE([Types.STRING(), Types.INT()]))


class Split(ProcessFunction):
    def process_element(self, value: str, ctx: "ProcessFunction.Context"):
        fields = value.split(",")
        if len(fields) != 2:
            yield BROKEN, (value, len(fields))
            return
        sensor, temperature = fields[0], float(fields[1])
        if temperature > 30:
            yield HOT, f"{sensor} is hot: {temperature}"
        yield sensor, temperature


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.from_collection(["s1,35.5", "s2", "s3,20.0", "s1,1.0,x"], Types.STRING())
    readings = lines.process(Split(), output_type=Types.TUPLE([Types.STRING(), Types.FLOAT()]))
    readings.print()
    readings.get_side_output(HOT).print()
    readings.get_side_output(BROKEN).map(lambda pair: f"{pair[1]} fields: {pair[0]}", Types.STRING()).print()
    env.execute("side outputs")
