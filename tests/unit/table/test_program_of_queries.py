"""A program with queries in a harness: what its operators emit is shown as Rows, and it goes on after crashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.common import RowKind, Types
from flinkish.runtime.phases import Phase
from flinkish.table import StreamTableEnvironment
from flinkish.testing import ProgramTestHarness, SimulatedCrash, TestingSink
from tests.support.programs import new_environment

ROWS, KEYS = 400, 7


@pytest.mark.parametrize("phase", [None, Phase.LEVEL_PROCESSED, Phase.EPOCH_PREPARED, Phase.SINK_COMMITTED])
def test_a_group_by_gives_each_change_once_whenever_it_crashes(phase: Phase | None, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"k": [f"k{number % KEYS}" for number in range(ROWS)], "v": list(range(ROWS))}),
        tmp_path / "rows.parquet",
    )
    env = new_environment(2)
    t_env = StreamTableEnvironment.create(env)
    t_env.execute_sql(
        "CREATE TABLE numbers (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{tmp_path}')"
    )
    query = t_env.sql_query("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM numbers WHERE v >= 0 GROUP BY k")
    stream = t_env.to_changelog_stream(query)
    sink = TestingSink()
    stream.map(lambda row: (row.get_row_kind(), *row), Types.PICKLED_BYTE_ARRAY()).sink_to(sink).name("out")
    with ProgramTestHarness(env, max_records_per_epoch=100, pickle_functions=True) as harness:
        if phase is not None:
            harness.crash_at(phase, epoch=1)
            with pytest.raises(SimulatedCrash):
                harness.run()
        harness.run()
        (aggregate,) = (one for vertex in harness.job.vertices for one in vertex.operators if "1-aggregate" in one.uid)
        changes = [record.value for record in harness.emitted(aggregate.uid)]
    last = {row[0]: tuple(row[1:]) for row in changes if row.get_row_kind() is not RowKind.UPDATE_BEFORE}
    expected = {f"k{key}": list(range(key, ROWS, KEYS)) for key in range(KEYS)}
    assert last == {key: (len(values), sum(values)) for key, values in expected.items()}
    counts = Counter(kind for kind, *_ in sink.values)
    assert counts[RowKind.INSERT] == KEYS
    assert counts[RowKind.UPDATE_BEFORE] == counts[RowKind.UPDATE_AFTER] == 3 * KEYS
