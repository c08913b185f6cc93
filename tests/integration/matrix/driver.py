"""A driver with one Spark session that runs the program of the matrix as often as it is told to.

    python driver.py '{"folder": ..., "master": "local[4]"}'

``folder`` holds the session's files and ``commands``: ``<n>.json`` describes a run, ``<n>.result`` is what became of
it. ``master``: a ``local-cluster[<executors>,...]`` has executor processes.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.integration.matrix.program import Cell, PlannedMishap, run
from tests.support.local_cluster import start_cluster_session
from tests.support.spark_session import start_session


def main(options: dict[str, Any]) -> None:
    """Runs until it is killed."""
    folder = Path(options["folder"])
    cluster = re.match(r"local-cluster\[(\d+),", options["master"])
    if cluster:
        start_cluster_session(folder / "spark", int(cluster.group(1)))
    else:
        start_session(folder / "spark", options["master"])
    number = 0
    while True:
        command = folder / "commands" / f"{number}.json"
        while not command.exists():
            time.sleep(0.05)
        told = json.loads(command.read_text())
        result = obey(told)
        print(command.name, told, result, flush=True)
        hidden = command.with_suffix(".hidden")
        hidden.write_text(json.dumps(result))
        hidden.rename(command.with_suffix(".result"))
        number += 1


def obey(told: dict[str, Any]) -> dict[str, Any]:
    """One run, or one statement."""
    if "sql" in told:
        session = SparkSession.getActiveSession()
        assert session is not None
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        session.sql(told["sql"]).collect()
        return {"error": None}
    mishap = PlannedMishap(**told["mishap"]) if told["mishap"] else None
    try:
        run(Cell(**told["cell"]), mishap)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": None}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
