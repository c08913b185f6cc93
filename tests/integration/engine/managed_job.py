"""An endless job on a cluster of executors, which answers REST: what it knows of its task managers is asked for there.

    python managed_job.py '{"folder": ..., "executors": 2}'

Without ``executors`` the session is one that was started otherwise, as by ``spark-submit``.
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

#: How long a record takes, so that epochs are not a matter of milliseconds.
PAUSE_S = 0.05


def slowly(value: tuple[int, int]) -> tuple[int, int]:
    time.sleep(PAUSE_S)
    return value


def main(options: dict[str, Any]) -> None:
    """One run of the program, until the job is cancelled."""
    folder = Path(options["folder"])
    if options.get("executors"):
        from tests.support.local_cluster import start_cluster_session

        extra = {"spark.decommission.enabled": "true", "spark.executor.heartbeatInterval": "2s"}
        start_cluster_session(folder / "session", options["executors"], extra=extra)
    wanted = {"rest__bind_port": "0", "flinkish__history__enabled": "true", "restart_strategy__type": "fixed-delay"}
    env = StreamExecutionEnvironment.get_execution_environment(
        settings(folder / "job", **{**wanted, **options.get("settings", {})})
    )
    source = DataGeneratorSource(lambda i: (i % 7, 1), records_per_epoch=4, splits=2)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("src")
    events.map(slowly).key_by(lambda e: e[0]).sum(1).uid("count").print().uid("out")
    env.execute("managed")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
