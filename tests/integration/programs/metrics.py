"""Counters, gauges and meters, parameters of the job, and a file that each task finds."""

import os
import tempfile

from flinkish.common import Types
from flinkish.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment


class Lookup(MapFunction):
    def __init__(self):
        self.counter = None
        self.last = 0

    def open(self, runtime_context: RuntimeContext):
        group = runtime_context.get_metrics_group().add_group("lookup")
        self.counter = group.counter("lookups")
        group.gauge("last", lambda: self.last)
        self.meter = group.meter("rate", time_span_in_seconds=60)
        self.distribution = group.distribution("distribution")

    def map(self, value):
        self.counter.inc()
        self.last = value
        self.meter.mark_event()
        self.distribution.update(value)
        return f"{value} is the lookup number {self.counter.get_count()}"


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "names.txt")
    with open(path, "w") as file:
        file.write("one\ntwo\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.register_cached_file(path, "names")
    env.get_config().set_global_job_parameters({"greeting": "hello"})
    env.from_collection([5, 7], Types.INT()).map(Lookup(), Types.STRING()).print()
    env.execute("metrics")
