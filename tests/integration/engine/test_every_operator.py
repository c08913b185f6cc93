"""Every operator in one program on Spark: over several epochs, failing in the middle, and started again."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.errors import UserCodeError
from tests.integration.engine.collecting import collecting, environment
from tests.support.every_operator import PARALLELISM, RECORDS, build, first, golden, in_order

SETTINGS: dict[str, Any] = {
    "parallelism__default": PARALLELISM,
    "pipeline__max_parallelism": 8,
    "flinkish__epoch__max_records_per_source": 60,
}


def fails_once(marker: Path, value: Any) -> Any:
    """The record; when it is one in the middle and there is no marker yet, an exception."""
    if value == first(RECORDS // 2) and not marker.exists():
        marker.touch()
        raise ValueError("in the middle")
    return value


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_over_several_epochs_the_result_is_golden(spark: SparkSession, mode: str) -> None:
    with collecting() as collected:
        env = environment(execution__runtime_mode=mode, **SETTINGS)
        build(env, collected.sink)
        env.execute("every operator")
        assert in_order(collected.rows) == golden(mode == "BATCH")


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 1])
def test_failed_in_the_middle_and_restarted_the_result_is_golden(
    spark: SparkSession, tmp_path: Path, restarts: int
) -> None:
    """Restarted by the job itself, or started again in its directory."""
    strategy = {
        "restart_strategy__type": "fixed-delay" if restarts else "none",
        "restart_strategy__fixed_delay__attempts": 1,
        "restart_strategy__fixed_delay__delay": "10 ms",
    }
    mended = partial(fails_once, tmp_path / "failed")
    with collecting() as collected:
        sink = cache(collected.sink)

        def execute() -> None:
            env = environment(tmp_path / "job", **SETTINGS, **strategy)
            build(env, sink, mended)
            env.execute("every operator")

        if restarts:
            execute()
        else:
            with pytest.raises(UserCodeError, match="in the middle"):
                execute()
            execute()
        assert (tmp_path / "failed").exists()
        assert in_order(collected.rows) == golden()
