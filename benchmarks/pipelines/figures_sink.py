"""A sink that sends the driver only four numbers per subtask and epoch: the figures of all results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.pipelines.peer_programs import Figures
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink

#: the figures of what was committed in this driver, by job name
committed: dict[str, Figures] = {}


class FiguresWriter(SinkWriter):
    """Adds up the results of an epoch."""

    def __init__(self) -> None:
        self._figures = Figures()

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Take a batch of results."""
        self._figures.add(values)
        return []

    def prepare_commit(self) -> list[Any]:
        """The figures of the epoch."""
        figures, self._figures = self._figures, Figures()
        return [figures.as_tuple()]


class FiguresCommitter(Committer):
    """Adds up the figures of the subtasks in the driver."""

    on_driver = True

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        """Commit one (subtask, epoch)."""
        rows = 0
        for figures in committables:
            for each in figures:
                committed.setdefault(context.job_name, Figures()).merge(each)
                rows += each[0]
        return rows


class FiguresSink(WriterSink):
    """A sink that keeps only figures of all results."""

    guarantee = Guarantee.EXACTLY_ONCE

    def create_writer(self) -> SinkWriter:
        """The writer of one subtask."""
        return FiguresWriter()

    def create_committer(self) -> Committer:
        """The committer."""
        return FiguresCommitter()
