"""The job of the tests of how drivers end, as a program of its own: an endless sum, some epochs a second.

    python endless_job.py '{"folder": ..., "settings": {...}, "stuck_at": 7, "fails_once_at": 3}'

``folder`` holds the job directory. ``stuck_at``: the record in whose epoch the job does nothing any more.
``fails_once_at``: the record whose task fails the first time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from tests.integration.engine.collecting import environment

PER_EPOCH = 5


def main(options: dict[str, Any]) -> None:
    folder = Path(options["folder"])
    env = environment(folder / "job", spark__master="local[2,3]", flinkish__epoch__interval="100 ms")
    for key, value in options.get("settings", {}).items():
        env.configure(Configuration().set_string(key, value))
    failed = str(folder / "failed")

    def number(index: int) -> int:
        while index == options.get("stuck_at"):
            (Path(options["folder"]) / "stuck").touch()
            time.sleep(0.1)
        if index == options.get("fails_once_at") and not os.path.exists(failed):
            Path(failed).touch()
            raise RuntimeError("the first try")
        return index

    numbers = env.from_source(
        DataGeneratorSource(lambda index: index, records_per_epoch=PER_EPOCH), WatermarkStrategy.no_watermarks(), "n"
    )
    numbers.map(number).key_by(lambda n: 0).reduce(lambda a, b: a + b).map(lambda n: f"sum {n}").print()
    client = env.execute_async("endless")
    client.get_job_execution_result().result()
    print("the program goes on")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
