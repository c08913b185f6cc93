"""A program whose driver is asked by REST: ``python -m tests.support.served_program JOB_DIR [KEY=VALUE ...]``.

The job goes on until it is stopped; ``JOBS=2`` among the environment variables runs a second one beside it.
"""

from __future__ import annotations

import os
import sys
import time

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.number_seq import NumberSequenceSource


def slowly(number: int) -> int:
    time.sleep(0.01)
    return number


def main() -> None:
    settings = {
        "execution.target": "minicluster",
        "flinkish.job.dir": sys.argv[1],
        "flinkish.progress": "never",
        "flinkish.rest.enabled": "true",
        "flinkish.epoch.max-records-per-source": "5",
        "rest.bind-port": "0",
        **dict(text.split("=", 1) for text in sys.argv[2:]),
    }
    for number in range(int(os.environ.get("JOBS", "1"))):
        environment = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        source = NumberSequenceSource(1, 10_000_000)
        numbers = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.map(slowly, Types.LONG()).filter(lambda number: False).uid("none").print()
        client = environment.execute_async(f"clicks {number}")
    print("submitted", flush=True)
    client.get_job_execution_result().result()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
