"""An upsert sink without a database: a dictionary in the driver that gets the last value per key and epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink

delivered: dict[Any, Any] = {}


class UpsertWriter(SinkWriter):
    """Keeps the last value per key until the barrier: the values in between are never visible."""

    def __init__(self) -> None:
        self._last: dict[Any, Any] = {}

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Take a batch of (key, value)."""
        self._last.update(values)
        return []

    def prepare_commit(self) -> list[Any]:
        """The epoch's upserts."""
        rows = list(self._last.items())
        self._last = {}
        return rows


class DictCommitter(Committer):
    """Upserts into the driver's dictionary."""

    on_driver = True

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        """Commit one (subtask, epoch)."""
        count = 0
        for rows in committables:
            delivered.update(rows)
            count += len(rows)
        return count


class DictSink(WriterSink):
    """An upsert sink without a database."""

    guarantee = Guarantee.EXACTLY_ONCE

    def create_writer(self) -> SinkWriter:
        """The writer of one subtask."""
        return UpsertWriter()

    def create_committer(self) -> Committer:
        """The committer."""
        return DictCommitter()
