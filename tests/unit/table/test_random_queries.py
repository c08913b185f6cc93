"""Random queries over random rows: what flinkish computes in columns is what an interpreter computes row by row in
plain Python, through barriers, restores, savepoints and other parallelisms.

Each query runs in three parts, with parallelism 2, 3 and 1, each from a savepoint of the one before. Within a part
every epoch ends at a random record, and a crash follows it, so that nothing is left but what was stored.
"""

from __future__ import annotations

import datetime
import os
import random
from typing import Any

import pytest

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import Schema, StreamTableEnvironment
from flinkish.testing import End, Pause, ProgramTestHarness, TestingSink, TestingSource
from tests.support import plan_interpreter, random_queries
from tests.support.programs import new_environment
from tests.support.random_queries import DELAY_MS, Relation, Writer
from tests.support.sql_answers import materialized

PARALLELISMS = (2, 3, 1)
EPOCH = datetime.datetime(1970, 1, 1)
_OF = {
    random_queries.STRING: Types.STRING(),
    random_queries.BIGINT: Types.LONG(),
    random_queries.DOUBLE: Types.DOUBLE(),
    random_queries.DATE: Types.SQL_DATE(),
    random_queries.DECIMAL: Types.BIG_DEC(),
}
_TYPES = [_OF.get(kind, Types.BOOLEAN()) for kind in random_queries.COLUMNS.values()]
ROW = Types.ROW_NAMED([*random_queries.COLUMNS, "ts"], [*_TYPES, Types.SQL_TIMESTAMP()])
SCHEMA = (
    Schema.new_builder()
    .from_fields([*random_queries.COLUMNS, "ts"], [*map(str, random_queries.COLUMNS.values()), "TIMESTAMP(3)"])
    .watermark("ts", f"ts - INTERVAL '{DELAY_MS // 1000}' SECOND")
    .build()
)
GROUPS, PER_GROUP = (10, 30)
NIGHTLY_GROUPS, PER_NIGHTLY_GROUP = (20, 500)
#: The most epochs before the last one; most of a query's time goes into them.
EPOCHS, NIGHTLY_EPOCHS = 4, 12


def record(row: dict[str, Any]) -> Row:
    values = dict(row, ts=EPOCH + datetime.timedelta(milliseconds=row["ts"]))
    return Row(**values)


def with_pauses(dice: random.Random, rows: list[dict[str, Any]], most: int) -> list[Any]:
    """The rows as records, with at most so many ends of epochs between them."""
    ends = set(dice.sample(range(len(rows)), min(dice.randint(1, most), len(rows))))
    elements: list[Any] = []
    for at, row in enumerate(rows):
        elements.append(record(row))
        if at in ends:
            elements.append(Pause())
    return [*elements, End()]


def program(query: str, parallelism: int, source: TestingSource, sink: TestingSink) -> StreamExecutionEnvironment:
    env = new_environment(parallelism, pipeline__max_parallelism="16")
    t_env = StreamTableEnvironment.create(env)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "t").uid("t")
    t_env.create_temporary_view("t", t_env.from_data_stream(stream, SCHEMA))
    t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(sink).uid("out")
    return env


def changes_of(query: str, dice: random.Random, rows: list[dict[str, Any]], most: int) -> list[Row]:
    """All changes that come out of at most so many epochs and the last, whatever happens on the way."""
    elements = with_pauses(dice, rows, most)
    changes: list[Row] = []
    savepoint = None
    for parallelism in PARALLELISMS:
        sink = TestingSink()
        env = program(query, parallelism, TestingSource(*elements, type_info=ROW), sink)
        with ProgramTestHarness(env, restored=savepoint) as harness:
            for _ in range(10_000 if parallelism == PARALLELISMS[-1] else dice.randint(1, most // 4)):
                if harness.finished:
                    break
                harness.run_epoch()
                harness.crash()
            changes += sink.values
            if harness.finished:
                return changes
            savepoint = harness.savepoint()
    raise AssertionError("the input has not ended")


def row_text(values: Any) -> str:
    """The exact text of a row; 0.0 and -0.0, which are equal, are one."""
    plain = [
        (value - EPOCH) // datetime.timedelta(milliseconds=1) if isinstance(value, datetime.datetime) else value
        for value in values
    ]
    return repr([0.0 if isinstance(value, float) and value == 0 else value for value in plain])


def difference(seed: int, most: int) -> str:
    """What is wrong with the query of this number; "" if nothing is."""
    dice = random.Random(seed)
    rows = random_queries.random_rows(dice, dice.choice((1, 5, 20, 60)))
    relation: Relation = Writer(dice).query()
    query = random_queries.text_of(relation.query)
    tables = {"t": plan_interpreter.source(rows, "ts", DELAY_MS)}
    wanted = sorted(map(row_text, plan_interpreter.answer(relation.query, tables)))
    try:
        changes = changes_of(query, dice, rows, most)
        found = materialized((row.get_row_kind().value, row_text(row)) for row in changes)
    except Exception as error:
        return f"seed {seed}: {query}\n  {type(error).__name__}: {error}"
    if found == wanted:
        return ""
    missing, more = [[one for one in ones if one not in others] for ones, others in ((wanted, found), (found, wanted))]
    return (
        f"seed {seed}: {query}\n  missing: {missing[:3]}\n  more:    {more[:3]}\n  {len(found)} rows, not {len(wanted)}"
    )


def check(seeds: range, most: int) -> None:
    wrong = [text for seed in seeds if (text := difference(seed, most))]
    assert not wrong, f"{len(wrong)} of {len(seeds)} queries:\n\n" + "\n\n".join(wrong[:10])


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_query_in_columns_gives_what_it_means_row_by_row(group: int) -> None:
    check(range(group * PER_GROUP, (group + 1) * PER_GROUP), EPOCHS)


@pytest.mark.nightly
@pytest.mark.parametrize("group", range(NIGHTLY_GROUPS))
def test_ten_thousand_queries_in_columns_give_what_they_mean_row_by_row(group: int) -> None:
    first = int(os.environ.get("FLINKISH_FIRST_SEED", "1000")) + group * PER_NIGHTLY_GROUP
    check(range(first, first + PER_NIGHTLY_GROUP), NIGHTLY_EPOCHS)
