"""Levels of loggers hold wherever the Python of a job runs, and for this job only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.common.logger_levels import configure_loggers
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import UserCodeError
from tests.integration.engine.collecting import collecting, settings


class TellingSource(DataGeneratorSource):
    """Leaves the level of a logger, where epochs are planned, in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(lambda i: i, 10)
        self._path = path

    def end_of_epoch(self, split: int, position: int) -> int:
        self._path.write_text(str(logging.getLogger("flinkish.TaskManager").getEffectiveLevel()))
        return super().end_of_epoch(split, position)


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    yield
    configure_loggers({})


def levels(folder: Path, configuration: Configuration) -> tuple[list[int], int, int]:
    """Of the TaskManager's logger: in the tasks of a job, where its epochs are planned, in the driver."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    numbers = env.from_source(TellingSource(folder / "level"), WatermarkStrategy.no_watermarks(), "numbers")
    of_task = numbers.key_by(lambda n: n % 2).map(
        lambda _: logging.getLogger("flinkish.TaskManager").getEffectiveLevel(), Types.LONG()
    )
    with collecting() as collected:
        of_task.sink_to(collected.sink())
        env.execute("levels")
        in_tasks = sorted(set(collected.rows["out"]))
    planned = int((folder / "level").read_text())
    return in_tasks, planned, logging.getLogger("flinkish.TaskManager").getEffectiveLevel()


@pytest.mark.nightly
def test_a_level_holds_in_driver_tasks_and_planning_until_the_next_job(spark: SparkSession, tmp_path: Path) -> None:
    everything = settings().set_string("logger.TaskManager", "ALL")
    assert levels(tmp_path, everything) == ([1], 1, 1)
    assert levels(tmp_path, settings()) == ([logging.WARNING], logging.WARNING, logging.WARNING)


def _tell(number: int) -> int:
    logging.getLogger("my_shop").info("seen %s", number)
    if number == 4:
        raise ValueError("four")
    return number


def test_what_functions_log_is_in_the_drivers_log_with_task_and_epoch(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(settings().set_string("logger.my_shop", "INFO"))
    env.from_collection([1, 2, 3, 4]).key_by(lambda n: 0).map(_tell, Types.LONG()).name("Tell").print()
    with pytest.raises(UserCodeError, match="four"):
        env.execute("telling")
    lines = [record.getMessage() for record in caplog.records if record.name == "my_shop"]
    assert [line.partition(" [")[0] for line in lines] == ["seen 1", "seen 2", "seen 3", "seen 4"]
    (where,) = {line.partition(" [")[2] for line in lines}
    assert where.startswith("Tell -> Sink: ")
    assert where.endswith(", epoch 0]")
