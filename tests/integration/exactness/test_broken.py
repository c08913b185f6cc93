"""Exactly-once, broken on purpose: the checker says what was done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.connectors.jdbc.database import MARKER_TABLE
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.core.sink import CommitContext, Committer, WriterSink
from flinkish.errors import FinalOperationError, FlinkishError
from flinkish.runtime.phases import Phase
from tests.integration.exactness.events import PER_EPOCH
from tests.integration.exactness.job import NAME, Program, build, database, let_go
from tests.integration.exactness.model import golden, of_each
from tests.integration.exactness.outputs import all_outputs, in_database
from tests.integration.exactness.test_trials import wait_for_epochs
from tests.support import faults
from tests.support.exactness import Comparison, Verdict, compare

TIMEOUT_S = 600
EPOCHS = 6
FEW = EPOCHS * PER_EPOCH


def checked(folder: Path, records: int, *runs: str) -> Comparison:
    comparison = compare(golden(of_each(records)), all_outputs(folder, *runs))
    print(comparison)
    return comparison


def fail_and_change_marker(folder: Path, fault_plan: Path, change: str) -> list[Any]:
    """Runs the job until the sink has committed epoch 2 and the driver does not know it, and changes the epoch that
    the database has by then. Returns what is in the database."""
    faults.plan_fault(fault_plan, Phase.SINK_COMMITTED, "raise", epoch=2)
    with pytest.raises(FlinkishError, match="injected at sink committed"):
        build(Program(folder, records=FEW)).execute(NAME)
    there = in_database(folder)
    with sqlite3.connect(folder / "out.db") as connection:
        connection.execute(f"UPDATE {MARKER_TABLE} SET {change} WHERE epoch = (SELECT MAX(epoch) FROM {MARKER_TABLE})")
    connection.close()
    return there


@pytest.mark.nightly
def test_a_database_that_forgets_an_epoch_is_noticed(spark: SparkSession, folder: Path, fault_plan: Path) -> None:
    there = fail_and_change_marker(folder, fault_plan, "epoch = epoch - 1")
    build(Program(folder, records=FEW)).execute(NAME)
    comparison = checked(folder, FEW)
    assert comparison.verdicts == {Verdict.DOUBLED}
    assert comparison.ids(Verdict.DOUBLED)
    assert set(comparison.ids(Verdict.DOUBLED)) <= {output.id for output in there}


@pytest.mark.slow
def test_a_database_that_believes_to_have_an_epoch_that_it_has_not_is_refused(
    spark: SparkSession, folder: Path, fault_plan: Path
) -> None:
    fail_and_change_marker(folder, fault_plan, "epoch = epoch + 1")
    with pytest.raises(FinalOperationError, match="has epoch 3 of this job already, and the job is at epoch 3 only"):
        build(Program(folder, records=FEW)).execute(NAME)


class _Backwards(Committer):
    """Commits the rows of an epoch in the wrong order."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        rows = [row for batch in committables for row in batch]
        return self._committer.commit(iter([rows[::-1]]), context)


class _BackwardsSink(JdbcSink):
    """A sink that keeps no order."""

    def create_committer(self) -> Committer:
        return _Backwards(super().create_committer())


def backwards(folder: Path) -> WriterSink:
    """The job's database, by a sink that keeps no order."""
    sink = database(folder)
    assert isinstance(sink, JdbcSink)
    sink.__class__ = _BackwardsSink
    return sink


@pytest.mark.slow
def test_a_sink_that_keeps_no_order_is_noticed(spark: SparkSession, folder: Path) -> None:
    build(Program(folder, records=FEW, database=backwards)).execute(NAME)
    comparison = checked(folder, FEW)
    assert comparison.verdicts == {Verdict.REORDERED}
    assert len(comparison.ids(Verdict.REORDERED)) > FEW


@pytest.mark.slow
def test_state_that_comes_back_after_it_was_cleared_is_noticed(spark: SparkSession, folder: Path) -> None:
    """Keys 4, 5, 10 and 11 live in the epochs 0 to 3 and again in 8 to 10; the others live throughout."""
    program = Program(folder, "before", records=11 * PER_EPOCH, holds=(2, 7))
    client = build(program).execute_async(NAME)
    wait_for_epochs(client, program, 2)
    early = f"delta.`{client.trigger_savepoint(str(folder / 'savepoints')).result(TIMEOUT_S)}/state`"
    let_go(program, 2)
    wait_for_epochs(client, program, 7)
    stopping = client.stop_with_savepoint(False, str(folder / "savepoints"))
    let_go(program, 7)
    path = stopping.result(TIMEOUT_S)
    late = f"delta.`{path}/state`"
    alive = f"SELECT key FROM {late} WHERE uid = 'sessions' AND state = 'life'"
    # with their timers, two keys are summed up again at once; without, two others go on counting
    spark.sql(
        f"INSERT INTO {late} SELECT * FROM {early} WHERE uid = 'sessions' AND state <> 'made' "
        f"AND key NOT IN ({alive}) AND (key IN ('4', '5') OR NOT state LIKE '\\_\\_timers%')"
    )
    again = replace(program, run="after", holds=())
    build(again, execution__state_recovery__path=path).execute(NAME)
    comparison = checked(folder, program.records, "before", "after")
    assert comparison.verdicts == {Verdict.RESURRECTED, Verdict.LOST}
    assert comparison.ids(Verdict.LOST) == ["closed/10/2", "closed/11/2"]
    risen = comparison.ids(Verdict.RESURRECTED)
    assert {f"closed/{key}" for key in ("4/0", "5/0", "10/1", "11/1")} <= set(risen)
    assert len(risen) == 4 + 2 * 30
