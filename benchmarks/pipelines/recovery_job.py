"""The job that `benchmarks.recovery` disturbs: it counts without end, writes the time of each committed epoch to a
file, and raises once on request.

    python -m benchmarks.pipelines.recovery_job FOLDER MASTER
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import spark_settings
from benchmarks.pipelines.dict_sink import DictSink
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver

EPOCH_RECORDS = 20_000
USERS = 1_000
SETTINGS = {
    "execution.checkpointing.interval": "0",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 ms",
    "parallelism.default": "2",
    **spark_settings.EPOCHS_OF_A_SIZE,
}


class Fault:
    """A map function that raises once for each request file that it finds."""

    def __init__(self, folder: Path) -> None:
        self._order, self._raised = folder / "raise", folder / "raised"

    def __call__(self, event: Any) -> Any:
        """Returns the event itself."""
        if event[0] == 0 and self._order.exists():
            self._order.unlink(missing_ok=True)
            self._raised.write_text(str(time.time()))
            raise ConnectionError("the fault of the benchmark")
        return event


class Commits(JobObserver):
    """Records when each epoch was committed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def epoch_committed(self, epoch: int) -> None:
        """One line."""
        self._file.write(f"{epoch} {time.time()}\n")
        self._file.flush()


def main() -> None:
    """Run until killed."""
    folder, master = Path(sys.argv[1]), sys.argv[2]
    spark_settings.session("flinkish recovery", master)
    configuration = Configuration()
    for key, value in {**SETTINGS, "flinkish.job.dir": str(folder / "job")}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = DataGeneratorSource(lambda index: (index % USERS, 1), records_per_epoch=EPOCH_RECORDS)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    stream.map(Fault(folder)).key_by(lambda event: event[0]).sum(1).uid("sums").sink_to(DictSink())
    client: Any = env.execute_async("recovery")
    client.run.observers.append(Commits(folder / "commits"))
    client.get_job_execution_result().result()


if __name__ == "__main__":
    os.environ.setdefault("FLINKISH_PROGRESS", "never")
    main()
