"""An endless job on a cluster of executors, which answers REST: what it knows of its task managers is asked for there.

python managed_job.py '{"folder": ..., "executors": 2}'
python managed_job.py '{"folder": ..., "master": "spark://...", "cores": 2}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from tests.integration.engine.collecting import settings
from tests.support.local_cluster import start_cluster_session
from tests.support.spark_session import start_session

#: What Spark needs so that an executor can be decommissioned, and so that its memory is soon known.
SETTINGS = {"spark.decommission.enabled": "true", "spark.executor.heartbeatInterval": "2s"}

#: How long a record takes, so that epochs are not a matter of milliseconds.
PAUSE_S = 0.05


def slowly(value: tuple[int, int]) -> tuple[int, int]:
    time.sleep(PAUSE_S)
    return value


def main(options: dict[str, Any]) -> None:
    """One run of the program, until the job is cancelled."""
    folder = Path(options["folder"])
    if "executors" in options:
        start_cluster_session(folder / "session", options["executors"], extra=SETTINGS)
    else:
        own = {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.cores.max": str(options["cores"])}
        start_session(folder / "session", options["master"], {**SETTINGS, **own})
    env = StreamExecutionEnvironment.get_execution_environment(
        settings(
            folder / "job",
            flinkish__rest__enabled="true",
            rest__bind_port="0",
            flinkish__history__enabled="true",
            flinkish__history__interval="1 s",
            restart_strategy__type="fixed-delay",
        )
    )
    source = DataGeneratorSource(lambda i: (i % 7, 1), records_per_epoch=4, splits=2)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("src")
    events.map(slowly).key_by(lambda e: e[0]).sum(1).uid("count").print().uid("out")
    env.execute("managed")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
