"""Sinks for tests that keep the committed records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flinkish.common.text import text_writer
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.errors import InternalError

__all__ = ["DataStreamTestSinkFunction", "TestingSink"]


class TestingSink(WriterSink):
    """Keeps the committed records, by (subtask, epoch). An epoch that is committed again must have the same records,
    and counts once. Works only for programs that run in the test's process.

    Example::

        sink = TestingSink()
        with ProgramTestHarness(env, sinks={"alerts": sink}) as harness:
            harness.run()
        assert sink.values == ["alert"]
    """

    __test__ = False
    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def __init__(self) -> None:
        self.commits: dict[tuple[int, int], list[Any]] = {}
        self.contexts: list[CommitContext] = []

    #: a task only writes, and need not have a copy of all that was committed before it
    travels_by_reference = True

    def __deepcopy__(self, memo: dict[int, Any]) -> TestingSink:
        """Itself, for the same reason."""
        return self

    @property
    def values(self) -> list[Any]:
        """All committed records, ordered by epoch and within an epoch by subtask."""
        in_order = sorted(self.commits.items(), key=lambda commit: (commit[0][1], commit[0][0]))
        return [value for _, values in in_order for value in values]

    def create_writer(self) -> SinkWriter:
        return _Writer()

    def create_committer(self) -> Committer:
        return _Committer(self)


class DataStreamTestSinkFunction(TestingSink):
    """The sink of PyFlink's own tests, which tests of users have taken over, too."""

    def __init__(self) -> None:
        super().__init__()
        self._type: TypeInformation | None = None

    def with_input_type(self, input_type: TypeInformation) -> DataStreamTestSinkFunction:
        self._type = input_type
        return self

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[Any]:
        """The records since the last call: the texts of Java's ``toString``; or, with ``is_python_object``, the texts
        of ``str``; or, without ``stringify`` too, the records themselves."""
        values = self.values
        self.clear()
        if not is_python_object:
            return list(map(text_writer(self._type), values))
        return list(map(str, values)) if stringify else values

    def clear(self) -> None:
        """Forget the records so far."""
        self.commits.clear()


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._held: list[Any] = []

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        self._held += values
        return []

    def prepare_commit(self) -> list[Any]:
        held, self._held = self._held, []
        return held


class _Committer(Committer):
    def __init__(self, sink: TestingSink) -> None:
        self._sink = sink

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        values = [value for batch in committables for value in batch]
        self._sink.contexts.append(context)
        place = (context.subtask, context.epoch)
        if place in self._sink.commits:
            if self._sink.commits[place] != values:
                raise InternalError(
                    f"epoch {context.epoch} was committed again with other records",
                    where=f"sink '{context.sink_name}', subtask {context.subtask}",
                    expected=f"{self._sink.commits[place]!r:.500}, not {values!r:.500}",
                    hint="functions must give the same for the same input, state and time",
                )
            return 0
        self._sink.commits[place] = values
        return len(values)
