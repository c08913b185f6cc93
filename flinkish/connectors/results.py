"""The sinks whose records come back to the driver's process: ``execute_and_collect`` hands them to a callback, and
``print()`` writes one line per record to the standard output, with the prefixes of Flink's ``PrintSinkOutputWriter``;
and the one that drops them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from flinkish.common.text import PRINT_ROW_SEPARATOR, prints_python, standard_stream, text_writer
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.errors import InternalError

_lock = threading.Lock()
_collectors: dict[tuple[str, str], _Collector] = {}

#: Takes the place of the sink uid when a collector is registered under a name of its own.
NAMED = "*"


class _Collector:
    """A callback and, per job, sink and subtask, the last epoch that it received, so that an epoch that is committed
    again is not handed to it twice."""

    def __init__(self, callback: Callable[[list[Any]], None]) -> None:
        self.callback = callback
        self.last_epoch: dict[tuple[str, str, int], int] = {}


def register_collector(job_id: str, sink_uid: str, callback: Callable[[list[Any]], None]) -> None:
    """Register ``callback`` for the records that this sink commits. It is called in the committing thread, with the
    list of all records of one subtask and epoch, and not at all for an empty one."""
    with _lock:
        _collectors[job_id, sink_uid] = _Collector(callback)


def unregister_collector(job_id: str, sink_uid: str) -> None:
    """Remove the callback of this sink, if one is registered."""
    with _lock:
        _collectors.pop((job_id, sink_uid), None)


class CollectSink(WriterSink):
    """Hands the records to the callback that is registered for this job and sink.

    Where the callback must be registered before the job has an id, give the sink a name of its own:
    ``CollectSink(name)`` and ``register_collector(name, NAMED, callback)``.

    Guarantee: exactly once as long as the driver's process lives. A callback that raises gets the same epoch again.

    The callback is not part of the pickled job graph, since it cannot be serialized. It is looked up when an epoch
    commits: by the name that the sink carries, or by (job id, sink uid) if the sink has no name.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @property
    def default_name(self) -> str:
        return "Collect Stream Sink"

    def create_writer(self) -> SinkWriter:
        return _CollectWriter()

    def create_committer(self) -> Committer:
        return _CollectCommitter(self._name)


class _CollectWriter(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return values


class _CollectCommitter(Committer):
    on_driver = True

    def __init__(self, name: str | None) -> None:
        self._name = name

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        with _lock:
            own = (context.job_id, context.sink_uid)
            collector = _collectors.get(own if self._name is None else (self._name, NAMED))
        if collector is None:
            raise InternalError(
                "nobody collects the results",
                where=f"job {context.job_id}, sink '{context.sink_uid}'",
                expected="a collector registered before the first epoch",
            )
        committer = (context.job_id, context.sink_uid, context.subtask)
        if collector.last_epoch.get(committer, -1) >= context.epoch:
            return 0
        # One call per epoch and subtask: with several calls, a callback that raises in a later one would see the
        # records of the earlier ones twice.
        rows = [value for values in committables for value in values]
        if rows:
            collector.callback(rows)
        collector.last_epoch[committer] = context.epoch
        return len(rows)


#: The most lines of a sink that a cell of a notebook shows.
CELL_LINES = 1_000
CELL_IS_FULL = (
    f"flinkish: print() shows the first {CELL_LINES} lines in a notebook, and the job goes on; "
    "stream.show(N) and execute_and_collect(limit=N) give others"
)


def line_prefix(identifier: str, subtask: int, parallelism: int) -> str:
    """The prefix of each line: the identifier, and the number of the subtask (from 1) if there is more than one.

    >>> [line_prefix("", 0, 1), line_prefix("", 0, 2), line_prefix("clicks", 0, 1), line_prefix("clicks", 1, 2)]
    ['', '1> ', 'clicks> ', 'clicks:2> ']
    """
    number = str(subtask + 1) if parallelism > 1 else ""
    prefix = ":".join(part for part in (identifier, number) if part)
    return f"{prefix}> " if prefix else ""


class PrintSink(WriterSink):
    """Prints the records on the driver, where the program runs, and not in the workers that made them.

    Guarantee: at least once. After a restart of the driver the lines of the last epoch may appear again.

    Args:
        identifier: text before each line; None: none.
        input_type: type of the records; decides the text form (see `flinkish.common.text`).
        std_err: whether to print to standard error instead of standard output.
        row_separator: what stands between the fields of Rows: that of ``print()``, or that of Java's text, which the
            texts of the fields are then too.
    """

    guarantee = Guarantee.AT_LEAST_ONCE
    reads_timestamps = False

    def __init__(
        self,
        identifier: str | None = None,
        input_type: TypeInformation | None = None,
        std_err: bool = False,
        row_separator: str = PRINT_ROW_SEPARATOR,
    ) -> None:
        self.identifier = identifier or ""
        self.input_type = input_type
        self.std_err = std_err
        self.row_separator = row_separator
        # as in PyFlink, which prints Rows field by field in Python, whatever their fields are
        self.takes_misfits = row_separator == PRINT_ROW_SEPARATOR and prints_python(input_type)

    @property
    def default_name(self) -> str:
        return f"Print to Std. {'Err' if self.std_err else 'Out'}"

    def create_writer(self) -> SinkWriter:
        return _PrintWriter(self)

    def create_committer(self) -> Committer:
        return _PrintCommitter(self.std_err)


class _PrintWriter(SinkWriter):
    def __init__(self, sink: PrintSink) -> None:
        self._identifier = sink.identifier
        self._text = text_writer(sink.input_type, sink.row_separator)
        self._prefix = line_prefix(sink.identifier, 0, 1)

    def open(self, subtask: int, parallelism: int) -> None:
        self._prefix = line_prefix(self._identifier, subtask, parallelism)

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        prefix, text = self._prefix, self._text
        return [prefix + text(value) for value in values]


class _PrintCommitter(Committer):
    on_driver = True

    def __init__(self, std_err: bool) -> None:
        self._std_err = std_err
        self._shown, self._is_full = 0, False

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        # looked up at each commit and not when the sink is made, since notebooks and tests replace it
        stream = standard_stream(self._std_err)
        printed = 0
        for lines in committables:
            if lines:
                self._show(stream, lines)
                printed += len(lines)
        stream.flush()
        return printed

    def _show(self, stream: TextIO, lines: list[str]) -> None:
        """Print lines. A cell of a notebook gets the first `CELL_LINES` only: a browser keeps them all."""
        is_cell = type(stream).__module__.startswith("ipykernel")
        shown = lines[: CELL_LINES - self._shown] if is_cell else lines
        self._shown += len(shown)
        text = "".join(f"{line}\n" for line in shown)
        if len(shown) < len(lines) and not self._is_full:
            self._is_full = True
            text += f"{CELL_IS_FULL}\n"
        if text:
            _write(stream, text)


def _write(stream: TextIO, text: str) -> None:
    """Write a text, with a question mark for each character that the stream cannot show, as Java does."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding))


class BlackholeSink(WriterSink):
    """Drops all records, and counts them."""

    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

    def create_writer(self) -> SinkWriter:
        return _Counter()

    def create_committer(self) -> Committer:
        return _Counter()


class _Counter(SinkWriter, Committer):
    count = 0

    def write(self, values: Any, timestamps: list[int] | None) -> list[Any]:
        self.count += len(values)
        return []

    def prepare_commit(self) -> list[Any]:
        count, self.count = self.count, 0
        return [count] if count else []

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        return sum(map(sum, committables))
