"""An upsert sink that sends the driver two numbers per epoch, so that results are checked at no cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink


class SumsWriter(SinkWriter):
    """Keeps only the number of an epoch's upserts and their sum."""

    def __init__(self) -> None:
        self._last: dict[Any, int] = {}

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Take a batch of (user, sum)."""
        self._last.update(values)
        return []

    def prepare_commit(self) -> list[Any]:
        """(users, sum over them)."""
        committable = (len(self._last), sum(self._last.values()))
        self._last = {}
        return [committable]


#: epoch -> the total of all subtasks: users, and the sum over them
committed: dict[int, list[int]] = {}


class SumsCommitter(Committer):
    """Adds up the subtasks of an epoch in the driver."""

    on_driver = True

    def commit(self, committables: Iterator[list[tuple[int, int]]], context: CommitContext) -> int:
        """Commit one (subtask, epoch)."""
        count = 0
        for users, total in chain.from_iterable(committables):
            sums = committed.setdefault(context.epoch, [0, 0])
            sums[0], sums[1] = sums[0] + users, sums[1] + total
            count += users
        return count


class SumsSink(WriterSink):
    """A sink for the running sums: the driver gets two numbers per subtask and epoch."""

    guarantee = Guarantee.EXACTLY_ONCE

    def create_writer(self) -> SinkWriter:
        """The writer of one subtask."""
        return SumsWriter()

    def create_committer(self) -> Committer:
        """The committer."""
        return SumsCommitter()
