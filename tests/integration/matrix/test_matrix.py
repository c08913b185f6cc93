"""Two cells of the matrix of sources, sinks and changes in the ordinary run; all of it in the slow suite.

Where it does not matter in which process a program goes on, it does in the Spark session of the tests, with two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.runtime.phases import Phase
from tests.integration.matrix import __main__ as command
from tests.integration.matrix import changes
from tests.integration.matrix.cells import assert_golden, make_cell
from tests.integration.matrix.program import Cell, Mishap, PlannedMishap, run
from tests.integration.matrix.servers import Servers
from tests.integration.matrix.sessions import Sessions
from tests.integration.matrix.sinks import SINKS
from tests.integration.matrix.sources import SOURCES
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres import PostgresServer

NewCell = Callable[[str, str], Cell]


@pytest.fixture(scope="module")
def servers(kafka: KafkaBroker, postgres: PostgresServer) -> Servers:
    return Servers(kafka, postgres)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    with Sessions(tmp_path_factory.mktemp("sessions")) as living:
        yield living


@pytest.fixture
def new_cell(tmp_path: Path, servers: Servers) -> NewCell:
    return lambda source, sink: make_cell(tmp_path, source, sink, servers)


def fail_here(cell: Cell, share: float) -> None:
    """In the session of the tests."""
    with pytest.raises(Exception, match=PlannedMishap("raise", share).message) as caught:
        run(cell, PlannedMishap("raise", share))
    assert Mishap.__name__ in str(caught.value)


@pytest.mark.slow
def test_text_files_reach_a_database_once_although_a_subtask_fails_under_four_cores_and_two_go_on(
    spark: SparkSession, tmp_path: Path, servers: Servers, sessions: Sessions
) -> None:
    # all files are in one epoch, each read by the subtask that is free, which is another one with other cores
    cell = make_cell(tmp_path, "text", "jdbc", servers, records_per_epoch=1_000)
    changes.fail_in_a_subtask(cell, sessions)
    run(cell)
    assert_golden(cell, servers)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "sink"), [("parquet", "delta"), ("collection", "kafka")])
def test_two_failures_under_two_and_four_cores_lose_and_double_nothing(
    spark: SparkSession, new_cell: NewCell, servers: Servers, sessions: Sessions, source: str, sink: str
) -> None:
    cell = new_cell(source, sink)
    fail_here(cell, 0.3)
    sessions.of("local[4]").run_into(cell, PlannedMishap("raise", 0.6))
    run(cell)
    assert_golden(cell, servers)


def test_topic_to_topic_is_exactly_once_although_the_driver_is_killed_in_the_middle_of_a_commit(
    spark: SparkSession, tmp_path: Path, servers: Servers, sessions: Sessions
) -> None:
    # one epoch before the one in which the driver is killed, and one behind it
    cell = make_cell(tmp_path, "kafka", "kafka", servers, records_per_epoch=28)
    changes.kill_driver(cell, sessions, (Phase.SINK_COMMITTED,), "local[4]")
    run(cell)
    assert_golden(cell, servers)


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=pytest.mark.slow) for name in ("added", "removed", "swapped", "renamed")]
)
def test_an_upgrade_in_the_directory_of_a_killed_driver_sends_what_is_prepared_to_its_own_sinks_or_is_refused(
    new_cell: NewCell, servers: Servers, sessions: Sessions, program: str
) -> None:
    cell = new_cell("generator", "delta")
    sessions.keep_only("local[2]")
    changes.CHANGES[program].run(cell, sessions)
    assert_golden(cell, servers)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["files", "delta", "jdbc", "kafka"])
def test_a_job_directory_that_is_put_back_from_an_older_copy_is_refused_and_the_newest_one_is_not(
    new_cell: NewCell, servers: Servers, sessions: Sessions, sink: str
) -> None:
    cell = new_cell("generator", sink)
    sessions.keep_only("local[2]")
    changes.CHANGES["put back"].run(cell, sessions)
    assert_golden(cell, servers)


@pytest.mark.slow
def test_the_executor_in_which_a_subtask_is_at_work_can_be_lost(
    new_cell: NewCell, servers: Servers, sessions: Sessions
) -> None:
    cell = new_cell("generator", "files")
    sessions.keep_only(changes.TWO_EXECUTORS)
    changes.CHANGES["executor"].run(cell, sessions)
    assert_golden(cell, servers)


@pytest.mark.slow
def test_a_job_that_failed_on_two_executors_goes_on_with_one(
    new_cell: NewCell, servers: Servers, sessions: Sessions
) -> None:
    cell = new_cell("delta", "jdbc")
    sessions.keep_only(changes.TWO_EXECUTORS)
    changes.CHANGES["executors"].run(cell, sessions)
    assert_golden(cell, servers)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("change", changes.CHANGES)
def test_every_source_reaches_every_sink_exactly_once_under(change: str, tmp_path: Path) -> None:
    assert command.run_all(tmp_path, list(SOURCES), list(SINKS), [change]) == []
