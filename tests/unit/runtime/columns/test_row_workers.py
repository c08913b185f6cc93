"""Jobs of records pay nothing for tables."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_worker_of_records_imports_nothing_of_tables() -> None:
    program = "import flinkish.spark.worker, flinkish.minicluster.mini_cluster, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    columns = ("flinkish.table", "flinkish.runtime.columns", "flinkish.core.column_batch", "sqlglot", "pyarrow.compute")
    of_columns = [name for name in run.stdout.split() if name.startswith(columns) or "column_keys" in name]
    assert of_columns == []
