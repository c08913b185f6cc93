"""What is done beside the epochs (checkpoints, savepoints) takes neither their Python workers nor all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from flinkish.checkpoint.maintenance import own_session
from flinkish.spark.settings import NICENESS, VARIABLE, give_way_to_epochs, workers_beside_epochs

_SCHEMA = "pid long, pool string, niceness long"


def _process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        give_way_to_epochs()
        worker = {"pid": [os.getpid()], "pool": [os.environ.get(VARIABLE, "")], "niceness": [os.nice(0)]}
        yield pa.RecordBatch.from_pydict(worker)


def _workers(spark: SparkSession, beside_epochs: bool) -> set[tuple[int, str, int]]:
    frame = spark.range(0, 1_000, 1, 2)
    if beside_epochs:
        with workers_beside_epochs(spark):
            frame = frame.mapInArrow(_process, _SCHEMA)
    else:
        frame = frame.mapInArrow(_process, _SCHEMA)
    return {(row.pid, row.pool, row.niceness) for row in frame.collect()}


def test_functions_made_for_work_beside_epochs_run_in_workers_of_their_own_which_give_way(spark: SparkSession) -> None:
    usual = os.nice(0)
    epochs: set[tuple[int, str, int]] = set()
    beside: set[tuple[int, str, int]] = set()
    for _ in range(4):
        epochs |= _workers(spark, beside_epochs=False)
        beside |= _workers(spark, beside_epochs=True)
    assert {(pool, niceness) for _, pool, niceness in epochs} == {("", usual)}
    assert {(pool, niceness) for _, pool, niceness in beside} == {("beside-epochs", max(usual, NICENESS))}
    assert not {pid for pid, _, _ in epochs} & {pid for pid, _, _ in beside}


def test_what_pyspark_may_be_going_through_in_the_thread_of_an_epoch_is_not_changed(spark: SparkSession) -> None:
    usual = spark.sparkContext.environment
    before = dict(usual)
    with workers_beside_epochs(spark):
        assert spark.sparkContext.environment == {**before, VARIABLE: "beside-epochs"}
        assert usual == before
    assert spark.sparkContext.environment is usual


def test_a_checkpoint_uses_half_of_the_cores_and_changes_no_setting_of_the_program(spark: SparkSession) -> None:
    names = ("spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism")
    before = [spark.conf.get(name, None) for name in names]
    own = own_session(spark)
    assert [own.conf.get(name) for name in names] == ["1", "1", "1"], "of two cores"
    assert [spark.conf.get(name, None) for name in names] == before
