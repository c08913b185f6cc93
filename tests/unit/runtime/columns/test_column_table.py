"""The state of aggregations in columns: what is written of it, and what the changelog says."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.runtime.columns.aggregate import AggregateFactory
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.runtime.columns.windows import WindowFactory
from flinkish.runtime.state.changelog import apply_changes, decode_changes, encode_changes
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.state_rows import StateRow
from tests.support.column_operators import Driven, batch_of

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("ts", pa.timestamp("ms"))])
CALLS = (
    AggregateCall("COUNT", "COUNT(*)", None, pa.int64()),
    AggregateCall("SUM", "SUM(x)", "x", pa.float64()),
    AggregateCall("COUNT", "COUNT(DISTINCT x)", "x", pa.int64(), distinct=True),
)
FACTORIES: dict[str, Any] = {
    "GROUP BY": AggregateFactory(("user", "n"), CALLS, SCHEMA),
    "DISTINCT": AggregateFactory(("n",), (), SCHEMA),
    "all rows": AggregateFactory((), CALLS, SCHEMA),
    "with a time to live": AggregateFactory(("user",), CALLS, SCHEMA, ttl_ms=40),
    "rows are taken back": AggregateFactory(("n",), CALLS, SCHEMA, retracting=True),
    "final": AggregateFactory(("user",), CALLS, SCHEMA, final=True),
    "TUMBLE": WindowFactory(("user", "n"), CALLS, WindowAssigner("TUMBLE", 10, time="ts"), SCHEMA),
    "HOP": WindowFactory(("n",), CALLS, WindowAssigner("HOP", 20, 5, time="ts"), SCHEMA),
    "SESSION": WindowFactory(("user",), CALLS, WindowAssigner("SESSION", 6, time="ts"), SCHEMA),
}


@pytest.mark.parametrize("in_files", [False, True], ids=["with the task", "in files"])
@pytest.mark.parametrize("name", FACTORIES)
def test_the_changes_of_all_epochs_give_the_rows_of_the_last(name: str, in_files: bool, tmp_path: Path) -> None:
    rng = random.Random(name)
    directory = StateDirectory(str(tmp_path)) if in_files else None
    driven = Driven(FACTORIES[name], directory=directory, recording=True)
    table: dict[tuple[Any, ...], tuple[StateRow, ...]] = {}
    most = 0
    for epoch in range(20):
        backend = driven.harnesses[0].backend
        assert backend is not None
        for _ in range(rng.randrange(3)):
            rows = [
                (rng.choice(["a", "b", None, "c"]), rng.randrange(4), rng.choice([None, 0.5, 3.0]), epoch * 5 + more)
                for more in rng.choices(range(-8, 30), k=rng.randrange(1, 6))
            ]
            kinds = [0] * len(rows) + [3] * len(rows) if name == "rows are taken back" and rng.random() < 0.5 else None
            driven.feed(batch_of(SCHEMA, rows if kinds is None else rows * 2, kinds))
            if in_files and rng.random() < 0.3:
                backend.spill()
                backend.release()
        driven.time(epoch * 10)
        driven.watermark(epoch * 5 if epoch < 19 else MAX_WATERMARK_MS)
        snapshot = driven.harnesses[0].snapshot()
        changes = decode_changes(encode_changes(epoch, backend.take_changes()))
        assert changes[0] == epoch
        apply_changes(table, changes[1])
        found = Counter(map(repr, stored_rows(snapshot.keyed_state, directory)))
        assert found == Counter(repr(row) for entry in table.values() for row in entry)
        most = max(most, len(found))
        if rng.random() < 0.3:
            driven.barrier()
    assert most


def test_only_what_has_changed_is_written() -> None:
    driven = Driven(FACTORIES["GROUP BY"], recording=True)
    backend = driven.harnesses[0].backend
    assert backend is not None
    for rows, expected in (([1, 2], [1, 2]), ([2], [2])):
        driven.feed(batch_of(SCHEMA, [("a", n, 1.0, 0) for n in rows]))
        driven.barrier(restore=False)
        _, changes = decode_changes(encode_changes(0, backend.take_changes()))
        assert [change.key for change in changes] == [("a", n) for n in expected]
