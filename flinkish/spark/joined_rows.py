"""Joins small Arrow batches: each one costs a call across processes, or a row group of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

#: From so many rows on, a batch is passed on by default.
_BATCH_ROWS = 10_000


def joined(batches: Iterator[pa.RecordBatch], least_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of the batches, which have the same columns, in their order, in batches of ``least_rows`` or more but
    for the last one."""
    share: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        share.append(batch)
        rows += batch.num_rows
        if rows >= least_rows:
            yield _together(share)
            share, rows = [], 0
    if share:
        yield _together(share)


def _together(share: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(share) == 1:
        return share[0]
    schema = share[0].schema
    parts = [pa.concat_arrays([batch.column(name) for batch in share]) for name in schema.names]
    return pa.RecordBatch.from_arrays(parts, schema=schema)
