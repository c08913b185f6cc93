"""A job of so many subtasks: numbers -> key by -> running sum -> sink.

    python benchmarks/pipelines/subtasks_program.py SUBTASKS EPOCHS [--set KEY=VALUE ...]

Rule of this file: as that of `kafka_programs.py`. It prints ONE line of JSON: the processor seconds and the seconds of
each epoch, start-up left out, and the sum of all last values, which must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

from benchmarks.contract import tree_cpu_s
from benchmarks.pipelines.dict_sink import DictSink, delivered
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver

PER_SUBTASK = 1_000
"""Numbers of one subtask in one epoch."""
KEYS_PER_SUBTASK = 100


class Epochs(JobObserver):
    """Keeps the processor seconds of all processes, and the time, at the end of each epoch with data."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def epoch_done(self, report: Any) -> None:
        """Called after each epoch."""
        if report.records_in:
            self.marks.append((tree_cpu_s(os.getpid()) or 0.0, time.perf_counter()))


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subtasks", type=int)
    parser.add_argument("epochs", type=int)
    parser.add_argument("--set", nargs="*", default=[])
    options = parser.parse_args()
    configuration = Configuration()
    settings = {
        "flinkish.job.dir": tempfile.mkdtemp(prefix="flinkish-subtasks-"),
        "flinkish.epoch.max-records-per-source": str(PER_SUBTASK * options.subtasks),
        "flinkish.epoch.target-duration": "0 ms",
        "execution.checkpointing.interval": "0",
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        **dict(text.split("=", 1) for text in options.set),
    }
    for name, value in settings.items():
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(options.subtasks)
    keys, last = KEYS_PER_SUBTASK * options.subtasks, PER_SUBTASK * options.subtasks * options.epochs
    numbers = env.from_source(NumberSequenceSource(1, last), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(lambda number: (number % keys, 1)).key_by(lambda pair: pair[0]).sum(1).sink_to(DictSink())
    epochs = Epochs()
    client = env.execute_async("subtasks")
    client.run.observers.append(epochs)  # type: ignore[attr-defined]
    client.get_job_execution_result().result()
    pairs = zip(epochs.marks, epochs.marks[1:], strict=False)
    spent = [(after[0] - before[0], after[1] - before[1]) for before, after in pairs]
    print(json.dumps({"epochs": spent, "sum": sum(delivered.values())}), flush=True)


if __name__ == "__main__":
    main()
