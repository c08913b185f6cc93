"""Delta tables as tables of SQL, on Spark: what is appended, what is merged by its primary key, and what is read."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from flinkish.common import Row, RowKind, Types
from flinkish.table import Schema, StreamTableEnvironment
from tests.integration.engine.collecting import environment

ROW = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])


def test_rows_are_appended_changes_are_merged_by_key_and_both_are_read(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(parallelism__default=1)
    t_env = StreamTableEnvironment.create(env)
    columns = "word STRING, n BIGINT"
    for name, more in (("words", ""), ("counts", ", PRIMARY KEY (word) NOT ENFORCED")):
        t_env.execute_sql(
            f"CREATE TABLE {name} ({columns}{more}) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}/{name}', "
            "'bounded' = 'true')"
        )
    t_env.execute_sql("INSERT INTO words VALUES ('a', 1), ('b', 2), ('a', 3)").wait()
    t_env.execute_sql("INSERT INTO counts SELECT word, SUM(n) FROM words WHERE n > 0 GROUP BY word").wait()

    def written() -> list[tuple[str, int]]:
        return sorted((row.word, row.n) for row in spark.read.format("delta").load(f"{tmp_path}/counts").collect())

    assert written() == [("a", 4), ("b", 2)]
    changes = [
        Row.of_kind(RowKind.UPDATE_BEFORE, "a", 4),
        Row.of_kind(RowKind.UPDATE_AFTER, "a", 5),
        Row.of_kind(RowKind.UPDATE_BEFORE, "b", 2),
        Row.of_kind(RowKind.INSERT, "c", 9),
        Row.of_kind(RowKind.DELETE, "c", 9),
    ]
    stream = env.from_collection(changes, ROW)
    schema = Schema.new_builder().column("word", "STRING").column("n", "BIGINT").build()
    t_env.from_changelog_stream(stream, schema).execute_insert("counts").wait()
    # a row that is retracted and not replaced is deleted
    assert written() == [("a", 5)]
