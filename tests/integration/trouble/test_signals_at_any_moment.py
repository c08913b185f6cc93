"""SIGTERM and Ctrl-C at random moments of starts. More of them:
``python -m tests.integration.trouble.signals_at_any_moment``; at each call of a function: ``test_signals.py``."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.integration.trouble.signals_at_any_moment import PROGRAM, tried
from tests.support.processes import start_driver

TIMEOUT_S = 120


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "spark", "ways", "longest_s"),
    [
        (40, False, ("run", "python", "timeout run", "timeout python"), 4.0),
        (6, False, ("session",), 4.0),
        (8, True, ("run", "python"), 10.0),
    ],
    ids=["in the minicluster", "children of a session", "on Spark"],
)
def test_a_driver_ends_by_a_signal_that_comes_in_its_start(
    tmp_path: Path, count: int, spark: bool, ways: tuple[str, ...], longest_s: float
) -> None:
    assert tried(tmp_path, count, 7, spark=spark, ways=ways, longest_s=longest_s) == []


@pytest.mark.slow
def test_a_planner_imports_the_installed_pyspark_also_where_spark_puts_its_zip_first(tmp_path: Path) -> None:
    import pyspark

    script = tmp_path / "endless.py"
    script.write_text(PROGRAM)
    settings = "spark.master=local[2] flinkish.progress=never"
    variables = {**os.environ, "SPARK_HOME": os.path.dirname(pyspark.__file__), "TRIAL": settings}
    with start_driver(script, log_file=tmp_path / "log", env=variables) as process:

        def planner() -> str | None:
            for one in process.descendants():
                try:
                    if "pyspark.sql.streaming.python_streaming_source_runner" in one.cmdline():
                        return str(one.environ()["PYTHONPATH"])
                except psutil.Error:
                    pass
            return None

        first, second = process.wait_for(planner, TIMEOUT_S, "the planner").split(os.pathsep)[:2]
        assert (Path(first) / "pyspark").samefile(os.path.dirname(pyspark.__file__)) and second.endswith("pyspark.zip")
        os.kill(process.pid, signal.SIGTERM)
        process.end_with(143, TIMEOUT_S)
