"""How long the epochs of slow programs take: a map that sleeps for each record, as if it asked a model.

    python -m benchmarks.slow_programs --cost-ms 2 --records 20000
    python -m benchmarks.slow_programs --cost-ms 20000 --records 12

Prints the records and the duration of each epoch, and when the first checkpoint was completed. Nothing here is fast or
slow because of flinkish: the question is how many records an epoch takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from benchmarks.spark_settings import session
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport


class Epochs(JobObserver):
    """Prints each epoch when it is done, and the first checkpoint."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._before_s = self.started_s = time.monotonic()
        self._begun_ms = time.time() * 1000
        self._first = False

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        now_s = time.monotonic()
        print(f"epoch {report.epoch}: {report.records_in} records, {now_s - self._before_s:.1f} s", flush=True)
        self._before_s = now_s
        completed = [one for one in self._run.checkpoints.describe() if one.status == "COMPLETED"]
        if completed and not self._first:
            self._first = True
            after_ms = completed[0].trigger_time_ms + completed[0].duration_ms - self._begun_ms
            print(f"the first checkpoint was completed after {after_ms / 1000:.1f} s", flush=True)


def main() -> None:
    """Run one program to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cost-ms", type=float, required=True, help="how long the map takes for a record")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--checkpoint-interval", default="10 s")
    parser.add_argument("--target", help="flinkish.epoch.target-duration")
    options = parser.parse_args()
    session("flinkish-slow-programs")
    configuration = Configuration()
    configuration.set_string("flinkish.job.dir", tempfile.mkdtemp(prefix="flinkish-benchmark-"))
    configuration.set_string("execution.checkpointing.interval", options.checkpoint_interval)
    if options.target:
        configuration.set_string("flinkish.epoch.target-duration", options.target)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(options.parallelism)
    source = DataGeneratorSource(
        lambda index: index, options.records, type_info=Types.LONG(), splits=options.parallelism
    )
    cost_s = options.cost_ms / 1000

    def slow(value: int) -> int:
        time.sleep(cost_s)
        return value

    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(slow).key_by(lambda value: value % 10).reduce(lambda left, right: left + right).print()
    client: Any = env.execute_async("slow")
    epochs = Epochs(client.run)
    client.run.observers.append(epochs)
    client.get_job_execution_result().result()
    print(f"all: {time.monotonic() - epochs.started_s:.1f} s")


if __name__ == "__main__":
    main()
