"""Parquet files of which a test knows the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_parquet(file: Path, rows: int, group: int, first: int = 0) -> list[tuple[str, int]]:
    """Writes the rows (user, n) with n from `first` on, in row groups of `group` rows; returns them. The columns are n,
    other and user."""
    values = [(f"u{number % 7}", number) for number in range(first, first + rows)]
    columns: dict[str, Any] = {"n": [n for _, n in values], "other": [0.5] * rows, "user": [user for user, _ in values]}
    file.parent.mkdir(exist_ok=True)
    schema = pa.schema([("n", pa.int64()), ("other", pa.float64()), ("user", pa.string())])
    pq.write_table(pa.table(columns, schema), file, row_group_size=group)
    return values
