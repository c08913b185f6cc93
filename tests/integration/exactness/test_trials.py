"""The big job on Spark: left alone, failing again and again, rescaled, stopped, edited. One golden result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.exactness.events import PER_EPOCH
from tests.integration.exactness.job import NAME, Program, build, let_go
from tests.integration.exactness.mishaps import random_mishaps
from tests.integration.exactness.model import Edit, golden, living_on, of_each
from tests.integration.exactness.outputs import all_outputs, consumed, rows_so_far
from tests.support.exactness import assert_exact
from tests.support.processes import wait_until

TIMEOUT_S = 600
#: JobManager's own restarts: Spark tries no task again in a local session.
RESTARTING: dict[str, Any] = {
    "restart_strategy__type": "fixed-delay",
    "restart_strategy__fixed_delay__attempts": 1000,
    "restart_strategy__fixed_delay__delay": "10 ms",
}
#: Enough for all kinds of outputs and several lives; the whole input takes longer.
HALF = 18 * PER_EPOCH


def stopped(program: Program, epochs: int, drain: bool = False, **settings: Any) -> str:
    """Run the job for so many epochs of all the input, or one more, and stop it at work; the savepoint."""
    program = replace(program, holds=(epochs,))
    client = build(program, **settings).execute_async(NAME)
    wait_for_epochs(client, program, epochs)
    stopping = client.stop_with_savepoint(drain, str(program.folder / "savepoints"))
    let_go(program, epochs)
    path = stopping.result(TIMEOUT_S)
    # the next epoch has begun, and is worked off, or has not and does not
    assert consumed(program.folder) in [of_each(n * program.per_epoch) for n in (epochs, epochs + 1)]
    return str(path)


def wait_for_epochs(client: Any, program: Program, epochs: int) -> None:
    """Until so many epochs have left their rows."""
    least = epochs * program.per_epoch * 2
    ended = client.get_job_execution_result().done
    wait_until(lambda: rows_so_far(program.folder) >= least or ended(), TIMEOUT_S, f"the rows of {epochs} epochs")


@pytest.mark.slow
def test_left_alone_it_puts_out_the_golden_result(spark: SparkSession, folder: Path) -> None:
    build(Program(folder)).execute(NAME)
    assert_exact(golden(), all_outputs(folder))


@pytest.mark.slow
@pytest.mark.parametrize("exceptions", [6, 20])
def test_failed_by_exceptions_it_puts_out_the_golden_result(spark: SparkSession, folder: Path, exceptions: int) -> None:
    mishaps = random_mishaps(folder, exceptions, seed=20_261_121)
    build(Program(folder, mishaps=mishaps), **RESTARTING).execute(NAME)
    assert mishaps.happened() == exceptions
    assert_exact(golden(), all_outputs(folder))


@pytest.mark.slow
def test_rescaled_from_one_to_four_to_three_it_puts_out_the_golden_result(spark: SparkSession, folder: Path) -> None:
    def part(run: str) -> Program:
        return Program(folder, run, records=HALF)

    path = stopped(part("one"), 5, parallelism__default=1, pipeline__max_parallelism=8)
    wide: dict[str, Any] = {"pipeline__max_parallelism": 32}
    path = stopped(part("four"), 11, execution__state_recovery__path=path, parallelism__default=4, **wide)
    build(part("three"), execution__state_recovery__path=path, parallelism__default=3, **wide).execute(NAME)
    assert_exact(golden(of_each(HALF)), all_outputs(folder, "one", "four", "three"))


@pytest.mark.slow
def test_stopped_with_drain_it_closes_all_that_was_open(spark: SparkSession, folder: Path) -> None:
    stopped(Program(folder, records=HALF), 8, drain=True)
    assert_exact(golden(consumed(folder)), all_outputs(folder))


@pytest.mark.slow
def test_with_state_edited_by_sql_it_puts_out_the_edited_golden_result(spark: SparkSession, folder: Path) -> None:
    path = stopped(Program(folder, "before", records=HALF), 7)
    edit = edited(spark, f"delta.`{path}/state`", consumed(folder))
    build(Program(folder, "after", records=HALF), execution__state_recovery__path=path).execute(NAME)
    assert_exact(golden(of_each(HALF), edit), all_outputs(folder, "before", "after"))


def edited(spark: SparkSession, table: str, so_far: dict[str, int]) -> Edit:
    """UPDATE, DELETE and INSERT state of the sessions; what the model must know of it."""
    sessions = f"{table} WHERE uid = 'sessions'"
    alive = {json.loads(row["key"]) for row in spark.sql(f"SELECT key FROM {sessions} AND state = 'life'").collect()}
    going_on = living_on(so_far, of_each(HALF))
    assert set(going_on) <= alive
    richer, forgotten = going_on[0], going_on[1]
    born = min(key for key in range(12) if key not in alive)
    spark.sql(
        f"UPDATE {table} SET value = CAST(value AS BIGINT) + 1000 "
        f"WHERE uid = 'sessions' AND state = 'total' AND key = '{richer}'"
    )
    spark.sql(f"DELETE FROM {sessions} AND key = '{forgotten}' AND state <> 'made'")
    for state, value in (("life", '"given"'), ("total", "5000")):
        spark.sql(
            f"INSERT INTO {table} SELECT uid, state, kind, '{born}', namespace, '{value}' "
            f"FROM {sessions} AND state = '{state}' LIMIT 1"
        )
    return Edit(so_far, {richer: 1000}, frozenset([forgotten]), {born: ("given", 5000)})
