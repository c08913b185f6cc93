"""A job on a cluster that begins with one executor and gets the second one by dynamic allocation, as a program of its
own:

    python slots_job.py '{"folder": ..., "settings": {...}}'

With a cluster that has no executor, its start fails. It prints ``seen`` and a JSON object for each stage: the slots of
the description, the parallelism of the vertices, and the number of attempts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from flinkish.common import WatermarkStrategy
from flinkish.common.configuration import Configuration
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import NoResourceAvailableError
from flinkish.jobmanager.client import JobManager
from flinkish.jobmanager.job.description import JobDescription
from tests.support.local_cluster import spark_home

TIMEOUT_S = 240


def main(folder: str, settings: dict[str, str]) -> None:
    """Run the job until it has run on two executors."""
    os.environ["SPARK_HOME"] = str(spark_home(Path(folder)))
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = DataGeneratorSource(slowly, records_per_epoch=10, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda n: n).reduce(lambda a, b: a).filter(lambda n: False).print()
    try:
        client = env.execute_async("slots")
    except NoResourceAvailableError:
        print(JobManager.get().describe().jobs[0], flush=True)
        raise
    see("one", lambda job: present(job) == 1)
    see("two", lambda job: present(job) == 2 and len(executors(job)) == 2)
    client.cancel().result()


def slowly(number: int) -> int:
    """Tasks wait for slots long enough for Spark to ask for an executor."""
    time.sleep(0.3)
    return number % 5


def present(job: JobDescription) -> int | None:
    """The slots that there are."""
    return None if job.slots is None else job.slots.present


def executors(job: JobDescription) -> set[str | None]:
    """Those that have run the subtasks last."""
    return {subtask.current.executor for vertex in job.vertices for subtask in vertex.subtasks}


def see(stage: str, holds: Callable[[JobDescription], bool]) -> None:
    """Wait until it holds, and print what is described then."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds(job := JobManager.get().describe().jobs[0]):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{stage}: {job.slots}, {executors(job)}, {job}")
        time.sleep(0.1)
    assert job.slots is not None
    slots = [job.slots.required, job.slots.present, job.slots.waves, job.slots.note]
    seen = {"stage": stage, "slots": slots, "parallelism": [vertex.parallelism for vertex in job.vertices]}
    print("seen", json.dumps({**seen, "attempts": len(job.attempts), "warnings": job.warnings}), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
