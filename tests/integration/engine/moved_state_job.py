"""A job with state in files on a local cluster, as a program of its own: where its tasks run, and what they fetch.

    python moved_state_job.py '{"folder": ..., "standby": 1}'

It runs until it is killed, and prints a line for each epoch: ``epoch [number, ms, [[subtask, executor, bytes], ...]]``.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flinkish.common import WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from tests.integration.engine.collecting import environment
from tests.support.epoch_reports import execute_observed, reports_of

KEYS = 40


class Keeping(KeyedProcessFunction):
    """Much state per key, written once, and a count."""

    def __init__(self, value_bytes: int) -> None:
        self._value_bytes = value_bytes

    def open(self, runtime_context: RuntimeContext) -> None:
        self._large = runtime_context.get_state(ValueStateDescriptor("large", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self._large.value() is None:
            self._large.update(random.Random(value).randbytes(self._value_bytes))
        assert len(self._large.value()) == self._value_bytes
        yield value


def main(options: dict[str, Any]) -> None:
    """One run, until it is killed."""
    from tests.support.local_cluster import start_cluster_session

    folder = Path(options["folder"])
    start_cluster_session(folder / "spark", 2)
    env = environment(
        folder / "job",
        taskmanager__state__local__root_dirs=str(folder / "disks"),
        num__standby__replicas=options["standby"],
        flinkish__epoch__interval="300 ms",
    )
    source = DataGeneratorSource(lambda i: i % KEYS, None, records_per_epoch=KEYS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    kept = numbers.key_by(lambda key: key).process(Keeping(options["value_bytes"])).uid("kept")
    kept.filter(lambda key: False).uid("none").print().uid("print")
    client = execute_observed(env, "moving")
    told, last_s = 0, time.monotonic()
    while not client.get_job_execution_result().done():
        for report in reports_of(client.run)[told:]:
            now_s = time.monotonic()
            tasks = [
                [task.subtask, task.place.executor, task.restored_bytes] for task in report.tasks if task.vertex == 1
            ]
            print("epoch", json.dumps([report.epoch, round(1000 * (now_s - last_s)), tasks]), flush=True)
            told, last_s = told + 1, now_s
        time.sleep(0.02)
    client.get_job_execution_result().result()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
